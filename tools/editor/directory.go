package editor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/fsys"
)

// maxScanned bounds how many directory entries one view looks at.
const maxScanned = 200_000

// listing is one directory, as much of it as can be shown.
type listing struct {
	names   []string // the first ones in byte order, directories with a slash
	total   int      // entries that aren't hidden
	hidden  int
	partial bool // there were more entries than are looked at
}

// tree is a directory view in the making.
type tree struct {
	engine     *Engine
	lines      []string
	chars      int
	known      int // entries that were seen, shown or not
	hidden     int
	scanned    int
	closed     []string // directories that are named only
	unreadable []string
	partial    bool
}

func (e *Engine) viewDirectory(ctx context.Context, given string) (Outcome, error) {
	info, err := e.files.Stat(ctx, given)
	if err != nil {
		return Outcome{}, refusal(given, err)
	}
	root := strings.TrimSuffix(path.Clean(given), "/")
	t := tree{engine: e}
	top, err := t.list(ctx, given, len(root))
	if err != nil {
		return Outcome{}, refusal(given, err)
	}
	t.add(root + "/")
	for _, name := range top.names {
		if t.full() {
			break
		}
		t.add(root + "/" + name)
		if !strings.HasSuffix(name, "/") {
			continue
		}
		if name == "node_modules/" || name == "__pycache__/" {
			t.closed = append(t.closed, "`"+strings.TrimSuffix(name, "/")+"`")
			continue
		}
		if err := t.enter(ctx, root+"/"+name); err != nil {
			return Outcome{}, refusal(given, err)
		}
	}
	text, cut := t.render(given)
	return Outcome{Text: text, Meta: Meta{Command: "view", Path: info.Path, Truncated: cut}}, nil
}

// enter adds the entries of a directory below the root.
func (t *tree) enter(ctx context.Context, dir string) error {
	if t.scanned >= maxScanned {
		t.partial = true
		return nil
	}
	below, err := t.list(ctx, strings.TrimSuffix(dir, "/"), len(dir))
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, fs.ErrNotExist) { // one that has gone since was not there
			t.unreadable = append(t.unreadable, dir)
		}
		return nil
	}
	for _, name := range below.names {
		if t.full() {
			break
		}
		t.add(dir + name)
	}
	return nil
}

func (t *tree) add(line string) {
	line = printable(line)
	t.lines = append(t.lines, line)
	t.chars += utf8.RuneCountInString(line) + 1
}

func (t *tree) full() bool { return t.chars > t.engine.limit }

// list reads a directory, keeping only as many names as lines of at least prefix characters can be shown. So memory is bounded by the
// output, not by the directory.
func (t *tree) list(ctx context.Context, dir string, prefix int) (listing, error) {
	keep := t.engine.limit/(prefix+2) + 1
	var l listing
	var worst string // once keep names are known, what is not less can't be among them
	shrink := func() {
		slices.Sort(l.names)
		if len(l.names) >= keep {
			l.names = l.names[:keep]
			worst = l.names[keep-1]
		}
	}
	err := t.engine.files.ReadDir(ctx, dir, func(entry fsys.Entry) bool {
		if t.scanned++; t.scanned > maxScanned {
			l.partial = true
			return false
		}
		if strings.HasPrefix(entry.Name, ".") {
			l.hidden++
			return true
		}
		l.total++
		name := entry.Name
		if entry.Kind == fsys.Directory {
			name += "/"
		}
		if worst == "" || name < worst {
			l.names = append(l.names, name)
		}
		if len(l.names) >= 2*keep+64 {
			shrink()
		}
		return true
	})
	if err != nil {
		return listing{}, err
	}
	shrink()
	t.known += l.total
	t.hidden += l.hidden
	t.partial = t.partial || l.partial
	return l, nil
}

func (t *tree) render(given string) (text string, cut bool) {
	header := fmt.Sprintf("%s and what is in it, two levels deep, without hidden entries:", given)
	var notes []string
	if t.hidden > 0 {
		notes = append(notes, fmt.Sprintf("[%s left out.]", entries(t.hidden, "hidden ")))
	}
	if len(t.closed) > 0 {
		notes = append(notes, fmt.Sprintf("[Named, but not entered: %s.]", strings.Join(t.closed, ", ")))
	}
	if n := len(t.unreadable); n > 0 {
		more := ""
		if n > 3 {
			more = fmt.Sprintf(" and %d more", n-3)
		}
		notes = append(notes, fmt.Sprintf("[Could not be read: %s%s.]", strings.Join(t.unreadable[:min(n, 3)], ", "), more))
	}
	budget := t.engine.limit - utf8.RuneCountInString(header)
	for _, n := range notes {
		budget -= utf8.RuneCountInString(n) + 1
	}
	shown := len(t.lines)
	notice := func() string {
		left := t.known + 1 - shown
		if t.partial {
			return fmt.Sprintf("[Cut here: at least %s not shown. View a directory below, or use `find`.]", entries(left, "more "))
		}
		return fmt.Sprintf("[Cut here: %s not shown. View a directory below, or use `find`.]", entries(left, "more "))
	}
	if cut = t.chars > budget || t.partial || t.known+1 > shown; cut {
		budget -= utf8.RuneCountInString(notice()) + 4 // room for a longer number
		for chars := t.chars; shown > 0 && chars > budget; {
			shown--
			chars -= utf8.RuneCountInString(t.lines[shown]) + 1
		}
		notes = append([]string{notice()}, notes...)
	}
	parts := append([]string{header}, t.lines[:shown]...)
	return t.engine.clamp(strings.Join(append(parts, notes...), "\n")), cut
}

func entries(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("%d %sentry", n, what)
	}
	return fmt.Sprintf("%s %sentries", grouped(n), what)
}

// printable makes a name fit for one line of text.
func printable(name string) string {
	if !strings.ContainsAny(name, "\n\r") && utf8.ValidString(name) {
		return name
	}
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(strings.ToValidUTF8(name, "\ufffd"))
}
