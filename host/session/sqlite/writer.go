package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/dsh-web/dsh-web/host/session"
)

// writer is the one connection that writes, with its statements. Whoever took it from Store.writer may use it.
type writer struct {
	conn driver.Conn

	checkpoint, begin, commit, rollback, epoch, setEpoch, setLast driver.Stmt
	insertSession, updateSession, deleteSession, findSession      driver.Stmt
	updateFacts                                                   driver.Stmt
	insertEvent, deleteEvents, insertText, deleteTexts            driver.Stmt
	insertArrival, deleteArrival, moveArrivals, dropArrivals      driver.Stmt
	putDocument, deleteDocument, insertPartial, deletePartial     driver.Stmt

	args []driver.NamedValue // reused

	// last is the number that the last new session was given. No number is given twice, so that whoever looked one up can't meet another
	// session under it.
	last int64
	// next is the number of the next arrival, size the bytes of all that are there, moveAt the size at which a commit moves some.
	next   int64
	size   int
	pieces []piece
	moveAt int
}

const sessionColumns = `header, grp, title, preset, preset_hash, last_seq, last_hash, updated_at, usage_input, usage_output, usage_read,
	usage_write, usage_reasoning, pending, queue, turns, turn_seq, step_seq, turn_open, blank, model_provider, model_id, archived, labels, damage`

func openWriter(ctx context.Context, path string, p pragmas) (_ *writer, err error) {
	w := &writer{}
	if w.conn, err = (connector{path, p}).Connect(ctx); err != nil {
		return nil, err
	}
	if err := execText(w.conn, "PRAGMA wal_autocheckpoint = "+lastPages); err != nil {
		_ = w.conn.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	for _, s := range []struct {
		stmt *driver.Stmt
		sql  string
	}{
		{&w.checkpoint, checkpointSQL},
		{&w.begin, "BEGIN IMMEDIATE"},
		{&w.commit, "COMMIT"},
		{&w.rollback, "ROLLBACK"},
		{&w.epoch, "SELECT value FROM meta WHERE name = 'epoch'"},
		{&w.setEpoch, "UPDATE meta SET value = ? WHERE name = 'epoch'"},
		{&w.setLast, "INSERT OR REPLACE INTO meta (name, value) VALUES ('last_session', ?)"},
		{&w.insertSession, "INSERT INTO session (n, id, " + sessionColumns + ") VALUES (?, " +
			"?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&w.updateSession, `UPDATE session SET title = ?, preset = ?, preset_hash = ?, last_seq = ?, last_hash = ?, updated_at = ?, usage_input = ?,
			usage_output = ?, usage_read = ?, usage_write = ?, usage_reasoning = ?, pending = ?, queue = ?, turns = ?, turn_seq = ?, step_seq = ?, turn_open = ?,
			blank = ?, model_provider = ?, model_id = ?, archived = ?, labels = ?, damage = ? WHERE n = ?`},
		{&w.updateFacts, `UPDATE session SET last_seq = ?, last_hash = ?, updated_at = ?, usage_input = ?, usage_output = ?, usage_read = ?,
			usage_write = ?, usage_reasoning = ?, pending = ?, queue = ?, turns = ?, turn_seq = ?, step_seq = ?, turn_open = ?, blank = ? WHERE n = ?`},
		{&w.deleteSession, "DELETE FROM session WHERE n = ?"},
		{&w.findSession, "SELECT n FROM session WHERE id = ?"},
		{&w.insertEvent, "INSERT INTO event (key, body) VALUES (?, ?)"},
		{&w.deleteEvents, "DELETE FROM event WHERE key BETWEEN ? AND ?"},
		{&w.insertArrival, "INSERT INTO arrival (n, session, seq, body) VALUES (?, ?, ?, ?)"},
		{&w.deleteArrival, "DELETE FROM arrival WHERE n = ?"},
		{&w.moveArrivals, "INSERT INTO event (key, body) SELECT session << 32 | seq, body FROM arrival WHERE n <= ? ORDER BY session, seq"},
		{&w.dropArrivals, "DELETE FROM arrival WHERE n <= ?"},
		{&w.insertText, "INSERT OR REPLACE INTO search (key, body) VALUES (?, ?)"},
		{&w.deleteTexts, "DELETE FROM search WHERE key BETWEEN ? AND ?"},
		{&w.putDocument, "INSERT OR REPLACE INTO document (session, kind, body) VALUES (?, ?, ?)"},
		{&w.deleteDocument, "DELETE FROM document WHERE session = ? AND kind = ?"},
		{&w.insertPartial, "INSERT INTO partial (session, turn, step, attempt, block, kind, name, call_id, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&w.deletePartial, "DELETE FROM partial WHERE session = ?"},
	} {
		if *s.stmt, err = w.conn.Prepare(s.sql); err != nil {
			_ = w.close()
			return nil, fmt.Errorf("prepare %q: %w", s.sql, err)
		}
	}
	return w, nil
}

func (w *writer) close() error {
	for _, s := range []driver.Stmt{
		w.checkpoint, w.begin, w.commit, w.rollback, w.epoch, w.setEpoch, w.setLast, w.insertSession, w.updateSession, w.updateFacts, w.deleteSession, w.findSession, w.insertEvent,
		w.deleteEvents, w.insertArrival, w.deleteArrival, w.moveArrivals, w.dropArrivals, w.insertText, w.deleteTexts, w.putDocument, w.deleteDocument, w.insertPartial, w.deletePartial,
	} {
		if s != nil {
			_ = s.Close()
		}
	}
	return w.conn.Close()
}

func (w *writer) text(query string) (string, error) { return queryText(w.conn, query) }

// exec runs a statement. The context never ends, since the drivers start a goroutine for one that can.
func (w *writer) exec(stmt driver.Stmt, args ...driver.Value) error {
	w.args = name(w.args[:0], args)
	return execStmt(stmt, w.args)
}

// transaction runs f between begin and commit. When anything fails nothing is written.
func (w *writer) transaction(f func() error) error {
	if err := w.exec(w.begin); err != nil {
		return err
	}
	err := f()
	if err == nil {
		err = w.exec(w.commit)
	}
	if err != nil {
		// SQLite may have rolled back by itself, and then says so here.
		_ = w.exec(w.rollback)
	}
	return err
}

// take waits for the writer; give it back.
func (s *Store) take(ctx context.Context) (*writer, error) {
	select {
	case w, ok := <-s.writer:
		if !ok {
			return nil, session.ErrClosed
		}
		return w, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Acquire makes the caller the owner under a new epoch.
func (s *Store) Acquire(ctx context.Context) (epoch int64, err error) {
	w, err := s.take(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { s.writer <- w }()
	err = w.transaction(func() error {
		text, err := stmtText(w.epoch)
		if err != nil {
			return err
		}
		if epoch, err = strconv.ParseInt(text, 10, 64); err != nil {
			return err
		}
		epoch++
		return w.exec(w.setEpoch, epoch)
	})
	if err != nil {
		return 0, fmt.Errorf("acquire database: %w", err)
	}
	return epoch, nil
}

// pending is what a transaction has done and memory doesn't show yet.
type pending struct {
	rows     map[string]int64
	arrivals []arrived
	last     int64
	next     int64
	size     int
	deleted  []string
	gone     []int64
}

type arrived struct{ session, seq, n int64 }

// Commit writes all changes in one transaction.
func (s *Store) Commit(epoch int64, changes []session.Change) error {
	s.keepUp()
	w, err := s.take(context.Background())
	if err != nil {
		return err
	}
	defer func() { s.writer <- w }()
	if w.size > w.moveAt {
		s.move(w)
	}
	s.written.Add(int64(4096 * (2 + len(changes)/8)))
	p := pending{last: w.last, next: w.next}
	err = w.transaction(func() error {
		current, err := stmtText(w.epoch)
		if err != nil {
			return err
		}
		if current != strconv.FormatInt(epoch, 10) {
			return session.ErrStaleEpoch
		}
		for i := range changes {
			if err := s.commitOne(w, &changes[i], &p); err != nil {
				return fmt.Errorf("write session %s: %w", changes[i].ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.last, w.next = p.last, p.next
	if p.size > 0 {
		w.arrived(p.next-1, p.size)
	}
	s.poke(s.written.Add(int64(p.size)), w.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range p.rows {
		s.remember(id, n)
	}
	for _, a := range p.arrivals {
		s.arrivals[a.session] = append(s.arrivals[a.session], place{a.seq, a.n})
	}
	for _, id := range p.deleted {
		delete(s.rows, id)
	}
	for _, n := range p.gone {
		delete(s.arrivals, n)
	}
	return nil
}

// Arrivals are moved in pieces of about pieceSize bytes, the oldest first: while the store is idle, and by a commit that finds moveSize of
// them. An event counts as at least minEvent, which bounds their number too.
const (
	pieceSize = 2 << 20
	moveSize  = 32 << 20
	minEvent  = 512
)

// piece is a run of arrivals: up to which number, and how many bytes.
type piece struct {
	last int64
	size int
}

// arrived counts new arrivals, of which last is the newest.
func (w *writer) arrived(last int64, size int) {
	w.size += size
	if n := len(w.pieces); n > 0 && w.pieces[n-1].size < pieceSize {
		w.pieces[n-1] = piece{last, w.pieces[n-1].size + size}
		return
	}
	w.pieces = append(w.pieces, piece{last, size})
}

// move puts the oldest piece of the arrivals where it stays. A failure isn't the failure of a commit: everything is still readable where it
// is, and it is tried again later.
func (s *Store) move(w *writer) {
	if len(w.pieces) == 0 {
		return
	}
	p := w.pieces[0]
	err := w.transaction(func() error { return errors.Join(w.exec(w.moveArrivals, p.last), w.exec(w.dropArrivals, p.last)) })
	if err != nil {
		w.moveAt += pieceSize
		return
	}
	w.pieces, w.size, w.moveAt = w.pieces[1:], w.size-p.size, moveSize
	s.written.Add(int64(2 * p.size))
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, places := range s.arrivals {
		rest, _ := slices.BinarySearchFunc(places, p.last+1, func(p place, n int64) int { return cmp.Compare(p.n, n) })
		if rest == len(places) {
			delete(s.arrivals, id)
		} else {
			s.arrivals[id] = places[rest:]
		}
	}
}

// loadArrivals finds what the last process left.
func (s *Store) loadArrivals(w *writer) error {
	stmt, err := w.conn.Prepare("SELECT n, session, seq, length(body) FROM arrival ORDER BY n")
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	w.next, w.moveAt = 1, moveSize
	row := make([]driver.Value, 4)
	for {
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		n, _ := row[0].(int64)
		id, _ := row[1].(int64)
		seq, _ := row[2].(int64)
		size, _ := row[3].(int64)
		s.arrivals[id] = append(s.arrivals[id], place{seq, n})
		w.next = n + 1
		w.arrived(n, max(minEvent, int(size)))
	}
}

// remember keeps a row number; s.mu is held. The map is an optimisation and bounded.
func (s *Store) remember(id string, n int64) {
	if len(s.rows) >= 4096 {
		clear(s.rows)
	}
	s.rows[id] = n
}

// directEvents is from how many events on a new session's log is written where it stays, as a fork or an import is.
const directEvents = 64

func (s *Store) commitOne(w *writer, c *session.Change, p *pending) error {
	n, err := s.rowFor(w, c, p)
	if err != nil {
		return err
	}
	direct := c.Create && len(c.Events) >= directEvents
	for _, e := range c.Events {
		if direct {
			err = w.exec(w.insertEvent, eventKey(n, e.Seq), e.Data)
		} else {
			err = w.exec(w.insertArrival, p.next, n, e.Seq, e.Data)
			p.arrivals = append(p.arrivals, arrived{n, e.Seq, p.next})
			p.next++
			p.size += max(minEvent, len(e.Data))
		}
		if err != nil {
			return err
		}
	}
	for _, t := range c.Texts {
		if err := w.exec(w.insertText, eventKey(n, t.Seq+1), t.Text); err != nil {
			return err
		}
	}
	for _, d := range c.Documents {
		if d.Body == nil {
			err = w.exec(w.deleteDocument, n, string(d.Kind))
		} else {
			err = w.exec(w.putDocument, n, string(d.Kind), d.Body)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range c.Partials {
		err := w.exec(w.insertPartial, n, int64(p.Turn), int64(p.Step), int64(p.Attempt), int64(p.Block), string(p.Kind), p.Name, p.CallID, p.Text)
		if err != nil {
			return err
		}
	}
	if c.DropPartial {
		if err := w.exec(w.deletePartial, n); err != nil {
			return err
		}
	}
	if c.Delete {
		return s.deleteOne(w, c.ID, n, p)
	}
	return nil
}

func (s *Store) deleteOne(w *writer, id string, n int64, p *pending) error {
	s.mu.Lock()
	places := s.arrivals[n]
	s.mu.Unlock()
	for _, a := range places {
		if err := w.exec(w.deleteArrival, a.n); err != nil {
			return err
		}
	}
	for _, a := range p.arrivals {
		if a.session == n {
			if err := w.exec(w.deleteArrival, a.n); err != nil {
				return err
			}
		}
	}
	p.deleted, p.gone = append(p.deleted, id), append(p.gone, n)
	low, high := keyRange(n, -1, 1<<seqBits)
	if err := errors.Join(w.exec(w.deleteEvents, low, high), w.exec(w.deleteTexts, low, high+1), w.exec(w.deleteSession, n)); err != nil {
		return err
	}
	if n == p.last { // the next process can't see it any more
		return w.exec(w.setLast, n)
	}
	return nil
}

// rowFor writes the session's row and gives its number.
func (s *Store) rowFor(w *writer, c *session.Change, p *pending) (int64, error) {
	if c.Create {
		args, err := insertArgs(c.Info)
		if err != nil {
			return 0, err
		}
		p.last++
		if err := w.exec(w.insertSession, append([]driver.Value{p.last}, args...)...); err != nil {
			if isUnique(err) {
				return 0, session.ErrExists
			}
			return 0, err
		}
		p.row(c.ID, p.last)
		return p.last, nil
	}
	s.mu.Lock()
	n, ok := s.rows[c.ID]
	s.mu.Unlock()
	if !ok {
		var err error
		if n, err = queryInt(w.findSession, c.ID); err != nil {
			return 0, err
		}
		p.row(c.ID, n)
	}
	if c.Info == nil {
		return n, nil
	}
	if i := c.Info; c.FactsOnly {
		return n, w.exec(w.updateFacts, i.LastSeq, i.LastHash, i.UpdatedAt, i.Usage.InputTokens, i.Usage.OutputTokens, i.Usage.CacheReadTokens,
			i.Usage.CacheWriteTokens, i.Usage.ReasoningTokens, int64(i.Pending), int64(i.Queue), int64(i.Turns), i.TurnSeq, i.StepSeq, flag(i.TurnOpen), flag(i.Blank), n)
	}
	args, err := updateArgs(c.Info)
	if err != nil {
		return 0, err
	}
	return n, w.exec(w.updateSession, append(args, n)...)
}

func (p *pending) row(id string, n int64) {
	if p.rows == nil {
		p.rows = map[string]int64{}
	}
	p.rows[id] = n
}

func insertArgs(i *session.Info) ([]driver.Value, error) {
	header, err := json.Marshal(i.Header)
	if err != nil {
		return nil, fmt.Errorf("encode header: %w", err)
	}
	update, err := updateArgs(i)
	return append([]driver.Value{i.ID, header, i.Group}, update...), err
}

func updateArgs(i *session.Info) ([]driver.Value, error) {
	labels := "{}"
	if len(i.Labels) > 0 {
		b, err := json.Marshal(i.Labels)
		if err != nil {
			return nil, fmt.Errorf("encode labels: %w", err)
		}
		labels = string(b)
	}
	return append(make([]driver.Value, 0, 28),
		i.Title, i.Preset.ID, i.Preset.Hash, i.LastSeq, i.LastHash, i.UpdatedAt, i.Usage.InputTokens, i.Usage.OutputTokens, i.Usage.CacheReadTokens,
		i.Usage.CacheWriteTokens, i.Usage.ReasoningTokens, int64(i.Pending), int64(i.Queue), int64(i.Turns), i.TurnSeq, i.StepSeq, flag(i.TurnOpen),
		flag(i.Blank), i.Model.Provider, i.Model.Model, flag(i.Archived), labels, i.Damage), nil
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
