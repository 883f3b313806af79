package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestWritable asks in both ways. Only an ordinary user can be refused; the suite does that for the first way.
func TestWritable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[string]error{path: nil}
	if os.Getuid() != 0 {
		cases["/etc/passwd"] = fs.ErrPermission
	}
	for name, ask := range map[string]func(*os.File) error{"open file": writable, "name": writableByName} {
		for path, want := range cases {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := ask(f); !errors.Is(err, want) {
				t.Errorf("%s of %s: %v", name, path, err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
