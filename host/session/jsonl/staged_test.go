package jsonl

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
)

// halfway is a store that stops between the writes and the syncs of its next commits.
type halfway struct {
	*Store
	stop func()
}

func (h *halfway) CommitStaged(epoch int64, changes []session.Change, written func()) error {
	return h.Store.CommitStaged(epoch, changes, func() { written(); h.stop() })
}

func title(text string) func(session.State) ([]session.Draft, error) {
	return func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.Title{Title: text}}}, nil
	}
}

// TestBegin: what Begin wrote is in the file when it returns, and nobody sees it before it is durable. When the sync fails, it is gone.
func TestBegin(t *testing.T) {
	ctx := context.Background()
	store, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := &halfway{Store: store, stop: func() {}}
	j := session.NewJournal(h, session.Options{})
	if err := j.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	log, err := j.Create(ctx, session.Header{ID: "a", Cwd: "/"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Release(log)
	f := store.files["a"]
	size := func() int64 {
		info, err := os.Stat(f.path(logName))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}

	empty, held := size(), make(chan struct{})
	h.stop = func() { <-held }
	wait, err := log.Begin(ctx, title("one"))
	if err != nil {
		t.Fatal(err)
	}
	if size() == empty {
		t.Error("Begin returned before the write")
	}
	if st := log.State(); st.LastSeq != -1 {
		t.Error("an event is visible before its sync:", st.LastSeq)
	}
	close(held)
	events, err := wait()
	if err != nil || len(events) != 1 || log.State().Title != "one" {
		t.Errorf("%v, %v, %+v", events, err, log.State())
	}

	h.stop = func() { _ = f.log.Close() } // so that the sync fails
	if wait, err = log.Begin(ctx, title("a long one")); err != nil {
		t.Fatal(err)
	}
	if _, err := wait(); !errors.Is(err, os.ErrClosed) || log.State().Title != "one" || len(f.lines) != 2 {
		t.Errorf("after a failed sync: %v, %+v, %v", err, log.State(), f.lines)
	}
	h.stop = func() {}
	if f.log, err = os.OpenFile(f.path(logName), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if wait, err = log.Begin(ctx, title("six")); err != nil {
		t.Fatal(err)
	}
	if events, err = wait(); err != nil || len(events) != 1 || events[0].Seq != 1 {
		t.Errorf("%v, %v", events, err)
	}
	other, err := Open(store.root, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := other.Info(ctx, "a"); err != nil || info.Damage != "" || info.LastSeq != 1 {
		t.Errorf("what another process reads: %+v, %v", info, err)
	}

	refused := errors.New("no")
	if _, err := log.Begin(ctx, func(session.State) ([]session.Draft, error) { return nil, refused }); err != refused {
		t.Error("a refused update:", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := log.Begin(ended, title("late")); !errors.Is(err, context.Canceled) {
		t.Error("an ended context:", err)
	}
}
