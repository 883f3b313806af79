// Package storetest is the conformance suite of session stores: the contract of session.Store, and the journal's behaviour over a real store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// Opener opens the store that lives in dir, which exists. Opening again after Close gives the same sessions.
type Opener func(dir string) (session.Store, error)

// Run runs the whole suite.
func Run(t *testing.T, open Opener) {
	t.Run("contract", func(t *testing.T) { contract(t, open) })
	t.Run("journal", func(t *testing.T) { journal(t, open) })
	t.Run("faults", func(t *testing.T) { faults(t, open) })
	t.Run("anew", func(t *testing.T) { anew(t, open) })
	t.Run("beside", func(t *testing.T) { beside(t, open) })
	t.Run("recovery", func(t *testing.T) { recovery(t, open) })
}

func mustOpen(t *testing.T, open Opener, dir string) session.Store {
	t.Helper()
	s, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// chain makes n events that follow each other.
func chain(n int) []session.Encoded {
	var out []session.Encoded
	prev := ""
	for i := range n {
		e := session.Event{Seq: int64(i), Time: 1000 + int64(i), Type: "session/title", Data: []byte(fmt.Sprintf(`{"title":"t%d"}`, i)), Prev: prev}
		b := session.EncodeEvent(e)
		prev = session.HashEvent(b)
		out = append(out, session.Encoded{Seq: e.Seq, Data: b})
	}
	return out
}

func info(id string, events []session.Encoded) *session.Info {
	h := session.Header{ID: id, CreatedAt: 1, Cwd: "/w/" + id, AgentPreset: session.PresetRef{ID: "minimal", Hash: "h"}, Group: "g", Attempt: 2, Labels: map[string]string{"a": "b"}}
	i := session.Info{Header: h, LogFacts: session.NewState(h).Facts(), Labels: h.Labels}
	if n := len(events); n > 0 {
		i.LastSeq, i.LastHash, i.Title = events[n-1].Seq, session.HashEvent(events[n-1].Data), fmt.Sprintf("t%d", n-1)
		i.UpdatedAt = 1000 + int64(n-1)
	}
	return &i
}

func commit(t *testing.T, s session.Store, epoch int64, changes ...session.Change) {
	t.Helper()
	if err := s.Commit(epoch, changes); err != nil {
		t.Fatal(err)
	}
}

func acquire(t *testing.T, s session.Store) int64 {
	t.Helper()
	epoch, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func contract(t *testing.T, open Opener) {
	ctx := context.Background()

	t.Run("what is committed is read, also after opening again", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, open, dir)
		events := chain(10)
		commit(t, s, acquire(t, s), session.Change{
			ID: "a", Create: true, Events: events, Info: info("a", events),
			Documents: []session.Document{{Kind: session.DocPin, Body: []byte("pin")}, {Kind: session.DocSettings, Body: []byte(`{"key":"k"}`)}},
		})
		id := s.LogID()
		check := func(s session.Store) {
			t.Helper()
			got, err := s.Info(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*info("a", events), got, cmpopts.EquateEmpty()); diff != "" {
				t.Error("info (-want +got):\n" + diff)
			}
			raw, err := s.Read(ctx, "a", session.Range{After: -1, Before: 10})
			if err != nil || len(raw) != 10 {
				t.Fatalf("read %d events, %v", len(raw), err)
			}
			for i := range raw {
				if !bytes.Equal(raw[i], events[i].Data) {
					t.Errorf("event %d is %s", i, raw[i])
				}
			}
			for kind, want := range map[session.DocumentKind]string{session.DocPin: "pin", session.DocSettings: `{"key":"k"}`, session.DocAnnotations: ""} {
				body, err := s.Document(ctx, "a", kind)
				if err != nil || string(body) != want {
					t.Errorf("document %s is %q, %v", kind, body, err)
				}
			}
			if s.LogID() != id || id == "" {
				t.Errorf("log id %q, before %q", s.LogID(), id)
			}
		}
		check(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error("second close:", err)
		}
		check(mustOpen(t, open, dir))
	})

	t.Run("ranges", func(t *testing.T) {
		s := mustOpen(t, open, t.TempDir())
		events := chain(20)
		epoch := acquire(t, s)
		commit(t, s, epoch, session.Change{ID: "a", Create: true, Events: events[:7], Info: info("a", events[:7])})
		commit(t, s, epoch, session.Change{ID: "a", Events: events[7:], Info: info("a", events)})
		size := len(events[10].Data)
		for _, tc := range []struct {
			r           session.Range
			first, last int64
		}{
			{session.Range{After: -1, Before: 20}, 0, 19},
			{session.Range{After: 4, Before: 20, Limit: 3}, 5, 7},
			{session.Range{After: 4, Before: 7}, 5, 6},
			{session.Range{After: -1, Before: 20, Limit: 4, Last: true}, 16, 19},
			{session.Range{After: -1, Before: 9, Limit: 4, Last: true}, 5, 8},
			{session.Range{After: 9, Before: 20, MaxBytes: 2*size + 1}, 10, 11},
			{session.Range{After: 9, Before: 20, MaxBytes: 1}, 10, 10},
			{session.Range{After: -1, Before: 20, MaxBytes: 1, Last: true}, 19, 19},
			{session.Range{After: -1, Before: 20, MaxBytes: 3*size + 1, Last: true}, 17, 19},
		} {
			raw, err := s.Read(ctx, "a", tc.r)
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, b := range raw {
				e, err := session.ParseEvent(b)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.Seq)
			}
			if len(got) == 0 || got[0] != tc.first || got[len(got)-1] != tc.last || len(got) != int(tc.last-tc.first+1) {
				t.Errorf("%+v gave %v, want %d to %d", tc.r, got, tc.first, tc.last)
			}
		}
		if raw, err := s.Read(ctx, "a", session.Range{After: 19, Before: 20}); err != nil || len(raw) != 0 {
			t.Errorf("an empty range gave %d events, %v", len(raw), err)
		}
	})

	t.Run("unknown and taken ids", func(t *testing.T) {
		s := mustOpen(t, open, t.TempDir())
		epoch := acquire(t, s)
		if _, err := s.Info(ctx, "a"); !errors.Is(err, session.ErrNotFound) {
			t.Error("info:", err)
		}
		if _, err := s.Read(ctx, "a", session.Range{After: -1, Before: 1}); !errors.Is(err, session.ErrNotFound) {
			t.Error("read:", err)
		}
		commit(t, s, epoch, session.Change{ID: "a", Create: true, Info: info("a", nil)})
		err := s.Commit(epoch, []session.Change{
			{ID: "b", Create: true, Info: info("b", nil)}, {ID: "a", Create: true, Info: info("a", nil)},
		})
		if !errors.Is(err, session.ErrExists) {
			t.Error("create again:", err)
		}
		if _, err := s.Info(ctx, "b"); !errors.Is(err, session.ErrNotFound) {
			t.Error("half a commit is there:", err)
		}
	})

	t.Run("a stale owner is refused", func(t *testing.T) {
		s := mustOpen(t, open, t.TempDir())
		old := acquire(t, s)
		fresh := acquire(t, s)
		if err := s.Commit(old, []session.Change{{ID: "a", Create: true, Info: info("a", nil)}}); !errors.Is(err, session.ErrStaleEpoch) {
			t.Error("old owner:", err)
		}
		commit(t, s, fresh, session.Change{ID: "a", Create: true, Info: info("a", nil)})
	})

	t.Run("partial pieces", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, open, dir)
		epoch := acquire(t, s)
		pieces := []session.Partial{
			{Turn: 1, Step: 2, Attempt: 1, Block: 3, Kind: model.DeltaText, Text: "he"},
			{Turn: 1, Step: 2, Attempt: 1, Block: 4, Kind: model.DeltaTool, Name: "bash", CallID: "c", Text: "{"},
			{Turn: 1, Step: 2, Attempt: 1, Block: 3, Kind: model.DeltaText, Text: "llo\n"},
		}
		commit(t, s, epoch, session.Change{ID: "a", Create: true, Info: info("a", nil), Partials: pieces[:1]})
		commit(t, s, epoch, session.Change{ID: "a", Partials: pieces[1:]})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, open, dir)
		got, err := s.Partials(ctx, "a")
		if diff := cmp.Diff(pieces, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
		commit(t, s, acquire(t, s), session.Change{ID: "a", DropPartial: true})
		if got, err := s.Partials(ctx, "a"); err != nil || len(got) != 0 {
			t.Error("dropped pieces are there:", got, err)
		}
	})

	t.Run("delete takes everything", func(t *testing.T) {
		s := mustOpen(t, open, t.TempDir())
		epoch := acquire(t, s)
		events := chain(5)
		commit(t, s, epoch,
			session.Change{ID: "a", Create: true, Events: events, Info: info("a", events), Documents: []session.Document{{Kind: session.DocPin, Body: []byte("x")}}, Texts: []session.Text{{Seq: session.TitleSeq, Text: "T4"}}},
			session.Change{ID: "b", Create: true, Events: events, Info: info("b", events)})
		commit(t, s, epoch, session.Change{ID: "a", Delete: true})
		if _, err := s.Info(ctx, "a"); !errors.Is(err, session.ErrNotFound) {
			t.Error("info:", err)
		}
		if l, err := s.List(ctx, session.Query{Text: "t4"}); err != nil || strings.Contains(ids(l), "a") {
			t.Error("found by text:", l, err)
		}
		commit(t, s, epoch, session.Change{ID: "a", Create: true, Info: info("a", nil)})
		if raw, err := s.Read(ctx, "a", session.Range{After: -1, Before: 5}); err != nil || len(raw) != 0 {
			t.Errorf("a new session with the id has %d old events, %v", len(raw), err)
		}
		if body, err := s.Document(ctx, "a", session.DocPin); err != nil || body != nil {
			t.Error("old document:", body, err)
		}
		if raw, err := s.Read(ctx, "b", session.Range{After: -1, Before: 5}); err != nil || len(raw) != 5 {
			t.Errorf("the other session has %d events, %v", len(raw), err)
		}
	})

	t.Run("lists", func(t *testing.T) { lists(t, open) })
}

func ids(l session.List) string {
	var out []string
	for _, i := range l.Sessions {
		out = append(out, i.ID)
	}
	return strings.Join(out, " ")
}

func lists(t *testing.T, open Opener) {
	ctx := context.Background()
	s, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, func(string) (session.Store, error) { return s, nil }, "", session.Options{})
	for n := range 7 {
		h := header(fmt.Sprint("s", n))
		h.CreatedAt = int64(100 + n)
		if n%2 == 1 {
			h.Group = "odd"
		}
		if n == 5 {
			h.AgentPreset.ID = "standard"
		}
		if _, err := j.Create(ctx, h, nil, drafts(session.Title{Title: fmt.Sprint("Title Ärger ", n)}, session.UserMessage{Message: user("u", fmt.Sprint("100% Größe_", n%2))})...); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.SetArchived(ctx, "s2", true); err != nil {
		t.Fatal(err)
	}
	put(t, openLog(t, j, "s3"), session.TurnStart{Turn: 1})
	damaged, err := j.Info(ctx, "s4")
	if err != nil {
		t.Fatal(err)
	}
	damaged.Damage = "why"
	commit(t, s, j.Epoch(), session.Change{ID: "s4", Info: &damaged})
	yes, no := true, false
	for _, tc := range []struct {
		name string
		q    session.Query
		want string
	}{
		{"all", session.Query{}, "s6 s5 s4 s3 s2 s1 s0"},
		{"limit", session.Query{Limit: 2}, "s6 s5"},
		{"group", session.Query{Group: "odd"}, "s5 s3 s1"},
		{"preset", session.Query{Preset: "standard"}, "s5"},
		{"archived", session.Query{Archived: &yes}, "s2"},
		{"not archived", session.Query{Archived: &no, Limit: 5}, "s6 s5 s4 s3 s1"},
		{"running", session.Query{Status: session.StatusRunning}, "s3"},
		{"damaged", session.Query{Status: session.StatusDamaged}, "s4"},
		{"idle", session.Query{Status: session.StatusIdle}, "s6 s5 s2 s1 s0"},
		{"text", session.Query{Text: "ärger 4"}, "s4"},
		{"text in a message, other case", session.Query{Text: "GRÖẞE_1"}, "s5 s3 s1"},
		{"text with the wildcards of SQL", session.Query{Text: "0% gr", Group: "odd"}, "s5 s3 s1"},
		{"no text", session.Query{Text: "_0%"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := s.List(ctx, tc.q)
			if err != nil || ids(l) != tc.want {
				t.Errorf("got %q, %v; want %q", ids(l), err, tc.want)
			}
		})
	}
	for _, text := range []string{"", "title"} {
		t.Run("pages with text "+text, func(t *testing.T) {
			var all []string
			q := session.Query{Limit: 3, Text: text}
			for pages := 1; ; pages++ {
				l, err := s.List(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, ids(l))
				if q.Cursor = l.NextCursor; q.Cursor == "" {
					break
				}
				if pages > 5 {
					t.Fatal("the pages never end:", all)
				}
			}
			if want := []string{"s6 s5 s4", "s3 s2 s1", "s0"}; !slices.Equal(all, want) {
				t.Errorf("pages %q", all)
			}
		})
	}
	if _, err := s.List(ctx, session.Query{Cursor: "x y"}); !errors.Is(err, session.ErrBadCursor) {
		t.Error("a foreign cursor:", err)
	}
	t.Run("a new title replaces the old one", func(t *testing.T) {
		put(t, openLog(t, j, "s0"), session.Title{Title: "Other"})
		for text, want := range map[string]string{"ärger 0": "", "other": "s0"} {
			if l, err := s.List(ctx, session.Query{Text: text}); err != nil || ids(l) != want {
				t.Errorf("%q finds %q, %v", text, ids(l), err)
			}
		}
	})
}

// journalDir opens a journal in checked mode.
func openJournal(t *testing.T, open Opener, dir string, opts session.Options) *session.Journal {
	t.Helper()
	s, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	opts.Checked = true
	j := session.NewJournal(s, opts)
	if err := j.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error("close journal:", err)
		}
	})
	return j
}

func subdir(t *testing.T) string { return filepath.Join(t.TempDir(), "data") }
