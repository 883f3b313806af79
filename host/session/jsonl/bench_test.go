package jsonl_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
)

func benchJournal(b *testing.B, root string, opts session.Options) *session.Journal {
	b.Helper()
	s, err := jsonl.Open(root, jsonl.Options{})
	if err != nil {
		b.Fatal(err)
	}
	j := session.NewJournal(s, opts)
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

func begin(b *testing.B, j *session.Journal, id string) *session.Log {
	b.Helper()
	l, err := j.Create(b.Context(), session.Header{ID: id}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func add(b *testing.B, l *session.Log, drafts ...session.Draft) {
	if _, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return drafts, nil }); err != nil {
		b.Error(err)
	}
}

func BenchmarkAppend50Sessions(b *testing.B) {
	commits, events := 0, 0
	j := benchJournal(b, b.TempDir(), session.Options{Observe: func(s session.CommitStats) { commits, events = commits+1, events+s.Events }})
	var logs []*session.Log
	for i := range 50 {
		logs = append(logs, begin(b, j, fmt.Sprint("s", i)))
	}
	commits, events = 0, 0
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, l := range logs {
		wg.Go(func() {
			for n := 0; n < b.N/50+1; n += 3 {
				add(b, l, toolResult(n), toolResult(n+1), toolResult(n+2))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(events)/float64(commits), "events/commit")
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkAppendToVisible(b *testing.B) {
	j := benchJournal(b, b.TempDir(), session.Options{})
	l := begin(b, j, "s")
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
		add(b, l, toolResult(1))
		<-seen
		times = append(times, time.Since(start))
	}
	cancel()
	wg.Wait()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
}

// BenchmarkOpen opens the root and folds the log, as a process that resumes one session does; "again" only folds it.
func BenchmarkOpen(b *testing.B) {
	for _, events := range []int{1000, 10_000} {
		root := b.TempDir()
		s, err := jsonl.Open(root, jsonl.Options{})
		if err != nil {
			b.Fatal(err)
		}
		j := session.NewJournal(s, session.Options{})
		if err := j.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		var drafts []session.Draft
		for n := range events - 1 {
			drafts = append(drafts, toolResult(n))
		}
		add(b, begin(b, j, "s"), drafts...)
		if err := j.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		open := func(b *testing.B, j *session.Journal) {
			l, err := j.Open(context.Background(), "s")
			if err != nil || len(l.State().History) != events-1 {
				b.Fatal(err)
			}
			j.Release(l)
		}
		b.Run(fmt.Sprint(events), func(b *testing.B) {
			for b.Loop() {
				s, err := jsonl.Open(root, jsonl.Options{ReadOnly: true})
				if err != nil {
					b.Fatal(err)
				}
				j := session.NewJournal(s, session.Options{})
				if err := j.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				open(b, j)
				if err := j.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/again", events), func(b *testing.B) {
			j := benchJournal(b, root, session.Options{})
			for b.Loop() {
				open(b, j)
			}
		})
	}
}
