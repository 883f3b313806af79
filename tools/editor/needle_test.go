package editor

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzNeedle finds what bytes.Index finds.
func FuzzNeedle(f *testing.F) {
	for _, c := range [][2]string{
		{"", "a"}, {"a", "a"}, {"ba", "a"}, {"aab", "ab"}, {"aaaaab", "aab"}, {"abc", "abcd"}, {"xyzxyz", "zx"}, {"a\nb\n", "\nb"},
		{strings.Repeat("a", 5000) + "b", "ab"}, {strings.Repeat("ab", 3000), "ba" + strings.Repeat("ab", 40) + "b"}, {strings.Repeat("x", 9000), "xxy"},
	} {
		f.Add([]byte(c[0]), []byte(c[1]))
	}
	f.Fuzz(func(t *testing.T, data, text []byte) {
		if len(text) == 0 {
			return
		}
		n := newNeedle(text, data)
		for from := 0; ; {
			got, want := n.index(data[from:]), bytes.Index(data[from:], text)
			if got != want {
				t.Fatalf("%q in %q from %d: %d, want %d", text, data, from, got, want)
			}
			if want < 0 {
				return
			}
			from += want + 1
		}
	})
}

// TestSkipLines goes by the block where a loop would go by the line.
func TestSkipLines(t *testing.T) {
	for _, text := range []string{"", "a", "a\n", "a\nb", strings.Repeat("line\n", 3000), strings.Repeat("line\n", 3000) + "end", strings.Repeat("x", 10_000) + "\ny\n"} {
		data, want := []byte(text), 0
		for n := range lineCount(data) + 1 {
			if got := skipLines(data, 0, n); got != want {
				t.Fatalf("%d lines of %.10q: %d, want %d", n, text, got, want)
			}
			want = lineEnd(data, want)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	data := []byte(strings.Repeat("    if err != nil {\n        return err\n    }\n", 24_000))
	for name, text := range map[string]string{"rare": "    if err == nil {\n", "common": "    if err != nil {\n            return err\n"} {
		for how, index := range map[string]func() int{
			"needle": func() int { n := newNeedle([]byte(text), data); return n.index(data) },
			"bytes":  func() int { return bytes.Index(data, []byte(text)) },
		} {
			b.Run(name+"/"+how, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if index() >= 0 {
						b.Fatal("it isn't there")
					}
				}
			})
		}
	}
}
