package session

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// scan reads compact JSON. The first surprise makes it bad, and then everything it gives is worthless.
type scan struct {
	b     []byte
	i     int
	comma bool // the next member or element needs one before it
	bad   bool
}

func (s *scan) peek() byte {
	if s.bad || s.i >= len(s.b) {
		s.bad = true
		return 0
	}
	return s.b[s.i]
}

func (s *scan) begin(open byte) {
	if s.peek() != open {
		s.bad = true
		return
	}
	s.i++
	s.comma = false
}

// more says whether another member or element follows, and steps over what stands before it.
func (s *scan) more(end byte) bool {
	c := s.peek()
	if s.bad {
		return false
	}
	if c == end {
		s.i++
		s.comma = true
		return false
	}
	if s.comma {
		if c != ',' {
			s.bad = true
			return false
		}
		s.i++
		if s.peek() == end {
			s.bad = true
			return false
		}
	}
	s.comma = true
	return true
}

// key reads a member's name. Names with escapes aren't ours.
func (s *scan) key() []byte {
	if s.peek() != '"' {
		s.bad = true
		return nil
	}
	for k := s.i + 1; k < len(s.b); k++ {
		switch c := s.b[k]; {
		case c == '"':
			name := s.b[s.i+1 : k]
			if s.i = k + 1; s.peek() != ':' {
				s.bad = true
			}
			s.i++
			return name
		case c == '\\' || c < ' ' || c > '~':
			s.bad = true
			return nil
		}
	}
	s.bad = true
	return nil
}

// once makes a repeated member a surprise.
func (s *scan) once(seen *uint32, member int) {
	if *seen&(1<<member) != 0 {
		s.bad = true
	}
	*seen |= 1 << member
}

func (s *scan) bool() bool {
	rest := s.b[min(s.i, len(s.b)):]
	switch {
	case len(rest) >= 4 && string(rest[:4]) == "true":
		s.i += 4
		return true
	case len(rest) >= 5 && string(rest[:5]) == "false":
		s.i += 5
		return false
	}
	s.bad = true
	return false
}

func (s *scan) int64() int64 {
	negative := s.peek() == '-'
	if negative {
		s.i++
	}
	var n int64
	first := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		n = n*10 + int64(s.b[s.i]-'0')
		s.i++
	}
	digits := s.i - first
	if digits == 0 || digits > 18 || digits > 1 && s.b[first] == '0' {
		s.bad = true
	}
	if s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.bad = true
	}
	if negative {
		n = -n
	}
	return n
}

func (s *scan) int() int { return int(s.int64()) }

// span gives the bytes between the quotes of a string, and whether they hold escapes.
func (s *scan) span() (raw []byte, escapes bool) {
	if s.peek() != '"' {
		s.bad = true
		return nil, false
	}
	start := s.i + 1
	ascii := true
	for k := start; k < len(s.b); k++ {
		if k += plain(s.b[k:]); k == len(s.b) {
			break
		}
		switch c := s.b[k]; {
		case c == '"':
			s.i = k + 1
			raw = s.b[start:k]
			if !ascii && !utf8.Valid(raw) {
				s.bad = true
			}
			return raw, escapes
		case c == '\\':
			escapes = true
			k++
		case c < ' ':
			s.bad = true
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.bad = true
	return nil, false
}

// plain counts the bytes that b begins with and that stand for themselves in a string: printable ASCII other than the quote and the
// backslash. It looks at eight at a time and leaves a rest shorter than that uncounted.
func plain[T string | []byte](b T) (n int) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(b)-n >= 8; n += 8 {
		c := b[n : n+8]
		x := uint64(c[0]) | uint64(c[1])<<8 | uint64(c[2])<<16 | uint64(c[3])<<24 | uint64(c[4])<<32 | uint64(c[5])<<40 | uint64(c[6])<<48 | uint64(c[7])<<56
		quote, backslash := x^ones*'"', x^ones*'\\'
		// The top bit of each byte below ' ', of quotes, of backslashes and of what isn't ASCII. A carry may set it for other bytes too, but only
		// after the first of these.
		special := ((x-ones*' ')&^x | (quote-ones)&^quote | (backslash-ones)&^backslash | x) & tops
		if special != 0 {
			return n + bits.TrailingZeros64(special)/8
		}
	}
	return n
}

func (s *scan) string() string {
	raw, escapes := s.span()
	if !escapes {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			end := bytes.IndexByte(raw[i:], '\\')
			if end < 0 {
				end = len(raw) - i
			}
			out = append(out, raw[i:i+end]...)
			i += end
			continue
		}
		i++
		switch raw[i] {
		case '"', '\\', '/':
			out = append(out, raw[i])
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			r, size := escaped(raw[i-1:])
			if size == 0 {
				s.bad = true
				return ""
			}
			out = utf8.AppendRune(out, r)
			i += size - 2
		default:
			s.bad = true
			return ""
		}
		i++
	}
	return string(out)
}

// escaped reads \uXXXX, or two of them for a surrogate pair, at the start of b; size is 0 when it can't. A lone surrogate becomes U+FFFD.
func escaped(b []byte) (r rune, size int) {
	r, ok := hex4(b)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) >= 12 {
		if low, ok := hex4(b[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
	}
	return utf8.RuneError, 6
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// raw takes a value as it is.
func (s *scan) raw() json.RawMessage {
	start, depth := s.i, 0
	for !s.bad {
		switch s.peek() {
		case '"':
			s.span()
		case '{', '[':
			depth++
			s.i++
		case '}', ']':
			if depth == 0 {
				s.bad = true
				return nil
			}
			depth--
			s.i++
		default:
			s.i++
		}
		if depth == 0 && s.i < len(s.b) && (s.b[s.i] == ',' || s.b[s.i] == '}' || s.b[s.i] == ']') {
			value := s.b[start:s.i]
			if !json.Valid(value) || string(value) == "null" {
				s.bad = true
			}
			return append(json.RawMessage(nil), value...)
		}
	}
	return nil
}
