package editor_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody runs do with the file rights of an ordinary user who owns nothing, after root has run prepare. Where the tests aren't root they
// are an ordinary user already, but an owner too, so they can't play this part.
func asNobody(t *testing.T, do, prepare func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to become nobody")
	}
	prepare()
	// The right is the thread's: do must not leave it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(65534); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := unix.SetfsuidRetUid(0); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}
