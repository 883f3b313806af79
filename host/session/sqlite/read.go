package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// row finds a session's row number.
func (s *Store) row(ctx context.Context, id string) (int64, error) {
	s.mu.Lock()
	n, ok := s.rows[id]
	s.mu.Unlock()
	if ok {
		return n, nil
	}
	err := s.readers.QueryRowContext(ctx, "SELECT n FROM session WHERE id = ?", id).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, session.ErrNotFound
	}
	return n, err
}

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

// Read gives the encoded events of a range. What has arrived is read before what is at rest: an event that is moved between the two reads
// is found twice, never not at all.
func (s *Store) Read(ctx context.Context, id string, r session.Range) ([][]byte, error) {
	n, err := s.row(ctx, id)
	if err != nil {
		return nil, err
	}
	limit := r.Limit
	if limit <= 0 {
		limit = math.MaxInt
	}
	events, err := s.read(ctx, n, r, limit)
	if errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		if isCorrupt(err) {
			return nil, &session.DamageError{Session: id, Seq: -1, Reason: "the database is damaged where its events are: " + err.Error()}
		}
		return nil, fmt.Errorf("read events of session %s: %w", id, err)
	}
	return events, nil
}

func (s *Store) read(ctx context.Context, n int64, r session.Range, limit int) ([][]byte, error) {
	if r.Last {
		return s.readLast(ctx, n, r, limit)
	}
	places := s.placesIn(n, r)
	if len(places) > 0 {
		atRest := places[0].seq - r.After - 1
		places = places[:max(0, min(int64(len(places)), int64(limit)-atRest))]
	}
	arrivals, _, err := s.readArrivals(ctx, n, places, "ASC", r.MaxBytes)
	if err != nil {
		return nil, err
	}
	low, high := keyRange(n, r.After, r.Before)
	events, whole, err := s.readRows(ctx, r.MaxBytes, "SELECT key & 4294967295, body FROM event WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?", low, high, limit)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 && (len(arrivals) == 0 || arrivals[0].seq > r.After+1) {
		if err := s.present(ctx, n); err != nil {
			return nil, err
		}
	}
	out := make([][]byte, 0, len(events)+len(arrivals))
	size, last := 0, r.After
	for _, e := range events {
		out = append(out, e.body)
		size, last = size+len(e.body), e.seq
	}
	for _, a := range arrivals {
		if a.seq <= last {
			continue // moved between the two reads
		}
		if size += len(a.body); !whole || len(out) == limit || (r.MaxBytes > 0 && size > r.MaxBytes && len(out) > 0) {
			break
		}
		out = append(out, a.body)
	}
	return out, nil
}

// present tells a hole from a session that was deleted between two reads, which is no damage.
func (s *Store) present(ctx context.Context, n int64) error {
	err := s.readers.QueryRowContext(ctx, "SELECT n FROM session WHERE n = ?", n).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return session.ErrNotFound
	}
	return err
}

// readLast reads from the end of the range.
func (s *Store) readLast(ctx context.Context, n int64, r session.Range, limit int) ([][]byte, error) {
	places := s.placesIn(n, r)
	places = places[max(0, len(places)-limit):]
	arrivals, whole, err := s.readArrivals(ctx, n, places, "DESC", r.MaxBytes)
	if err != nil {
		return nil, err
	}
	if whole && len(arrivals) < limit {
		if len(arrivals) > 0 {
			r.Before = arrivals[len(arrivals)-1].seq
		}
		size := 0
		for _, a := range arrivals {
			size += len(a.body)
		}
		left := 0
		if r.MaxBytes > 0 {
			left = max(1, r.MaxBytes-size)
		}
		low, high := keyRange(n, r.After, r.Before)
		events, _, err := s.readRows(ctx, left, "SELECT key & 4294967295, body FROM event WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ?", low, high, limit-len(arrivals))
		if err != nil {
			return nil, err
		}
		if r.MaxBytes > 0 && len(arrivals) > 0 && len(events) > 0 && size+len(events[0].body) > r.MaxBytes {
			events = nil // readRows gives at least one
		}
		arrivals = append(arrivals, events...)
	}
	out := make([][]byte, len(arrivals))
	for i, a := range arrivals {
		out[len(out)-1-i] = a.body
	}
	return out, nil
}

type found struct {
	seq  int64
	body []byte
}

// readArrivals reads what is at places, between other sessions' events.
func (s *Store) readArrivals(ctx context.Context, n int64, places []place, order string, maxBytes int) (out []found, whole bool, err error) {
	if len(places) == 0 {
		return nil, true, nil
	}
	return s.readRows(ctx, maxBytes, "SELECT seq, body FROM arrival WHERE n BETWEEN ? AND ? AND session = ? ORDER BY n "+order,
		places[0].n, places[len(places)-1].n, n)
}

// readRows reads rows until they hold maxBytes, but at least one; zero doesn't limit.
func (s *Store) readRows(ctx context.Context, maxBytes int, query string, args ...any) (out []found, whole bool, err error) {
	if a := len(args) - 1; strings.Contains(query, "LIMIT") && args[a] == math.MaxInt {
		args[a] = -1
	}
	rows, err := s.readers.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	size := 0
	for rows.Next() {
		var f found
		if err := rows.Scan(&f.seq, &f.body); err != nil {
			return nil, false, err
		}
		if size += len(f.body); maxBytes > 0 && size > maxBytes && len(out) > 0 {
			return out, false, nil
		}
		out = append(out, f)
	}
	return out, true, rows.Err()
}

func (s *Store) placesIn(n int64, r session.Range) []place {
	s.mu.Lock()
	all := s.arrivals[n]
	s.mu.Unlock()
	from, _ := slices.BinarySearchFunc(all, r.After+1, func(p place, seq int64) int { return cmp.Compare(p.seq, seq) })
	to, _ := slices.BinarySearchFunc(all, r.Before, func(p place, seq int64) int { return cmp.Compare(p.seq, seq) })
	return all[from:max(from, to)]
}

// Document reads a private document.
func (s *Store) Document(ctx context.Context, id string, kind session.DocumentKind) ([]byte, error) {
	n, err := s.row(ctx, id)
	if err != nil {
		return nil, err
	}
	var body []byte
	err = s.readers.QueryRowContext(ctx, "SELECT body FROM document WHERE session = ? AND kind = ?", n, string(kind)).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, s.present(ctx, n)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of session %s: %w", kind, id, err)
	}
	return body, nil
}

// Partials reads the pieces of unfinished messages.
func (s *Store) Partials(ctx context.Context, id string) ([]session.Partial, error) {
	n, err := s.row(ctx, id)
	if err != nil {
		return nil, err
	}
	rows, err := s.readers.QueryContext(ctx, "SELECT turn, step, attempt, block, kind, name, call_id, text FROM partial WHERE session = ? ORDER BY n", n)
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
