package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

func header(id string) session.Header {
	return session.Header{ID: id, CreatedAt: 1, Cwd: "/w", AgentPreset: session.PresetRef{ID: "minimal", Hash: "h"}}
}

func user(id, text string) model.Message {
	return model.Message{ID: id, Role: model.RoleUser, Source: model.Source{Kind: model.SourceUser}, Content: []model.Block{model.Text(text)}}
}

func answer(id, text string, calls ...model.Block) model.Message {
	return model.Message{ID: id, Role: model.RoleAssistant, Source: model.Source{Kind: model.SourceModel, Provider: "p", Model: "m"}, Content: append([]model.Block{model.Text(text)}, calls...)}
}

func result(call, text string) session.ToolResult {
	return session.ToolResult{Turn: 1, Step: 1, Message: model.Message{
		ID: "r-" + call, Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: call},
		Content: []model.Block{{Type: model.BlockToolResult, ToolCallID: call, Content: []model.Block{model.Text(text)}}},
	}}
}

func drafts(payloads ...session.Payload) []session.Draft {
	var out []session.Draft
	for _, p := range payloads {
		out = append(out, session.Draft{Payload: p})
	}
	return out
}

func put(t *testing.T, l *session.Log, payloads ...session.Payload) []session.Event {
	t.Helper()
	events, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return drafts(payloads...), nil })
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func create(t *testing.T, j *session.Journal, id string, payloads ...session.Payload) *session.Log {
	t.Helper()
	l, err := j.Create(context.Background(), header(id), session.Pin("pin of "+id), drafts(payloads...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func openLog(t *testing.T, j *session.Journal, id string) *session.Log {
	t.Helper()
	l, err := j.Open(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// turn is one whole turn with one call.
func turn(n int) []session.Payload {
	m := user(fmt.Sprint("u", n), fmt.Sprint("question ", n))
	call := fmt.Sprint("c", n)
	tool := result(call, "out\x00put \xff "+fmt.Sprint(n))
	tool.Turn = n
	return []session.Payload{
		session.InboxSpliced{Target: session.TargetNextTurn, Inserted: []model.Message{m}},
		session.TurnStart{Turn: n},
		session.InboxSpliced{Target: session.TargetNextTurn, RemovedCount: 1, Outcome: "claimed"},
		session.StepStart{Turn: n, Step: 1},
		session.UserMessage{Message: m},
		session.RequestSent{Turn: n, Step: 1, Attempt: 1, Encoder: "openai/1"},
		session.AssistantMessage{Turn: n, Step: 1, Message: answer(fmt.Sprint("a", n), "<b> & 'é'", model.Block{Type: model.BlockToolCall, ID: call, Name: "bash", Arguments: `{"command":"ls"}`}), Usage: &model.Usage{InputTokens: 3, OutputTokens: 4}},
		session.ToolCall{Turn: n, Step: 1, CallID: call, Name: "bash", Arguments: `{"command":"ls"}`},
		tool,
		session.StepEnd{Turn: n, Step: 1},
		session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.EndCompleted}},
	}
}

// same says whether two states are equal, empty lists counting as none.
func same(t *testing.T, what string, want, got session.State) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// audit checks that the stored log is contiguous, chained, and folds to the state in memory.
func audit(t *testing.T, j *session.Journal, l *session.Log) {
	t.Helper()
	st := session.NewState(l.Header())
	for {
		page, err := j.Read(context.Background(), l.ID(), st.LastSeq, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Encoded {
			next, _, err := session.Fold(st, b)
			if err != nil {
				t.Fatal(err)
			}
			st = next
		}
		if !page.HasMore {
			break
		}
	}
	same(t, "the fold from scratch differs from the state", st, l.State())
}

func journal(t *testing.T, open Opener) {
	ctx := context.Background()

	t.Run("create, update, read, open again", func(t *testing.T) {
		dir := subdir(t)
		j := openJournal(t, open, dir, session.Options{})
		l := create(t, j, "a", session.Title{Title: "first"})
		events := put(t, l, turn(1)...)
		if len(events) != 11 || events[0].Seq != 1 || events[10].Seq != 11 {
			t.Fatalf("events %+v", events)
		}
		put(t, l, turn(2)...)
		audit(t, j, l)
		want := l.State()
		if want.Title != "first" || want.Turns != 2 || len(want.History) != 6 || want.Usage.InputTokens != 6 || !want.Knows("u1") || want.Knows("u9") || want.Blank {
			t.Errorf("state %+v", want)
		}
		if err := j.Close(ctx); err != nil {
			t.Fatal(err)
		}
		j = openJournal(t, open, dir, session.Options{})
		l = openLog(t, j, "a")
		same(t, "the state after opening again", want, l.State())
		if pin, err := j.Pin(ctx, "a"); err != nil || string(pin) != "pin of a" {
			t.Errorf("pin %q, %v", pin, err)
		}
		i, err := j.Info(ctx, "a")
		if err != nil || i.LogFacts != want.Facts() {
			t.Errorf("facts of the row %+v, of the state %+v, %v", i.LogFacts, want.Facts(), err)
		}
		put(t, l, turn(3)...)
		audit(t, j, l)
	})

	t.Run("refusals", func(t *testing.T) {
		j := openJournal(t, open, subdir(t), session.Options{})
		l := create(t, j, "a")
		refusal := errors.New("no")
		if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return drafts(session.Title{Title: "x"}), refusal }); err != refusal {
			t.Error("refusal:", err)
		}
		if events, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return nil, nil }); err != nil || len(events) != 0 {
			t.Error("nothing:", events, err)
		}
		bad := drafts(session.Title{Title: "x"}, session.InboxSpliced{Target: "elsewhere"})
		if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return bad, nil }); err == nil {
			t.Error("an event that can't be folded was accepted")
		}
		if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { panic("oops") }); err == nil || !strings.Contains(err.Error(), "oops") {
			t.Error("panic:", err)
		}
		if got := l.State(); got.LastSeq != -1 || got.Title != "" {
			t.Errorf("state %+v", got)
		}
		if _, err := j.Create(ctx, header("a"), nil); !errors.Is(err, session.ErrExists) {
			t.Error("create again:", err)
		}
		j.Release(l)
		if _, err := j.Create(ctx, header("a"), nil); !errors.Is(err, session.ErrExists) {
			t.Error("create again when it is cold:", err)
		}
		if _, err := j.Open(ctx, "b"); !errors.Is(err, session.ErrNotFound) {
			t.Error("open unknown:", err)
		}
		if _, err := j.CreateAll(ctx, []session.Creation{{Header: header("x")}, {Header: header("y"), Drafts: bad}}); err == nil {
			t.Error("half a batch was created")
		}
		if _, err := j.Info(ctx, "x"); !errors.Is(err, session.ErrNotFound) {
			t.Error("half a batch is there:", err)
		}
		create(t, j, "x")
	})

	t.Run("checked mode finds impure and re-entrant functions", func(t *testing.T) {
		j := openJournal(t, open, subdir(t), session.Options{})
		l := create(t, j, "a")
		n := 0
		if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) {
			n++
			return drafts(session.Title{Title: fmt.Sprint(n)}), nil
		}); !errors.Is(err, session.ErrImpure) {
			t.Error("impure:", err)
		}
		_, err := l.Update(ctx, func(session.State) ([]session.Draft, error) {
			_, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return nil, nil })
			return nil, err
		})
		if !errors.Is(err, session.ErrReentrant) {
			t.Error("re-entrant:", err)
		}
	})

	t.Run("a withdrawn update appends nothing", func(t *testing.T) {
		gate := make(chan struct{})
		entered := make(chan struct{})
		j := openJournal(t, open, subdir(t), session.Options{AfterCommit: func(c []session.Committed) {
			if c[0].Info.Title == "gate" {
				close(entered)
				<-gate
			}
		}})
		l := create(t, j, "a")
		var wg sync.WaitGroup
		wg.Go(func() { put(t, l, session.Title{Title: "gate"}) })
		<-entered // the committer is busy, so that the next update stays queued
		cancelled, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		wg.Go(func() {
			_, err := l.Update(cancelled, func(session.State) ([]session.Draft, error) { return drafts(session.Title{Title: "late"}), nil })
			done <- err
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error("withdrawn:", err)
		}
		close(gate)
		wg.Wait()
		put(t, l, session.Title{Title: "next"})
		if st := l.State(); st.LastSeq != 1 || st.Title != "next" {
			t.Errorf("state %+v", st)
		}
	})

	t.Run("many writers of one log", func(t *testing.T) {
		j := openJournal(t, open, subdir(t), session.Options{})
		l := create(t, j, "a")
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		const writers, each = 8, 25
		lists := make([][]int64, 3)
		var readers, wg sync.WaitGroup
		for r := range lists {
			readers.Go(func() {
				for e, err := range l.Follow(ctx, -1) {
					if err != nil {
						t.Error(err)
						return
					}
					if lists[r] = append(lists[r], e.Seq); len(lists[r]) == writers*each {
						return
					}
				}
			})
		}
		for w := range writers {
			wg.Go(func() {
				for n := range each {
					_, err := l.Update(ctx, func(st session.State) ([]session.Draft, error) {
						m := user(fmt.Sprint(w, "-", n), "text")
						if st.Knows(m.ID) {
							return nil, nil
						}
						return drafts(session.InboxSpliced{Target: session.TargetNextTurn, Start: len(st.NextTurn), Inserted: []model.Message{m}}), nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		readers.Wait()
		for _, list := range lists {
			for i, seq := range list {
				if seq != int64(i) {
					t.Fatalf("a reader saw %d at place %d", seq, i)
				}
			}
		}
		if st := l.State(); len(st.NextTurn) != writers*each || len(st.Accepted) != writers*each {
			t.Errorf("%d queued, %d accepted", len(st.NextTurn), len(st.Accepted))
		}
		audit(t, j, l)
	})

	t.Run("viewers that come and go", func(t *testing.T) {
		j := openJournal(t, open, subdir(t), session.Options{})
		l := create(t, j, "a", turn(1)...)
		const viewers, total = 8, 600
		lists := make([][]string, viewers)
		var readers sync.WaitGroup
		for v := range lists {
			readers.Go(func() {
				for visit := 1; len(lists[v]) < total; visit++ {
					// Every visit is a new connection: from the cursor, for some events, sometimes on a log that nobody has open.
					one, err := j.View(ctx, "a")
					if err != nil {
						t.Error(err)
						return
					}
					seen := 0
					for e, err := range one.Follow(ctx, int64(len(lists[v]))-1) {
						if err != nil {
							t.Error(err)
							return
						}
						lists[v] = append(lists[v], fmt.Sprint(e.Seq, " ", e.Prev))
						if seen++; seen == 1+(visit*7+v)%40 || len(lists[v]) == total {
							break
						}
					}
					j.Release(one)
				}
			})
		}
		for n := 2; l.State().LastSeq < total-1; n++ {
			put(t, l, turn(n)...)
		}
		readers.Wait()
		var want []string
		for after := int64(-1); len(want) < total; {
			page, err := j.Read(ctx, "a", after, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Events {
				want = append(want, fmt.Sprint(e.Seq, " ", e.Prev))
				after = e.Seq
			}
		}
		for v, list := range lists {
			if !slices.Equal(list, want[:total]) {
				t.Errorf("viewer %d saw another list than the store has", v)
			}
		}
	})

	t.Run("one log for an id", func(t *testing.T) {
		j := openJournal(t, open, subdir(t), session.Options{})
		j.Release(create(t, j, "a", turn(1)...))
		logs := make([]*session.Log, 8)
		var wg sync.WaitGroup
		for i := range logs {
			wg.Go(func() { logs[i] = openLog(t, j, "a") })
		}
		wg.Wait()
		for _, l := range logs {
			if l != logs[0] {
				t.Fatal("two logs for one id")
			}
		}
		for _, l := range logs {
			j.Release(l)
		}
		if _, err := logs[0].Update(ctx, func(session.State) ([]session.Draft, error) { return nil, nil }); !errors.Is(err, session.ErrClosed) {
			t.Error("update of a released log:", err)
		}
	})

	t.Run("pages", func(t *testing.T) { pages(t, open) })
	t.Run("the row beside the log", func(t *testing.T) { rows(t, open) })
	t.Run("fork", func(t *testing.T) { forks(t, open) })
	t.Run("live text goes with its event", func(t *testing.T) {
		j := openJournal(t, open, subdir(t), session.Options{})
		l := create(t, j, "a", session.TurnStart{Turn: 1}, session.StepStart{Turn: 1, Step: 1})
		changed := l.Changed()
		b := l.Live().Begin(1, 1, 1, model.DeltaText, "", "")
		<-changed
		b.Append("héllo")
		if text, ok := l.Live().BlockText(b.ID(), 3); !ok || text != "llo" {
			t.Errorf("text %q, %v", text, ok)
		}
		o := l.Live().Output("c1")
		fmt.Fprint(o, "output")
		put(t, l, session.AssistantMessage{Turn: 1, Step: 1, Message: answer("a", "héllo")}, session.ToolCall{Turn: 1, Step: 1, CallID: "c1", Name: "bash"})
		if v := l.Live().View(); len(v.Blocks) != 0 || len(v.Outputs) != 1 || v.Outputs[0].End != 6 {
			t.Errorf("view %+v", v)
		}
		put(t, l, result("c1", "output"))
		if v := l.Live().View(); len(v.Outputs) != 0 {
			t.Errorf("view %+v", v)
		}
		b.Append("more") // of a block that is gone
	})
}
