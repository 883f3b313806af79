package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"

	"github.com/dsh-web/dsh-web/host/session"
)

// file is one session on disk: what is known of it and, once this process writes it, the open file and its lock.
type file struct {
	dir    string
	header session.Header
	state  session.State // folded up to the last good line; only its facts are used
	info   session.Info
	lines  []int64 // where the events' lines begin; the last entry is the end of what is valid
	broken bool    // a line before the end can't be read
	lazy   bool    // nothing is synced before close
	stamp  stamp   // of the log file when it was loaded
	ragged bool    // the log may go on behind the end of what is valid
	kept   int64   // up to where the disk keeps room for the log

	log     *os.File // open for appending, nil until own
	release func() error
}

type stamp struct {
	size  int64
	nanos int64
}

// meta is what the owner set beside the log. Damage isn't part of it: the log file itself says it whenever it is read.
type meta struct {
	Model    session.ModelRef  `json:"model,omitzero"`
	Archived bool              `json:"archived,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

func (f *file) path(name string) string { return filepath.Join(f.dir, name) }

func (f *file) owned() bool { return f.log != nil }

// loadFile reads a session from its directory.
func (s *Store) loadFile(dir string) (*file, error) {
	f := &file{dir: dir, lazy: s.lazy}
	return f, f.load()
}

func (f *file) load() error {
	content, err := os.ReadFile(f.path(logName))
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	if err := f.restamp(); err != nil {
		return err
	}
	f.broken = false
	end := bytes.IndexByte(content, '\n')
	var header session.Header
	if end >= 0 {
		header, err = session.ParseHeaderLine(content[:end])
	}
	if end < 0 || err != nil {
		f.lines = []int64{0}
		f.info = session.Info{LogFacts: session.NewState(session.Header{}).Facts()}
		f.damage(1, "the header can't be read")
		return nil
	}
	f.header = header
	f.state = session.NewState(header)
	f.info = session.Info{Header: header, Labels: header.Labels}
	f.lines = []int64{int64(end + 1)}
	f.scan(content[end+1:])
	return f.loadMeta()
}

// scan folds lines that follow what is known, up to a torn or damaged one.
func (f *file) scan(content []byte) {
	at := f.lines[len(f.lines)-1]
	for len(content) > 0 {
		end := bytes.IndexByte(content, '\n')
		if end < 0 {
			break // torn: the write was never acknowledged
		}
		next, e, err := session.Fold(f.state, content[:end])
		if err != nil {
			f.broken = true
			var damage *session.DamageError
			reason := err.Error()
			if errors.As(err, &damage) {
				reason = damage.Reason
			}
			f.damage(len(f.lines)+1, reason)
			break
		}
		f.state = next
		if e.Type == (session.RequestHeader{}).EventType() && next.Request != nil {
			f.info.Model = session.ModelRef{Provider: next.Request.Header.Config.Provider, Model: next.Request.Header.Config.Model}
		}
		at += int64(end + 1)
		f.lines = append(f.lines, at)
		content = content[end+1:]
	}
	f.state.History = nil // the messages aren't needed here
	f.info.LogFacts = f.state.Facts()
}

func (f *file) damage(line int, reason string) {
	f.broken = true
	f.info.Damage = fmt.Sprintf("line %d of %s: %s", line, f.path(logName), reason)
}

func (f *file) loadMeta() error {
	content, err := os.ReadFile(f.path(metaName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	var m meta
	if err := json.Unmarshal(content, &m); err != nil {
		f.info.Damage = metaName + " can't be read"
	}
	f.info.Archived, f.info.Labels = m.Archived, m.Labels
	if m.Model != (session.ModelRef{}) {
		f.info.Model = m.Model
	}
	return nil
}

func (f *file) restamp() error {
	info, err := os.Stat(f.path(logName))
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	f.stamp = stamp{info.Size(), info.ModTime().UnixNano()}
	return nil
}

// refresh loads again what another process has changed.
func (f *file) refresh() error {
	if f.owned() {
		return nil
	}
	old := f.stamp
	if err := f.restamp(); err != nil {
		return err
	}
	if f.stamp == old {
		return nil
	}
	return f.load()
}

// own takes the session's lock and opens it for appending; a torn last line goes.
func (f *file) own() error {
	if f.owned() {
		return nil
	}
	release, err := session.LockFile(f.path(lockName))
	if err != nil {
		return err
	}
	if err := f.refresh(); err != nil { // another process may have written until now
		return errors.Join(err, release())
	}
	log, err := os.OpenFile(f.path(logName), os.O_RDWR, 0)
	if err == nil && !f.broken {
		err = log.Truncate(f.lines[len(f.lines)-1])
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open session for writing: %w", err), log.Close(), release())
	}
	f.log, f.release = log, release
	return nil
}

func (f *file) close() error {
	if !f.owned() {
		return nil
	}
	err := f.giveBack()
	if f.lazy {
		err = errors.Join(err, f.log.Sync())
	}
	err = errors.Join(err, f.log.Close(), f.release())
	f.log, f.release = nil, nil
	return err
}

// createFile makes a session. The log file comes last: without it there is no session.
func (s *Store) createFile(dir string, c *session.Change) (_ *file, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &file{dir: dir, lazy: s.lazy, header: c.Info.Header, state: session.NewState(c.Info.Header), info: *c.Info}
	if f.release, err = session.LockFile(f.path(lockName)); err != nil {
		return nil, err
	}
	if exists(f.path(logName)) { // made by another process just now
		return nil, errors.Join(session.ErrExists, f.release())
	}
	defer func() {
		if err != nil {
			if f.log != nil {
				_ = f.log.Close()
			}
			_ = os.RemoveAll(dir)
			_ = f.release()
		}
	}()
	// Nobody knows the directory yet, so what lies in it is synced at once. The log gets its name when all is whole: half a header, or none, would
	// be a damaged session for ever.
	var files []*os.File
	defer func() {
		for _, other := range files {
			if other != f.log {
				err = errors.Join(err, other.Close())
			}
		}
	}()
	create := func(name string, body []byte) (out *os.File, err error) {
		if out, err = os.OpenFile(f.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return nil, err
		}
		files = append(files, out)
		_, err = out.Write(body)
		return out, err
	}
	for _, d := range c.Documents {
		if _, err := create(documentName(d.Kind), d.Body); err != nil {
			return nil, err
		}
	}
	facts, err := f.meta()
	if err == nil {
		_, err = create(metaName, facts)
	}
	if err != nil {
		return nil, err
	}
	header, err := session.HeaderLine(c.Info.Header)
	if err != nil {
		return nil, err
	}
	header = append(header, '\n')
	if f.log, err = create(logName+".new", header); err != nil {
		return nil, err
	}
	f.lines = []int64{int64(len(header))}
	if err := f.write(c); err != nil {
		return nil, err
	}
	if !f.lazy {
		if _, err := syncAll(files); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(f.path(logName+".new"), f.path(logName)); err != nil {
		return nil, err
	}
	if f.lazy {
		return f, nil
	}
	return f, syncDirectories(dir)
}

// syncDirectories makes the names of a new session durable: its directory, the project's, the root.
func syncDirectories(dir string) (err error) {
	var all []*os.File
	defer func() {
		for _, d := range all {
			err = errors.Join(err, d.Close())
		}
	}()
	for range 3 {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		all, dir = append(all, d), filepath.Dir(dir)
	}
	_, err = syncAll(all)
	return err
}

// write puts a change's events at the end, with one write, and only then counts them as lines. They aren't synced yet.
func (f *file) write(c *session.Change) error {
	size := 0
	for _, e := range c.Events {
		size += len(e.Data) + 1
	}
	buf := make([]byte, 0, size)
	lines := f.lines
	at := lines[len(lines)-1]
	end := at
	for _, e := range c.Events {
		buf = append(append(buf, e.Data...), '\n')
		end += int64(len(e.Data) + 1)
		lines = append(lines, end)
	}
	if err := f.keepRoom(end, c.Ending); err != nil {
		return err
	}
	if f.ragged {
		if err := f.cut(at); err != nil {
			return err
		}
	}
	if _, err := f.log.WriteAt(buf, at); err != nil {
		_ = f.cut(at)
		return err
	}
	f.lines = lines
	return nil
}

// cut takes back what was written behind the end, none of which was acknowledged. What can't be taken back now is before the next write.
func (f *file) cut(end int64) error {
	err := f.log.Truncate(end)
	f.ragged, f.kept = err != nil, 0
	return err
}

// append writes a change of a session that exists.
func (f *file) append(c *session.Change, undo *[]func()) error {
	if len(c.Events) > 0 {
		if f.broken {
			return &session.DamageError{Session: c.ID, Seq: int64(len(f.lines) - 1), Reason: f.info.Damage}
		}
		if next := int64(len(f.lines) - 1); c.Events[0].Seq != next {
			return fmt.Errorf("another process has written the session meanwhile: its log goes on with event %d, not %d", next, c.Events[0].Seq)
		}
		lines := f.lines
		if err := f.write(c); err != nil {
			return err
		}
		*undo = append(*undo, func() {
			_ = f.cut(lines[len(lines)-1])
			f.lines = lines
		})
	}
	for _, d := range c.Documents {
		path := f.path(documentName(d.Kind))
		old, readErr := os.ReadFile(path)
		if err := writeFile(path, d.Body); err != nil {
			return err
		}
		*undo = append(*undo, func() {
			if readErr != nil {
				old = nil
			}
			_ = writeFile(path, old)
		})
	}
	if c.Info == nil {
		return nil
	}
	old := f.info
	f.info = *c.Info
	same := old.Model == f.info.Model && old.Archived == f.info.Archived && maps.Equal(old.Labels, f.info.Labels)
	if !same {
		if err := f.writeMeta(); err != nil {
			f.info = old
			return err
		}
	}
	*undo = append(*undo, func() {
		f.info = old
		if !same {
			_ = f.writeMeta()
		}
	})
	return nil
}

func (f *file) meta() ([]byte, error) {
	return json.Marshal(meta{Model: f.info.Model, Archived: f.info.Archived, Labels: f.info.Labels})
}

func (f *file) writeMeta() error {
	b, err := f.meta()
	if err != nil {
		return err
	}
	return writeFile(f.path(metaName), b)
}

// writeFile replaces a small file durably; nil removes it.
func writeFile(path string, body []byte) error {
	if body == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}

// readLines reads events by their places. Beyond the last good line of a damaged file it fails.
func readLines(id string, f io.ReaderAt, lines []int64, r session.Range, damage string) ([][]byte, error) {
	count := int64(len(lines) - 1)
	from, to := max(r.After, -1)+1, min(r.Before, math.MaxInt64)
	if damage != "" && from >= count && to > count {
		return nil, &session.DamageError{Session: id, Seq: count, Reason: damage}
	}
	to = min(to, count)
	if from >= to {
		return nil, nil
	}
	if limit := int64(r.Limit); limit > 0 && to-from > limit {
		if r.Last {
			from = to - limit
		} else {
			to = from + limit
		}
	}
	if r.MaxBytes > 0 {
		size := func(seq int64) int64 { return lines[seq+1] - lines[seq] - 1 }
		total := int64(0)
		if r.Last {
			first := to
			for first > from && (first == to || total+size(first-1) <= int64(r.MaxBytes)) {
				first--
				total += size(first)
			}
			from = first
		} else {
			last := from
			for last < to && (last == from || total+size(last) <= int64(r.MaxBytes)) {
				total += size(last)
				last++
			}
			to = last
		}
	}
	buf := make([]byte, lines[to]-lines[from])
	if _, err := io.ReadFull(io.NewSectionReader(f, lines[from], int64(len(buf))), buf); err != nil {
		return nil, &session.DamageError{Session: id, Seq: from, Reason: "the file is shorter than it was: " + err.Error()}
	}
	out := make([][]byte, 0, to-from)
	for seq := from; seq < to; seq++ {
		out = append(out, buf[lines[seq]-lines[from]:lines[seq+1]-lines[from]-1:lines[seq+1]-lines[from]-1])
	}
	return out, nil
}
