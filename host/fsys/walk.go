package fsys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// maxLinks is how many symbolic links one path may go through, as on Linux.
const maxLinks = 40

// walk goes through a tree by handles: each directory on the way is opened by one name in the directory before, and compared with what
// was there when it was looked at. So it knows every directory it is in, and nobody can move it elsewhere.
type walk struct {
	rooted *Rooted
	mode   Mode
	asked  string // the path as it was given, for refusals
	makes  bool   // make missing directories

	at    *anchor
	steps []step // below the anchor
	links int
	made  []madeDir
}

type step struct {
	name string
	dir  *os.Root
	info fs.FileInfo
}

type madeDir struct {
	in   *os.Root
	name string
}

func (w *walk) close() {
	for _, s := range w.steps {
		_ = s.dir.Close() // a directory that was read: nothing is lost
	}
	w.steps = nil
}

// unmake removes the directories that were made, unless somebody uses them by now.
func (w *walk) unmake() {
	for i := len(w.made) - 1; i >= 0; i-- {
		_ = w.made[i].in.Remove(w.made[i].name)
	}
}

func (w *walk) dir() *os.Root {
	if n := len(w.steps); n > 0 {
		return w.steps[n-1].dir
	}
	return w.at.root
}

// path is the canonical path of the directory the walk is in.
func (w *walk) path() string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(w.at.names[0], "/"))
	for _, s := range w.steps {
		b.WriteString("/" + s.name)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

func (w *walk) denied(reason Reason) error {
	return &DeniedError{Path: w.asked, Mode: w.mode, Reason: reason}
}

// restart begins at the anchor of an absolute path and returns the rest.
func (w *walk) restart(path string) (rest string, err error) {
	at, rest, ok := w.rooted.locate(path)
	if !ok {
		// Not by its words; perhaps without its detours.
		at, rest, ok = w.rooted.locate(lexical(path))
	}
	if !ok {
		return "", w.denied(Outside)
	}
	w.leave(len(w.steps))
	w.at = at
	return rest, nil
}

// leave goes n directories up.
func (w *walk) leave(n int) {
	keep := len(w.steps) - n
	for _, s := range w.steps[keep:] {
		if !w.madeIn(s.dir) {
			_ = s.dir.Close()
		}
	}
	w.steps = w.steps[:keep]
}

// madeIn keeps a handle for unmake. Such a handle is released with the last reference to it.
func (w *walk) madeIn(dir *os.Root) bool {
	for _, m := range w.made {
		if m.in == dir {
			return true
		}
	}
	return false
}

// find resolves path to an existing file or directory.
func (w *walk) find(path string) (place, fs.FileInfo, error) {
	rest, err := w.restart(path)
	if err != nil {
		return place{}, nil, err
	}
	todo := split(rest)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		last := len(todo) == 0
		next, fi, err := w.enter(name, todo, last)
		if err != nil {
			return place{}, nil, err
		}
		if fi != nil {
			return w.place(name, fi), fi, nil
		}
		todo = next
	}
	fi, err := w.dir().Lstat(".")
	if err != nil {
		return place{}, nil, classify(err)
	}
	p := w.place(".", fi)
	p.path = w.path()
	return p, fi, nil
}

// into walks to the directory at path.
func (w *walk) into(path string) error {
	rest, err := w.restart(path)
	if err != nil {
		return err
	}
	todo := split(rest)
	for len(todo) > 0 {
		if todo, _, err = w.enter(todo[0], todo[1:], false); err != nil {
			return err
		}
	}
	return nil
}

// enter goes into the directory called name, or through the link. It returns what is still to do; or, for the last name of a path
// that isn't a link, what was found.
func (w *walk) enter(name string, todo []string, last bool) ([]string, fs.FileInfo, error) {
	switch name {
	case ".":
		return todo, nil, nil
	case "..":
		if len(w.steps) > 0 {
			w.leave(1)
			return todo, nil, nil
		}
		rest, err := w.above(strings.Join(todo, "/"))
		return split(rest), nil, err
	}
	dir := w.dir()
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && w.makes {
		if fi, err = w.make(dir, name); err != nil {
			return nil, nil, err
		}
	}
	if err != nil {
		return nil, nil, classify(err)
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		todo, err := w.follow(dir, name, todo)
		return todo, nil, err
	}
	if last {
		return nil, fi, nil
	}
	if !fi.IsDir() {
		return nil, nil, fmt.Errorf("%s: %w", name, ErrNotDirectory)
	}
	return todo, nil, w.push(dir, name, fi)
}

// above restarts in the directory above the anchor: where that really is, else where the model knows it.
func (w *walk) above(todo string) (rest string, err error) {
	names := w.at.names
	for _, name := range []string{names[len(names)-1], names[0]} {
		parent := name[:strings.LastIndexByte(name, '/')+1]
		if rest, err = w.restart(parent + todo); err == nil {
			return rest, nil
		}
	}
	return "", err
}

func (w *walk) push(dir *os.Root, name string, seen fs.FileInfo) error {
	next, err := dir.OpenRoot(name)
	if err != nil {
		if now, lookErr := dir.Lstat(name); lookErr == nil && !os.SameFile(now, seen) {
			return errReplaced
		}
		return classify(err)
	}
	fi, err := next.Lstat(".")
	if err == nil && !os.SameFile(fi, seen) {
		err = errReplaced
	}
	if err != nil {
		return errors.Join(classify(err), next.Close())
	}
	w.steps = append(w.steps, step{name: name, dir: next, info: fi})
	return nil
}

// follow replaces a link by what it says. A link never makes directories: one to nothing stays one to nothing.
func (w *walk) follow(dir *os.Root, name string, todo []string) ([]string, error) {
	if w.links++; w.links > maxLinks {
		return nil, fmt.Errorf("%s: %w", w.asked, ErrLinkLoop)
	}
	target, err := dir.Readlink(name)
	if err != nil {
		return nil, classify(err)
	}
	if w.makes {
		if err := w.leads(name, target); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(target, "/") {
		return append(split(target), todo...), nil
	}
	rest, err := w.restart(target)
	return append(split(rest), todo...), err
}

// leads checks that the link called name leads to something, without making anything.
func (w *walk) leads(name, target string) error {
	probe := &walk{rooted: w.rooted, mode: w.mode, asked: w.asked, links: w.links}
	defer probe.close()
	if !strings.HasPrefix(target, "/") {
		target = strings.TrimSuffix(w.path(), "/") + "/" + target
	}
	_, _, err := probe.find(target)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, ErrNotDirectory)
	}
	return err
}

func (w *walk) make(dir *os.Root, name string) (fs.FileInfo, error) {
	if err := w.permit(append(w.names(), name), nil); err != nil {
		return nil, err
	}
	err := dir.Mkdir(name, 0o777)
	if err == nil {
		w.made = append(w.made, madeDir{in: dir, name: name})
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, classify(err)
	}
	fi, err := dir.Lstat(name)
	return fi, classify(err)
}

// place is the place called name in the directory the walk is in; fi is what is there, if anything.
func (w *walk) place(name string, fi fs.FileInfo) place {
	names := append(w.names(), name)
	return place{in: w.dir(), name: name, path: strings.TrimSuffix(w.path(), "/") + "/" + name, allow: func() error { return w.permit(names, fi) }}
}

func (w *walk) names() []string {
	names := make([]string, len(w.steps), len(w.steps)+1)
	for i, s := range w.steps {
		names[i] = s.name
	}
	return names
}

// permit refuses a write that the mode doesn't allow at the place of these names. fi is the file there, if any.
func (w *walk) permit(names []string, fi fs.FileInfo) error {
	if !w.at.workspace {
		return nil
	}
	if w.mode == ReadOnly {
		return w.denied(Unwritten)
	}
	seen := make([]fs.FileInfo, 0, len(w.steps)+1)
	for _, s := range w.steps {
		seen = append(seen, s.info)
	}
	if fi != nil {
		seen = append(seen, fi)
	}
	if w.rooted.isProtected(w.at, names, seen) {
		return w.denied(Protected)
	}
	return nil
}

// split gives the names of a path. Empty ones say nothing, but a slash at the end says that there is a directory.
func split(path string) []string {
	names := strings.Split(path, "/")
	kept := names[:0]
	for _, n := range names {
		if n != "" {
			kept = append(kept, n)
		}
	}
	if strings.HasSuffix(path, "/") {
		kept = append(kept, ".")
	}
	return kept
}

// lexical resolves "." and ".." by the letter of path.
func lexical(path string) string {
	var kept []string
	for _, n := range split(path) {
		switch n {
		case ".":
		case "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, n)
		}
	}
	clean := "/" + strings.Join(kept, "/")
	if strings.HasSuffix(path, "/") && len(kept) > 0 {
		clean += "/"
	}
	return clean
}
