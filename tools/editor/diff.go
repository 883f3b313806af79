package editor

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

const (
	diffContext = 3         // lines
	maxDiffed   = 256 << 10 // bytes, both sides together
)

// diff describes a change for a UI. above is how many line breaks are before the splice. Only the lines around the splice are looked at, so
// its cost is that of the change, not of the file.
func (m *Meta) diff(before []byte, s splice, above int) {
	from := lineStart(before, s.off)
	for range diffContext {
		if from > 0 {
			from = lineStart(before, from-1)
		}
	}
	to := s.off + s.cut
	for range diffContext + 1 {
		to = lineEnd(before, to)
	}
	if to-from+len(s.text)-s.cut+to-from > maxDiffed {
		m.DiffOmitted = true
		return
	}
	old := before[from:to]
	inner := splice{off: s.off - from, cut: s.cut, text: s.text}
	oldText, newText := strings.ToValidUTF8(string(old), "\ufffd"), strings.ToValidUTF8(string(inner.apply(old)), "\ufffd")
	oldName, newName := m.Path, m.Path
	if m.Created {
		oldName = "/dev/null"
	}
	if m.Deleted {
		newName = "/dev/null"
	}
	edits := lineEdits(oldText, newText)
	d, err := udiff.ToUnifiedDiff(oldName, newName, oldText, edits, diffContext)
	if err != nil {
		m.DiffOmitted = true // edits of its own making that don't fit: nothing a caller could do
		return
	}
	skipped := above - lineBreaks(before[from:s.off])
	for _, h := range d.Hunks {
		h.FromLine += skipped
		h.ToLine += skipped
		for _, l := range h.Lines {
			switch l.Kind {
			case udiff.Insert:
				m.Added++
			case udiff.Delete:
				m.Removed++
			case udiff.Equal:
			}
		}
	}
	m.Diff = d.String()
}

// lineEdits turns before into after. Most changes are one line for another, or lines that come or go, which needs no search.
func lineEdits(before, after string) []udiff.Edit {
	from, short := 0, min(len(before), len(after))
	for from < short && before[from] == after[from] {
		from++
	}
	from = strings.LastIndexByte(before[:from], '\n') + 1
	tail := 0
	for short -= from; tail < short && before[len(before)-1-tail] == after[len(after)-1-tail]; {
		tail++
	}
	if tail < short { // the lines that are the same as a whole
		_, same, _ := strings.Cut(before[len(before)-tail:], "\n")
		tail = len(same)
	}
	old, text := before[from:len(before)-tail], after[from:len(after)-tail]
	whole := tail == 0 || wholeLines(old) && wholeLines(text)
	switch {
	case old == text:
		return nil
	case whole && (old == "" || text == "" || oneLine(old) && oneLine(text)):
		return []udiff.Edit{{Start: from, End: from + len(old), New: text}}
	default:
		return udiff.Lines(before, after)
	}
}

func wholeLines(s string) bool { return s == "" || strings.HasSuffix(s, "\n") }

func oneLine(s string) bool { return !strings.Contains(strings.TrimSuffix(s, "\n"), "\n") }
