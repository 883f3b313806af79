package fsys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// entriesRead is how much of a directory is asked for at once, in bytes: about 2,000 entries.
const entriesRead = 64 << 10

// Where an entry's fields are in what the system gives.
const (
	entryInode  = 0
	entryLength = 16
	entryType   = 18
	entryName   = 19
)

// nextEntries visits the next entries of an open directory, until visit returns false. more says that there may be others. os.File.ReadDir
// makes three objects of each.
func nextEntries(d *os.File, buf []byte, visit func(Entry) bool) (more bool, err error) {
	conn, err := d.SyscallConn()
	if err != nil {
		return false, err
	}
	controlErr := conn.Control(func(fd uintptr) {
		var n int
		for n, err = unix.ReadDirent(int(fd), buf); errors.Is(err, unix.EINTR); {
			n, err = unix.ReadDirent(int(fd), buf)
		}
		more = n > 0
		for rest := buf[:max(n, 0)]; len(rest) > entryName; {
			length := binary.NativeEndian.Uint16(rest[entryLength:])
			entry := rest[:length]
			rest = rest[length:]
			name, _, _ := bytes.Cut(entry[entryName:], []byte{0})
			if binary.NativeEndian.Uint64(entry[entryInode:]) == 0 || string(name) == "." || string(name) == ".." {
				continue
			}
			e := Entry{Name: string(name)}
			var there bool
			if e.Kind, there = kindOfEntry(int(fd), entry[entryType], e.Name); there && !visit(e) {
				more = false
				return
			}
		}
	})
	return more, errors.Join(controlErr, err)
}

// kindOfEntry is the kind of the entry called name, which is there no more when there is false. Some file systems don't tell types.
func kindOfEntry(dir int, t byte, name string) (kind Kind, there bool) {
	switch t {
	case unix.DT_REG:
		return File, true
	case unix.DT_DIR:
		return Directory, true
	case unix.DT_LNK:
		return Link, true
	case unix.DT_UNKNOWN:
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return Other, !errors.Is(err, fs.ErrNotExist)
		}
		if t := byte(st.Mode & unix.S_IFMT >> 12); t != unix.DT_UNKNOWN {
			return kindOfEntry(dir, t, name) // types of entries are those of modes
		}
	}
	return Other, true
}
