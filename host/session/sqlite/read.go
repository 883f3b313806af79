package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// Info reads one row.
func (s *Store) Info(ctx context.Context, id string) (session.Info, error) {
	_, info, err := scanInfo(s.readers.QueryRowContext(ctx, "SELECT n, id, "+sessionColumns+" FROM session WHERE id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return session.Info{}, session.ErrNotFound
	}
	if err != nil {
		return session.Info{}, fmt.Errorf("read session %s: %w", id, err)
	}
	return info, nil
}

// scanInfo reads a row. A header or labels that can't be read make the session damaged, not the list.
func scanInfo(row interface{ Scan(...any) error }) (n int64, i session.Info, err error) {
	var header []byte
	var labels, group string
	err = row.Scan(&n, &i.ID, &header, &group, &i.Title, &i.Preset.ID, &i.Preset.Hash, &i.LastSeq, &i.LastHash, &i.UpdatedAt, &i.Usage.InputTokens,
		&i.Usage.OutputTokens, &i.Usage.CacheReadTokens, &i.Usage.CacheWriteTokens, &i.Usage.ReasoningTokens, &i.Pending, &i.Queue, &i.Turns,
		&i.TurnSeq, &i.StepSeq, &i.TurnOpen, &i.Blank, &i.Model.Provider, &i.Model.Model, &i.Archived, &labels, &i.Damage)
	if err != nil {
		return 0, i, err
	}
	id := i.ID
	if err := json.Unmarshal(header, &i.Header); err != nil || i.Header.ID != id {
		i.Header = session.Header{ID: id, Group: group}
		i.Damage = session.DamagedRow
	}
	if err := json.Unmarshal([]byte(labels), &i.Labels); err != nil {
		i.Damage = session.DamagedRow
	}
	if len(i.Labels) == 0 {
		i.Labels = nil
	}
	return n, i, nil
}

// Document reads a private document.
func (s *Store) Document(ctx context.Context, id string, kind session.DocumentKind) ([]byte, error) {
	var body []byte
	err := s.readers.QueryRowContext(ctx, "SELECT body FROM session LEFT JOIN document ON session = n AND kind = ? WHERE id = ?", string(kind), id).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, session.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of session %s: %w", kind, id, err)
	}
	return body, nil
}

// Partials reads the pieces of unfinished messages.
func (s *Store) Partials(ctx context.Context, id string) ([]session.Partial, error) {
	rows, err := s.readers.QueryContext(ctx, `SELECT turn, step, attempt, block, kind, name, call_id, text FROM partial
		WHERE session = (SELECT n FROM session WHERE id = ?) ORDER BY n`, id)
	if err != nil {
		return nil, fmt.Errorf("read partial messages of session %s: %w", id, err)
	}
	defer func() { _ = rows.Close() }()
	var out []session.Partial
	for rows.Next() {
		var p session.Partial
		if err := rows.Scan(&p.Turn, &p.Step, &p.Attempt, &p.Block, &p.Kind, &p.Name, &p.CallID, &p.Text); err != nil {
			return nil, fmt.Errorf("read partial messages of session %s: %w", id, err)
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

// Bounds of a text search.
const (
	searchHits = 200
	searchTime = 300 * time.Millisecond
)

// List reads one page, newest first. The cursor is the row number of the last session of the page before.
func (s *Store) List(ctx context.Context, q session.Query) (session.List, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = 50
	}
	limit = min(limit, 1000)
	where, args, err := filters(q)
	if err != nil {
		return session.List{}, err
	}
	var list session.List
	if q.Text != "" {
		return s.search(ctx, q, limit, where, args)
	}
	rows, err := s.readers.QueryContext(ctx, "SELECT n, id, "+sessionColumns+" FROM session WHERE "+where+" ORDER BY n DESC LIMIT ?", append(args, limit+1)...)
	if err != nil {
		return list, fmt.Errorf("list sessions: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var last int64
	for rows.Next() {
		n, info, err := scanInfo(rows)
		if err != nil {
			return list, fmt.Errorf("list sessions: %w", err)
		}
		if len(list.Sessions) == limit {
			list.NextCursor = strconv.FormatInt(last, 10)
			break
		}
		list.Sessions = append(list.Sessions, info)
		last = n
	}
	return list, rows.Err()
}

// filters gives the conditions of q other than its text.
func filters(q session.Query) (where string, args []any, err error) {
	conditions := []string{"1"}
	add := func(condition string, values ...any) {
		conditions = append(conditions, condition)
		args = append(args, values...)
	}
	if q.Cursor != "" {
		n, err := strconv.ParseInt(q.Cursor, 10, 64)
		if err != nil {
			return "", nil, fmt.Errorf("list sessions: %w", session.ErrBadCursor)
		}
		add("n < ?", n)
	}
	if q.Preset != "" {
		add("preset = ?", q.Preset)
	}
	if q.Group != "" {
		add("grp = ? AND grp <> ''", q.Group)
	}
	if q.Archived != nil {
		add("archived = ?", *q.Archived)
	}
	switch q.Status {
	case "":
	case session.StatusRunning:
		add("turn_open = 1 AND damage = ''")
	case session.StatusIdle:
		add("turn_open = 0 AND damage = ''")
	case session.StatusDamaged:
		add("damage <> ''")
	default:
		return "", nil, fmt.Errorf("list sessions: the status %q doesn't exist", q.Status)
	}
	return strings.Join(conditions, " AND "), args, nil
}

// search walks the texts from the newest session to the oldest; a session's first hit ends the walk through its texts.
func (s *Store) search(ctx context.Context, q session.Query, limit int, where string, args []any) (session.List, error) {
	var list session.List
	deadline, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	needle := session.FoldText(q.Text)
	high := int64(1)<<62 - 1
	if q.Cursor != "" {
		n, _ := strconv.ParseInt(q.Cursor, 10, 64) // filters has parsed it
		high = n<<seqBits - 1
	}
	for hits := 0; ; hits++ {
		if hits == searchHits {
			list.Truncated = true
			return list, nil
		}
		var key int64
		err := s.readers.QueryRowContext(deadline, "SELECT key FROM search WHERE key <= ? AND instr(body, ?) > 0 ORDER BY key DESC LIMIT 1", high, needle).Scan(&key)
		if errors.Is(err, sql.ErrNoRows) {
			return list, nil
		}
		if err != nil {
			if deadline.Err() != nil && ctx.Err() == nil {
				list.Truncated = true
				return list, nil
			}
			return list, fmt.Errorf("search sessions: %w", err)
		}
		n := key >> seqBits
		high = n<<seqBits - 1
		_, info, err := scanInfo(s.readers.QueryRowContext(ctx, "SELECT n, id, "+sessionColumns+" FROM session WHERE n = ? AND "+where, append([]any{n}, args...)...))
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return list, fmt.Errorf("search sessions: %w", err)
		}
		if len(list.Sessions) == limit {
			list.NextCursor = strconv.FormatInt(n+1, 10)
			return list, nil
		}
		list.Sessions = append(list.Sessions, info)
	}
}
