package fsys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Local is the bare file system of the host, with all the rights of the host's user. Nothing confines it, and it says so.
type Local struct {
	locks *Locks
}

var _ Provider = (*Local)(nil)

// NewLocal returns a Local. Providers that may meet in one file share locks; nil means there are none.
func NewLocal(locks *Locks) *Local {
	if locks == nil {
		locks = new(Locks)
	}
	return &Local{locks: locks}
}

// Sandbox reports that there is no sandbox mode.
func (*Local) Sandbox() (Mode, bool) { return "", false }

// Stat implements Provider.
func (l *Local) Stat(_ context.Context, path string) (Info, error) {
	p, fi, err := l.find(path)
	if err != nil {
		return Info{}, err
	}
	return infoOf(p.path, fi), nil
}

// Open implements Provider.
func (l *Local) Open(_ context.Context, path string) (io.ReadCloser, Info, error) {
	p, found, err := l.find(path)
	if err != nil {
		return nil, Info{}, err
	}
	f, fi, err := p.open(found)
	if err != nil {
		return nil, Info{}, err
	}
	return f, infoOf(p.path, fi), nil
}

// ReadDir implements Provider.
func (l *Local) ReadDir(ctx context.Context, path string, visit func(Entry) bool) error {
	p, fi, err := l.find(path)
	if err != nil {
		return err
	}
	return p.list(ctx, fi, visit)
}

// Create implements Provider.
func (l *Local) Create(_ context.Context, path string, data []byte) (Info, error) {
	name, err := newName(path)
	if err != nil {
		return Info{}, err
	}
	dir := filepath.Dir(filepath.Clean(path)) // a ".." behind a link would be another place: resolve it first
	if parent := path[:strings.LastIndexByte(path, '/')+1]; strings.Contains(parent, "..") {
		if real, err := filepath.EvalSymlinks(parent); err == nil {
			dir = real
		}
	}
	if _, err := os.Lstat(bare(dir).at(name)); err == nil {
		return Info{}, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	made, err := makeAll(dir)
	undo := func() {
		for _, d := range made {
			_ = os.Remove(d) // not empty any more: somebody uses it
		}
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		undo()
		return Info{}, classify(err)
	}
	info, err := place{in: bare(dir), name: name, path: bare(dir).at(name)}.create(data)
	if err != nil {
		undo()
	}
	return info, err
}

// Edit implements Provider.
func (l *Local) Edit(ctx context.Context, path string, change func([]byte, Info) (Splice, error)) (Info, error) {
	p, fi, err := l.find(path)
	if err != nil {
		return Info{}, err
	}
	return p.edit(ctx, l.locks, fi, change)
}

// Remove implements Provider.
func (l *Local) Remove(ctx context.Context, path string, check func([]byte, Info) error) error {
	p, fi, err := l.find(path)
	if err != nil {
		return err
	}
	return p.remove(ctx, l.locks, fi, check)
}

// find resolves path and looks at what is there.
func (l *Local) find(path string) (place, fs.FileInfo, error) {
	if err := usable(path); err != nil {
		return place{}, nil, err
	}
	real, err := path, error(nil)
	if filepath.Clean(path) != path || !straight(path) {
		real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		if _, lerr := os.Lstat(path); lerr == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return place{}, nil, fmt.Errorf("%w: %w", ErrLinkLoop, err) // the only other way to fail at a link that is there
		}
		return place{}, nil, classify(err)
	}
	p := place{in: bare(filepath.Dir(real)), name: filepath.Base(real), path: real}
	fi, err := os.Lstat(real)
	if err != nil {
		return place{}, nil, classify(err)
	}
	if strings.HasSuffix(path, "/") && !fi.IsDir() {
		return place{}, nil, fmt.Errorf("%s: %w", path, ErrNotDirectory)
	}
	return p, fi, nil
}

// makeAll makes the missing directories down to dir and returns those it made, deepest first.
func makeAll(dir string) (made []string, err error) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		fi, err := os.Stat(d)
		if err == nil && !fi.IsDir() {
			return nil, fmt.Errorf("%s: %w", d, ErrNotDirectory)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if fi, err := os.Lstat(d); err == nil && fi.Mode()&fs.ModeSymlink != 0 { // a link to nothing
			return nil, fmt.Errorf("%s: %w", d, ErrNotDirectory)
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		err := os.Mkdir(missing[i], 0o777)
		switch {
		case err == nil:
			made = append([]string{missing[i]}, made...)
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	return made, nil
}

// usable refuses what no system call should see.
func usable(path string) error {
	if !strings.HasPrefix(path, "/") && !filepath.IsAbs(path) {
		return fmt.Errorf("%q: %w", path, ErrNotAbsolute)
	}
	if strings.ContainsRune(path, 0) {
		return fmt.Errorf("%q: %w", path, ErrBadName)
	}
	return nil
}

// newName is the last component of path, which must be able to name a new file.
func newName(path string) (string, error) {
	if err := usable(path); err != nil {
		return "", err
	}
	name := path[strings.LastIndexByte(path, '/')+1:]
	if name == "" || name == "." || name == ".." {
		return "", fmt.Errorf("%s: %w", path, ErrDirectory)
	}
	return name, nil
}

// list is Provider.ReadDir at p, where fi was found.
func (p place) list(ctx context.Context, fi fs.FileInfo, visit func(Entry) bool) error {
	if !fi.IsDir() {
		return fmt.Errorf("%s: %w", p.path, ErrNotDirectory)
	}
	d, err := p.in.OpenFile(p.name, os.O_RDONLY|carefully, 0)
	if err != nil {
		return classify(err)
	}
	defer d.Close()
	if now, err := d.Stat(); err != nil || !os.SameFile(now, fi) {
		return errors.Join(errReplaced, err)
	}
	buf := make([]byte, entriesRead)
	for {
		more, err := nextEntries(d, buf, visit)
		if err != nil {
			return classify(err)
		}
		if !more {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
