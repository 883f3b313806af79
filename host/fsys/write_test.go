package fsys

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSame reads a file again that nothing but its bytes tells apart. A kernel with fine clocks never gets here, so it is asked directly.
func TestSame(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 10_000)
	for _, c := range []struct {
		now, old string
		want     error
	}{
		{"", "", nil}, {"abc", "abc", nil}, {"abd", "abc", ErrChanged}, {"ab", "abc", ErrChanged}, {"abcd", "abc", ErrChanged}, {"", "a", ErrChanged},
		{long, long, nil}, {long + "x", long, ErrChanged}, {long, long + "x", ErrChanged}, {long[:len(long)-1] + "x", long, ErrChanged},
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(c.now), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		w := writer{locks: new(Locks), old: []byte(c.old)}
		if err := w.same(f); !errors.Is(err, c.want) {
			t.Errorf("%.10q for %.10q: %v", c.now, c.old, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
