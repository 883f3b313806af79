package editor

import (
	"strings"
	"testing"

	"github.com/aymanbagabas/go-udiff"
)

// FuzzLineEdits makes the diffs that a search would make, apart from which of several equal lines came or went.
func FuzzLineEdits(f *testing.F) {
	for _, c := range [][2]string{
		{"", "a\n"}, {"a\n", ""}, {"a", "a\n"}, {"a\n", "a"}, {"a\nb\nc\n", "a\nx\nc\n"}, {"a\nb\n", "a\nx\nb\n"}, {"abc", "x\nabc"}, {"x\nabc", "abc"},
		{"a\nb\nc", "a\nc"}, {"x\n", "a\nx\nb\n"}, {"a\na\na\n", "a\na\n"}, {"a\nbc\n", "a\nb\nbc\n"}, {"a\nb\nc\nd\ne\n", "a\nB\nc\nD\ne\n"}, {"a\nb", "a\nc"}, {"é\n", "è\n"},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		edits := lineEdits(before, after)
		got, err := udiff.ToUnifiedDiff("a", "b", before, edits, 3)
		if err != nil {
			t.Fatalf("%q to %q: %v", before, after, err)
		}
		if back, err := udiff.Apply(before, edits); err != nil || back != after {
			t.Fatalf("%q to %q: %q, %v", before, after, back, err)
		}
		want, err := udiff.ToUnifiedDiff("a", "b", before, udiff.Lines(before, after), 3)
		if err != nil {
			t.Fatal(err)
		}
		count := func(d udiff.UnifiedDiff) (added, removed int) {
			for _, l := range strings.Split(d.String(), "\n") {
				switch {
				case strings.HasPrefix(l, "+"):
					added++
				case strings.HasPrefix(l, "-"):
					removed++
				}
			}
			return added, removed
		}
		gotAdded, gotRemoved := count(got)
		if wantAdded, wantRemoved := count(want); gotAdded > wantAdded || gotRemoved > wantRemoved {
			t.Errorf("%q to %q:\n%s\ninstead of\n%s", before, after, got, want)
		}
	})
}
