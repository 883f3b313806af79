//go:build linux || darwin

package term_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/term"
)

func TestMain(m *testing.M) {
	proc.RunKeeperIfAsked()
	if dir := os.Getenv("TERM_TEST_HOST"); dir != "" {
		if err := actAsHost(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

// leaks says whether the tests left goroutines or child processes behind.
func leaks() int {
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var w syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &w, syscall.WNOHANG, nil); err != syscall.ECHILD {
		fmt.Fprintln(os.Stderr, "a child process is left:", pid, err)
		return 1
	}
	return 0
}

// instance opens an instance for one test.
func instance(t testing.TB) *proc.Instance {
	t.Helper()
	in, err := proc.Open(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return in
}

// open makes an agent's terminals in a directory of their own.
func open(t testing.TB, s term.Shell, o ...func(*term.Options)) *term.Terminals {
	t.Helper()
	options := term.Options{Dir: t.TempDir(), Session: "test"}
	for _, f := range o {
		f(&options)
	}
	if options.Proc == nil {
		options.Proc = instance(t)
	}
	ts := term.New(options)
	if err := ts.Configure(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := ts.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return ts
}

// run runs one command with a generous limit and returns its raw output.
func run(t testing.TB, ts *term.Terminals, command string) (string, term.Outcome) {
	t.Helper()
	return runReq(t, context.Background(), ts, term.Request{Command: command, Timeout: 20 * time.Second})
}

func runReq(t testing.TB, ctx context.Context, ts *term.Terminals, req term.Request) (string, term.Outcome) {
	t.Helper()
	var b strings.Builder
	req.Output = func(p []byte) { b.Write(p) }
	out, err := ts.Run(ctx, req)
	if err != nil {
		t.Fatalf("run %.200q: %v", req.Command, err)
	}
	return b.String(), out
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}
