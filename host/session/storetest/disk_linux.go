package storetest

import (
	"syscall"
	"testing"
)

// SmallDisk mounts a disk of the given size ("1m") for one test and gives its root; where that isn't allowed the test is skipped.
func SmallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("mounting a small tmpfs needs root:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
