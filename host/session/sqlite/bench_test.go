package sqlite_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
)

func benchJournal(b *testing.B, dir string) *session.Journal {
	return countingJournal(b, dir, nil)
}

func countingJournal(b *testing.B, dir string, committed func([]session.Committed)) *session.Journal {
	b.Helper()
	store, err := sqlite.Open(b.Context(), dir, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	j := session.NewJournal(store, session.Options{AfterCommit: committed})
	if err := j.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return j
}

func toolResult(i int) session.Draft {
	return session.Draft{Payload: session.ToolResult{Turn: 1, Step: i, Message: model.Message{
		ID: fmt.Sprintf("0192f0c1-2d3e-7f40-8a5b-%012d", i), Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: "call_abcdefgh"},
		Content: []model.Block{{Type: model.BlockToolResult, ToolCallID: "call_abcdefgh", Content: []model.Block{model.Text(strings.Repeat("line of output\n", 8))}}},
	}}}
}

func BenchmarkAppend50Sessions(b *testing.B) {
	for _, perUpdate := range []int{1, 3} {
		b.Run(fmt.Sprintf("events=%d", perUpdate), func(b *testing.B) {
			commits, events := 0, 0
			j := countingJournal(b, b.TempDir(), func(all []session.Committed) {
				commits++
				for _, c := range all {
					events += len(c.Events)
				}
			})
			var logs []*session.Log
			for i := range 50 {
				l, err := j.Create(b.Context(), session.Header{ID: fmt.Sprint("s", i)}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
				if err != nil {
					b.Fatal(err)
				}
				logs = append(logs, l)
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, l := range logs {
				wg.Go(func() {
					for n := 0; n < b.N/50+1; n += perUpdate {
						var drafts []session.Draft
						for i := range perUpdate {
							drafts = append(drafts, toolResult(n+i))
						}
						if _, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return drafts, nil }); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(events)/float64(commits), "events/commit")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkAppendToVisible(b *testing.B) {
	j := benchJournal(b, b.TempDir())
	l, err := j.Create(b.Context(), session.Header{ID: "s"}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	if err != nil {
		b.Fatal(err)
	}
	seen := make(chan struct{})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for _, err := range l.Follow(ctx, 0) {
			if err != nil {
				return
			}
			seen <- struct{}{}
		}
	})
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		if _, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return []session.Draft{toolResult(1)}, nil }); err != nil {
			b.Fatal(err)
		}
		<-seen
		times = append(times, time.Since(start))
	}
	cancel()
	wg.Wait()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
}

func BenchmarkCreate(b *testing.B) {
	j := benchJournal(b, b.TempDir())
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
			dir := b.TempDir()
			j := benchJournal(b, dir)
			l, err := j.Create(b.Context(), session.Header{ID: "s"}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
			if err != nil {
				b.Fatal(err)
			}
			for n := 1; n < events; {
				var drafts []session.Draft
				for range min(5000, events-n) {
					drafts = append(drafts, toolResult(n))
					n++
				}
				if _, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return drafts, nil }); err != nil {
					b.Fatal(err)
				}
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

func BenchmarkOpen1000Events(b *testing.B) {
	j := benchJournal(b, b.TempDir())
	l, err := j.Create(b.Context(), session.Header{ID: "s"}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	if err != nil {
		b.Fatal(err)
	}
	var drafts []session.Draft
	for n := range 1000 {
		drafts = append(drafts, toolResult(n))
	}
	if _, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return drafts, nil }); err != nil {
		b.Fatal(err)
	}
	j.Release(l)
	for b.Loop() {
		l, err := j.Open(context.Background(), "s")
		if err != nil || len(l.State().History) != 1000 {
			b.Fatal(err)
		}
		j.Release(l)
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
					c.Drafts = append(c.Drafts, toolResult(n))
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
	j := benchJournal(b, dir)
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
		j := benchJournal(b, dir)
		got, err := j.Recover(context.Background())
		b.StopTimer()
		if err != nil || got.Sessions != 1000 {
			b.Fatal(got, err)
		}
		b.StartTimer()
	}
}
