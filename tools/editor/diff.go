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
	edits := udiff.Lines(oldText, newText)
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
