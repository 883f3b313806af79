// Package jsonl keeps each session in one plain file of JSON lines: the store of the standalone profile, and the form of exports.
//
// Layout: ROOT/--PROJECT--/ID/session.jsonl, the header on the first line and then one event a line, in canonical encoding. What belongs to a
// session beside its log lies next to that file. Files are 0600 in 0700 directories. Several processes may share a root; a session has one
// writer, by a lock. Commit appends with one write for each session and syncs; a torn last line is dropped, a damaged line before it makes
// that session read-only, with the number of the line. Lists read every file that changed, so this store is for some hundreds of sessions.
package jsonl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dsh-web/dsh-web/host/session"
)

const (
	logName     = "session.jsonl"
	lockName    = "lock"
	metaName    = "meta.json"
	partialName = "partial.jsonl"
	logIDName   = ".log-id"
)

// Options configure a store.
type Options struct {
	// ReadOnly refuses every commit and takes no lock.
	ReadOnly bool
	// Synchronous is "full" (the default: a commit survives a power cut) or "normal" (it survives the death of the process; the disk has it
	// when the session is closed, or when the system writes it back by itself).
	Synchronous string
}

// Store is the store of one root. Close it.
type Store struct {
	root     string
	readOnly bool
	lazy     bool // commits aren't synced
	logID    string

	mu     sync.Mutex // guards everything below, and serialises commits with reads of the index
	files  map[string]*file
	epoch  int64
	closed bool
}

var _ session.StagedStore = (*Store)(nil)

// Open opens a root and makes it when it is missing.
func Open(root string, opts Options) (*Store, error) {
	s := &Store{root: root, readOnly: opts.ReadOnly, files: map[string]*file{}}
	switch opts.Synchronous {
	case "", "full":
	case "normal":
		s.lazy = true
	default:
		return nil, fmt.Errorf("open sessions: synchronous is %q; use full or normal", opts.Synchronous)
	}
	if opts.ReadOnly {
		if _, err := os.Stat(root); err != nil {
			return nil, fmt.Errorf("open sessions: %w", err)
		}
		s.logID = "read-only"
		return s, nil
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("open sessions: %w", err)
	}
	path := filepath.Join(root, logIDName)
	id, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("make log id: %w", err)
		}
		id, err = firstFile(path, []byte(hex.EncodeToString(b[:])))
	}
	if err != nil {
		return nil, fmt.Errorf("open sessions: %w", err)
	}
	s.logID = strings.TrimSpace(string(id))
	return s, nil
}

// firstFile writes a small file, and gives what it holds: another process may have been first.
func firstFile(path string, body []byte) ([]byte, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return nil, err
	}
	_, err = f.Write(body)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// LogID is random and belongs to the root for life.
func (s *Store) LogID() string { return s.logID }

// Acquire makes the caller the owner of this Store value. Other processes are kept away from single sessions by their locks.
func (s *Store) Acquire(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, session.ErrClosed
	}
	s.epoch++
	return s.epoch, nil
}

// Close gives back files and locks. A second one does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.close())
	}
	s.files = map[string]*file{}
	return errors.Join(errs...)
}

// Size is what all files of the root take on disk; it looks at each.
func (s *Store) Size(ctx context.Context) (int64, error) {
	var size int64
	err := filepath.WalkDir(s.root, func(_ string, d os.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && d.Type().IsRegular() {
			var info os.FileInfo
			if info, err = d.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure sessions: %w", err)
	}
	return size, nil
}

// ProjectName is the directory name of a working directory.
func ProjectName(cwd string) string {
	var b strings.Builder
	dash := false
	for _, r := range cwd {
		if r == '/' || r == '\\' || r == ':' {
			dash = true
			continue
		}
		if dash && b.Len() > 0 {
			b.WriteByte('-')
		}
		dash = false
		b.WriteRune(r)
	}
	name := strings.TrimLeft(strings.ReplaceAll(b.String(), "\x00", "_"), "-")
	if name == "" {
		name = "_no-cwd"
	}
	if runes := []rune(name); len(runes) > 251 {
		name = string(runes[:251])
	}
	for len(name) > 251 { // a file name counts bytes
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return "--" + name + "--"
}

// find gives the file of a session, loaded up to its present end; s.mu is held.
func (s *Store) findLocked(id string) (*file, error) {
	if s.closed {
		return nil, session.ErrClosed
	}
	if f := s.files[id]; f != nil {
		if err := f.refresh(); err != nil {
			if errors.Is(err, os.ErrNotExist) && !f.owned() {
				delete(s.files, id)
				return nil, session.ErrNotFound
			}
			return nil, err
		}
		return f, nil
	}
	name, err := session.FileName(id)
	if err != nil {
		return nil, session.ErrNotFound
	}
	projects, err := os.ReadDir(s.root)
	if err != nil {
		return nil, fmt.Errorf("find session: %w", err)
	}
	for _, p := range projects {
		dir := filepath.Join(s.root, p.Name(), name)
		if !isProject(p) || !exists(filepath.Join(dir, logName)) {
			continue
		}
		f, err := s.loadFile(dir)
		if err != nil {
			return nil, err
		}
		if f.info.ID != id {
			f.info.ID, f.header.ID = id, id
			if !f.broken {
				f.damage(1, "the header names another session")
			}
		}
		s.files[id] = f
		return f, nil
	}
	return nil, session.ErrNotFound
}

func isProject(e os.DirEntry) bool {
	return e.IsDir() && strings.HasPrefix(e.Name(), "--") && strings.HasSuffix(e.Name(), "--")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Own makes this process the writer of a session until Disown or Close, and reads what others have written until now. Who lets other processes
// share the root calls it before the journal looks at the session. Another process owns it: *session.LockedError.
func (s *Store) Own(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.findLocked(id)
	if err != nil {
		return err
	}
	return f.own()
}

// Disown lets other processes write a session that nobody here refers to any more.
func (s *Store) Disown(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[id]
	if f == nil {
		return nil
	}
	delete(s.files, id)
	return f.close()
}

// Info reads what lists show of one session.
func (s *Store) Info(_ context.Context, id string) (session.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.findLocked(id)
	if err != nil {
		return session.Info{}, err
	}
	return f.info, nil
}

// Read gives the encoded events of a range.
func (s *Store) Read(_ context.Context, id string, r session.Range) ([][]byte, error) {
	s.mu.Lock()
	f, err := s.findLocked(id)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	lines, damage := f.lines, ""
	if f.broken {
		damage = f.info.Damage
	}
	// Opened here, it is the file of this session, whoever deletes it meanwhile and takes its id.
	log, err := os.Open(f.path(logName))
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("read session %q: %w", id, err)
	}
	defer func() { _ = log.Close() }()
	return readLines(id, log, lines, r, damage)
}

// Document reads a private document.
func (s *Store) Document(_ context.Context, id string, kind session.DocumentKind) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.findLocked(id)
	if err != nil {
		return nil, err
	}
	body, err := os.ReadFile(f.path(documentName(kind)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of session %s: %w", kind, id, err)
	}
	return body, nil
}

func documentName(kind session.DocumentKind) string { return "document-" + string(kind) }

// Commit appends every change, one session after the other, and undoes what it did when one fails.
func (s *Store) Commit(epoch int64, changes []session.Change) error {
	return s.CommitStaged(epoch, changes, func() {})
}

// CommitStaged is Commit, which calls written between the writes and the syncs of the logs. Logs are synced side by side.
func (s *Store) CommitStaged(epoch int64, changes []session.Change, written func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return session.ErrClosed
	}
	if s.readOnly {
		return fmt.Errorf("write sessions: %w", session.ErrReadOnly)
	}
	if epoch != s.epoch {
		return session.ErrStaleEpoch
	}
	var undo []func()
	back := func(id string, err error) error {
		for _, u := range slices.Backward(undo) {
			u()
		}
		return fmt.Errorf("write session %q: %w", id, err)
	}
	var unsynced []*os.File
	var ids []string // of their sessions
	for i := range changes {
		log, err := s.commitLocked(&changes[i], &undo)
		if err != nil {
			return back(changes[i].ID, err)
		}
		if log != nil {
			unsynced, ids = append(unsynced, log), append(ids, changes[i].ID)
		}
	}
	written()
	if i, err := syncAll(unsynced); err != nil {
		return back(ids[i], err)
	}
	for i := range changes { // what can't be taken back comes last
		if err := s.removeLocked(&changes[i]); err != nil {
			return back(changes[i].ID, err)
		}
	}
	return nil
}

// syncers is how many files are synced at a time: a disk takes several flushes as one.
const syncers = 8

// syncAll makes files durable, side by side. It gives the first that can't be.
func syncAll(files []*os.File) (failed int, err error) {
	if len(files) == 1 {
		return 0, files[0].Sync()
	}
	errs := make([]error, len(files))
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(syncers, len(files)) {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(files); i = next.Add(1) - 1 {
				errs[i] = files[i].Sync()
			}
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return i, err
		}
	}
	return 0, nil
}

// commitLocked does everything of a change but what it removes, and the sync of a log that it appended to, which it gives.
func (s *Store) commitLocked(c *session.Change, undo *[]func()) (unsynced *os.File, err error) {
	var f *file
	if c.Create {
		if _, err := s.findLocked(c.ID); err == nil {
			return nil, session.ErrExists
		} else if !errors.Is(err, session.ErrNotFound) {
			return nil, err
		}
		name, err := session.FileName(c.ID)
		if err != nil {
			return nil, err
		}
		f, err = s.createFile(filepath.Join(s.root, ProjectName(c.Info.Cwd), name), c)
		if err != nil {
			return nil, err
		}
		s.files[c.ID] = f
		*undo = append(*undo, func() {
			delete(s.files, c.ID)
			_ = f.close()
			_ = os.RemoveAll(f.dir) // the commit's own failure is what the caller hears
		})
	} else {
		if f, err = s.findLocked(c.ID); err != nil {
			return nil, err
		}
		if err := f.own(); err != nil {
			return nil, err
		}
		if err := f.append(c, undo); err != nil {
			return nil, err
		}
		if len(c.Events) > 0 && !f.lazy && !c.Delete {
			unsynced = f.log
		}
	}
	return unsynced, f.appendPartials(c, undo)
}

// removeLocked removes what a change that is written and synced says.
func (s *Store) removeLocked(c *session.Change) error {
	f := s.files[c.ID]
	switch {
	case c.Delete:
		delete(s.files, c.ID)
		return errors.Join(f.close(), os.RemoveAll(f.dir))
	case c.DropPartial: // the event that stands for it is durable
		return writeFile(f.path(partialName), nil)
	}
	return nil
}
