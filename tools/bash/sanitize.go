package bash

import (
	"unicode/utf8"
)

const (
	// lineHold bounds the unfinished line that a carriage return could still replace. What is longer is text, not a progress bar.
	lineHold = 64 << 10
	// escapeParams bounds the parameters of a control sequence; a longer one is no sequence that anybody sends.
	escapeParams = 256
)

// sanitizer turns a terminal's bytes into text: valid UTF-8 without control sequences. It keeps little: an unfinished line, an unfinished
// rune, the state of an escape. Strings of any length inside an escape are dropped as they come.
type sanitizer struct {
	out func([]byte) // gets finished text; must not keep it

	line   []byte // the unfinished line
	back   bool   // a carriage return came: the next character starts the line again
	state  escape
	params int
	rune   [utf8.UTFMax]byte // an unfinished character
	have   int
}

type escape int

const (
	plain        escape = iota
	afterEsc            // ESC
	inCSI               // ESC [
	inString            // ESC ] P X ^ _ : until BEL or ESC \
	inStringEsc         // ESC inside a string
	intermediate        // ESC and a byte of 20..2f: one more follows
)

// write takes the next bytes.
func (s *sanitizer) write(p []byte) {
	for i := 0; i < len(p); {
		if s.state == plain && s.have == 0 {
			// The way of nearly all output: printable ASCII, up to anything else.
			j := i
			for j < len(p) && p[j] >= 0x20 && p[j] < 0x7f {
				j++
			}
			if j > i {
				s.text(p[i:j])
				i = j
				continue
			}
		}
		s.next(p[i])
		i++
	}
}

// close hands on what is left. A character cut in the middle is a broken one.
func (s *sanitizer) close() {
	if s.have > 0 {
		s.broken()
	}
	s.flush()
}

func (s *sanitizer) flush() {
	if len(s.line) > 0 {
		s.out(s.line)
		s.line = s.line[:0]
	}
}

// text appends visible text to the line.
func (s *sanitizer) text(p []byte) {
	if s.back {
		s.back = false
		s.line = s.line[:0]
	}
	s.line = append(s.line, p...)
	if len(s.line) > lineHold {
		s.flush()
	}
}

func (s *sanitizer) broken() {
	s.have = 0
	s.text([]byte("\uFFFD"))
}

func (s *sanitizer) next(b byte) {
	if s.state != plain {
		s.escape(b)
		return
	}
	if s.have > 0 || b >= 0x80 {
		s.wide(b)
		return
	}
	s.control(b)
}

// wide collects the bytes of a character outside ASCII.
func (s *sanitizer) wide(b byte) {
	if b < 0x80 {
		s.broken()
		s.next(b)
		return
	}
	s.rune[s.have] = b
	s.have++
	part := s.rune[:s.have]
	if !utf8.FullRune(part) {
		return
	}
	r, n := utf8.DecodeRune(part)
	if r == utf8.RuneError && n <= 1 {
		// The first byte is broken; those after it may begin something.
		var rest [utf8.UTFMax]byte
		k := copy(rest[:], part[1:])
		s.broken()
		for _, b := range rest[:k] {
			s.wide(b)
		}
		return
	}
	s.have = 0
	if r >= 0x80 && r < 0xa0 { // C1 controls, in UTF-8 never sent on purpose
		s.text([]byte("\uFFFD"))
		return
	}
	var out [utf8.UTFMax]byte
	s.text(out[:utf8.EncodeRune(out[:], r)])
}

func (s *sanitizer) control(b byte) {
	switch b {
	case 0x1b:
		s.state = afterEsc
	case '\n':
		s.back = false
		s.line = append(s.line, '\n')
		s.flush()
	case '\r':
		s.back = true
	case '\b':
		if !s.back && len(s.line) > 0 {
			_, n := utf8.DecodeLastRune(s.line)
			s.line = s.line[:len(s.line)-n]
		}
	case 0x07: // BEL
	case '\t', '\v', '\f':
		s.text([]byte{b})
	case 0x7f:
		s.text([]byte("\u2421"))
	default:
		if b >= 0x20 {
			s.text([]byte{b})
			return
		}
		s.text([]byte(string(rune(0x2400 + int(b))))) // a control picture
	}
}

// escape takes one byte of a control sequence. CAN and SUB abort one, and so does anything that can't belong to it.
func (s *sanitizer) escape(b byte) {
	if b == 0x18 || b == 0x1a {
		s.state = plain
		return
	}
	switch s.state {
	case afterEsc:
		s.begin(b)
	case inCSI:
		s.params++
		switch {
		case b >= 0x40 && b <= 0x7e:
			s.state = plain
		case b == 0x1b:
			s.state = afterEsc
		case b < 0x20 || b > 0x7e || s.params > escapeParams:
			s.state = plain
			s.next(b)
		}
	case inString:
		switch b {
		case 0x07:
			s.state = plain
		case 0x1b:
			s.state = inStringEsc
		}
	case inStringEsc:
		if b == '\\' {
			s.state = plain
			return
		}
		s.state = inString
		if b == 0x1b {
			s.state = inStringEsc
		}
	case intermediate:
		switch {
		case b == 0x1b:
			s.state = afterEsc
		case b >= 0x30 && b <= 0x7e:
			s.state = plain
		case b < 0x20 || b > 0x2f:
			s.state = plain
			s.next(b)
		}
	case plain:
	}
}

// begin takes the byte after ESC.
func (s *sanitizer) begin(b byte) {
	s.params = 0
	switch {
	case b == '[':
		s.state = inCSI
	case b == ']' || b == 'P' || b == 'X' || b == '^' || b == '_':
		s.state = inString
	case b == 0x1b:
	case b >= 0x20 && b <= 0x2f:
		s.state = intermediate
	case b >= 0x30 && b <= 0x7e:
		s.state = plain // two bytes in all
	default:
		s.state = plain
		s.next(b)
	}
}
