package jsonl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

// fill uses up all space that is left in dir.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// TestATurnEndsOnAFullDisk: everything else is refused, and works again when there is space; what was kept is given back.
func TestATurnEndsOnAFullDisk(t *testing.T) {
	ctx := context.Background()
	dir := storetest.SmallDisk(t, "1m")
	p := newProcess(t, filepath.Join(dir, "sessions"))
	l, err := p.journal.Create(ctx, session.Header{ID: "s", Cwd: "/w"}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	if err != nil {
		t.Fatal(err)
	}
	update := func(payloads ...session.Payload) error {
		_, err := l.Update(ctx, func(session.State) (drafts []session.Draft, _ error) {
			for _, p := range payloads {
				drafts = append(drafts, session.Draft{Payload: p})
			}
			return drafts, nil
		})
		return err
	}
	fill(t, dir)
	last := session.Title{Title: strings.Repeat("x", room/2)}
	for n := 0; ; n++ {
		if err := update(last); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil || n > 10 {
			t.Fatal("after", n, "writes to a full disk:", err)
		}
	}
	if err := update(last, session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: session.EndError, Code: "STORE"}}); err != nil {
		t.Error("the end of a turn on a full disk:", err)
	}
	if _, err := p.journal.Create(ctx, session.Header{ID: "other", Cwd: "/w"}, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Error("a new session on a full disk:", err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	if err := update(last); err != nil {
		t.Error("with space again:", err)
	}

	log := p.store.files["s"].path(logName)
	p.journal.Release(l)
	if err := p.store.Disown("s"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	if taken := info.Sys().(*syscall.Stat_t).Blocks * 512; taken > info.Size()+4096 {
		t.Errorf("a closed log of %d bytes takes %d", info.Size(), taken)
	}
	if again, err := newProcess(t, p.store.root).store.Info(ctx, "s"); err != nil || again.Damage != "" || again.TurnOpen {
		t.Errorf("%+v, %v", again, err)
	}
}
