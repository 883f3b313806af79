package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

func pages(t *testing.T, open Opener) {
	ctx := context.Background()
	dir := subdir(t)
	j := openJournal(t, open, dir, session.Options{})
	l := create(t, j, "a")
	for n := range 60 {
		put(t, l, turn(n+1)...)
	}
	last := l.State().LastSeq
	check := func(name string, log *session.Log) {
		t.Helper()
		for _, tc := range []struct {
			after       int64
			limit       int
			bytes       int
			first, last int64
			more        bool
		}{
			{-1, 10, 0, 0, 9, true}, {last - 5, 10, 0, last - 4, last, false}, {last - 300, 1000, 1 << 20, last - 299, last, false}, {5, 0, 1, 6, 6, true}, {last - 3, 1, 0, last - 2, last - 2, true},
		} {
			p, err := log.Read(ctx, tc.after, tc.limit, tc.bytes)
			if err != nil || len(p.Events) == 0 || p.Events[0].Seq != tc.first || p.Events[len(p.Events)-1].Seq != tc.last || p.HasMore != tc.more || p.LastSeq != last || len(p.Encoded) != len(p.Events) {
				t.Errorf("%s: read %+v: %v", name, tc, err)
			}
		}
		for _, tc := range []struct {
			before      int64
			limit       int
			bytes       int
			first, last int64
			more        bool
		}{
			{-1, 10, 0, last - 9, last, true}, {12, 5, 0, 7, 11, true}, {3, 10, 0, 0, 2, false}, {-1, 0, 1, last, last, true}, {last - 2, 2, 0, last - 4, last - 3, true}, {-1, 1000, 1 << 20, 0, last, false},
		} {
			p, err := log.Before(ctx, tc.before, tc.limit, tc.bytes)
			if err != nil || len(p.Events) == 0 || p.Events[0].Seq != tc.first || p.Events[len(p.Events)-1].Seq != tc.last || p.HasMore != tc.more || int64(len(p.Events)) != tc.last-tc.first+1 {
				t.Errorf("%s: before %+v: %d events, %v", name, tc, len(p.Events), err)
			}
		}
		if p, err := log.Read(ctx, last, 0, 0); err != nil || len(p.Events) != 0 || p.HasMore || p.LastSeq != last {
			t.Errorf("%s: read at the end: %+v, %v", name, p, err)
		}
		if _, err := log.Read(ctx, last+1, 0, 0); !errors.Is(err, session.ErrCursorAhead) {
			t.Errorf("%s: cursor ahead: %v", name, err)
		}
		if _, err := log.Before(ctx, last+2, 0, 0); !errors.Is(err, session.ErrCursorAhead) {
			t.Errorf("%s: cursor ahead: %v", name, err)
		}
	}
	check("live", l)
	j.Release(l)
	view, err := j.View(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	check("view", view)
	if st := view.State(); st.LastSeq != last || len(st.History) != 0 {
		t.Errorf("a view folded the log: %d entries", len(st.History))
	}
	opened := openLog(t, j, "a")
	check("opened", opened)
	if opened != view || len(view.State().History) != 180 {
		t.Errorf("the view isn't the log: %d entries", len(view.State().History))
	}
	empty := create(t, j, "empty")
	for name, read := range map[string]func() (session.Page, error){
		"read":   func() (session.Page, error) { return empty.Read(ctx, -1, 0, 0) },
		"before": func() (session.Page, error) { return empty.Before(ctx, -1, 0, 0) },
	} {
		if p, err := read(); err != nil || p.LastSeq != -1 || len(p.Events) != 0 || p.HasMore {
			t.Errorf("%s of an empty log: %+v, %v", name, p, err)
		}
	}
}

func rows(t *testing.T, open Opener) {
	ctx := context.Background()
	dir := subdir(t)
	var mu sync.Mutex
	var seen []string
	j := openJournal(t, open, dir, session.Options{AfterCommit: func(all []session.Committed) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range all {
			seen = append(seen, fmt.Sprintf("%s %d archived=%v created=%v deleted=%v", c.ID, len(c.Events), c.Info.Archived, c.Created, c.Deleted))
		}
	}})
	l := create(t, j, "a", session.TurnStart{Turn: 1}, session.StepStart{Turn: 1, Step: 1}, session.ApprovalAsked{ID: "x", CallID: "c"})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(j.SetArchived(ctx, "a", true))
	must(j.SetLabels(ctx, "a", map[string]string{"k": "v"}))
	must(j.SetSettings(ctx, "a", []byte(`{"apiKey":"secret"}`), session.ModelRef{Provider: "p", Model: "m"}))
	must(j.SetAnnotations(ctx, "a", []byte(`{"reward":1}`)))
	put(t, l, session.Title{Title: "named"})
	if err := j.SetArchived(ctx, "nobody", true); !errors.Is(err, session.ErrNotFound) {
		t.Error("unknown:", err)
	}
	want := []string{"a 3 archived=false created=true deleted=false", "a 0 archived=true created=false deleted=false"}
	mu.Lock()
	if !slices.Equal(seen[:2], want) {
		t.Errorf("the hook saw %q", seen)
	}
	mu.Unlock()
	must(j.Close(ctx))
	j = openJournal(t, open, dir, session.Options{})
	i, err := j.Info(ctx, "a")
	must(err)
	if !i.Archived || i.Labels["k"] != "v" || i.Model.Model != "m" || i.Title != "named" || i.Pending != 1 || !i.TurnOpen || i.Status() != session.StatusRunning || i.LastSeq != 3 {
		t.Errorf("info %+v", i)
	}
	settings, err := j.Settings(ctx, "a")
	must(err)
	annotations, err := j.Annotations(ctx, "a")
	must(err)
	if string(settings) != `{"apiKey":"secret"}` || string(annotations) != `{"reward":1}` {
		t.Errorf("documents %s %s", settings, annotations)
	}
	l = openLog(t, j, "a")
	must(j.Delete(ctx, "a"))
	if _, err := j.Info(ctx, "a"); !errors.Is(err, session.ErrNotFound) {
		t.Error("deleted:", err)
	}
	if _, err := l.Read(ctx, -1, 0, 0); !errors.Is(err, session.ErrNotFound) {
		t.Error("read of a deleted log:", err)
	}
	if _, err := l.Update(ctx, func(session.State) ([]session.Draft, error) { return drafts(session.Title{}), nil }); !errors.Is(err, session.ErrNotFound) {
		t.Error("update of a deleted log:", err)
	}
	if again := create(t, j, "a"); again == l || again.State().LastSeq != -1 {
		t.Error("the id isn't free")
	}
}

func forks(t *testing.T, open Opener) {
	ctx := context.Background()
	j := openJournal(t, open, subdir(t), session.Options{})
	payloads := append(turn(1), session.PresetSelected{AgentPreset: session.PresetRef{ID: "other"}})
	l := create(t, j, "parent", append(payloads, turn(2)...)...)
	put(t, l, session.InboxSpliced{Target: session.TargetNextTurn, Inserted: []model.Message{user("waiting", "later")}}, session.TurnStart{Turn: 3})
	before := l.State()
	h := header("child")
	h.AgentPreset.ID = "standard"
	f, err := j.Fork(ctx, "parent", -1, session.Creation{Header: h, Pin: session.Pin("p"), Drafts: drafts(session.Title{Title: "fork"})})
	if err != nil {
		t.Fatal(err)
	}
	st := f.State()
	if st.TurnOpen || st.Turns != 2 || len(st.History) != 6 || st.Title != "fork" || st.Preset.ID != "standard" || len(st.NextTurn) != 0 || st.Usage.InputTokens != 0 || st.SeedEnd != 23 {
		t.Errorf("state of the fork %+v", st)
	}
	if got := f.Header(); got.ParentSession != "parent" || got.SeedLength != 23 {
		t.Errorf("header of the fork %+v", got)
	}
	a, err := l.Read(ctx, -1, 23, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Read(ctx, -1, 23, 0)
	if err != nil || !slices.EqualFunc(a.Encoded, b.Encoded, slices.Equal) {
		t.Error("the copied part differs:", err)
	}
	audit(t, j, f)
	put(t, f, turn(3)...)
	same(t, "the parent changed", before, l.State())
	first, err := j.Fork(ctx, "parent", 10, session.Creation{Header: header("first")})
	if err != nil || first.State().Turns != 1 {
		t.Error("fork at the first turn:", err)
	}
	for _, at := range []int64{3, 11, 24} {
		if _, err := j.Fork(ctx, "parent", at, session.Creation{Header: header("x")}); !errors.Is(err, session.ErrNotAtTurnEnd) {
			t.Errorf("fork at %d: %v", at, err)
		}
	}
	if _, err := j.Fork(ctx, "parent", 99, session.Creation{Header: header("x")}); !errors.Is(err, session.ErrCursorAhead) {
		t.Error("fork beyond the end:", err)
	}
	if _, err := j.Fork(ctx, "nobody", -1, session.Creation{Header: header("x")}); !errors.Is(err, session.ErrNotFound) {
		t.Error("fork of nobody:", err)
	}
	if _, err := j.Fork(ctx, "parent", -1, session.Creation{Header: header("child")}); !errors.Is(err, session.ErrExists) {
		t.Error("fork to a taken id:", err)
	}
}

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
