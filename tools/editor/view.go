package editor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/fsys"
)

// maxLineChars is how much of a line is shown, in characters.
const maxLineChars = 2000

// Range is a range of lines, 1-based and inclusive; Last is -1 for the end of the file.
type Range struct {
	First, Last int
}

// View shows a file with line numbers, an image, or a directory two levels deep. r is nil for all of it.
func (e *Engine) View(ctx context.Context, path string, r *Range) (Outcome, error) {
	if err := e.checkPath(ctx, path); err != nil {
		return Outcome{}, err
	}
	f, info, err := e.files.Open(ctx, path)
	if errors.Is(err, fsys.ErrDirectory) {
		if r != nil {
			return Outcome{}, refuse(BadArgument, "`view_range` is not allowed for a directory, and %s is one.", path)
		}
		return e.viewDirectory(ctx, path)
	}
	if err != nil {
		return Outcome{}, refusal(path, err)
	}
	out, err := e.viewFile(ctx, path, info, f, r)
	_ = f.Close() // it was only read
	return out, refusal(path, err)
}

func (e *Engine) viewFile(ctx context.Context, path string, info fsys.Info, f io.Reader, r *Range) (Outcome, error) {
	src := bufio.NewReaderSize(f, int(min(max(info.Size+1, sniffed), 64<<10)))
	head, err := src.Peek(sniffed)
	if err != nil && err != io.EOF {
		return Outcome{}, err
	}
	if mime := imageType(head); mime != "" {
		return e.viewImage(path, mime, info, src)
	}
	if err := checkText(path, head); err != nil {
		return Outcome{}, err
	}
	if bytes.HasPrefix(head, []byte(bom)) {
		_, _ = src.Discard(len(bom)) // it was peeked at
		head = head[len(bom):]
	}
	meta := Meta{Command: "view", Path: info.Path}
	want := Range{First: 1, Last: -1}
	if r != nil {
		want = *r
		if err := want.check(path, len(head) == 0); err != nil {
			return Outcome{}, err
		}
	} else if len(head) == 0 {
		return Outcome{Text: path + " is empty.", Meta: meta}, nil
	}
	s := sheet{engine: e, first: want.First}
	lines, err := s.read(ctx, &lineReader{src: src, limit: e.lineLimit()}, want, e.profile == Plain && info.Size <= fsys.MaxEdit)
	if err != nil {
		return Outcome{}, err
	}
	if want.First > 1 && len(s.ends) == 0 {
		return Outcome{}, refuse(OutOfRange, "`view_range` starts at line %d, but %s has only %s; the start must be from 1 to %d.", want.First, path, plural(lines.total, "line"), lines.total)
	}
	var notes []string
	if want.Last > lines.total && !lines.more {
		notes = append(notes, fmt.Sprintf("[The file ends at line %d; `view_range` asked for lines up to %d.]", lines.total, want.Last))
	}
	text, shown, cut := s.render(viewHeader(e.profile, path, r, lines, s.last()), notes, path)
	meta.FirstLine, meta.LastLine, meta.Truncated = s.first, s.first+shown-1, cut
	return Outcome{Text: text, Meta: meta}, nil
}

func (r Range) check(path string, empty bool) error {
	switch {
	case empty:
		return refuse(OutOfRange, "`view_range` cannot be used: %s is empty.", path)
	case r.First < 1:
		return refuse(OutOfRange, "`view_range` starts at %d; lines are counted from 1.", r.First)
	case r.Last != -1 && r.Last < r.First:
		return refuse(OutOfRange, "`view_range` ends at %d, before its start %d; use -1 for the end of the file.", r.Last, r.First)
	}
	return nil
}

func viewHeader(profile Profile, path string, r *Range, lines extent, last int) string {
	switch {
	case profile == Plain && lines.more:
		return path + ":"
	case profile == Plain && r != nil:
		return fmt.Sprintf("%s, lines %d to %d of %d:", path, r.First, last, lines.total)
	case profile == Plain:
		return fmt.Sprintf("%s, %s:", path, plural(lines.total, "line"))
	case r != nil:
		return fmt.Sprintf("%s, lines %d to %d, numbered as by `cat -n`:", path, r.First, last)
	default:
		return fmt.Sprintf("%s, numbered as by `cat -n`:", path)
	}
}

func (e *Engine) viewImage(path, mime string, info fsys.Info, f io.Reader) (Outcome, error) {
	if !e.images() {
		return Outcome{}, refuse(ImageRefused, "%s is an image (%s), and this model does not take images.", path, mime)
	}
	if info.Size > fsys.MaxEdit {
		return Outcome{}, refuse(TooLarge, "%s is an image of over 10 MiB, which is too large to show.", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, fsys.MaxEdit))
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{
		Text:  fmt.Sprintf("%s is an image (%s).", path, mime),
		Image: &Image{MediaType: mime, Data: data},
		Meta:  Meta{Command: "view", Path: info.Path},
	}, nil
}

// lineLimit is how much of a line is shown: a full line and its frame always fit in the output.
func (e *Engine) lineLimit() int { return min(maxLineChars, e.limit/2) }

// sheet is a run of numbered lines on its way to the model.
type sheet struct {
	engine  *Engine
	first   int    // number of the first line
	text    []byte // the lines, each behind a line break
	ends    []int  // of the lines, in text
	chars   int    // of text
	crlf    int    // lines that end in CRLF
	lf      int    // lines that end in LF
	invalid bool
	full    bool // more than fits was offered
}

func (s *sheet) last() int { return s.first + len(s.ends) - 1 }

// add puts a line under the others, unless they fill the output already.
func (s *sheet) add(l line) {
	limit := s.engine.lineLimit()
	switch {
	case l.crlf:
		s.crlf++
	case !l.unended:
		s.lf++
	}
	from := len(s.text)
	s.text = append(s.text, '\n')
	number := strconv.Itoa(s.first + len(s.ends))
	if s.engine.profile == Plain {
		s.text = append(append(s.text, number...), "  "...)
	} else {
		s.text = append(append(append(s.text, "      "[min(len(number), 6):]...), number...), '\t')
	}
	if len(l.head) <= limit && utf8.Valid(l.head) {
		s.text = append(s.text, l.head...)
	} else {
		text, invalid := decode(l.head, limit)
		s.text = append(s.text, text...)
		s.invalid = s.invalid || invalid
	}
	if more := l.chars - limit; more > 0 {
		s.text = append(append(append(s.text, " [... "...), counted(more, "more character")...), ']')
	}
	s.ends = append(s.ends, len(s.text))
	s.chars += utf8.RuneCount(s.text[from:])
	s.full = s.chars > s.engine.limit
}

// upTo is the text of the first n lines.
func (s *sheet) upTo(n int) []byte {
	if n == 0 {
		return nil
	}
	return s.text[:s.ends[n-1]]
}

// read adds the lines in want. With count, lines behind them are counted too.
func (s *sheet) read(ctx context.Context, r *lineReader, want Range, count bool) (extent, error) {
	n := 1
	for n < want.First {
		if ctx.Err() != nil {
			return extent{}, context.Cause(ctx)
		}
		skipped, err := r.skip(min(want.First-n, 16<<10))
		n += skipped
		if err == io.EOF {
			return extent{total: n - 1}, nil
		}
		if err != nil {
			return extent{}, err
		}
	}
	for ; ; n++ {
		if want.Last != -1 && n > want.Last || s.full {
			if !count {
				return extent{total: n - 1, more: true}, nil
			}
			rest, err := r.rest()
			return extent{total: n - 1 + rest}, err
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return extent{}, context.Cause(ctx)
		}
		l, err := r.next(false)
		if err == io.EOF {
			return extent{total: n - 1}, nil
		}
		if err != nil {
			return extent{}, err
		}
		s.add(l)
	}
}

// render joins header, lines and notes, at most the engine's limit. What doesn't fit is cut at a line end, with a notice.
func (s *sheet) render(header string, notes []string, path string) (text string, shown int, cut bool) {
	switch {
	case s.crlf > 0 && s.lf == 0:
		notes = append(notes, "[Lines end in CRLF; the carriage returns are not shown.]")
	case s.crlf > 0:
		notes = append(notes, "[Some lines end in CRLF; the carriage returns are not shown.]")
	}
	if s.invalid {
		notes = append(notes, "[Bytes that are not UTF-8 are shown as \ufffd; edits elsewhere keep them.]")
	}
	budget := s.engine.limit - utf8.RuneCountInString(header)
	for _, n := range notes {
		budget -= utf8.RuneCountInString(n) + 1
	}
	shown, chars := len(s.ends), s.chars
	if chars > budget {
		cut = true
		notice := func() string {
			return fmt.Sprintf("[Cut to stay within %s characters. Line %d is the first one not shown: find what you need with `grep -n` on %s, then view it with `view_range`.]",
				grouped(s.engine.limit), s.first+shown, path)
		}
		budget -= utf8.RuneCountInString(notice()) + 1
		for shown > 0 && chars > budget {
			shown--
			chars -= utf8.RuneCount(s.text[len(s.upTo(shown)):s.ends[shown]])
		}
		notes = append([]string{notice()}, notes...)
	}
	var b strings.Builder
	lines := s.upTo(shown)
	b.Grow(len(header) + len(lines) + 256)
	b.WriteString(header)
	b.Write(lines)
	for _, n := range notes {
		b.WriteByte('\n')
		b.WriteString(n)
	}
	return s.engine.clamp(b.String()), shown, cut
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// counted is plural for numbers that may be large.
func counted(n int, what string) string {
	if n < 1000 {
		return plural(n, what)
	}
	return grouped(n) + " " + what + "s"
}
