package fsys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// writer puts new contents in the place of a file that was read, while the file's slot is held.
type writer struct {
	place
	locks  *Locks
	file   *os.File    // the original, open for reading
	before fs.FileInfo // as it was when it was read
	old    []byte
	began  time.Time // before it was read
}

// errInPlace says that a replacement would not be the same file to its other users, so the file itself must be written.
var errInPlace = errors.New("must be written in place")

func (w *writer) write(s Splice) (Info, error) {
	if err := w.mayWrite(); err != nil {
		if changed := w.unchanged(); errors.Is(changed, ErrChanged) {
			return Info{}, changed
		}
		return Info{}, err
	}
	if linkCount(w.before) <= 1 && !hasAttributes(w.file) {
		info, err := w.replace(s)
		if !errors.Is(err, errInPlace) {
			return info, err
		}
	}
	return w.overwrite(slices.Concat(w.old[:s.Off], s.Text, w.old[s.Off+s.Cut:]))
}

// mayWrite asks the system whether we may write the original; a rename over it would not ask. The file is not opened for writing where
// that can be helped: in a container's layers that alone would copy it, and so change it.
func (w *writer) mayWrite() error {
	err := writable(w.file)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	f, err := w.in.OpenFile(w.name, os.O_WRONLY|carefully, 0)
	if errors.Is(err, syscall.ETXTBSY) { // a program that runs now: it may be replaced, not written
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// replace renames a finished temporary file over the original. It gives errInPlace where it can't make a faithful one.
func (w *writer) replace(s Splice) (info Info, err error) {
	temporary := temporaryName()
	mode := w.before.Mode().Perm()
	if mode&0o004 == 0 {
		mode = 0o600 // not everybody's: nobody's but ours until it has its owner
	}
	f, err := w.in.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|carefully, mode)
	if errors.Is(err, fs.ErrPermission) {
		return Info{}, errInPlace
	}
	if err != nil {
		return Info{}, err
	}
	defer func() {
		if err != nil {
			// A removal that fails has nothing to add to err: the directory was writable a moment ago.
			_ = w.in.Remove(temporary)
		}
	}()
	err = w.fillWith(f, s)
	fi, likeErr := w.like(f)
	if err = errors.Join(err, likeErr, f.Close()); err != nil {
		return Info{}, err
	}
	if err = w.unchanged(); err != nil {
		return Info{}, err
	}
	if err = w.in.Rename(temporary, w.name); err != nil {
		return Info{}, err
	}
	return infoOf(w.path, fi), nil
}

// joined is how many bytes are copied together to save calls of the system.
const joined = 64 << 10

// fillWith writes the spliced contents to f.
func (w *writer) fillWith(f *os.File, s Splice) error {
	head, tail := w.old[:s.Off], w.old[s.Off+s.Cut:]
	if size := len(head) + len(s.Text) + len(tail); size <= joined {
		buf, release := w.locks.buffer(size)
		defer release()
		_, err := f.Write(append(append(append(buf, head...), s.Text...), tail...))
		return err
	}
	for _, piece := range [][]byte{head, s.Text, tail} {
		if len(piece) == 0 {
			continue
		}
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// like gives f owner and mode of the original.
func (w *writer) like(f *os.File) (fs.FileInfo, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	uid, gid, known := ownerOf(w.before)
	newUID, newGID, _ := ownerOf(fi)
	other := known && (uid != newUID || gid != newGID)
	if other {
		if err := f.Chown(uid, gid); err != nil {
			return nil, errInPlace
		}
	}
	if !other && fi.Mode() == w.before.Mode() {
		return fi, nil
	}
	// After the owner: a change of owner drops the set-id bits.
	if err := f.Chmod(w.before.Mode()); err != nil {
		return nil, err
	}
	return f.Stat()
}

// unchanged reports ErrChanged when the file at the place isn't what was read.
func (w *writer) unchanged() error {
	now, err := w.in.Lstat(w.name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removed: %w", ErrChanged)
		}
		return err
	}
	if !os.SameFile(now, w.before) || now.Mode() != w.before.Mode() || now.Size() != w.before.Size() ||
		!now.ModTime().Equal(w.before.ModTime()) || !changeTime(now).Equal(changeTime(w.before)) {
		return ErrChanged
	}
	if w.began.Sub(w.before.ModTime()) > racy {
		return nil
	}
	return w.same(w.file)
}

// same reads the file once more, from f, and compares.
func (w *writer) same(f *os.File) error {
	piece, release := w.locks.buffer(min(len(w.old)+1, joined))
	defer release()
	piece = piece[:min(cap(piece), joined)] // a stack would have to be copied to make room for it
	for old, off := w.old, 0; ; {
		n, err := f.ReadAt(piece, int64(off))
		if n > len(old) || !bytes.Equal(piece[:n], old[:n]) {
			return ErrChanged
		}
		old, off = old[n:], off+n
		if err == io.EOF && len(old) == 0 {
			return nil
		}
		if err == io.EOF {
			return ErrChanged
		}
		if err != nil {
			return err
		}
	}
}

// overwrite writes the original itself. The part that needs new room goes first, so that a full disk is met while the old bytes still stand.
func (w *writer) overwrite(contents []byte) (Info, error) {
	if err := w.unchanged(); err != nil {
		return Info{}, err
	}
	target, err := w.in.OpenFile(w.name, os.O_RDWR|carefully, 0)
	if errors.Is(err, syscall.ETXTBSY) {
		return Info{}, fmt.Errorf("in use: %w", fs.ErrPermission)
	}
	if err != nil {
		return Info{}, err
	}
	defer target.Close()
	fi, err := target.Stat()
	if err != nil {
		return Info{}, err
	}
	if !os.SameFile(fi, w.before) {
		// In a container's layers the open has copied the file, away from its other names. It is another file with the same bytes then.
		now, err := w.in.Lstat(w.name)
		if err != nil || !os.SameFile(now, fi) {
			return Info{}, errors.Join(ErrChanged, err)
		}
		if err := w.same(target); err != nil {
			return Info{}, err
		}
	}
	if len(contents) > len(w.old) {
		if _, err := target.WriteAt(contents[len(w.old):], int64(len(w.old))); err != nil {
			return Info{}, errors.Join(err, target.Truncate(int64(len(w.old))))
		}
	}
	_, err = target.WriteAt(contents[:min(len(contents), len(w.old))], 0)
	if err == nil {
		err = target.Truncate(int64(len(contents)))
	}
	if err == nil {
		fi, err = target.Stat()
	}
	if err != nil {
		_, restoreErr := target.WriteAt(w.old, 0)
		return Info{}, errors.Join(err, restoreErr, target.Truncate(int64(len(w.old))))
	}
	return infoOf(w.path, fi), nil
}
