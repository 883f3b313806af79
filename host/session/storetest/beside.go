package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
)

// beside: a batch of many logs, whose updates run beside each other. (Checked mode runs them in line, so this journal isn't checked.)
func beside(t *testing.T, open Opener) {
	ctx := context.Background()
	const sessions, rounds, perRound = 40, 6, 3
	f := &faulty{}
	store, err := open(subdir(t))
	if err != nil {
		t.Fatal(err)
	}
	f.Store = store
	j := session.NewJournal(f, session.Options{})
	if err := j.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	var logs []*session.Log
	for i := range sessions {
		logs = append(logs, create(t, j, fmt.Sprint("s", i)))
	}
	// The first commit of each round is held until all others are queued, so that they share the next one.
	gate := create(t, j, "gate")
	disk, refused := errors.New("no space left on device"), errors.New("refused")
	for round := range rounds {
		entered, leave := make(chan struct{}), make(chan struct{})
		f.set(func(_ int, changes []session.Change) error {
			if changes[0].ID == "gate" {
				close(entered)
				<-leave
				return nil
			}
			if round == 2 && slices.ContainsFunc(changes, func(c session.Change) bool { return c.ID == "s7" }) {
				return disk // one session's trouble, in the middle of the others
			}
			return nil
		})
		var group sync.WaitGroup
		group.Go(func() { put(t, gate, session.Title{Title: fmt.Sprint(round)}) })
		<-entered
		for i, l := range logs {
			for k := range perRound {
				group.Go(func() {
					_, err := l.Update(ctx, func(s session.State) ([]session.Draft, error) {
						switch {
						case i == 3 && k == 1:
							return nil, refused
						case i == 5 && k == 1:
							panic("of one caller")
						}
						return drafts(session.TurnStart{Turn: s.Turns + 1}, session.Title{Title: fmt.Sprint(round, k)}), nil
					})
					switch {
					case i == 3 && k == 1 && errors.Is(err, refused), i == 5 && k == 1 && err != nil:
					case i == 7 && round == 2 && errors.Is(err, disk):
					case err != nil:
						t.Errorf("s%d: %v", i, err)
					}
				})
			}
		}
		for j.Queued() < sessions*perRound {
			runtime.Gosched()
		}
		close(leave)
		group.Wait()
	}
	f.set(nil)
	for i, l := range logs {
		want := rounds * perRound
		switch i {
		case 3, 5:
			want -= rounds
		case 7:
			want -= perRound
		}
		if st := l.State(); st.Turns != want || st.LastSeq != int64(2*want-1) {
			t.Errorf("s%d has %d turns of %d and ends at %d", i, st.Turns, want, st.LastSeq)
		}
		audit(t, j, l)
	}
}
