package jsonl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// Bounds of a text search.
const (
	searchHits = 200
	searchTime = 300 * time.Millisecond
)

// List reads one page, newest creation first.
func (s *Store) List(_ context.Context, q session.Query) (session.List, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = 50
	}
	limit = min(limit, 1000)
	var after *session.Info
	if q.Cursor != "" {
		at, id, ok := strings.Cut(q.Cursor, ":")
		created, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return session.List{}, fmt.Errorf("list sessions: %w", session.ErrBadCursor)
		}
		after = &session.Info{Header: session.Header{ID: id, CreatedAt: created}}
	}
	all, err := s.all()
	if err != nil {
		return session.List{}, err
	}
	slices.SortFunc(all, func(a, b listed) int { return newestFirst(a.info, b.info) })
	needle := []byte(session.FoldText(q.Text))
	deadline := time.Now().Add(searchTime)
	var list session.List
	for _, l := range all {
		i := l.info
		if after != nil && newestFirst(*after, i) >= 0 || !matches(i, q) {
			continue
		}
		if len(needle) > 0 {
			if time.Now().After(deadline) || len(list.Sessions) == searchHits {
				list.Truncated = true
				return list, nil
			}
			if !hasText(l.path, needle, i.Title) {
				continue
			}
		}
		if len(list.Sessions) == limit {
			last := list.Sessions[limit-1]
			list.NextCursor = strconv.FormatInt(last.CreatedAt, 10) + ":" + last.ID
			break
		}
		list.Sessions = append(list.Sessions, i)
	}
	return list, nil
}

func newestFirst(a, b session.Info) int {
	if c := cmp.Compare(b.CreatedAt, a.CreatedAt); c != 0 {
		return c
	}
	return cmp.Compare(b.ID, a.ID)
}

func matches(i session.Info, q session.Query) bool {
	return (q.Preset == "" || q.Preset == i.Preset.ID) && (q.Group == "" || q.Group == i.Group) &&
		(q.Archived == nil || *q.Archived == i.Archived) && (q.Status == "" || q.Status == i.Status())
}

type listed struct {
	info session.Info
	path string
}

// all loads every session of the root.
func (s *Store) all() ([]listed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, session.ErrClosed
	}
	projects, err := os.ReadDir(s.root)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	byDir := map[string]*file{}
	for _, f := range s.files {
		byDir[f.dir] = f
	}
	var out []listed
	for _, p := range projects {
		if !isProject(p) {
			continue
		}
		sessions, err := os.ReadDir(filepath.Join(s.root, p.Name()))
		if err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		for _, d := range sessions {
			dir := filepath.Join(s.root, p.Name(), d.Name())
			f := byDir[dir]
			if f == nil {
				if f, err = s.loadFile(dir); errors.Is(err, os.ErrNotExist) {
					continue // being created, or no session
				}
				if err == nil && f.info.ID == "" {
					f.info.ID = d.Name() // damaged beyond its header: its directory is all there is
				}
			} else {
				err = f.refresh()
			}
			if err != nil {
				return nil, err
			}
			if f.info.ID != "" {
				s.files[f.info.ID] = f
			}
			out = append(out, listed{f.info, f.path(logName)})
		}
	}
	return out, nil
}

// hasText looks for needle in the title and in the messages of a log.
func hasText(path string, needle []byte, title string) bool {
	if bytes.Contains([]byte(session.FoldText(title)), needle) {
		return true
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return false // the session's own row says what is wrong with it
	}
	for line := range bytes.Lines(content) {
		e, err := session.ParseEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			continue
		}
		if text := session.SearchedText(e); text != "" && bytes.Contains([]byte(session.FoldText(text)), needle) {
			return true
		}
	}
	return false
}

// Partials reads the pieces of unfinished messages.
func (s *Store) Partials(_ context.Context, id string) ([]session.Partial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.findLocked(id)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(f.path(partialName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read partial messages of session %q: %w", id, err)
	}
	var out []session.Partial
	for line := range bytes.Lines(content) {
		var p session.Partial
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &p) != nil {
			break // torn
		}
		out = append(out, p)
	}
	return out, nil
}

func (f *file) appendPartials(c *session.Change, undo *[]func()) error {
	path := f.path(partialName)
	if len(c.Partials) > 0 && !c.DropPartial {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		for _, p := range c.Partials {
			if err := enc.Encode(p); err != nil {
				return err
			}
		}
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		end, err := out.Seek(0, 2)
		if err == nil {
			_, err = out.Write(buf.Bytes())
		}
		if err == nil && !f.lazy {
			err = out.Sync()
		}
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			_ = os.Truncate(path, end)
			return err
		}
		*undo = append(*undo, func() { _ = os.Truncate(path, end) })
	}
	return nil
}
