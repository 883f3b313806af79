package sqlite_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

func openDir(dir string) (session.Store, error) {
	return sqlite.Open(context.Background(), dir, sqlite.Options{})
}

func BenchmarkAppend50Sessions(b *testing.B) { storetest.BenchmarkAppend(b, openDir) }

func BenchmarkAppendToVisible(b *testing.B) { storetest.BenchmarkAppendToVisible(b, openDir) }

func BenchmarkOpen1000Events(b *testing.B) { storetest.BenchmarkOpen(b, openDir, 1000) }

func BenchmarkCreate(b *testing.B) {
	j := storetest.Start(b, openDir, b.TempDir(), session.Options{})
	pin := []byte(strings.Repeat("composition ", 300))
	i := 0
	for b.Loop() {
		i++
		l, err := j.Create(context.Background(), session.Header{ID: fmt.Sprintf("0192f0c1-%d", i), AgentPreset: session.PresetRef{ID: "minimal", Hash: "x"}}, pin)
		if err != nil {
			b.Fatal(err)
		}
		j.Release(l)
	}
}

func BenchmarkOpenDatabase(b *testing.B) {
	b.Run("fresh", func(b *testing.B) {
		for b.Loop() {
			s, err := sqlite.Open(b.Context(), b.TempDir(), sqlite.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("existing", func(b *testing.B) {
		dir := b.TempDir()
		for b.Loop() {
			s, err := sqlite.Open(b.Context(), dir, sqlite.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

func BenchmarkFirstPage(b *testing.B) {
	for _, events := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(events), func(b *testing.B) {
			j := storetest.Start(b, openDir, b.TempDir(), session.Options{})
			l := storetest.Begin(b, j, "s")
			for n := 1; n < events; n += 5000 {
				storetest.Add(b, l, storetest.ToolResults(min(5000, events-n))...)
			}
			j.Release(l)
			runtime.GC()
			b.ResetTimer()
			for b.Loop() {
				page, err := j.Before(context.Background(), "s", -1, 0, 0)
				if err != nil || len(page.Events) != 200 {
					b.Fatal(len(page.Events), err)
				}
			}
		})
	}
}

// populate makes sessions of one open turn each.
func populate(b *testing.B, dir string, sessions, events int) {
	b.Helper()
	store, err := sqlite.Open(b.Context(), dir, sqlite.Options{Synchronous: "normal"})
	if err != nil {
		b.Fatal(err)
	}
	j := session.NewJournal(store, session.Options{})
	if err := j.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	for first := 0; first < sessions; first += 50 {
		var all []session.Creation
		for i := range 50 {
			c := session.Creation{Header: session.Header{ID: fmt.Sprint("session-", first+i), AgentPreset: session.PresetRef{ID: "minimal"}}}
			c.Drafts = append(c.Drafts, session.Draft{Payload: session.Title{Title: "a title"}}, session.Draft{Payload: session.TurnStart{Turn: 1}}, session.Draft{Payload: session.StepStart{Turn: 1, Step: 1}})
			for n := 3; n < events; n++ { // one long turn, steps of five events
				if n%5 == 0 {
					c.Drafts = append(c.Drafts, session.Draft{Payload: session.StepStart{Turn: 1, Step: n}})
				} else {
					c.Drafts = append(c.Drafts, storetest.ToolResult(n))
				}
			}
			all = append(all, c)
		}
		logs, err := j.CreateAll(b.Context(), all)
		if err != nil {
			b.Fatal(err)
		}
		for _, l := range logs {
			j.Release(l)
		}
	}
	if err := j.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkListFirstPageOf10000(b *testing.B) {
	dir := b.TempDir()
	populate(b, dir, 10_000, 3)
	j := storetest.Start(b, openDir, dir, session.Options{})
	for b.Loop() {
		if l, err := j.List(context.Background(), session.Query{}); err != nil || len(l.Sessions) != 50 {
			b.Fatal(len(l.Sessions), err)
		}
	}
}

func BenchmarkRecover1000SessionsOf1000Events(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		populate(b, dir, 1000, 1000)
		b.StartTimer()
		j := storetest.Start(b, openDir, dir, session.Options{})
		got, err := j.Recover(context.Background())
		b.StopTimer()
		if err != nil || got.Sessions != 1000 {
			b.Fatal(got, err)
		}
		b.StartTimer()
	}
}
