//go:build linux || darwin

package fsys

import (
	"io/fs"
	"syscall"
)

// Flags that make an open neither wait for a pipe's other end nor follow a last symbolic link.
const carefully = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

func idOf(fi fs.FileInfo, path string) fileID {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fileID{dev: uint64(st.Dev), ino: st.Ino} //nolint:unconvert // the width differs between architectures
	}
	return fileID{path: path}
}

// rename is os.Rename without its look at what is there: nothing is renamed here that could be a directory.
func rename(from, to string) error {
	for {
		if err := syscall.Rename(from, to); err != syscall.EINTR {
			return err
		}
	}
}

func linkCount(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // the width differs between architectures
	}
	return 1
}

func ownerOf(fi fs.FileInfo) (uid, gid int, ok bool) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid), true
	}
	return 0, 0, false
}
