package bash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func clean(in string, cut func() int) string {
	var out []byte
	s := sanitizer{out: func(p []byte) { out = append(out, p...) }}
	for b := []byte(in); len(b) > 0; {
		n := min(max(1, cut()), len(b))
		s.write(b[:n])
		b = b[n:]
	}
	s.close()
	return string(out)
}

func TestSanitizer(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain\n":                      "plain\n",
		"\ttabs and  blanks ":          "\ttabs and  blanks ",
		"a\r\nb\r\n":                   "a\nb\n",
		"a\r\r\nb":                     "a\nb",
		"10%\r20%\r100%\n":             "100%\n",
		"10%\r20%\r":                   "20%",
		"10%\r\x1b[Kdone\n":            "done\n",
		"ab\b\bxy\n":                   "xy\n",
		"é\bx\n":                       "x\n",
		"\bx\n":                        "x\n",
		"\x1b[31mred\x1b[0m":           "red",
		"\x1b]0;title\x07x":            "x",
		"\x1b]0;title\x1b\\x":          "x",
		"\x1bPdcs\x1b\\x":              "x",
		"\x1b_apc\x1b\\x\x1b^pm\x1b\\": "x",
		"\x1b(Bx\x1b=\x1b>\x1b7\x1b8y": "xy",
		"\x1b[38;2;1;2;3mx":            "x",
		"\x1b[1\x1b[2mx":               "x",
		"\x1b[3\nx":                    "\nx",
		"\x1b]0;never closed":          "",
		"\x1b]0;\x1b\x1b\\x":           "x",
		"\x1b]0;abc\x18x":              "x",
		"a\x00b":                       "a\u2400b",
		"\x01\x1f\x7f":                 "\u2401\u241f\u2421",
		"\x07":                         "",
		"\xff":                         "\uFFFD",
		"\xe2\x82":                     "\uFFFD",
		"\xe2\x82x":                    "\uFFFDx",
		"\xf0\x9f\x99\x82":             "🙂",
		"\xed\xa0\x80":                 "\uFFFD\uFFFD\uFFFD",
		"\xc2\x9b31m":                  "\uFFFD31m",
		"\xe2\xe2\x82\xac":             "\uFFFD€",
		"\xe2\x1b[0m\x82":              "\uFFFD\uFFFD",
	} {
		for size := 1; size < 8; size++ {
			if got := clean(in, func() int { return size }); got != want {
				t.Errorf("%q by %d: %q, want %q", in, size, got, want)
			}
		}
	}
	// A parameter list without end is no escape for ever.
	if got := clean("\x1b["+strings.Repeat("1;", 300)+"text", func() int { return 50 }); !strings.HasSuffix(got, "text") {
		t.Errorf("%q", got)
	}
}

// FuzzSanitizer: however the bytes come, the text is the same, valid, free of control characters, and the state stays small.
func FuzzSanitizer(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\r\nc\xffd\bé"), uint64(3))
	f.Add([]byte("\x1b]0;x\x1b\\\xe2\x82\xac\r"), uint64(9))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		whole := clean(string(in), func() int { return len(in) })
		if torn := clean(string(in), func() int { return rnd.IntN(5) }); torn != whole {
			t.Errorf("%q: %q, torn %q", in, whole, torn)
		}
		if !utf8.ValidString(whole) {
			t.Errorf("%q: invalid %q", in, whole)
		}
		for _, r := range whole {
			if r < 0x20 && !strings.ContainsRune("\n\t\v\f", r) || r >= 0x7f && r < 0xa0 {
				t.Errorf("%q: control %q", in, r)
			}
		}
	})
}

// TestSanitizerBounded: lines and escapes without end are held in bounded memory.
func TestSanitizerBounded(t *testing.T) {
	n := 0
	s := sanitizer{out: func(p []byte) { n += len(p) }}
	chunk := bytes.Repeat([]byte{'x'}, 10_000)
	for range 200 {
		s.write(chunk)
	}
	s.write([]byte("\x1b]"))
	for range 200 {
		s.write(chunk)
	}
	s.close()
	if n != 2_000_000 || cap(s.line) > 4*lineHold {
		t.Errorf("%d bytes, a line of %d", n, cap(s.line))
	}
}

func TestClipper(t *testing.T) {
	feed := func(max int, headTail bool, text string) clipped {
		c := newClipper(max, headTail)
		for len(text) > 0 {
			_, n := utf8.DecodeRuneInString(text)
			c.write([]byte(text[:n]))
			text = text[n:]
		}
		return c.result()
	}
	for _, c := range []struct {
		max      int
		headTail bool
		in       string
		want     clipped
	}{
		{10, false, "", clipped{}},
		{10, false, "abc\n", clipped{head: "abc"}},
		{10, false, "abc\n\n", clipped{head: "abc\n"}},
		{4, false, "abcd", clipped{head: "abcd"}},
		{4, false, "abcd\n", clipped{head: "abcd"}},
		{4, false, "abcd\n\n", clipped{head: "abcd", cut: true}},
		{4, false, "abcde", clipped{head: "abcd", cut: true}},
		{4, false, "ab\ncd\n", clipped{head: "ab", cut: true}},
		{4, false, "éééé\n", clipped{head: "éééé"}},
		{4, false, "ééééé", clipped{head: "éééé", cut: true}},
		{4, true, "abcd", clipped{head: "abcd"}},
		{4, true, "abcd\n", clipped{head: "abcd"}},
		{4, true, "abcdef", clipped{head: "ab", tail: "ef", cut: true, chars: 2}},
		{4, true, "🙂🙂🙂🙂🙂🙂", clipped{head: "🙂🙂", tail: "🙂🙂", cut: true, chars: 2}},
		{8, true, "a\nb\nc\nd\ne\nf\n", clipped{head: "a\nb", tail: "f", cut: true, chars: 8, lines: 3}},
	} {
		if got := feed(c.max, c.headTail, c.in); got != c.want {
			t.Errorf("%d %v %q: %+v, want %+v", c.max, c.headTail, c.in, got, c.want)
		}
	}
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&b, i)
	}
	got := feed(16000, true, b.String())
	if n := utf8.RuneCountInString(got.head) + utf8.RuneCountInString(got.tail); n > 16000 || n < 15900 || got.chars != b.Len()-n {
		t.Errorf("%d kept, %d left out of %d", n, got.chars, b.Len())
	}
}

func TestNotices(t *testing.T) {
	n := parseNotices(noticesText)
	for _, name := range []string{
		"clipped", "left out", "exit code", "shell exited", "shell killed", "replaced", "lost", "next fresh", "next restored", "timed out, kept",
		"timed out, reset", "cancelled, kept", "cancelled, reset", "waited, kept", "waited, reset", "prompt", "continued", "person", "resumed",
		"died between", "died between, restored", "directory gone", "restarted", "idle", "idle cut", "idle end", "blank", "nul", "closed", "failed", "queue",
	} {
		if n[name] == "" {
			t.Errorf("no text for %q", name)
		}
		delete(n, name)
	}
	if len(n) > 0 {
		t.Errorf("unused: %v", n)
	}
	if got := parseNotices("# x\n\n## a\nb {{c}} {{d}}\n").text("a", "c", "{{d}}", "d", 1); got != "b {{d}} 1" {
		t.Errorf("%q", got)
	}
}

func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Clip: "x", Stdin: "y", AfterTimeout: "z", Restore: "w", Env: map[string]string{"A=": "1", "B": "\x00"}, PassEnv: []string{"1"}}
	err := bad.Validate()
	for _, key := range []string{"timeout", "maxOutputChars", "clip", "stdin", "afterTimeout", "restore", "description", `"A="`, "value of B", "passEnv"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("no word of %s: %v", key, err)
		}
	}
	var d Duration
	if err := d.UnmarshalText([]byte("1m30s")); err != nil || time.Duration(d) != 90*time.Second {
		t.Errorf("%v %v", d, err)
	}
	if err := d.UnmarshalText([]byte("300")); err == nil {
		t.Error("300 of what?")
	}
}

func BenchmarkScreen(b *testing.B) {
	for name, text := range map[string]string{
		"text":  strings.Repeat("a line of ordinary output, eighty characters or so, as compilers print them\n", 1000),
		"color": strings.Repeat("\x1b[32mok\x1b[0m some test passed in 0.01s ✓\n", 1000),
	} {
		for _, headTail := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/headTail=%v", name, headTail), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					s := newScreen(16000, headTail)
					s.write([]byte(text))
					s.result()
				}
			})
		}
	}
}
