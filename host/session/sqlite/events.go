package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dsh-web/dsh-web/host/session"
)

// reader is a connection of the pool with the statements that read events.
type reader struct {
	readerConn
	begin, end, find, present                  driver.Stmt
	events, eventsDown, arrivals, arrivalsDown driver.Stmt
}

// readerConn is what both drivers' connections can do and database/sql asks for.
type readerConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.QueryerContext
	driver.ExecerContext
}

// readers opens the connections of the pool.
type readers struct{ connector }

func (c readers) Connect(ctx context.Context) (_ driver.Conn, err error) {
	conn, err := c.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	r := &reader{readerConn: conn.(readerConn)}
	for _, s := range []struct {
		stmt *driver.Stmt
		sql  string
	}{
		{&r.begin, "BEGIN"},
		{&r.end, "COMMIT"},
		{&r.find, "SELECT n FROM session WHERE id = ?"},
		{&r.present, "SELECT n FROM session WHERE n = ?"},
		{&r.events, "SELECT key & 4294967295, body FROM event WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?"},
		{&r.eventsDown, "SELECT key & 4294967295, body FROM event WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ?"},
		{&r.arrivals, "SELECT seq, body FROM arrival WHERE n BETWEEN ? AND ? AND session = ? ORDER BY n"},
		{&r.arrivalsDown, "SELECT seq, body FROM arrival WHERE n BETWEEN ? AND ? AND session = ? ORDER BY n DESC"},
	} {
		if *s.stmt, err = conn.Prepare(s.sql); err != nil {
			_ = r.Close()
			return nil, fmt.Errorf("prepare %q: %w", s.sql, err)
		}
	}
	return r, nil
}

// Close closes the statements, then the connection.
func (r *reader) Close() error {
	for _, s := range []driver.Stmt{r.begin, r.end, r.find, r.present, r.events, r.eventsDown, r.arrivals, r.arrivalsDown} {
		if s != nil {
			_ = s.Close()
		}
	}
	return r.readerConn.Close()
}

// Read gives the encoded events of a range: what the session holds at one moment, or ErrNotFound when it is gone by then.
//
// The session's number and the places of its arrivals are looked up before the snapshot is taken. A number is never given twice, so that one
// which is in the snapshot means the same session still. Arrivals that were moved meanwhile are at rest in the snapshot, and what arrived
// meanwhile isn't asked for. The other way round, with places younger than the snapshot, moved events would be in neither.
func (s *Store) Read(ctx context.Context, id string, r session.Range) (out [][]byte, err error) {
	conn, err := s.readers.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("read events of session %s: %w", id, err)
	}
	defer func() { _ = conn.Close() }() // back into the pool
	err = conn.Raw(func(c any) error {
		out, err = s.read(c.(*reader), id, r)
		return err
	})
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, session.ErrNotFound):
		return nil, session.ErrNotFound
	case isCorrupt(err):
		return nil, &session.DamageError{Session: id, Seq: -1, Reason: "the database is damaged where its events are: " + err.Error()}
	}
	return nil, fmt.Errorf("read events of session %s: %w", id, err)
}

func (s *Store) read(c *reader, id string, r session.Range) (out [][]byte, err error) {
	s.mu.Lock()
	n, known := s.rows[id]
	s.mu.Unlock()
	if !known {
		if n, err = queryInt(c.find, id); err != nil {
			return nil, err
		}
	}
	places := s.placesIn(n, r)
	if err := execStmt(c.begin, nil); err != nil {
		return nil, err
	}
	defer func() {
		if endErr := execStmt(c.end, nil); endErr != nil {
			err = errors.Join(err, endErr, driver.ErrBadConn) // it can't be used again
		}
	}()
	if _, err := queryInt(c.present, n); err != nil {
		return nil, err
	}
	if r.Last {
		return readLast(c, n, r, places)
	}
	return readFirst(c, n, r, places)
}

// readFirst reads from the beginning of the range: what is at rest comes before what has arrived.
func readFirst(c *reader, n int64, r session.Range, places []place) ([][]byte, error) {
	take := taking{limit: r.Limit, maxBytes: r.MaxBytes}
	low, high := keyRange(n, r.After, r.Before)
	if err := take.rows(c.events, low, high, sqlLimit(r.Limit)); err != nil {
		return nil, err
	}
	if !take.full {
		if err := take.arrived(c, c.arrivals, n, places); err != nil {
			return nil, err
		}
	}
	return take.bodies, nil
}

// readLast reads from the end of the range.
func readLast(c *reader, n int64, r session.Range, places []place) ([][]byte, error) {
	take := taking{limit: r.Limit, maxBytes: r.MaxBytes}
	if r.Limit > 0 {
		places = places[max(0, len(places)-r.Limit):]
	}
	slices.Reverse(places)
	if err := take.arrived(c, c.arrivalsDown, n, places); err != nil {
		return nil, err
	}
	if !take.full {
		low, high := keyRange(n, r.After, r.Before)
		if err := take.rows(c.eventsDown, low, high, sqlLimit(r.Limit)); err != nil {
			return nil, err
		}
	}
	slices.Reverse(take.bodies)
	return take.bodies, nil
}

func sqlLimit(limit int) int64 {
	if limit <= 0 {
		return -1
	}
	return int64(limit)
}

// taking collects rows until they are as many or as long as was asked for, at least one.
type taking struct {
	limit, maxBytes int
	bodies          [][]byte
	size            int
	full            bool
}

// sparse is how many rows of others may lie between two of a session before each is read by its place.
const sparse = 8

// arrived reads what is at places, between other sessions' events.
func (t *taking) arrived(c *reader, run driver.Stmt, n int64, places []place) error {
	if len(places) == 0 {
		return nil
	}
	low, high := places[0].n, places[len(places)-1].n
	low, high = min(low, high), max(low, high)
	if high-low < int64(sparse*len(places)) {
		return t.rows(run, low, high, n)
	}
	for _, p := range places {
		if err := t.rows(c.arrivals, p.n, p.n, n); err != nil || t.full {
			return err
		}
	}
	return nil
}

func (t *taking) rows(stmt driver.Stmt, args ...driver.Value) error {
	var named [4]driver.NamedValue
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), name(named[:0], args))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var row [2]driver.Value
	for {
		if t.limit > 0 && len(t.bodies) == t.limit {
			t.full = true
			return nil
		}
		switch err := rows.Next(row[:]); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		body, ok := row[1].([]byte) // the driver's copy, ours to keep
		if !ok {
			return fmt.Errorf("the body of event %v is a %T", row[0], row[1])
		}
		if t.size += len(body); t.maxBytes > 0 && t.size > t.maxBytes && len(t.bodies) > 0 {
			t.full = true
			return nil
		}
		t.bodies = append(t.bodies, body)
	}
}

// placesIn gives the places of the arrivals in a range.
func (s *Store) placesIn(n int64, r session.Range) []place {
	s.mu.Lock()
	all := s.arrivals[n]
	s.mu.Unlock()
	from, _ := slices.BinarySearchFunc(all, r.After+1, func(p place, seq int64) int { return cmp.Compare(p.seq, seq) })
	to, _ := slices.BinarySearchFunc(all, r.Before, func(p place, seq int64) int { return cmp.Compare(p.seq, seq) })
	return slices.Clone(all[from:max(from, to)])
}

// name makes arguments of values.
func name(out []driver.NamedValue, values []driver.Value) []driver.NamedValue {
	for i, v := range values {
		out = append(out, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return out
}

// queryInt gives the first column of the first row, ErrNotFound without one.
func queryInt(stmt driver.Stmt, arg driver.Value) (int64, error) {
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), []driver.NamedValue{{Ordinal: 1, Value: arg}})
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var row [1]driver.Value
	switch err := rows.Next(row[:]); {
	case errors.Is(err, io.EOF):
		return 0, session.ErrNotFound
	case err != nil:
		return 0, err
	}
	n, ok := row[0].(int64)
	if !ok {
		return 0, fmt.Errorf("a number is a %T", row[0])
	}
	return n, nil
}
