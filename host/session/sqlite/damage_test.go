package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// raw runs a statement on the closed database.
func raw(t *testing.T, dir, query string) {
	t.Helper()
	conn, err := connector{filepath.Join(dir, databaseName), pragmas{busyTimeout: "5000", synchronous: "FULL", cacheSize: "-512"}}.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := execText(conn, query); err != nil {
		t.Fatal(err)
	}
}

func openJournal(t *testing.T, dir string) *session.Journal {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := session.NewJournal(s, session.Options{Checked: true})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return j
}

func closeJournal(t *testing.T, j *session.Journal) {
	t.Helper()
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOneDamagedSession damages one session of 100 in several ways: 99 work, list, search and recovery work, and that one says why.
func TestOneDamagedSession(t *testing.T) {
	for name, damage := range map[string]struct {
		query, reason string
		rows          bool // the row itself is damaged
	}{
		"garbled event":   {"UPDATE event SET body = x'00ff' WHERE key = 43 << 32 | 3", "decode event", false},
		"changed event":   {"UPDATE event SET body = CAST(replace(CAST(body AS TEXT), 'hello', 'HELLO') AS BLOB) WHERE key >> 32 = 43", "last event", false},
		"missing event":   {"DELETE FROM event WHERE key = 43 << 32 | 2", "", false},
		"unknown type":    {"UPDATE event SET body = CAST(replace(CAST(body AS TEXT), 'step/start', 'step/begin') AS BLOB) WHERE key >> 32 = 43", "step/begin", false},
		"missing end":     {"DELETE FROM event WHERE key >> 32 = 43 AND key & 4294967295 >= 3", "ends before", false},
		"garbled header":  {"UPDATE session SET header = x'7b' WHERE n = 43", "row", true},
		"garbled labels":  {"UPDATE session SET labels = 'x' WHERE n = 43", "row", true},
		"garbled arrival": {"UPDATE arrival SET body = x'00' WHERE session = 43", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := openJournal(t, dir)
			var all []session.Creation
			for i := range 100 {
				c := session.Creation{Header: session.Header{ID: fmt.Sprint("s", i+1), Cwd: "/w"}}
				for _, p := range []session.Payload{
					session.Title{Title: "title"}, session.TurnStart{Turn: 1}, session.StepStart{Turn: 1, Step: 1},
					session.UserMessage{Message: model.Message{ID: "m", Role: model.RoleUser, Source: model.Source{Kind: model.SourceUser}, Content: []model.Block{model.Text("hello")}}},
				} {
					c.Drafts = append(c.Drafts, session.Draft{Payload: p})
				}
				all = append(all, c)
			}
			if _, err := j.CreateAll(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			closeJournal(t, j)
			if !strings.Contains(damage.query, "arrival") {
				raw(t, dir, "INSERT INTO event (key, body) SELECT session << 32 | seq, body FROM arrival")
				raw(t, dir, "DELETE FROM arrival")
			}
			raw(t, dir, damage.query)

			j = openJournal(t, dir)
			defer closeJournal(t, j)
			got, err := j.Recover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !damage.rows && (got.Sessions != 99 || got.Damaged != 1) {
				t.Errorf("recovered %+v", got)
			}
			damaged, err := j.List(t.Context(), session.Query{Status: session.StatusDamaged})
			if !damage.rows && (err != nil || len(damaged.Sessions) != 1 || damaged.Sessions[0].ID != "s43" || !strings.Contains(damaged.Sessions[0].Damage, damage.reason)) {
				t.Errorf("damaged: %+v, %v", damaged, err)
			}
			for _, q := range []session.Query{{Limit: 1000}, {Limit: 1000, Text: "HELLO"}} {
				// A search that is out of time says so.
				if l, err := j.List(t.Context(), q); err != nil || len(l.Sessions) != 100 && !l.Truncated {
					t.Errorf("%+v lists %d, %v", q, len(l.Sessions), err)
				}
			}
			for i := range 100 {
				id := fmt.Sprint("s", i+1)
				l, err := j.Open(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				_, err = l.Update(t.Context(), func(session.State) ([]session.Draft, error) {
					return []session.Draft{{Payload: session.Title{Title: "new"}}}, nil
				})
				switch {
				case id != "s43" && err != nil:
					t.Error(id, err)
				case id == "s43":
					if !errors.Is(err, session.ErrReadOnly) || !strings.Contains(err.Error(), damage.reason) || !strings.Contains(l.State().Damage, damage.reason) {
						t.Errorf("update of the damaged one: %v, state %q", err, l.State().Damage)
					}
				}
				j.Release(l)
			}
		})
	}
}

// TestMendedSession: a session whose log can be read again is writable again.
func TestMendedSession(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	l, err := j.Create(t.Context(), session.Header{ID: "a"}, nil, session.Draft{Payload: session.StepStart{Turn: 1, Step: 1}})
	if err != nil {
		t.Fatal(err)
	}
	j.Release(l)
	closeJournal(t, j)
	raw(t, dir, "UPDATE arrival SET body = CAST(replace(CAST(body AS TEXT), 'step/start', 'step/other') AS BLOB)")
	j = openJournal(t, dir)
	if l, err = j.Open(t.Context(), "a"); err != nil || l.State().Damage == "" {
		t.Fatal(l, err)
	}
	closeJournal(t, j)
	raw(t, dir, "UPDATE arrival SET body = CAST(replace(CAST(body AS TEXT), 'step/other', 'step/start') AS BLOB)")
	j = openJournal(t, dir)
	defer closeJournal(t, j)
	if info, err := j.Info(t.Context(), "a"); err != nil || info.Damage == "" {
		t.Error("the row forgot the damage:", info.Damage, err)
	}
	if l, err = j.Open(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Update(t.Context(), func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.Title{Title: "x"}}}, nil
	}); err != nil {
		t.Error(err)
	}
	if info, err := j.Info(t.Context(), "a"); err != nil || info.Damage != "" {
		t.Error("the row keeps the damage:", info.Damage, err)
	}
}

// TestMove reads a session while its events are moved from arrival to where they stay.
func TestMove(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Options{Synchronous: "normal"})
	if err != nil {
		t.Fatal(err)
	}
	j := session.NewJournal(s, session.Options{})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer closeJournal(t, j)
	var logs []*session.Log
	for i := range 3 {
		l, err := j.Create(t.Context(), session.Header{ID: fmt.Sprint("s", i)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	moved := false
	for n := range 120 {
		for _, l := range logs {
			if _, err := l.Update(t.Context(), func(session.State) ([]session.Draft, error) {
				var out []session.Draft
				for k := range 5 {
					out = append(out, session.Draft{Payload: session.Title{Title: strings.Repeat(fmt.Sprint(k), 200+n)}})
				}
				return out, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		switch n % 30 {
		case 10:
			w, err := s.take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if s.move(w); w.size == 0 {
				moved = true
			}
			s.writer <- w
		}
		if n%7 != 0 || n < 20 {
			continue
		}
		last := logs[1].State().LastSeq
		for _, r := range []session.Range{
			{After: -1, Before: last + 1}, {After: -1, Before: last + 1, Limit: 17, Last: true}, {After: last - 40, Before: last - 3, Limit: 20},
			{After: -1, Before: last + 1, Limit: 60, Last: true}, {After: last / 2, Before: last + 1, MaxBytes: 9000}, {After: -1, Before: last, MaxBytes: 20000, Last: true},
			{After: last - 8, Before: last + 1, MaxBytes: 1}, {After: -1, Before: last + 1, Limit: int(last)},
		} {
			got, err := s.Read(t.Context(), "s1", r)
			if err != nil || len(got) == 0 {
				t.Fatal(r, len(got), err)
			}
			first, err := session.ParseEvent(got[0])
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for i, b := range got {
				e, err := session.ParseEvent(b)
				if err != nil || e.Seq != first.Seq+int64(i) {
					t.Fatalf("%+v gave %d at place %d after %d, %v", r, e.Seq, i, first.Seq, err)
				}
				size += len(b)
			}
			end := first.Seq + int64(len(got)) - 1
			if r.Last && end != r.Before-1 || !r.Last && first.Seq != r.After+1 || r.Limit > 0 && len(got) > r.Limit || r.MaxBytes > 0 && size > r.MaxBytes && len(got) > 1 {
				t.Errorf("%+v gave %d to %d, %d bytes", r, first.Seq, end, size)
			}
			if r.MaxBytes == 0 {
				want := min(r.Before-r.After-1, int64(r.Limit))
				if r.Limit == 0 {
					want = r.Before - r.After - 1
				}
				if int64(len(got)) != want {
					t.Errorf("%+v gave %d events, want %d", r, len(got), want)
				}
			}
		}
	}
	if !moved {
		t.Error("nothing was moved")
	}
	for _, l := range logs {
		j.Release(l)
		again, err := j.Open(t.Context(), l.ID())
		if err != nil || again.State().Damage != "" || again.State().LastSeq != 599 {
			t.Errorf("%+v, %v", again.State(), err)
		}
	}
}
