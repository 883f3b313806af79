//go:build linux || darwin

package term_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/term"
)

// quantiles reports p10 (what it takes on a machine that does nothing else), p50, p95 and p99 of the times.
func quantiles(b *testing.B, times []time.Duration) {
	b.Helper()
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	at := func(q float64) float64 {
		return float64(times[min(len(times)-1, int(q*float64(len(times))))].Microseconds()) / 1000
	}
	b.ReportMetric(at(.1), "p10-ms")
	b.ReportMetric(at(.5), "p50-ms")
	b.ReportMetric(at(.95), "p95-ms")
	b.ReportMetric(at(.99), "p99-ms")
}

func call(b *testing.B, ts *term.Terminals, command string) term.Outcome {
	b.Helper()
	out, err := ts.Run(context.Background(), term.Request{Command: command, Timeout: time.Minute})
	if err != nil || !out.Ended {
		b.Fatalf("%.80q: %+v, %v", command, out, err)
	}
	return out
}

// BenchmarkRoundTrip is one `true` in a warm shell.
func BenchmarkRoundTrip(b *testing.B) {
	ts := open(b, term.Shell{Restore: true})
	call(b, ts, "true")
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		call(b, ts, "true")
		times = append(times, time.Since(start))
	}
	quantiles(b, times)
}

// BenchmarkPlainPipe is what the round trip is compared with: a bash on two pipes, without terminal, fences, or state.
func BenchmarkPlainPipe(b *testing.B) {
	cmd := exec.Command("/bin/bash", "--noprofile", "--norc")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := io.WriteString(in, "true; echo $?\n"); err != nil {
			b.Fatal(err)
		}
		if _, err := out.ReadString('\n'); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	quantiles(b, times)
	if err := in.Close(); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFirstResult is spawn to the first result.
func BenchmarkFirstResult(b *testing.B) {
	in := instance(b)
	dir := b.TempDir()
	var times []time.Duration
	for b.Loop() {
		ts := term.New(term.Options{Proc: in, Dir: dir})
		start := time.Now()
		call(b, ts, "true")
		times = append(times, time.Since(start))
		if err := ts.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	quantiles(b, times)
}

// BenchmarkClose is the end of an agent with an idle shell.
func BenchmarkClose(b *testing.B) {
	in := instance(b)
	dir := b.TempDir()
	var times []time.Duration
	for b.Loop() {
		ts := term.New(term.Options{Proc: in, Dir: dir})
		call(b, ts, "true")
		start := time.Now()
		if err := ts.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	quantiles(b, times)
}

// BenchmarkLongCommand is one command line of 200 kB.
func BenchmarkLongCommand(b *testing.B) {
	ts := open(b, term.Shell{Restore: true})
	command := "x='" + strings.Repeat("a b ", 50_000) + "'"
	call(b, ts, "true")
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		call(b, ts, command)
		times = append(times, time.Since(start))
	}
	quantiles(b, times)
}

// BenchmarkOutput is how fast output comes through.
func BenchmarkOutput(b *testing.B) {
	ts := open(b, term.Shell{Restore: true})
	const size = 16 << 20
	command := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)
	b.SetBytes(size)
	for b.Loop() {
		call(b, ts, command)
	}
}
