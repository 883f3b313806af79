package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
)

// faulty is a real store whose commits fail when told to.
type faulty struct {
	session.Store
	mu     sync.Mutex
	before func(n int, changes []session.Change) error // before the commit
	n      int
}

func (f *faulty) Commit(epoch int64, changes []session.Change) error {
	f.mu.Lock()
	before := f.before
	f.n++
	n := f.n
	f.mu.Unlock()
	if before != nil {
		if err := before(n, changes); err != nil {
			return err
		}
	}
	return f.Store.Commit(epoch, changes)
}

func (f *faulty) set(before func(int, []session.Change) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

func faults(t *testing.T, open Opener) {
	ctx := context.Background()
	disk := errors.New("no space left on device")
	start := func(t *testing.T) (*session.Journal, *faulty) {
		f := &faulty{}
		return openJournal(t, func(dir string) (session.Store, error) {
			s, err := open(dir)
			f.Store = s
			return f, err
		}, subdir(t), session.Options{}), f
	}

	t.Run("nobody sees what isn't durable", func(t *testing.T) {
		j, f := start(t)
		l := create(t, j, "a", session.Title{Title: "x"})
		f.set(func(int, []session.Change) error {
			if l.State().LastSeq != 0 {
				t.Error("an event is visible before its commit")
			}
			return disk
		})
		_, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return drafts(turn(1)...), nil })
		if !errors.Is(err, disk) {
			t.Error("update:", err)
		}
		if p, err := l.Read(ctx, -1, 0, 0); err != nil || p.LastSeq != 0 {
			t.Errorf("after a failed commit: %+v, %v", p, err)
		}
		if _, err := j.Create(ctx, header("b"), nil); !errors.Is(err, disk) {
			t.Error("create:", err)
		}
		f.set(nil)
		put(t, l, turn(1)...)
		audit(t, j, l)
		create(t, j, "b")
	})

	t.Run("what is queued over all sessions is one commit", func(t *testing.T) {
		const sessions = 20
		f := &faulty{}
		busy, gate := make(chan struct{}), make(chan struct{})
		var sizes []int
		j := openJournal(t, func(dir string) (session.Store, error) {
			s, err := open(dir)
			f.Store = s
			return f, err
		}, subdir(t), session.Options{AfterCommit: func(c []session.Committed) {
			if c[0].Info.Title == "gate" {
				close(busy)
				<-gate
			}
			sizes = append(sizes, len(c))
		}})
		first := create(t, j, "first")
		var logs []*session.Log
		for i := range sessions {
			logs = append(logs, create(t, j, fmt.Sprint("s", i)))
		}
		var wg sync.WaitGroup
		wg.Go(func() { put(t, first, session.Title{Title: "gate"}) })
		<-busy
		ran := make(chan struct{}, 4*sessions)
		for _, l := range logs {
			wg.Go(func() {
				_, err := l.Update(ctx, func(session.State) ([]session.Draft, error) {
					ran <- struct{}{}
					return drafts(session.Title{Title: "a"}, session.Title{Title: "b"}), nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		// All are queued once the journal says so; the committer is held meanwhile.
		for j.Queued() < sessions {
			runtime.Gosched()
		}
		f.mu.Lock()
		before := f.n
		f.mu.Unlock()
		close(gate)
		wg.Wait()
		f.mu.Lock()
		commits := f.n - before
		f.mu.Unlock()
		if commits != 1 || sizes[len(sizes)-1] != sessions {
			t.Errorf("%d commits, the last of %d sessions", commits, sizes[len(sizes)-1])
		}
		for _, l := range logs {
			if l.State().LastSeq != 1 {
				t.Errorf("%s ends at %d", l.ID(), l.State().LastSeq)
			}
		}
	})

	t.Run("one session's trouble is its own", func(t *testing.T) {
		j, f := start(t)
		var logs []*session.Log
		for i := range 5 {
			logs = append(logs, create(t, j, fmt.Sprint("s", i)))
		}
		f.set(func(_ int, changes []session.Change) error {
			for _, c := range changes {
				if c.ID == "s3" {
					return disk
				}
			}
			return nil
		})
		var wg sync.WaitGroup
		for i, l := range logs {
			wg.Go(func() {
				for n := range 10 {
					_, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return drafts(session.Title{Title: fmt.Sprint(n)}), nil })
					if (i == 3) != errors.Is(err, disk) {
						t.Errorf("session %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		for i, l := range logs {
			audit(t, j, l)
			if want := map[bool]int64{true: -1, false: 9}[i == 3]; l.State().LastSeq != want {
				t.Errorf("session %d ends at %d", i, l.State().LastSeq)
			}
		}
	})

	t.Run("random failures leave no gap", func(t *testing.T) {
		j, f := start(t)
		f.set(func(n int, _ []session.Change) error {
			if n%3 == 0 || n%7 == 1 {
				return disk
			}
			return nil
		})
		var logs []*session.Log
		for i := range 6 {
			for {
				l, err := j.Create(ctx, header(fmt.Sprint("s", i)), nil)
				if err == nil {
					logs = append(logs, l)
					break
				}
			}
		}
		acknowledged := make([][]int64, len(logs))
		var wg sync.WaitGroup
		for i, l := range logs {
			wg.Go(func() {
				for n := range 40 {
					events, err := l.Update(ctx, func(st session.State) ([]session.Draft, error) {
						return drafts(session.Title{Title: fmt.Sprint(n)}, session.TurnStart{Turn: st.Turns + 1}), nil
					})
					if err != nil && !errors.Is(err, disk) {
						t.Error(err)
					}
					for _, e := range events {
						acknowledged[i] = append(acknowledged[i], e.Seq)
					}
				}
			})
		}
		wg.Wait()
		f.set(nil)
		for i, l := range logs {
			for n, seq := range acknowledged[i] {
				if seq != int64(n) {
					t.Fatalf("session %d acknowledged %v", i, acknowledged[i])
				}
			}
			if int64(len(acknowledged[i])) != l.State().LastSeq+1 {
				t.Errorf("session %d: %d acknowledged, the log ends at %d", i, len(acknowledged[i]), l.State().LastSeq)
			}
			audit(t, j, l)
			j.Release(l)
			again := openLog(t, j, l.ID())
			audit(t, j, again)
		}
	})

	t.Run("every commit is counted", func(t *testing.T) {
		var all []session.CommitStats
		f := &faulty{}
		j := openJournal(t, func(dir string) (session.Store, error) {
			s, err := open(dir)
			f.Store = s
			return f, err
		}, subdir(t), session.Options{Observe: func(s session.CommitStats) { all = append(all, s) }})
		size, err := j.Size(ctx)
		if err != nil {
			t.Fatal(err)
		}
		l := create(t, j, "a")
		events := put(t, l, turn(1)...)
		f.set(func(int, []session.Change) error { return disk })
		if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return drafts(session.Title{Title: "x"}), nil }); !errors.Is(err, disk) {
			t.Error(err)
		}
		f.set(nil)
		// Nothing to write is no commit.
		if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
		if len(all) != 3 || all[0].Events != 0 || all[1].Events != len(events) || all[1].Sessions != 1 || !all[2].Failed || all[1].Failed || all[2].Events != 1 {
			t.Fatalf("%+v", all)
		}
		if all[1].Bytes == 0 || all[1].Took <= 0 || all[1].Queued <= 0 {
			t.Errorf("%+v", all[1])
		}
		if grown, err := j.Size(ctx); err != nil || grown <= size {
			t.Errorf("the store has grown from %d to %d bytes, %v", size, grown, err)
		}
	})

	t.Run("a stale owner", func(t *testing.T) {
		j, f := start(t)
		l := create(t, j, "a")
		if _, err := f.Store.Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return drafts(session.Title{}), nil }); !errors.Is(err, session.ErrStaleEpoch) {
			t.Error(err)
		}
	})
}
