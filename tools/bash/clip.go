package bash

import (
	"bytes"
	"unicode/utf8"
)

// clipper keeps at most max characters of a text that may be endless: its beginning, or its beginning and its end.
type clipper struct {
	max      int
	headTail bool

	head      []byte
	headChars int

	// What came after the head. With headTail tail holds the end of it, and the counts tell how much it was.
	tail      []byte
	restChars int
	restLines int
	newline   bool // the rest is one newline and nothing else
}

func newClipper(max int, headTail bool) *clipper { return &clipper{max: max, headTail: headTail} }

func (c *clipper) headMax() int {
	if c.headTail {
		return (c.max + 1) / 2
	}
	return c.max
}

func (c *clipper) tailMax() int { return c.max - c.headMax() }

// full says that more text would change nothing.
func (c *clipper) full() bool { return !c.headTail && c.restChars > 0 && !c.newline }

// write takes the next piece of valid UTF-8; characters are whole.
func (c *clipper) write(p []byte) {
	if room := c.headMax() - c.headChars; room > 0 && c.restChars == 0 {
		n, chars := take(p, room)
		c.head = append(c.head, p[:n]...)
		c.headChars += chars
		p = p[n:]
	}
	if len(p) == 0 {
		return
	}
	c.newline = c.restChars == 0 && len(p) == 1 && p[0] == '\n'
	c.restChars += utf8.RuneCount(p)
	c.restLines += bytes.Count(p, []byte{'\n'})
	if !c.headTail {
		return
	}
	c.tail = append(c.tail, p...)
	if keep := c.tailMax()*utf8.UTFMax + utf8.UTFMax; len(c.tail) > 4*keep+4096 {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-keep:]...)
	}
}

// take is how many bytes and characters of p make at most room characters.
func take(p []byte, room int) (n, chars int) {
	if len(p) <= room && ascii(p) {
		return len(p), len(p)
	}
	for n < len(p) && chars < room {
		_, size := utf8.DecodeRune(p[n:])
		n += size
		chars++
	}
	return n, chars
}

func ascii(p []byte) bool {
	for _, b := range p {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// clipped is what the clipper kept. Left out is nothing when the text fitted, but for one newline at its end, which goes in any case.
type clipped struct {
	head, tail string
	cut        bool
	chars      int // left out, when headTail
	lines      int
}

// result ends the text. The cuts are at line ends where a kept part has one.
func (c *clipper) result() clipped {
	if c.restChars == 0 || c.newline {
		return clipped{head: string(bytes.TrimSuffix(c.head, []byte{'\n'}))}
	}
	head := c.head
	if i := bytes.LastIndexByte(head, '\n'); i >= 0 {
		head = head[:i]
	}
	if !c.headTail {
		return clipped{head: string(head), cut: true}
	}
	tail := c.tail
	ends := tail[len(tail)-1] == '\n'
	if c.restChars <= c.tailMax() || (ends && c.restChars == c.tailMax()+1) {
		// Head and tail meet: nothing is missing.
		return clipped{head: string(bytes.TrimSuffix(append(c.head, tail...), []byte{'\n'}))}
	}
	if over := utf8.RuneCount(tail) - c.tailMax(); over > 0 {
		n, _ := take(tail, over)
		tail = tail[n:]
	}
	tail = bytes.TrimSuffix(tail, []byte{'\n'})
	if i := bytes.IndexByte(tail, '\n'); i >= 0 {
		tail = tail[i+1:]
	}
	all := bytes.Count(c.head, []byte{'\n'}) + c.restLines
	if !ends {
		all++
	}
	return clipped{
		head: string(head), tail: string(tail), cut: true,
		chars: c.headChars + c.restChars - utf8.RuneCount(head) - utf8.RuneCount(tail),
		lines: max(0, all-lines(head)-lines(tail)),
	}
}

// lines counts the lines of a text without a newline at its end.
func lines(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	return bytes.Count(p, []byte{'\n'}) + 1
}

// screen is a sanitizer over a clipper: raw terminal output in, text for the model out.
type screen struct {
	clean sanitizer
	clip  *clipper
}

func newScreen(max int, headTail bool) *screen {
	s := &screen{clip: newClipper(max, headTail)}
	s.clean.out = s.clip.write
	return s
}

// write takes raw output. Once nothing can change the result, the rest isn't looked at.
func (s *screen) write(p []byte) {
	if !s.clip.full() {
		s.clean.write(p)
	}
}

func (s *screen) result() clipped {
	s.clean.close()
	return s.clip.result()
}
