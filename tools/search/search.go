// Package search finds text in files and files by name, through a file provider. Results are deterministic: files in the order of their
// paths, lines in the order they stand; what had to be left out is said.
package search

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools"
)

// The names of the tools.
const (
	TextName  = "search_text"
	FilesName = "find_files"
)

// Bounds of one call.
const (
	maxEntries = 200_000 // directory entries looked at
	maxTime    = 30 * time.Second
	maxLine    = 300     // characters of a line that are shown
	maxChars   = 24_000  // bytes of one result, notices excluded
	maxScanned = 1 << 20 // bytes of one line that are looked at
	sniffed    = 8 << 10 // bytes in which a NUL makes a file binary
)

//go:embed *.md schemas.json
var texts embed.FS

// Config is the row of a preset.
type Config struct {
	// MaxResults is how many lines or paths one call gives.
	MaxResults int `yaml:"maxResults"`
}

// DefaultConfig is a row that says nothing.
func DefaultConfig() Config { return Config{MaxResults: 200} }

// Validate says what is wrong with c.
func (c Config) Validate() error {
	if c.MaxResults < 1 || c.MaxResults > 10_000 {
		return fmt.Errorf("maxResults: %d is not between 1 and 10000", c.MaxResults)
	}
	return nil
}

// New returns the two tools over files, which begin at the workspace unless a call says otherwise.
func New(c Config, files fsys.Provider, workspace string) ([]tools.Tool, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	raw, err := texts.ReadFile("schemas.json")
	if err != nil {
		return nil, err
	}
	var schemas map[string]json.RawMessage
	if err := json.Unmarshal(raw, &schemas); err != nil {
		return nil, fmt.Errorf("schemas of the search tools: %w", err)
	}
	s := searcher{files: files, workspace: workspace, limit: c.MaxResults}
	var out []tools.Tool
	for _, d := range []struct {
		name, about string
		run         func(context.Context, request) (string, error)
	}{{TextName, "search.md", s.text}, {FilesName, "find.md", s.names}} {
		about, err := texts.ReadFile(d.about)
		if err != nil {
			return nil, err
		}
		var schema bytes.Buffer
		if err := json.Compact(&schema, schemas[d.name]); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", d.name, err)
		}
		out = append(out, tools.Tool{
			Name: d.name, Description: strings.TrimSpace(string(about)), Parameters: schema.Bytes(), Parallel: true,
			Run: func(ctx context.Context, call tools.Call) tools.Result { return answer(ctx, d.name, call, d.run) },
		})
	}
	return out, nil
}

// request are the arguments of both tools.
type request struct {
	Pattern    *string `json:"pattern"`
	Path       string  `json:"path"`
	Files      string  `json:"files"`
	Literal    bool    `json:"literal"`
	IgnoreCase bool    `json:"ignore_case"`
}

// refusal is a failure that the model is told as it is.
type refusal struct{ code, text string }

func (r refusal) Error() string { return r.text }

func refuse(code, format string, args ...any) error {
	return refusal{code, fmt.Sprintf(format, args...)}
}

func answer(ctx context.Context, name string, call tools.Call, run func(context.Context, request) (string, error)) tools.Result {
	var req request
	if err := tools.DecodeArguments(call.Arguments, &req); err != nil {
		return tools.ErrorResult(name, "BAD_ARGUMENT", err.Error()+".")
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	text, err := run(ctx, req)
	var r refusal
	switch {
	case errors.As(err, &r):
		return tools.ErrorResult(name, r.code, r.text)
	case err != nil:
		return tools.ErrorResult(name, "FAILED", fmt.Sprintf("The search failed: %v.", err))
	}
	return tools.TextResult(text)
}

type searcher struct {
	files     fsys.Provider
	workspace string
	limit     int
}

// found is what a search has gathered.
type found struct {
	lines   []string
	chars   int
	more    bool // there were more than the limit
	skipped int  // files and directories that couldn't be read
	cut     string
}

// String is the result for the model.
func (f found) String() string {
	var out strings.Builder
	for _, l := range f.lines {
		out.WriteString(l)
		out.WriteByte('\n')
	}
	if len(f.lines) == 0 {
		out.WriteString("Nothing found.\n")
	}
	if f.more {
		fmt.Fprintf(&out, "[There is more than these %d; narrow the search.]\n", len(f.lines))
	}
	if f.skipped > 0 {
		fmt.Fprintf(&out, "[%d files or directories could not be read.]\n", f.skipped)
	}
	if f.cut != "" {
		fmt.Fprintf(&out, "[%s; narrow the search.]\n", f.cut)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

func (s searcher) text(ctx context.Context, req request) (string, error) {
	if req.Pattern == nil || *req.Pattern == "" {
		return "", refuse("BAD_ARGUMENT", "`pattern` is required.")
	}
	pattern := *req.Pattern
	if req.Literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if req.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", refuse("BAD_ARGUMENT", "`pattern` is not a regular expression: %v. Use `literal` to search for plain text.", err)
	}
	var f found
	err = s.walk(ctx, req, &f, func(p string) error { return s.grep(ctx, p, re, &f) })
	return f.String(), err
}

func (s searcher) names(ctx context.Context, req request) (string, error) {
	if req.Files == "" {
		return "", refuse("BAD_ARGUMENT", "`files` is required.")
	}
	var f found
	err := s.walk(ctx, req, &f, func(p string) error { return s.add(&f, p) })
	return f.String(), err
}

func (s searcher) add(f *found, line string) error {
	if len(f.lines) == s.limit || f.chars+len(line) > maxChars {
		f.more = true
		return errEnough
	}
	f.lines = append(f.lines, line)
	f.chars += len(line) + 1
	return nil
}

// walk calls visit for every file that req asks for, in the order of their paths.
func (s searcher) walk(ctx context.Context, req request, f *found, visit func(string) error) error {
	top := req.Path
	if top == "" {
		top = s.workspace
	}
	if !strings.HasPrefix(top, "/") {
		return refuse("PATH_NOT_ABSOLUTE", "`%s` is not an absolute path: `path` must start with `/`. Perhaps you mean `%s`.", req.Path, path.Join("/", s.workspace, req.Path))
	}
	top = path.Clean(top)
	wanted, err := glob(req.Files)
	if err != nil {
		return refuse("BAD_ARGUMENT", "`files` is not a glob: %v.", err)
	}
	info, err := s.files.Stat(ctx, top)
	var denied *fsys.DeniedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("NOT_FOUND", "`%s` does not exist.", top)
	case errors.As(err, &denied):
		return refuse("ACCESS_DENIED", "Access to `%s` is denied under sandbox mode %s.", top, denied.Mode)
	case err != nil:
		return refuse("NO_PERMISSION", "`%s` can't be read.", top)
	case info.Kind != fsys.File && info.Kind != fsys.Directory:
		return refuse("NOT_REGULAR", "`%s` is neither a file nor a directory.", top)
	}
	if info.Kind == fsys.File {
		err = visit(top)
	} else {
		w := walk{s, wanted, f, visit, 0}
		err = w.dir(ctx, top, "")
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.cut = fmt.Sprintf("The search took longer than %v and was stopped", maxTime)
		return nil
	case errors.Is(err, errEnough):
		return nil
	}
	return err
}

type walk struct {
	searcher
	wanted func(below string) bool
	found  *found
	visit  func(string) error
	seen   int
}

// dir goes through one directory; below is its path under the top, empty or ending in a slash.
func (w *walk) dir(ctx context.Context, dir, below string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var entries []fsys.Entry
	err := w.files.ReadDir(ctx, dir, func(e fsys.Entry) bool {
		entries = append(entries, e)
		w.seen++
		return w.seen <= maxEntries
	})
	if err != nil {
		w.found.skipped++
		return ctx.Err()
	}
	// A directory sorts as its path with the slash, so that results come in the order of paths.
	name := func(e fsys.Entry) string {
		if e.Kind == fsys.Directory {
			return e.Name + "/"
		}
		return e.Name
	}
	slices.SortFunc(entries, func(a, b fsys.Entry) int { return strings.Compare(name(a), name(b)) })
	for _, e := range entries {
		p := path.Join(dir, e.Name)
		switch {
		case e.Kind == fsys.Directory && e.Name != ".git" && e.Name != "node_modules" && e.Name != "__pycache__":
			err = w.dir(ctx, p, below+e.Name+"/")
		case e.Kind == fsys.File && w.wanted(below+e.Name):
			err = w.visit(p)
		}
		if err != nil {
			return err
		}
	}
	if w.seen > maxEntries {
		w.found.cut = fmt.Sprintf("The search stopped after %d entries", maxEntries)
		return errEnough
	}
	return nil
}

// grep adds the matching lines of one file.
func (s searcher) grep(ctx context.Context, p string, re *regexp.Regexp, f *found) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	file, info, err := s.files.Open(ctx, p)
	if err != nil {
		f.skipped++
		return nil
	}
	defer file.Close()
	if info.Size > fsys.MaxEdit {
		return nil
	}
	r := bufio.NewReaderSize(file, 64<<10)
	if head, _ := r.Peek(sniffed); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	for n := 1; ; n++ {
		line, err := readLine(r)
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			f.skipped++
			return nil
		}
		if re.Match(line) {
			if err := s.add(f, fmt.Sprintf("%s:%d: %s", p, n, shown(line))); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// readLine returns the next line without its end. Of a very long one the rest is read past.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line) < maxScanned {
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
}

func shown(line []byte) string {
	s := strings.ToValidUTF8(string(line), "\uFFFD")
	if utf8.RuneCountInString(s) <= maxLine {
		return s
	}
	return string([]rune(s)[:maxLine]) + " [cut]"
}
