package wire

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string: the shortest escapes, nothing escaped that needn't be, invalid UTF-8 as U+FFFD. It is the one way
// in which text enters a request, so equal texts have equal bytes.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if i = skipPlain(s, i); i == len(s) {
			break
		}
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\ufffd"...)
				i++
				start = i
				continue
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// skipPlain returns the first place at or after i whose byte doesn't stand for itself, or one of the last seven places. It looks at eight bytes at
// a time: long output is most of what a request holds.
func skipPlain(s string, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// The top bit of each byte that is below 0x20, a quote, a backslash, or not ASCII; bytes above the first such may be marked wrongly.
		marked := (w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash | w
		if marked &= tops; marked != 0 {
			return i + bits.TrailingZeros64(marked)/8
		}
	}
	return i
}

// AppendRaw appends JSON text without its white space. Text that isn't JSON becomes null. Keys keep their order, which a model may see.
func AppendRaw(dst []byte, raw json.RawMessage) []byte {
	buf := bytes.NewBuffer(dst)
	if err := json.Compact(buf, raw); err != nil {
		return append(dst, "null"...)
	}
	return buf.Bytes()
}
