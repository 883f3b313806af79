package fsys

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKindOfEntry asks for what some file systems leave unsaid.
func TestKindOfEntry(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, err := range []error{os.WriteFile("f", nil, 0o644), os.Mkdir("d", 0o755), os.Symlink("nowhere", "l"), unix.Mkfifo("p", 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for name, want := range map[string]Kind{"f": File, "d": Directory, "l": Link, "p": Other} {
		if kind, there := kindOfEntry(int(d.Fd()), unix.DT_UNKNOWN, name); kind != want || !there {
			t.Errorf("%s: %v, %v", name, kind, there)
		}
	}
	if _, there := kindOfEntry(int(d.Fd()), unix.DT_UNKNOWN, "gone"); there {
		t.Error("gone, and there")
	}
}
