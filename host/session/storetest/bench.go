package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// ToolResult is an event of the size that most of a log's events have.
func ToolResult(i int) session.Draft {
	p := result("call_abcdefgh", strings.Repeat("line of output\n", 8))
	p.Step, p.Message.ID = i, fmt.Sprintf("0192f0c1-2d3e-7f40-8a5b-%012d", i)
	return session.Draft{Payload: p}
}

// ToolResults are n of them.
func ToolResults(n int) []session.Draft {
	out := make([]session.Draft, n)
	for i := range out {
		out[i] = ToolResult(i)
	}
	return out
}

// Start gives a journal over the store in dir, which is closed with the benchmark.
func Start(b *testing.B, open Opener, dir string, opts session.Options) *session.Journal {
	b.Helper()
	s, err := open(dir)
	if err != nil {
		b.Fatal(err)
	}
	j := session.NewJournal(s, opts)
	b.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	if err := j.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return j
}

// Begin makes a session whose first turn is open.
func Begin(b *testing.B, j *session.Journal, id string) *session.Log {
	b.Helper()
	l, err := j.Create(b.Context(), session.Header{ID: id}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// Add appends to a log, from any goroutine; false means that the benchmark has failed.
func Add(b *testing.B, l *session.Log, drafts ...session.Draft) bool {
	b.Helper()
	_, err := l.Update(context.Background(), func(session.State) ([]session.Draft, error) { return drafts, nil })
	if err != nil {
		b.Error(err)
	}
	return err == nil
}

// BenchmarkAppend has 50 sessions append beside each other. An operation is one event.
func BenchmarkAppend(b *testing.B, open Opener) {
	for _, perUpdate := range []int{1, 3} {
		b.Run(fmt.Sprintf("events=%d", perUpdate), func(b *testing.B) {
			var commits, events atomic.Int64
			j := Start(b, open, b.TempDir(), session.Options{Observe: func(s session.CommitStats) { commits.Add(1); events.Add(int64(s.Events)) }})
			var logs []*session.Log
			for i := range 50 {
				logs = append(logs, Begin(b, j, fmt.Sprint("s", i)))
			}
			commits.Store(0)
			events.Store(0)
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, l := range logs {
				wg.Go(func() {
					for n := 0; n < b.N/len(logs)+1; n += perUpdate {
						drafts := make([]session.Draft, perUpdate)
						for i := range drafts {
							drafts[i] = ToolResult(n + i)
						}
						if !Add(b, l, drafts...) {
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			if err := j.Close(context.Background()); err != nil { // so that all of them are counted
				b.Fatal(err)
			}
			b.ReportMetric(float64(events.Load())/float64(commits.Load()), "events/commit")
			b.ReportMetric(float64(events.Load())/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkAppendToVisible is from an update's begin to a follower's having its event.
func BenchmarkAppendToVisible(b *testing.B, open Opener) {
	l := Begin(b, Start(b, open, b.TempDir(), session.Options{}), "s")
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
		if !Add(b, l, ToolResult(1)) {
			break
		}
		<-seen
		times = append(times, time.Since(start))
	}
	cancel()
	wg.Wait()
	if b.Failed() {
		return
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
}

// BenchmarkOpen opens and folds a log of so many tool results, again and again in one process, which didn't write it.
func BenchmarkOpen(b *testing.B, open Opener, results int) {
	dir := b.TempDir()
	j := Start(b, open, dir, session.Options{})
	Add(b, Begin(b, j, "s"), ToolResults(results)...)
	if err := j.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	j = Start(b, open, dir, session.Options{})
	for b.Loop() {
		Open(b, j, "s", results)
	}
}

// Open opens a log, checks that its results are there, and gives it back.
func Open(b *testing.B, j *session.Journal, id string, results int) {
	b.Helper()
	l, err := j.Open(context.Background(), id)
	if err != nil || len(l.State().History) != results {
		b.Fatal("not opened whole: ", err)
	}
	j.Release(l)
}
