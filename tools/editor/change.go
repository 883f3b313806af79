package editor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/fsys"
)

// snippetContext is how many lines are shown before and after an edit.
const snippetContext = 4

// Create writes a new file with exactly this text, and the directories above it. It never overwrites.
func (e *Engine) Create(ctx context.Context, path, text string) (Outcome, error) {
	if err := e.checkPath(ctx, path); err != nil {
		return Outcome{}, err
	}
	if _, err := e.files.Stat(ctx, path); err == nil {
		return Outcome{}, refuseExists(path)
	}
	if strings.HasSuffix(path, "/") {
		return Outcome{}, refuse(BadArgument, "%s ends in `/`, so it names a directory; `create` makes files.", path)
	}
	data := []byte(text)
	seq := e.history.next()
	info, err := e.files.Create(ctx, path, data)
	if err != nil {
		return Outcome{}, refusal(path, err)
	}
	e.history.add(step{path: info.Path, created: true, size: len(data), hash: e.sum(nil, nil, data), seq: seq})
	lines := lineCount(data)
	meta := Meta{Command: "create", Path: info.Path, Created: true, FirstLine: min(1, lines), LastLine: lines}
	meta.diff(nil, splice{text: data}, 0)
	return Outcome{Text: fmt.Sprintf("Created %s (%s).", path, plural(lines, "line")), Meta: meta}, nil
}

// Replace puts text in the one place where old is.
func (e *Engine) Replace(ctx context.Context, path, old, text string) (Outcome, error) {
	return e.change(ctx, "str_replace", path, func(data []byte) (splice, error) {
		if old == "" {
			return splice{}, refuse(BadArgument, "`old_str` must not be empty. To add text use `insert`.")
		}
		if old == text {
			return splice{}, refuse(NoChange, "`old_str` and `new_str` are the same, so nothing was written.")
		}
		return match(path, data, old, text)
	})
}

// Insert puts text behind a line; 0 is before the first one.
func (e *Engine) Insert(ctx context.Context, path string, after int, text string) (Outcome, error) {
	return e.change(ctx, "insert", path, func(data []byte) (splice, error) {
		return insertion(path, data, after, text)
	})
}

// insertion is the splice of an Insert.
func insertion(path string, data []byte, after int, text string) (splice, error) {
	start := 0
	if bytes.HasPrefix(data, []byte(bom)) {
		start = len(bom)
	}
	lines := lineCount(data[start:])
	if after < 0 || after > lines {
		return splice{}, refuse(OutOfRange, "`insert_line` is %d, but %s has %s; it must be from 0 to %d.", after, path, plural(lines, "line"), lines)
	}
	off := skipLines(data, start, after)
	ending := dominant(data)
	added := text
	if ending != "" {
		added = string(withEndings(toLF(text), []string{ending}))
	} else {
		ending = "\n"
	}
	switch {
	case off > start && data[off-1] != '\n': // behind a last line that has no end of its own
		added = ending + added
	case !strings.HasSuffix(added, "\n"):
		added += ending
	}
	return splice{off: off, text: []byte(added)}, nil
}

// change runs one edit: find looks at the text, inside the file's critical section, and says what to replace.
func (e *Engine) change(ctx context.Context, command, path string, find func(data []byte) (splice, error)) (Outcome, error) {
	if err := e.checkPath(ctx, path); err != nil {
		return Outcome{}, err
	}
	var out Outcome
	var done step
	_, err := e.files.Edit(ctx, path, func(data []byte, info fsys.Info) (fsys.Splice, error) {
		if err := checkEditable(path, data); err != nil {
			return fsys.Splice{}, err
		}
		s, err := find(data)
		if err != nil {
			return fsys.Splice{}, err
		}
		size := len(data) - s.cut + len(s.text)
		if size > fsys.MaxEdit {
			return fsys.Splice{}, refuse(TooLarge, "%s would become too large to edit here (over 10 MiB). Nothing was written.", path)
		}
		head, tail := s.around(data)
		done = step{path: info.Path, splice: s.inverse(data), size: size, hash: e.sum(head, s.text, tail), seq: e.history.next()}
		out = e.changed(Meta{Command: command, Path: info.Path}, path, data, s)
		return out.splice(s), nil
	})
	if err != nil {
		return Outcome{}, refusal(path, err)
	}
	e.history.add(done)
	return out, nil
}

// splice is s for the file provider; what is left to do afterwards goes into the outcome.
func (o *Outcome) splice(s splice) fsys.Splice {
	return fsys.Splice{Off: s.off, Cut: s.cut, Text: s.text, Later: func(settle func()) { o.Settle = settle }}
}

// checkEditable refuses what isn't text.
func checkEditable(path string, data []byte) error {
	if imageType(data) != "" {
		return refuse(Binary, "%s is an image, not text.", path)
	}
	return checkText(path, data)
}

// Undo takes back the last edit of a file that this engine made.
func (e *Engine) Undo(ctx context.Context, path string) (Outcome, error) {
	if err := e.checkPath(ctx, path); err != nil {
		return Outcome{}, err
	}
	info, err := e.files.Stat(ctx, path)
	if err != nil {
		return Outcome{}, refusal(path, err)
	}
	// Without a step the edit below finds out what else there is to say about the file.
	if s, ok := e.history.last(info.Path); ok && s.created {
		return e.undoCreate(ctx, path, info)
	}
	var out Outcome
	var undone step
	_, err = e.files.Edit(ctx, path, func(data []byte, info fsys.Info) (fsys.Splice, error) {
		var err error
		if undone, err = e.take(path, info, data, false); err != nil {
			return fsys.Splice{}, err
		}
		out = e.changed(Meta{Command: "undo_edit", Path: info.Path}, path, data, undone.splice)
		return out.splice(undone.splice), nil
	})
	if err != nil {
		if undone.path != "" {
			e.history.add(undone) // it wasn't written
		}
		return Outcome{}, refusal(path, err)
	}
	return out, nil
}

func (e *Engine) undoCreate(ctx context.Context, path string, info fsys.Info) (Outcome, error) {
	var undone step
	meta := Meta{Command: "undo_edit", Path: info.Path, Deleted: true}
	err := e.files.Remove(ctx, path, func(data []byte, info fsys.Info) error {
		var err error
		if undone, err = e.take(path, info, data, true); err != nil {
			return err
		}
		meta.diff(data, splice{cut: len(data)}, 0)
		return nil
	})
	if err != nil {
		if undone.path != "" {
			e.history.add(undone)
		}
		return Outcome{}, refusal(path, err)
	}
	return Outcome{Text: fmt.Sprintf("Undid the creation of %s: the file is gone.", path), Meta: meta}, nil
}

// take takes the newest step of the file out of the history, if it is what data came from.
func (e *Engine) take(path string, info fsys.Info, data []byte, created bool) (step, error) {
	s, ok := e.history.take(info.Path, func(s step) bool {
		if s.created != created || s.size != len(data) {
			return false
		}
		head, tail := s.around(data)
		return s.hash == e.sum(head, data[s.off:s.off+s.cut], tail)
	})
	switch {
	case ok:
		return s, nil
	case s.path == "":
		return step{}, refuseNoHistory(path)
	default:
		return step{}, refuse(Changed, "%s was changed by another program since the last edit here, so that edit cannot be undone. View the file.", path)
	}
}

func refuseNoHistory(path string) *Refusal {
	return refuse(NoHistory, "There is no edit of %s left to undo.", path)
}

// sum is a hash of the contents of a file around and inside the text of an edit.
func (e *Engine) sum(head, text, tail []byte) uint64 {
	return maphash.Comparable(e.seed, [3]uint64{maphash.Bytes(e.seed, head), maphash.Bytes(e.seed, text), maphash.Bytes(e.seed, tail)})
}

// changed words the result of an edit. What it costs beside counting lines is in proportion to the change, not to the file.
func (e *Engine) changed(meta Meta, path string, before []byte, s splice) Outcome {
	head, tail := s.around(before)
	above, inside := lineBreaks(head), lineBreaks(s.text)
	total := above + inside + lineBreaks(tail)
	if last := lastByte(head, s.text, tail); last != '\n' && len(head)+len(s.text)+len(tail) > 0 {
		total++
	}
	// The lines that hold the new text; where it is empty or ends with its line, the line it ends in.
	if bytes.HasSuffix(s.text, []byte{'\n'}) {
		inside--
	}
	meta.FirstLine = min(above+1, total)
	meta.LastLine = min(meta.FirstLine+inside, total)
	meta.diff(before, s, above)

	did := "Edited"
	if meta.Command == "undo_edit" {
		did = "Undid the last edit of"
	}
	out := Outcome{Meta: meta}
	switch {
	case e.profile == Plain && total > 0:
		out.Text = fmt.Sprintf("%s %s, %s.", did, path, lineSpan(meta.FirstLine, meta.LastLine))
	case e.profile == Plain:
		out.Text = fmt.Sprintf("%s %s; it is empty now.", did, path)
	case total == 0:
		out.Text = fmt.Sprintf("%s %s. It is empty now.", did, path)
	default:
		out.Text = e.snippet(did, path, before, s, above, meta)
	}
	return out
}

// snippet shows the changed lines among their neighbours. above is how many line breaks are before the splice.
func (e *Engine) snippet(did, path string, before []byte, s splice, above int, meta Meta) string {
	first := max(meta.FirstLine-snippetContext, 1)
	from := lineStart(before, s.off)
	for range above + 1 - first {
		from = lineStart(before, from-1)
	}
	to := s.off + s.cut
	for range snippetContext + 2 {
		to = lineEnd(before, to)
	}
	data := slices.Concat(before[from:s.off], s.text, before[s.off+s.cut:to])
	data = bytes.TrimPrefix(data, []byte(bom))
	sh := sheet{engine: e, first: first}
	want := Range{First: 1, Last: meta.LastLine + snippetContext - first + 1}
	r := &lineReader{src: bufio.NewReaderSize(bytes.NewReader(data), min(64<<10, len(data)+16)), limit: e.lineLimit()}
	if _, err := sh.read(context.Background(), r, want, false); err != nil {
		return fmt.Sprintf("%s %s.", did, path) // reading from memory doesn't fail
	}
	header := fmt.Sprintf("%s %s. Here are %s as they are now, numbered as by `cat -n`:", did, path, lineSpan(first, sh.last()))
	if first == sh.last() {
		header = fmt.Sprintf("%s %s. Here is %s as it is now, numbered as by `cat -n`:", did, path, lineSpan(first, first))
	}
	text, _, _ := sh.render(header, nil, path)
	return text
}

func lineSpan(first, last int) string {
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d to %d", first, last)
}
