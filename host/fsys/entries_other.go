//go:build !linux

package fsys

import (
	"io"
	"os"
)

// entriesRead is unused here: the standard library has a buffer of its own.
const entriesRead = 0

// nextEntries visits the next entries of an open directory, until visit returns false. more says that there may be others.
func nextEntries(d *os.File, _ []byte, visit func(Entry) bool) (more bool, err error) {
	entries, err := d.ReadDir(1024)
	for _, e := range entries {
		if !visit(Entry{Name: e.Name(), Kind: kindOf(e.Type())}) {
			return false, nil
		}
	}
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}
