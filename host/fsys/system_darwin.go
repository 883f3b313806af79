package fsys

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// straight is not asked here.
func straight(string) bool { return false }

// present would leave out the names that nothing in dir has.
func present(_ *os.File, names []string) []string { return names }

func changeTime(fi fs.FileInfo) time.Time {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctimespec.Unix())
	}
	return time.Time{}
}

// hasAttributes is not asked here: Finder's attributes are on most files and mean little.
func hasAttributes(*os.File) bool { return false }

// writable isn't answered here for an open file.
func writable(*os.File) error { return errors.ErrUnsupported }
