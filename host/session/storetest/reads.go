package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

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
