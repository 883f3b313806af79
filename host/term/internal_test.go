//go:build linux || darwin

package term

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// TestFIFO: the slot goes to who waits longest, and passes over who gave up.
func TestFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := New(Options{Dir: "/"})
		if err := ts.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		impatient, cancel := context.WithCancel(t.Context())
		for i := range 5 {
			ctx := t.Context()
			if i == 2 {
				ctx = impatient
			}
			go func() { // joined by synctest
				if ts.lock(ctx) == nil {
					order = append(order, i)
					ts.unlock()
				}
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		ts.unlock()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 3, 4}) {
			t.Errorf("%v", order)
		}
	})
}

// TestFreeWhenTold: once State says that nobody runs or holds anything, the slot can be taken.
func TestFreeWhenTold(t *testing.T) {
	ts := New(Options{Dir: "/"})
	for range 2000 {
		if err := ts.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { // joined by done
			defer close(done)
			ts.unlock()
		}()
		for n := 1; ts.State().Running; n++ {
			if n%1000 == 0 { // the looks are to be dense, but there may be one processor only
				runtime.Gosched()
			}
		}
		select {
		case ts.slot <- struct{}{}:
			<-ts.slot
		default:
			t.Fatal("the slot is taken")
		}
		<-done
	}
}

func TestRing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := ring{limit: 3 * pieceSize}
	var all []byte
	for range 2000 {
		p := make([]byte, rnd.IntN(3000))
		if rnd.IntN(50) == 0 {
			p = make([]byte, rnd.IntN(5*pieceSize))
		}
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		r.write(p)
		all = append(all, p...)
		if r.end != int64(len(all)) || r.end-r.start > int64(r.limit+pieceSize) {
			t.Fatalf("%d to %d of %d", r.start, r.end, len(all))
		}
		if kept := min(len(all), r.limit); r.end-r.start < int64(kept) {
			t.Fatalf("only %d of %d bytes kept", r.end-r.start, kept)
		}
		from := rnd.Int64N(r.end + 2)
		buf := make([]byte, rnd.IntN(2*pieceSize))
		n, at := r.readAt(from, buf)
		if at < from && at != r.end || !bytes.Equal(buf[:n], all[at:at+int64(n)]) {
			t.Fatalf("%d bytes at %d, asked %d", n, at, from)
		}
		if n < len(buf) && at+int64(n) != r.end {
			t.Fatalf("read stopped at %d of %d", at+int64(n), r.end)
		}
	}
	r.resize(pieceSize)
	if r.end-r.start > 2*pieceSize {
		t.Errorf("%d bytes kept", r.end-r.start)
	}
}

// collect runs input through a filter in pieces of the given sizes.
func collect(nonce string, input []byte, cut func() int) (text []byte, fences string) {
	var f filter
	f.begin(nonce)
	for len(input) > 0 {
		n := min(max(cut(), 1), len(input))
		f.feed(append([]byte(nil), input[:n]...), func(p []byte) { text = append(text, p...) }, func(k byte) { fences += string(k) })
		input = input[n:]
	}
	f.flush(func(p []byte) { text = append(text, p...) })
	return text, fences
}

func fence(nonce string, kind byte) string { return "\x1e" + nonce + string(kind) + "\x1e" }

func TestFilter(t *testing.T) {
	const nonce, other = "0123456789abcdef", "fedcba9876543210"
	for _, c := range []struct{ name, in, text, fences string }{
		{"plain", "hello", "hello", ""},
		{"fences", fence(nonce, 'S') + "out" + fence(nonce, 'E') + fence(nonce, 'F'), "out", "SEF"},
		{"foreign", fence(other, 'S') + "x", fence(other, 'S') + "x", ""},
		{"marks", "\x1e\x1ea\x1e", "\x1e\x1ea\x1e", ""},
		{"broken", "\x1e" + nonce + "S!", "", ""}, // a nonce outside a fence is the driver's own text
		{"no newline before", "abc" + fence(nonce, 'E'), "abc", "E"},
		{"echoed line", "a\n\\builtin echo B" + nonce + " more\nb\n", "a\nb\n", ""},
	} {
		for size := 1; size < 40; size++ {
			if c.name == "echoed line" && size < 40 {
				continue // the shell writes such a line at once; torn, its beginning would show
			}
			text, fences := collect(nonce, []byte(c.in), func() int { return size })
			if (c.name != "broken" && string(text) != c.text) || fences != c.fences {
				t.Errorf("%s by %d: %q %q", c.name, size, text, fences)
			}
		}
		if text, fences := collect(nonce, []byte(c.in), func() int { return len(c.in) }); (c.name != "broken" && string(text) != c.text) || fences != c.fences {
			t.Errorf("%s: %q %q", c.name, text, fences)
		}
	}
}

// FuzzFilter: however output with fences in it is torn, the text comes out as it was and the fences in order.
func FuzzFilter(f *testing.F) {
	f.Add([]byte("hello\x1eworld"), []byte("more"), uint64(1))
	f.Add([]byte("\x1e\x1e0123"), []byte{0x1e}, uint64(7))
	const nonce = "0123456789abcdef"
	f.Fuzz(func(t *testing.T, a, b []byte, seed uint64) {
		if bytes.Contains(a, []byte(nonce)) || bytes.Contains(b, []byte(nonce)) {
			return
		}
		in := slices.Concat([]byte(fence(nonce, 'S')), a, []byte(fence(nonce, 'E')), b, []byte(fence(nonce, 'F')))
		rnd := rand.New(rand.NewPCG(seed, 0))
		text, fences := collect(nonce, in, func() int { return rnd.IntN(30) })
		if !bytes.Equal(text, slices.Concat(a, b)) || fences != "SEF" {
			t.Errorf("%q %q: %q %q", a, b, text, fences)
		}
	})
}

// FuzzQuote: bash reads a quoted text as the text, byte for byte.
func FuzzQuote(f *testing.F) {
	f.Add("plain")
	f.Add("it's \\ \n \t $x `y` \"z\" !")
	f.Add("\x01\x7f\xff\xc3'\\'")
	f.Add("\\n\\'\\\\'")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			return
		}
		line := string(appendQuoted(nil, s))
		if strings.Contains(line, "\n") {
			t.Errorf("a line break in %q", line)
		}
		got, err := exec.Command("/bin/bash", "--norc", "-c", `printf %s $'`+line+`'`).Output()
		if err != nil || string(got) != s {
			t.Errorf("%q came back as %q, %v", s, got, err)
		}
	})
}

func TestReports(t *testing.T) {
	const n = "0123456789abcdef"
	trap := "trap -- 'echo D\nE' DEBUG"
	dump := "declare -x A=\"1\nC" + n[:8] + "\"\n"
	b := []byte("junkA" + n + " 7 himBs 123\n" + trap + "\nA" + n + ".\nnoise\nB" + n + " 0 himBxs \nB" + n + ".\n" + dump + "C" + n + "\n")
	if r, ok := findReport(b, 'A', n); !ok || r != (report{7, "himBs", "123", trap}) {
		t.Errorf("%+v", r)
	}
	if r, ok := findReport(b, 'B', n); !ok || r != (report{0, "himBxs", "", ""}) {
		t.Errorf("%+v", r)
	}
	if d, rest, ok := findDump(append(b, "rest"...), n); !ok || string(d) != dump || string(rest) != "rest" {
		t.Errorf("%q", d)
	}
	if d, _, ok := findDump([]byte("B"+n+" 0 h \nB"+n+".\ndeclare\nB"+n+" 0 h \nB"+n+".\nx\nC"+n+"\n"), n); !ok || string(d) != "x\n" {
		t.Errorf("%q", d)
	}
	for i := range b {
		if _, _, ok := findDump(b[:i], n); ok {
			t.Errorf("a report in %q", b[:i])
		}
	}
}

func TestExportedNames(t *testing.T) {
	got := exportedNames("declare -x A=\"1\nx\"\ndeclare -rx B\nexport C=3\nnothing\n")
	if !slices.Equal(got, []string{"A", "B", "C"}) {
		t.Errorf("%q", got)
	}
}
