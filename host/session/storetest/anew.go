package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
)

// anew: a session that is deleted, and one that takes its id or its place, while others read.
func anew(t *testing.T, open Opener) {
	ctx := context.Background()

	t.Run("one commit deletes a session and makes another", func(t *testing.T) {
		s := mustOpen(t, open, subdir(t))
		epoch, err := s.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			events := chain(6 + n)
			was, is := fmt.Sprint("s", n), fmt.Sprint("s", n+1)
			changes := []session.Change{{ID: is, Create: true, Info: info(is, events[:3]), Events: events[:3]}}
			if n > 0 {
				changes = append([]session.Change{{ID: was, Delete: true}}, changes...)
			}
			if err := s.Commit(epoch, changes); err != nil {
				t.Fatal(err)
			}
			if err := s.Commit(epoch, []session.Change{{ID: is, Info: info(is, events), Events: events[3:]}}); err != nil {
				t.Fatal(err)
			}
			for _, last := range []bool{false, true} {
				got, err := s.Read(ctx, is, session.Range{After: -1, Before: 100, Last: last})
				if err != nil || len(got) != len(events) || string(got[0]) != string(events[0].Data) {
					t.Fatalf("%s has %d events of %d, %v", is, len(got), len(events), err)
				}
			}
			if _, err := s.Read(ctx, was, session.Range{After: -1, Before: 100}); !errors.Is(err, session.ErrNotFound) {
				t.Errorf("the deleted session: %v", err)
			}
		}
	})

	// between deletes session a and makes another a, when the journal reads events: in between what it knew of a and what it finds.
	between := func(t *testing.T) (*session.Journal, *gated) {
		g := &gated{}
		j := openJournal(t, func(dir string) (session.Store, error) {
			s, err := open(dir)
			g.Store = s
			return g, err
		}, subdir(t), session.Options{})
		j.Release(create(t, j, "a", append(turn(1), turn(2)...)...))
		return j, g
	}
	for what, read := range map[string]func(*session.Journal, *session.Log) error{
		"a page":        func(_ *session.Journal, l *session.Log) error { _, err := l.Read(ctx, 4, 0, 0); return err },
		"the last page": func(_ *session.Journal, l *session.Log) error { _, err := l.Before(ctx, -1, 0, 0); return err },
		"a fold": func(_ *session.Journal, l *session.Log) error {
			_, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return drafts(session.Title{Title: "x"}), nil })
			return err
		},
		"a fork": func(j *session.Journal, _ *session.Log) error {
			_, err := j.Fork(ctx, "a", -1, session.Creation{Header: header("fork")})
			return err
		},
	} {
		t.Run("of a session that is made anew meanwhile: "+what, func(t *testing.T) {
			j, g := between(t)
			l, err := j.View(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			defer j.Release(l)
			g.once(func() {
				if err := j.Delete(ctx, "a"); err != nil {
					t.Error(err)
				}
				create(t, j, "a", turn(1)...)
			})
			if err := read(j, l); !errors.Is(err, session.ErrNotFound) {
				t.Errorf("the reader of the deleted one: %v", err)
			}
			again := openLog(t, j, "a")
			if st := again.State(); st.Turns != 1 || st.Damage != "" {
				t.Errorf("the new one: %d turns, damage %q", st.Turns, st.Damage)
			}
			audit(t, j, again)
		})
	}

	t.Run("readers beside deletes", func(t *testing.T) {
		j := openJournal(t, open, subdir(t), session.Options{})
		for generation := range 15 {
			var all []session.Payload
			for range 12 {
				all = append(all, session.Title{Title: fmt.Sprint(generation)})
			}
			l, err := j.Create(ctx, header("a"), session.Pin("pin"), drafts(all[:6]...)...)
			if err != nil {
				t.Fatal(err)
			}
			put(t, l, all[6:]...)
			j.Release(l)
			var group sync.WaitGroup
			for _, read := range []func() error{
				func() error { return wholeOf(j, "a") },
				func() error { _, err := j.Before(ctx, "a", -1, 5, 0); return err },
				func() error {
					l, err := j.Open(ctx, "a")
					if err != nil {
						return err
					}
					defer j.Release(l)
					if damage := l.State().Damage; damage != "" {
						return errors.New(damage)
					}
					return nil
				},
				func() error {
					if pin, err := j.Pin(ctx, "a"); err != nil || string(pin) == "pin" {
						return err
					}
					return errors.New("the session has lost its pin")
				},
			} {
				group.Go(func() {
					for range 8 {
						if err := read(); err != nil && !errors.Is(err, session.ErrNotFound) {
							t.Error(err)
						}
					}
				})
			}
			group.Go(func() {
				if err := j.Delete(ctx, "a"); err != nil {
					t.Error(err)
				}
			})
			group.Go(func() {
				l, err := j.Create(ctx, header(fmt.Sprint("b", generation)), nil, drafts(all...)...)
				if err != nil {
					t.Error(err)
					return
				}
				j.Release(l)
			})
			group.Wait()
			audit(t, j, openLog(t, j, fmt.Sprint("b", generation)))
		}
	})
}

// wholeOf reads a session in pages; all its events must be the same.
func wholeOf(j *session.Journal, id string) error {
	l, err := j.View(context.Background(), id)
	if err != nil {
		return err
	}
	defer j.Release(l)
	first := ""
	for at := int64(-1); ; {
		page, err := l.Read(context.Background(), at, 3, 0)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if first == "" {
				first = string(e.Data)
			}
			if at++; e.Seq != at || string(e.Data) != first {
				return fmt.Errorf("event %d is %s in a log of %s", e.Seq, e.Data, first)
			}
		}
		if !page.HasMore {
			return nil
		}
	}
}

// gated is a real store that lets something happen before a read.
type gated struct {
	session.Store
	mu     sync.Mutex
	before func()
}

func (g *gated) once(before func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = before
}

func (g *gated) Read(ctx context.Context, id string, r session.Range) ([][]byte, error) {
	g.mu.Lock()
	before := g.before
	g.before = nil
	g.mu.Unlock()
	if before != nil {
		before()
	}
	return g.Store.Read(ctx, id, r)
}
