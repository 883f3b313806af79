package fsys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// straight says that path leads somewhere without a symbolic link. It says no where the system can't be asked at once.
func straight(path string) bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return false
	}
	_ = unix.Close(fd) // nothing was opened by it
	return true
}

// present leaves out the names that nothing in dir has. It asks the system and nothing else, as most of them aren't there.
func present(dir *os.File, names []string) []string {
	conn, err := dir.SyscallConn()
	if err != nil {
		return names
	}
	var there []string
	err = conn.Control(func(fd uintptr) {
		for _, name := range names {
			var st unix.Stat_t
			if err := unix.Fstatat(int(fd), name, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
				there = append(there, name)
			}
		}
	})
	if err != nil { // closed
		return names
	}
	return there
}

func changeTime(fi fs.FileInfo) time.Time {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return time.Time{}
}

// hasAttributes reports attributes that a new file at the same place would not have: access lists, capabilities. Labels that the system
// gives by place do not count.
func hasAttributes(f *os.File) bool {
	var names [256]byte
	n, err := unix.Flistxattr(int(f.Fd()), names[:])
	if err != nil {
		return err == unix.ERANGE
	}
	for list := names[:n]; len(list) > 0; {
		name := unix.ByteSliceToString(list)
		if name != "security.selinux" {
			return true
		}
		list = list[len(name)+1:]
	}
	return false
}

// writable asks for the right to write the open file without using it.
func writable(f *os.File) error {
	err := unix.Faccessat2(int(f.Fd()), "", unix.W_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
	if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return err
	}
	// An older kernel, or a filter of system calls that doesn't know the call.
	return writableByName(f)
}

// writableByName is writable for the real user, through the open file's name under /proc.
func writableByName(f *os.File) error {
	err := unix.Faccessat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.W_OK, 0)
	if errors.Is(err, unix.ENOENT) {
		return errors.ErrUnsupported
	}
	return err
}
