package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// fill appends events to sessions in turn, so that their arrivals lie between each other.
func fill(t *testing.T, j *session.Journal, sessions, updates, perUpdate, bytes int) {
	t.Helper()
	var logs []*session.Log
	for i := range sessions {
		l, err := j.Open(t.Context(), fmt.Sprint("s", i))
		if errors.Is(err, session.ErrNotFound) {
			l, err = j.Create(t.Context(), session.Header{ID: fmt.Sprint("s", i)}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer j.Release(l)
		logs = append(logs, l)
	}
	for n := range updates {
		for _, l := range logs {
			var drafts []session.Draft
			for k := range perUpdate {
				drafts = append(drafts, session.Draft{Payload: session.ToolCall{CallID: fmt.Sprint(n, " ", k), Arguments: strings.Repeat(".", bytes)}})
			}
			if _, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return drafts, nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// check folds every session from the store, and reads it in small pages.
func check(j *session.Journal, sessions int) error {
	for i := range sessions {
		id := fmt.Sprint("s", i)
		l, err := j.Open(context.Background(), id)
		if err != nil {
			return err
		}
		damage, last := l.State().Damage, l.State().LastSeq
		j.Release(l)
		if damage != "" {
			return fmt.Errorf("%s: %s", id, damage)
		}
		for before, after := last+1, int64(-1); before > 0; {
			down, err := j.Before(context.Background(), id, before, 7, 0)
			if err != nil {
				return err
			}
			up, err := j.Read(context.Background(), id, after, 7, 0)
			if err != nil {
				return err
			}
			before, after = down.Events[0].Seq, up.Events[len(up.Events)-1].Seq
		}
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, dir string) (*Store, *session.Journal) {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{Synchronous: "normal"})
	if err != nil {
		t.Fatal(err)
	}
	j := session.NewJournal(s, session.Options{})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, j
}

// count asks until the answer is wanted.
func count(t *testing.T, s *Store, query string, wanted func(int64) bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		var n int64
		if err := s.readers.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if wanted(n) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %d", query, n)
		}
	}
}

// TestMoves: wherever the events of a session lie, all can be read, also while they are moved.
func TestMoves(t *testing.T) {
	for _, sessions := range []int{1, 3, 30} { // alone, dense, sparse
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			dir := t.TempDir()
			s, j := openStore(t, dir)
			fill(t, j, sessions, 1, 20, 1000)
			must(t, check(j, sessions))
			w := <-s.writer
			w.moveAt = 0 // the next commit moves what came before it
			s.writer <- w
			var reader sync.WaitGroup
			stop := make(chan struct{})
			reader.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if err := check(j, sessions); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
			for range 5 {
				fill(t, j, sessions, 1, 3, 1000)
				w := <-s.writer
				w.moveAt = 0
				s.writer <- w
			}
			close(stop)
			reader.Wait()
			fill(t, j, sessions, 3, 3, 1000)
			must(t, check(j, sessions))
			closeJournal(t, j)
			_, j = openStore(t, dir)
			must(t, check(j, sessions))
			closeJournal(t, j)
		})
	}
}

// TestIdleMove: arrivals are moved while nothing is committed, piece by piece, until a small rest is left.
func TestIdleMove(t *testing.T) {
	s, j := openStore(t, t.TempDir())
	fill(t, j, 3, 5, 400, 1000) // three pieces
	count(t, s, "SELECT count(*) FROM arrival", func(n int64) bool { return n < idleMove/1000 })
	count(t, s, "SELECT (SELECT count(*) FROM arrival) + (SELECT count(*) FROM event)", func(n int64) bool { return n == 6000 })
	must(t, check(j, 3))
	closeJournal(t, j)
}

// TestWALStaysBounded writes more than the WAL may hold.
func TestWALStaysBounded(t *testing.T) {
	dir := t.TempDir()
	s, j := openStore(t, dir)
	fill(t, j, 2, 24, 16, 64<<10) // 48 MiB
	wal, err := os.Stat(filepath.Join(dir, databaseName+"-wal"))
	must(t, err)
	if wal.Size() > 36<<20 {
		t.Errorf("the WAL has %d bytes", wal.Size())
	}
	if size, err := s.Size(t.Context()); err != nil || size < 48<<20 {
		t.Error(size, err)
	}
	closeJournal(t, j)
}

// TestIdleCheckpoint: what a person's turns write goes over the same small WAL.
func TestIdleCheckpoint(t *testing.T) {
	dir := t.TempDir()
	s, j := openStore(t, dir)
	for range 8 { // 7 MiB
		fill(t, j, 1, 1, 40, 10<<10) // above idleCheckpoint; a move comes now and then
		deadline := time.Now().Add(20 * time.Second)
		for s.written.Load() != 0 { // the tender has begun
			if time.Now().After(deadline) {
				t.Fatal("no checkpoint came")
			}
			runtime.Gosched()
		}
		s.checking <- struct{}{} // and has ended
		<-s.checking
	}
	wal, err := os.Stat(filepath.Join(dir, databaseName+"-wal"))
	must(t, err)
	if wal.Size() > 3<<20 {
		t.Errorf("the WAL has %d bytes", wal.Size())
	}
	closeJournal(t, j)
}
