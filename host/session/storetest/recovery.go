package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

func recovery(t *testing.T, open Opener) {
	ctx := context.Background()

	t.Run("an open turn is closed once", func(t *testing.T) {
		dir := subdir(t)
		j := openJournal(t, open, dir, session.Options{CheckpointEvery: time.Millisecond})
		l := create(t, j, "a", turn(1)...)
		put(t, l,
			session.InboxSpliced{Target: session.TargetNextTurn, Inserted: []model.Message{user("u2", "two"), user("u3", "three")}},
			session.TurnStart{Turn: 2},
			session.InboxSpliced{Target: session.TargetNextTurn, RemovedCount: 1, Outcome: "claimed"},
			session.StepStart{Turn: 2, Step: 1},
			session.AssistantMessage{Turn: 2, Step: 1, Message: answer("a2", "calls",
				model.Block{Type: model.BlockToolCall, ID: "ran", Name: "bash"}, model.Block{Type: model.BlockToolCall, ID: "asks", Name: "bash"}, model.Block{Type: model.BlockToolCall, ID: "never", Name: "bash"})},
			session.ToolCall{Turn: 2, Step: 1, CallID: "ran", Name: "bash"},
			session.ToolCall{Turn: 2, Step: 1, CallID: "asks", Name: "bash"},
			session.ApprovalAsked{ID: "q", CallID: "asks"},
		)
		create(t, j, "idle", turn(1)...)
		if err := j.Close(ctx); err != nil {
			t.Fatal(err)
		}
		j = openJournal(t, open, dir, session.Options{})
		got, err := j.Recover(ctx)
		if want := (session.Recovered{Sessions: 1, Calls: 3, Approvals: 1}); err != nil || got != want {
			t.Fatalf("recovered %+v, %v", got, err)
		}
		l = openLog(t, j, "a")
		st := l.State()
		if st.TurnOpen || st.StepOpen || len(st.OpenCalls) != 0 || len(st.Approvals) != 0 || st.LastEnd.Reason.Kind != session.EndInterrupted || len(st.NextTurn) != 1 {
			t.Errorf("state %+v", st)
		}
		codes := map[string]string{}
		page, err := l.Read(ctx, -1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			p, _, err := session.DecodePayload(e)
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := p.(session.ToolResult); ok && r.Error != nil {
				codes[r.Message.Source.CallID] = r.Error.Code
			}
		}
		want := map[string]string{"ran": session.CodeOutcomeUnknown, "asks": session.CodeNotStarted, "never": session.CodeNotStarted}
		if diff := cmp.Diff(want, codes); diff != "" {
			t.Error(diff)
		}
		i, err := j.Info(ctx, "a")
		if err != nil || i.LogFacts != st.Facts() {
			t.Errorf("row %+v, state %+v, %v", i.LogFacts, st.Facts(), err)
		}
		audit(t, j, l)
		if err := j.Close(ctx); err != nil {
			t.Fatal(err)
		}
		j = openJournal(t, open, dir, session.Options{})
		if got, err := j.Recover(ctx); err != nil || got != (session.Recovered{}) {
			t.Errorf("the second time recovered %+v, %v", got, err)
		}
	})

	t.Run("unfinished text becomes an interrupted message", func(t *testing.T) {
		dir := subdir(t)
		kill := make(chan struct{}, 100)
		f := &faulty{}
		j := openJournal(t, func(dir string) (session.Store, error) {
			s, err := open(dir)
			f.Store = s
			return f, err
		}, dir, session.Options{CheckpointEvery: time.Millisecond, AfterCommit: func(c []session.Committed) { kill <- struct{}{} }})
		pieces := func() string {
			t.Helper()
			all, err := f.Partials(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, p := range all {
				fmt.Fprintf(&text, "%d:%s|", p.Attempt, p.Text)
			}
			return text.String()
		}
		wait := func(want string) {
			t.Helper()
			for pieces() != want {
				select {
				case <-kill:
				case <-time.After(10 * time.Second):
					t.Fatalf("the pieces are %q, want %q", pieces(), want)
				}
			}
		}
		l := create(t, j, "a", session.TurnStart{Turn: 1}, session.StepStart{Turn: 1, Step: 1})
		first := l.Live().Begin(1, 1, 1, model.DeltaText, "", "")
		first.Append("withdrawn")
		wait("1:withdrawn|")
		l.Live().Drop(1)
		b := l.Live().Begin(1, 1, 2, model.DeltaReasoning, "", "")
		b.Append("think")
		wait("1:withdrawn|2:think|")
		b.Append("ing")
		wait("1:withdrawn|2:think|2:ing|")
		l.Live().Begin(1, 1, 2, model.DeltaText, "", "").Append("say")
		l.Live().Begin(1, 1, 2, model.DeltaTool, "bash", "c").Append(`{"comm`)
		wait("1:withdrawn|2:think|2:ing|2:say|2:{\"comm|")
		if err := j.Close(ctx); err != nil {
			t.Fatal(err)
		}
		j = openJournal(t, open, dir, session.Options{})
		if got, err := j.Recover(ctx); err != nil || got != (session.Recovered{Sessions: 1, Messages: 1}) {
			t.Fatalf("recovered %+v, %v", got, err)
		}
		l = openLog(t, j, "a")
		h := l.State().History
		if len(h) != 1 || !h[0].Interrupted || len(h[0].Message.Content) != 2 || h[0].Message.Content[0].Text != "thinking" || h[0].Message.Content[1].Text != "say" {
			t.Errorf("history %+v", h)
		}
		audit(t, j, l)
	})

	t.Run("text that became a message leaves nothing beside it", func(t *testing.T) {
		f := &faulty{}
		j := openJournal(t, func(dir string) (session.Store, error) {
			s, err := open(dir)
			f.Store = s
			return f, err
		}, subdir(t), session.Options{CheckpointEvery: time.Millisecond})
		l := create(t, j, "a", session.TurnStart{Turn: 1})
		for n := range 30 {
			put(t, l, session.StepStart{Turn: 1, Step: n + 1})
			b := l.Live().Begin(1, n+1, 1, model.DeltaText, "", "")
			for range 20 {
				b.Append("text ")
				put(t, l, session.Retry{RetryID: "r"})
			}
			put(t, l, session.AssistantMessage{Turn: 1, Step: n + 1, Message: answer(fmt.Sprint("a", n), "text")})
			if left, err := f.Partials(ctx, "a"); err != nil || len(left) != 0 {
				t.Fatalf("step %d left %+v, %v", n+1, left, err)
			}
		}
	})

	t.Run("dangling files of a failed open", func(t *testing.T) {
		dir := subdir(t)
		s := mustOpen(t, open, dir)
		_, err := open(dir)
		var locked *session.LockedError
		if err != nil && (!errors.As(err, &locked) || locked.PID != os.Getpid()) {
			t.Error("second owner:", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
