package sqlite

import (
	"context"
	"database/sql/driver"
	"time"
)

// The store tends itself beside the commits, on a goroutine and a connection of its own, so that in the common case no commit pays for it.
const (
	// checkpointSize is about how many bytes of WAL are put into the database at once.
	checkpointSize = 4 << 20
	// restartPages is from how many pages (4 KiB) on the WAL is to begin anew. It does when all of it is in the database, which under a steady
	// load never happens beside the commits: then the next one waits while the little that was written meanwhile follows.
	restartPages = 2000
	// aheadSize bounds what is written while a checkpoint is late: then the commit waits for it, or does it.
	aheadSize = 2 * checkpointSize
	// lastPages is SQLite's own bound, for the case that all this fails.
	lastPages = "8000"
	// idleTime without a commit makes the store idle. Then arrivals of idleMove bytes and more are moved, with pieceTime between pieces for
	// whoever wants to commit.
	idleTime  = 50 * time.Millisecond
	pieceTime = time.Millisecond
	idleMove  = 1 << 20
	// idleCheckpoint bytes of WAL are put into the database while the store is idle, so that the next commits write over the WAL: to let the
	// file grow takes half as long again.
	idleCheckpoint = 256 << 10
)

const checkpointSQL = "PRAGMA wal_checkpoint(PASSIVE)"

// tend runs until quit closes, and closes its connection.
func (s *Store) tend(conn driver.Conn) {
	defer func() { _ = conn.Close() }()
	stmt, err := conn.Prepare(checkpointSQL)
	if err != nil {
		return // commits do it, see keepUp
	}
	defer func() { _ = stmt.Close() }()
	timer := time.NewTimer(idleTime)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.tending:
			if s.written.Load() >= checkpointSize {
				s.checkpoint(stmt)
			}
			s.armed.Store(true)
			timer.Reset(idleTime)
		case <-timer.C:
			s.armed.Store(false) // a commit that ends after the look at latest wakes the tender
			if idle := time.Since(s.began) - time.Duration(s.latest.Load()); idle < idleTime {
				s.armed.Store(true)
				timer.Reset(idleTime - idle)
			} else if s.moveIfIdle() {
				timer.Reset(pieceTime)
			} else if s.written.Load() >= idleCheckpoint {
				s.checkpoint(stmt)
			}
		}
	}
}

// poke is for a commit that has ended: it wakes the tender when there is something to do, now or when the store is idle.
func (s *Store) poke(written int64, arrived int) {
	s.latest.Store(int64(time.Since(s.began)))
	if written < checkpointSize && (s.armed.Load() || written < idleCheckpoint && arrived < idleMove) {
		return
	}
	select {
	case s.tending <- struct{}{}:
	default:
	}
}

// checkpoint puts the WAL into the database. What it can't do now, it or a commit does the next time.
func (s *Store) checkpoint(stmt driver.Stmt) {
	s.checking <- struct{}{}
	defer func() { <-s.checking }()
	s.written.Store(0)
	if walPages(stmt) < restartPages {
		return
	}
	if w, ok := <-s.writer; ok {
		walPages(stmt)
		s.writer <- w
	}
}

// keepUp is for a commit that is about to begin: it waits for a checkpoint that is late, or does one that didn't come.
func (s *Store) keepUp() {
	if s.written.Load() < aheadSize {
		return
	}
	s.checking <- struct{}{}
	defer func() { <-s.checking }()
	if s.written.Load() < aheadSize {
		return
	}
	if w, ok := <-s.writer; ok {
		s.written.Store(0)
		walPages(w.checkpoint)
		s.writer <- w
	}
}

// walPages runs a checkpoint and says how long the WAL is.
func walPages(stmt driver.Stmt) int64 {
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	if err != nil {
		return 0
	}
	defer func() { _ = rows.Close() }()
	var row [3]driver.Value // busy, pages of the WAL, those of them that are in the database
	if rows.Next(row[:]) != nil {
		return 0
	}
	pages, _ := row[1].(int64)
	return pages
}

// moveIfIdle moves a piece of the arrivals when the writer is free, and says whether there are more.
func (s *Store) moveIfIdle() (more bool) {
	select {
	case w, ok := <-s.writer:
		if !ok {
			return false
		}
		if w.size >= idleMove {
			s.move(w)
		}
		more = w.size >= idleMove && w.moveAt == moveSize // the last one succeeded
		s.writer <- w
	default: // a commit runs, and after it comes another look
	}
	return more
}
