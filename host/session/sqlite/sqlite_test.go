package sqlite_test

import (
	"context"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

// TestAllocations counts what one durable event costs; the number grows when somebody adds reflection or copies to the way of every event.
func TestAllocations(t *testing.T) {
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{Synchronous: "normal"})
	if err != nil {
		t.Fatal(err)
	}
	j := session.NewJournal(s, session.Options{})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	l, err := j.Create(t.Context(), session.Header{ID: "a"}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	if err != nil {
		t.Fatal(err)
	}
	draft := []session.Draft{storetest.ToolResult(1)}
	got := testing.AllocsPerRun(300, func() {
		if _, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return draft, nil }); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%.0f allocations", got)
	if got > 70 {
		t.Errorf("one event costs %.0f allocations", got)
	}
}

func TestStore(t *testing.T) {
	storetest.Run(t, openDir)
}
