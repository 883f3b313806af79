package editor

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// sniffed is how much of a file says what it is, in bytes.
const sniffed = 8 << 10

// bom is the byte order mark of UTF-8, which is hidden in views and kept in files.
const bom = "\xef\xbb\xbf"

// imageType is the media type of an image by its first bytes, empty for anything else.
func imageType(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case len(head) >= 12 && bytes.HasPrefix(head, []byte("RIFF")) && bytes.Equal(head[8:12], []byte("WEBP")):
		return "image/webp"
	}
	return ""
}

// checkText refuses a file that isn't text in an encoding that keeps ASCII, by its first bytes.
func checkText(path string, head []byte) error {
	head = head[:min(len(head), sniffed)]
	if wide := wideEncoding(head); wide != "" {
		return refuse(Encoding, "%s is encoded in %s, which this tool does not edit or show. Convert it to UTF-8 first, for example with iconv.", path, wide)
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return refuse(Binary, "%s is a binary file, not text.", path)
	}
	return nil
}

// wideEncoding names an encoding of two or four bytes per character, by its mark, or by zeros in every other byte.
func wideEncoding(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")):
		return "UTF-32 (little endian)"
	case bytes.HasPrefix(head, []byte("\x00\x00\xfe\xff")):
		return "UTF-32 (big endian)"
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		return "UTF-16 (little endian)"
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return "UTF-16 (big endian)"
	}
	if bytes.IndexByte(head, 0) < 0 {
		return ""
	}
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	switch half := len(head) / 2; {
	case half < 4:
	case zeros[0] == 0 && zeros[1] > half*3/4:
		return "UTF-16 (little endian)"
	case zeros[1] == 0 && zeros[0] > half*3/4:
		return "UTF-16 (big endian)"
	}
	return ""
}

// decode gives the first limit characters of a line. Each byte that isn't UTF-8 becomes U+FFFD.
func decode(line []byte, limit int) (s string, invalid bool) {
	if len(line) <= limit && utf8.Valid(line) {
		return string(line), false
	}
	end, n := 0, 0
	for n < limit && end < len(line) {
		r, size := utf8.DecodeRune(line[end:])
		invalid = invalid || r == utf8.RuneError && size == 1
		end += size
		n++
	}
	if !invalid {
		return string(line[:end]), false
	}
	var b strings.Builder
	for _, r := range string(line[:end]) { // ranging gives U+FFFD for each bad byte
		b.WriteRune(r)
	}
	return b.String(), true
}

// countStarts counts characters in a piece of a text, however it was cut: bytes that don't continue a character.
func countStarts(piece []byte) int {
	n := 0
	for _, b := range piece {
		if b&0xc0 != 0x80 {
			n++
		}
	}
	return n
}

// lineBreaks counts the LFs in data.
func lineBreaks(data []byte) int { return bytes.Count(data, []byte{'\n'}) }

// lastByte is the last byte of the pieces taken together; 0 when they are empty.
func lastByte(pieces ...[]byte) byte {
	for _, p := range slices.Backward(pieces) {
		if len(p) > 0 {
			return p[len(p)-1]
		}
	}
	return 0
}

// skipLines is the offset n lines behind off, which begins one.
func skipLines(data []byte, off, n int) int {
	for n > 0 {
		block := data[off:min(off+4<<10, len(data))]
		breaks := lineBreaks(block)
		if breaks < n {
			if off += len(block); off == len(data) { // the last line has no end
				return off
			}
			n -= breaks
			continue
		}
		for ; n > 0; n-- {
			off = lineEnd(data, off)
		}
	}
	return off
}

// lineCount is how many lines data has; what follows the last line break counts when there is something.
func lineCount(data []byte) int {
	n := lineBreaks(data)
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

// lineAt is the 1-based line that offset lies in.
func lineAt(data []byte, offset int) int { return bytes.Count(data[:offset], []byte{'\n'}) + 1 }

// lineStart is the offset where the line around offset begins.
func lineStart(data []byte, offset int) int { return bytes.LastIndexByte(data[:offset], '\n') + 1 }

// lineEnd is the offset behind the line around offset, its break included.
func lineEnd(data []byte, offset int) int {
	if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
		return offset + i + 1
	}
	return len(data)
}

// dominant is the line ending that most lines have; empty when there is none.
func dominant(data []byte) string {
	all, crlf := bytes.Count(data, []byte{'\n'}), bytes.Count(data, []byte("\r\n"))
	switch {
	case all == 0:
		return ""
	case crlf*2 > all:
		return "\r\n"
	default:
		return "\n"
	}
}

// toLF replaces each CRLF by LF.
func toLF(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// grouped writes n with commas between thousands.
func grouped(n int) string {
	s := []byte{}
	for digits := 0; n > 0 || digits == 0; digits++ {
		if digits > 0 && digits%3 == 0 {
			s = append(s, ',')
		}
		s = append(s, byte('0'+n%10))
		n /= 10
	}
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
	return string(s)
}
