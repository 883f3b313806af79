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

func newHalfway(t *testing.T) (*halfway, *session.Journal) {
	t.Helper()
	store, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := &halfway{Store: store, stop: func() {}}
	j := session.NewJournal(h, session.Options{})
	if err := j.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h, j
}

func title(text string) func(session.State) ([]session.Draft, error) {
	return func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.Title{Title: text}}}, nil
	}
}

// TestBegin: what Begin wrote is in the file when it returns, and nobody sees it before it is durable. When the sync fails, it is gone.
func TestBegin(t *testing.T) {
	ctx := context.Background()
	h, j := newHalfway(t)
	store := h.Store
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
	for range 2 {
		if events, err := wait(); err != nil || len(events) != 1 || log.State().Title != "one" {
			t.Errorf("%v, %v, %+v", events, err, log.State())
		}
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
	if events, err := wait(); err != nil || len(events) != 1 || events[0].Seq != 1 {
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

// TestWhatIsRemovedGoesLast: a sync that fails takes nothing away, neither what the text so far was kept in nor a session that was to be deleted.
func TestWhatIsRemovedGoesLast(t *testing.T) {
	ctx := context.Background()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	epoch, err := s.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	info := func(id string) *session.Info { return &session.Info{Header: session.Header{ID: id, Cwd: "/w"}} }
	if err := s.Commit(epoch, []session.Change{
		{ID: "a", Create: true, Info: info("a"), Partials: []session.Partial{{Turn: 1, Step: 1, Text: "what was said"}}},
		{ID: "b", Create: true, Info: info("b")},
	}); err != nil {
		t.Fatal(err)
	}
	last := []session.Change{
		{ID: "b", Delete: true},
		{ID: "a", Info: info("a"), Events: []session.Encoded{{Data: []byte("{}")}}, DropPartial: true},
	}
	f := s.files["a"]
	if err := s.CommitStaged(epoch, last, func() { _ = f.log.Close() }); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	if p, err := s.Partials(ctx, "a"); err != nil || len(p) != 1 {
		t.Errorf("the text so far: %+v, %v", p, err)
	}
	if _, err := s.Info(ctx, "b"); err != nil {
		t.Error("the other session:", err)
	}
	if f.log, err = os.OpenFile(f.path(logName), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(epoch, last); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Partials(ctx, "a"); err != nil || len(p) != 0 {
		t.Errorf("the text so far, which the log has by now: %+v, %v", p, err)
	}
	if _, err := s.Info(ctx, "b"); !errors.Is(err, session.ErrNotFound) {
		t.Error("the other session:", err)
	}
}

// TestCutAtTheClose: what a failed commit wrote and could not take back is no part of the log for the next owner.
func TestCutAtTheClose(t *testing.T) {
	ctx := context.Background()
	h, j := newHalfway(t)
	store := h.Store
	log, err := j.Create(ctx, session.Header{ID: "a", Cwd: "/w"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := store.files["a"]
	writable := f.log
	readable, err := os.Open(f.path(logName))
	if err != nil {
		t.Fatal(err)
	}
	h.stop = func() { f.log = readable; _ = writable.Close() } // so that neither the sync nor the cut works
	wait, err := log.Begin(ctx, title("never was"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wait(); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	j.Release(log)
	_ = readable.Close()
	if f.log, err = os.OpenFile(f.path(logName), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if err := store.Disown("a"); err != nil {
		t.Fatal(err)
	}
	if info, err := store.Info(ctx, "a"); err != nil || info.LastSeq != -1 || info.Title != "" {
		t.Errorf("%+v, %v", info, err)
	}
}
