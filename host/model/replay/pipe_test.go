//go:build unix

package replay_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-web/dsh-web/host/model/replay"
)

// Opening a pipe would wait for its writer, which may never come.
func TestOnlyRegularFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var l replay.Library
	for _, path := range []string{pipe, os.DevNull, t.TempDir()} {
		if _, err := l.Open(path); err == nil || !strings.Contains(err.Error(), "regular") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
