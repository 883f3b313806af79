package presets

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Origin says which kind of root a preset comes from.
type Origin string

// The origins, in order of precedence.
const (
	Shipped    Origin = "shipped"    // embedded in the program
	Configured Origin = "configured" // a directory the operator named
	User       Origin = "user"       // the writable directory
)

var (
	// ErrNotFound: no root has a preset with this id. The error's text lists those there are.
	ErrNotFound = errors.New("there is no preset")
	// ErrReadOnly: the preset is shipped or configured; only the user's own can be changed.
	ErrReadOnly = errors.New("it can't be changed")
	// ErrTaken: there is a preset with this id already.
	ErrTaken = errors.New("the id is taken")
	// ErrInvalidID: what was given can't be a preset's id.
	ErrInvalidID = errors.New("a preset's id is lower-case letters, digits and -, at most 64, not - first")
)

const fileName = "preset.yml"

//go:embed shipped
var shipped embed.FS

// Roster finds presets. Each call reads the roots again, so an edited file counts from the next call on.
// It may be used from any goroutine.
type Roster struct {
	configured []string
	user       string
	goos       string
	fixed      *Composition // the only one there is, see Fixed

	mu    sync.Mutex
	known map[checked]outcome
}

// NewRoster returns a roster over the shipped presets, the configured directories and the user's own
// directory, which need not exist yet; empty means none.
func NewRoster(configured []string, user string) *Roster {
	return &Roster{configured: slices.Clone(configured), user: user, goos: runtime.GOOS}
}

// Entry is one preset of a list.
type Entry struct {
	ID          string
	Name        string
	Description string
	Order       int
	Origin      Origin
	Hash        string   // of the composition; empty when it is broken
	Broken      string   // why it can't be mounted, one sentence with the place; empty when it can
	Warnings    []string // about reading it
}

// root is an opened root.
type root struct {
	origin Origin
	label  string // how its files are called in messages
	fsys   fs.FS
	close  func() error
}

// found is a preset's folder. Its name is only ever one that a root listed.
type found struct {
	id   string
	root root
}

// view is all roots, open, at one moment.
type view struct {
	roots []root
	all   map[string]found // by id; of one id the first root's
	err   error            // roots that couldn't be read
}

// open reads the roots. The caller closes the view.
func (r *Roster) open() view {
	v := view{all: map[string]found{}}
	sub, err := fs.Sub(shipped, "shipped")
	v.err = err
	v.roots = append(v.roots, root{Shipped, "shipped", sub, func() error { return nil }})
	for _, dir := range r.configured {
		v.add(Configured, dir)
	}
	if r.user != "" {
		v.add(User, r.user)
	}
	for _, root := range v.roots {
		entries, err := fs.ReadDir(root.fsys, ".")
		if err != nil {
			v.err = errors.Join(v.err, fmt.Errorf("presets folder %s: %w", root.label, err))
		}
		for _, e := range entries {
			hidden := strings.HasPrefix(e.Name(), ".") // copies in the making, too
			if hidden || !e.IsDir() && e.Type()&fs.ModeSymlink == 0 {
				continue
			}
			if _, taken := v.all[e.Name()]; !taken {
				v.all[e.Name()] = found{e.Name(), root}
			}
		}
	}
	return v
}

// add opens a directory in such a way that no link in it leads out.
func (v *view) add(origin Origin, dir string) {
	h, err := os.OpenRoot(dir)
	switch {
	case err == nil:
		v.roots = append(v.roots, root{origin, dir, h.FS(), h.Close})
	case origin != User || !errors.Is(err, fs.ErrNotExist):
		v.err = errors.Join(v.err, fmt.Errorf("presets folder: %w", err))
	}
}

func (v view) close() {
	for _, r := range v.roots {
		_ = r.close() // nothing was written through it
	}
}

// find returns the preset with this id, or ErrNotFound with the ids there are.
func (v view) find(id string) (found, error) {
	if f, ok := v.all[id]; ok {
		return f, nil
	}
	ids := slices.Sorted(maps.Keys(v.all))
	return found{}, errors.Join(fmt.Errorf("%w %q; there are %s", ErrNotFound, id, strings.Join(ids, ", ")), v.err)
}

func (f found) file() string { return filepath.Join(f.root.label, f.id, fileName) }

// read returns the text of the preset's file. Every error is a *Problem.
func (f found) read() ([]byte, error) {
	fail := func(format string, args ...any) ([]byte, error) {
		return nil, &Problem{File: f.file(), Line: 1, Column: 1, Text: fmt.Sprintf(format, args...)}
	}
	if !idPattern.MatchString(f.id) {
		return fail("the folder's name %q can't be an id: lower-case letters, digits and -, at most 64", f.id)
	}
	name := f.id + "/" + fileName
	info, err := fs.Stat(f.root.fsys, name)
	switch {
	case err != nil && (f.linked(f.id) || f.linked(name)):
		return fail("it is a symbolic link that leads out of the presets folder, or to nothing")
	case errors.Is(err, fs.ErrNotExist):
		return fail("the preset has no %s", fileName)
	case err != nil:
		return fail("it can't be read: %v", err)
	case !info.Mode().IsRegular():
		return fail("it is not a regular file")
	case info.Size() > maxFile:
		return fail("the file is too large: %d bytes, at most %d", info.Size(), maxFile)
	}
	data, err := fs.ReadFile(f.root.fsys, name)
	if err != nil {
		return fail("it can't be read: %v", err)
	}
	return data, nil
}

// linked reports whether name is itself a symbolic link.
func (f found) linked(name string) bool {
	info, err := fs.Lstat(f.root.fsys, name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func (f found) parse() (*document, error) {
	data, err := f.read()
	if err != nil {
		return nil, err
	}
	return parse(f.file(), data)
}

// resolver finds what presets extend in v.
func (r *Roster) resolver(v view) resolver {
	return resolver{goos: r.goos, base: func(id string) (*document, error) {
		f, err := v.find(id)
		if err != nil {
			return nil, err
		}
		return f.parse()
	}}
}

// List returns every preset, broken ones with the reason, sorted by order, then id. An error tells of
// a root that can't be read; the presets of the others are there all the same.
func (r *Roster) List() ([]Entry, error) {
	if r.fixed != nil {
		return r.listFixed()
	}
	v := r.open()
	defer v.close()
	var out []Entry
	for _, f := range v.all {
		e := Entry{ID: f.id, Name: f.id, Origin: f.root.origin}
		doc, report, err := r.checkFile(v, f)
		if doc != nil {
			e.Name, e.Description, e.Order = cmp.Or(doc.Name, f.id), doc.Description, doc.Order
		}
		if err != nil {
			e.Broken = oneLine(err).Error()
		} else {
			e.Hash, e.Warnings = report.Composition.Hash, report.Composition.Warnings
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.ID, b.ID)) })
	return out, v.err
}

// Text returns the preset's file as it is.
func (r *Roster) Text(id string) ([]byte, error) {
	v := r.open()
	defer v.close()
	f, err := v.find(id)
	if err != nil {
		return nil, err
	}
	return f.read()
}

// Resolve returns a preset's composition, ready to be mounted: it has been mounted dry. The error is
// ErrNotFound with the ids there are, or says with a place why the preset is broken.
func (r *Roster) Resolve(id string) (*Composition, error) {
	report, err := r.Check(id)
	return report.Composition, err
}
