package jsonl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
)

// process is a store with a journal, as one process has them.
type process struct {
	t       *testing.T
	store   *Store
	journal *session.Journal
}

func newProcess(t *testing.T, root string) *process {
	t.Helper()
	store, err := Open(root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t, store, session.NewJournal(store, session.Options{})}
	if err := p.journal.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.journal.Close(context.Background()) })
	return p
}

func (p *process) title(l *session.Log, title string) error {
	_, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.Title{Title: title}}}, nil
	})
	return err
}

func TestOneWriterAtATime(t *testing.T) {
	ctx, root := context.Background(), t.TempDir()
	a, b := newProcess(t, root), newProcess(t, root)
	if err := a.store.Own("s"); !errors.Is(err, session.ErrNotFound) {
		t.Fatalf("own nothing: %v", err)
	}
	la, err := a.journal.Create(ctx, session.Header{ID: "s", Cwd: "/w"}, nil, session.Draft{Payload: session.Title{Title: "first"}})
	if err != nil {
		t.Fatal(err)
	}
	var locked *session.LockedError
	if err := b.store.Own("s"); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("own what another has: %v", err)
	}
	stale, err := b.journal.Open(ctx, "s") // reading is free
	if err != nil {
		t.Fatal(err)
	}
	if err := a.title(la, "second"); err != nil {
		t.Fatal(err)
	}
	a.journal.Release(la)
	if err := errors.Join(a.store.Disown("s"), a.store.Disown("s")); err != nil {
		t.Fatal(err)
	}

	// Who didn't own it before looking at it has an old view, and can't write that.
	path := b.store.files["s"].path(logName)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.title(stale, "from an old view"); err == nil || !strings.Contains(err.Error(), "meanwhile") {
		t.Errorf("append to an old view: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file changed: %v", err)
	}
	b.journal.Release(stale)

	if err := b.store.Own("s"); err != nil {
		t.Fatal(err)
	}
	lb, err := b.journal.Open(ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	defer b.journal.Release(lb)
	if lb.State().Title != "second" {
		t.Errorf("title %q", lb.State().Title)
	}
	if err := b.title(lb, "third"); err != nil {
		t.Error(err)
	}
}

// TestLostRaceLeavesTheWinner: a create that comes second removes nothing.
func TestLostRaceLeavesTheWinner(t *testing.T) {
	dir := t.TempDir() + "/--w--/s"
	store := &Store{}
	info := session.Info{Header: session.Header{ID: "s"}}
	f, err := store.createFile(dir, &session.Change{ID: "s", Create: true, Info: &info})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.createFile(dir, &session.Change{ID: "s", Create: true, Info: &info}); !errors.Is(err, session.ErrExists) {
		t.Errorf("second create: %v", err)
	}
	if _, err := store.loadFile(dir); err != nil {
		t.Errorf("the first one's file: %v", err)
	}
}

func TestRootsHaveOneIDHoweverManyOpenThem(t *testing.T) {
	root := t.TempDir()
	ids := make(chan string, 8)
	for range cap(ids) {
		go func() {
			s, err := Open(root, Options{})
			if err != nil {
				ids <- err.Error()
				return
			}
			ids <- s.LogID()
			_ = s.Close()
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first || len(id) != 32 {
			t.Errorf("ids %q and %q", first, id)
		}
	}
}

// TestNoHeader: a log without a whole header says so.
func TestNoHeader(t *testing.T) {
	for _, text := range []string{"", `{"type":"session"`, "nonsense\n"} {
		root := t.TempDir()
		dir := filepath.Join(root, ProjectName("/w"), "s")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, logName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := newProcess(t, root).store.Info(context.Background(), "s")
		if err != nil || !strings.Contains(info.Damage, "the header can't be read") {
			t.Errorf("%q: %q %v", text, info.Damage, err)
		}
	}
}
