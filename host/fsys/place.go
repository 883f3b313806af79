package fsys

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// folder is an open or named directory, and the system's operations on names in it. *os.Root is one; so is bare.
type folder interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	Link(oldname, newname string) error
	Rename(oldname, newname string) error
	Remove(name string) error
}

// bare is a directory by its path: it works where the directory may be entered but not read.
type bare string

func (b bare) at(name string) string { return filepath.Join(string(b), name) }

func (b bare) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(b.at(name), flag, perm)
}
func (b bare) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(b.at(name)) }
func (b bare) Link(oldname, newname string) error     { return os.Link(b.at(oldname), b.at(newname)) }
func (b bare) Rename(oldname, newname string) error   { return rename(b.at(oldname), b.at(newname)) }
func (b bare) Remove(name string) error               { return os.Remove(b.at(name)) }

// place is a resolved path: no link is left to follow at name, unless somebody puts one there, and then it is not followed.
type place struct {
	in   folder
	name string
	path string // canonical
	// allow refuses a write; nil allows all. It is asked just before the first byte is written.
	allow func() error
}

func (p place) permit() error {
	if p.allow == nil {
		return nil
	}
	return p.allow()
}

// racy is how young a file's time may be before equal times prove nothing: systems stamp files with a clock that ticks.
const racy = 100 * time.Millisecond

// attempts bounds how often an operation starts again because the file was replaced before its slot was ours.
const attempts = 1000

// open opens the regular file at p for reading without following a link, waiting for a pipe, or waking a device. before is what was seen
// there; another file gives errReplaced.
func (p place) open(before fs.FileInfo) (*os.File, fs.FileInfo, error) {
	if err := regular(before); err != nil {
		return nil, nil, err
	}
	f, err := p.in.OpenFile(p.name, os.O_RDONLY|carefully, 0)
	if err != nil {
		return nil, nil, classify(err)
	}
	fi, err := f.Stat()
	if err == nil {
		err = regular(fi)
	}
	if err == nil && !os.SameFile(before, fi) {
		err = errReplaced
	}
	if err != nil {
		f.Close()
		return nil, nil, classify(err)
	}
	return f, fi, nil
}

// errReplaced is a file that was put in another's place while we looked; it is ErrChanged unless the operation can start again.
var errReplaced = fmt.Errorf("replaced: %w", ErrChanged)

func regular(fi fs.FileInfo) error {
	switch kindOf(fi.Mode()) {
	case File:
		return nil
	case Directory:
		return ErrDirectory
	case Link:
		return errReplaced // links were resolved, so this one is new
	default:
		return ErrNotRegular
	}
}

// hold runs do on the open file at p with its slot held, and closes it. found is what was at p when it was resolved. When do returns a
// function, that one is given the closing.
func (p place) hold(ctx context.Context, locks *Locks, found fs.FileInfo, do func(f *os.File, fi fs.FileInfo) (later func(func()), err error)) error {
	once := func(before fs.FileInfo) error {
		if err := regular(before); err != nil {
			return err
		}
		if before.Size() > MaxEdit {
			return ErrTooLarge
		}
		release, err := locks.acquire(ctx, idOf(before, p.path))
		if err != nil {
			return err
		}
		defer release()
		f, fi, err := p.open(before) // another file than before would have another slot
		if err != nil {
			return err
		}
		closeFile := func() { _ = f.Close() } // it was only read
		later := func(settle func()) { settle() }
		defer func() { later(closeFile) }()
		asked, err := do(f, fi)
		if asked != nil {
			later = asked
		}
		return err
	}
	err := once(found)
	for n := 0; n < attempts && errors.Is(err, errReplaced); n++ {
		if found, err = p.in.Lstat(p.name); err != nil {
			return classify(err)
		}
		err = once(found)
	}
	return err
}

// edit is Provider.Edit at p.
func (p place) edit(ctx context.Context, locks *Locks, found fs.FileInfo, change func(old []byte, info Info) (Splice, error)) (Info, error) {
	var result Info
	err := p.hold(ctx, locks, found, func(f *os.File, fi fs.FileInfo) (func(func()), error) {
		began := time.Now()
		buf, release := locks.buffer(int(fi.Size()) + bytes.MinRead)
		defer release()
		old, err := readAll(f, fi.Size(), buf)
		if err != nil {
			return nil, classify(err)
		}
		result = infoOf(p.path, fi)
		s, err := change(old, result)
		if err != nil || bytes.Equal(s.Text, old[s.Off:s.Off+s.Cut]) {
			return nil, err
		}
		if err := p.permit(); err != nil {
			return nil, err
		}
		w := writer{place: p, locks: locks, file: f, before: fi, old: old, began: began}
		if result, err = w.write(s); err != nil {
			return nil, classify(err)
		}
		return s.Later, nil
	})
	return result, err
}

// remove is Provider.Remove at p.
func (p place) remove(ctx context.Context, locks *Locks, found fs.FileInfo, check func(old []byte, info Info) error) error {
	return p.hold(ctx, locks, found, func(f *os.File, fi fs.FileInfo) (func(func()), error) {
		began := time.Now()
		buf, release := locks.buffer(int(fi.Size()) + bytes.MinRead)
		defer release()
		old, err := readAll(f, fi.Size(), buf)
		if err != nil {
			return nil, classify(err)
		}
		if err := check(old, infoOf(p.path, fi)); err != nil {
			return nil, err
		}
		if err := p.permit(); err != nil {
			return nil, err
		}
		w := writer{place: p, locks: locks, file: f, before: fi, old: old, began: began}
		if err := w.unchanged(); err != nil {
			return nil, err
		}
		return nil, classify(p.in.Remove(p.name))
	})
}

// create is Provider.Create at p, whose directory exists.
func (p place) create(data []byte) (Info, error) {
	if _, err := p.in.Lstat(p.name); err == nil {
		return Info{}, fmt.Errorf("%s: %w", p.path, fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Info{}, classify(err)
	}
	if err := p.permit(); err != nil {
		return Info{}, err
	}
	// A link to a finished temporary file never replaces and never shows half a file.
	temporary := temporaryName()
	fi, err := p.fill(temporary, data)
	if err != nil {
		return Info{}, classify(err)
	}
	err = p.in.Link(temporary, p.name)
	if remove := p.in.Remove(temporary); err == nil && remove != nil {
		err = errors.Join(remove, p.in.Remove(p.name))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) && linkless(err) {
		fi, err = p.fill(p.name, data)
	}
	if err != nil {
		return Info{}, classify(err)
	}
	return infoOf(p.path, fi), nil
}

// linkless reports an error that says this file system has no hard links for us.
func linkless(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EMLINK) || runtime.GOOS == "windows"
}

// fill writes a new file called name, or leaves none.
func (p place) fill(name string, data []byte) (fs.FileInfo, error) {
	f, err := p.in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|carefully, 0o666)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(data)
	fi, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err != nil {
		return nil, errors.Join(err, p.in.Remove(name))
	}
	return fi, nil
}

func temporaryName() string { return ".dsh-" + rand.Text() + ".tmp" }

// readAll reads f, which was just opened, into buf, which has room for more than size bytes. A file that has grown past MaxEdit gives
// ErrTooLarge.
func readAll(f *os.File, size int64, buf []byte) ([]byte, error) {
	for {
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > MaxEdit:
			return nil, ErrTooLarge
		case err == io.EOF, size > 0 && int64(len(buf)) == size && len(buf) < cap(buf): // there was room, and no more came
			return buf, nil
		case err != nil:
			return nil, err
		case len(buf) == cap(buf):
			buf = append(buf, make([]byte, len(buf))...)[:len(buf)]
		}
	}
}
