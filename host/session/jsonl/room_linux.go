package jsonl

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate has the file system keep room for n bytes from the offset on, without a change of the file's size.
func allocate(f *os.File, from, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
}
