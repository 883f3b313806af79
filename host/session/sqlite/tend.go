package sqlite

import (
	"database/sql/driver"
	"time"
)

// The store tends itself beside the commits, on a goroutine and a connection of its own, so that in the common case no commit pays for it.
const (
	// checkpointSize is about how many bytes of WAL are put into the database at once.
	checkpointSize = 4 << 20
	// checkpointPages bounds the WAL (4 KiB each). Under a steady load the tender never sees its end; then a commit writes what the tender
	// left, and the WAL begins anew.
	checkpointPages = "4000"
	// idleTime without a commit makes the store idle. Then arrivals of idleMove bytes and more are moved.
	idleTime = 50 * time.Millisecond
	idleMove = 1 << 20
)

// tend runs until quit closes, and closes its connection.
func (s *Store) tend(conn driver.Conn) {
	defer func() { _ = conn.Close() }()
	checkpoint, err := conn.Prepare("PRAGMA wal_checkpoint(PASSIVE)")
	if err != nil {
		return // the WAL is bounded all the same
	}
	defer func() { _ = checkpoint.Close() }()
	timer := time.NewTimer(idleTime)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.tending:
			if s.written.Load() >= checkpointSize {
				s.written.Store(0)
				_, _ = stmtText(checkpoint) // what it can't do now it does the next time
			}
			timer.Reset(idleTime)
		case <-timer.C:
			s.moveIfIdle()
		}
	}
}

// moveIfIdle moves the arrivals when the writer is free.
func (s *Store) moveIfIdle() {
	select {
	case w, ok := <-s.writer:
		if !ok {
			return
		}
		if w.size >= idleMove {
			s.move(w)
		}
		s.writer <- w
	default: // a commit runs, and after it comes another look
	}
}
