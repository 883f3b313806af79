package editor

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// maxListed is how many places of an ambiguous text are named.
const maxListed = 50

// splice replaces cut bytes at off by text.
type splice struct {
	off, cut int
	text     []byte
}

func (s splice) apply(data []byte) []byte {
	return slices.Concat(data[:s.off], s.text, data[s.off+s.cut:])
}

// around is what of data stays: before and behind the cut.
func (s splice) around(data []byte) (head, tail []byte) {
	return data[:s.off], data[s.off+s.cut:]
}

// inverse is the splice that undoes s on s.apply(data).
func (s splice) inverse(data []byte) splice {
	return splice{off: s.off, cut: len(s.text), text: bytes.Clone(data[s.off : s.off+s.cut])}
}

// span is where a text was found.
type span struct{ start, end int }

// match finds the one place of old in data and says what to put there. Line breaks match exactly, or else LF like CRLF; the new
// text then gets the line endings of the lines it replaces.
func match(path string, data []byte, old, text string) (splice, error) {
	exact := true
	spans := find(data, []byte(old))
	if len(spans) == 0 || slices.ContainsFunc(spans, func(s span) bool { return splitsCRLF(data, s) }) {
		exact = false
		spans = findLoosely(data, old)
	}
	switch {
	case len(spans) == 0:
		return splice{}, refuseNoMatch(path, data, old)
	case len(spans) > 1:
		return splice{}, refuseAmbiguous(path, data, spans)
	}
	at := spans[0]
	if !utf8.Valid(data[at.start:at.end]) {
		return splice{}, refuseUndecodable(path, lineAt(data, at.start))
	}
	s := splice{off: at.start, cut: at.end - at.start, text: []byte(text)}
	switch {
	case !exact:
		s.text = withEndings(toLF(text), endings(data, at))
	case !strings.Contains(old, "\n") && strings.Contains(text, "\n") && endingAround(data, at.end) == "\r\n":
		s.text = withEndings(toLF(text), []string{"\r\n"})
	}
	if bytes.Equal(s.text, data[at.start:at.end]) {
		return splice{}, refuse(NoChange, "The replacement leaves %s as it is, so nothing was written.", path)
	}
	return s, nil
}

// find gives the places of old in data, overlapping ones too, at most one more than can be listed.
func find(data, old []byte) []span {
	var spans []span
	n := newNeedle(old, data)
	for from := 0; len(spans) <= maxListed; {
		i := n.index(data[from:])
		if i < 0 {
			break
		}
		spans = append(spans, span{from + i, from + i + len(old)})
		from += i + 1
	}
	return spans
}

// splitsCRLF says that a span begins between a CR and its LF: the CR would be left over.
func splitsCRLF(data []byte, s span) bool {
	return s.start > 0 && data[s.start] == '\n' && data[s.start-1] == '\r'
}

// findLoosely is find with CRLF like LF on both sides.
func findLoosely(data []byte, old string) []span {
	if !strings.Contains(old, "\n") || !bytes.Contains(data, []byte("\r\n")) && !strings.Contains(old, "\r\n") {
		return nil
	}
	// returns holds, for each CR that is taken out, where its LF is in the result.
	var returns []int
	lf := make([]byte, 0, len(data))
	for rest := data; ; {
		i := bytes.Index(rest, []byte("\r\n"))
		if i < 0 {
			lf = append(lf, rest...)
			break
		}
		lf = append(lf, rest[:i]...)
		returns = append(returns, len(lf))
		rest = rest[i+1:]
		lf = append(lf, '\n')
		rest = rest[1:]
	}
	original := func(offset int) int { return offset + sort.SearchInts(returns, offset) }
	spans := find(lf, []byte(toLF(old)))
	for i, s := range spans {
		spans[i] = span{original(s.start), original(s.end)}
	}
	return spans
}

// endings are the line endings inside a span; at least one.
func endings(data []byte, at span) []string {
	var found []string
	for i := at.start; i < at.end; i++ {
		if data[i] != '\n' {
			continue
		}
		if i > at.start && data[i-1] == '\r' {
			found = append(found, "\r\n")
		} else {
			found = append(found, "\n")
		}
	}
	if len(found) == 0 {
		found = append(found, endingAround(data, at.end))
	}
	return found
}

// endingAround is the ending of the line that offset lies in; of the line before when it has none.
func endingAround(data []byte, offset int) string {
	end := bytes.IndexByte(data[offset:], '\n')
	if end >= 0 {
		end += offset
	} else if end = bytes.LastIndexByte(data[:offset], '\n'); end < 0 {
		return "\n"
	}
	if end > 0 && data[end-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// withEndings gives the i-th LF of text the i-th ending; the last ending serves for the rest.
func withEndings(text string, endings []string) []byte {
	out := make([]byte, 0, len(text)+strings.Count(text, "\n"))
	n := 0
	for i := range len(text) {
		if text[i] != '\n' {
			out = append(out, text[i])
			continue
		}
		out = append(out, endings[min(n, len(endings)-1)]...)
		n++
	}
	return out
}

func refuseAmbiguous(path string, data []byte, spans []span) *Refusal {
	more := ""
	if len(spans) > maxListed {
		spans, more = spans[:maxListed], " and more"
	}
	var b strings.Builder
	n, from := 1, 0
	for i, s := range spans {
		n += bytes.Count(data[from:s.start], []byte{'\n'})
		from = s.start
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	return refuse(ManyMatches, "`old_str` occurs more than once in %s, starting on lines %s%s. Nothing was written. Give more of the text around the one you mean.", path, b.String(), more)
}

func refuseUndecodable(path string, line int) *Refusal {
	return refuse(Undecodable, "The text to replace, on line %d of %s, contains bytes that are not UTF-8, so it cannot be replaced here. Nothing was written. Use bash.", line, path)
}
