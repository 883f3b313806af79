//go:build linux || darwin

package bash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/bash"
)

func TestMain(m *testing.M) {
	proc.RunKeeperIfAsked()
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

// agent is one agent with the tool over a shell of its own.
type agent struct {
	t     testing.TB
	dir   string
	shell *term.Terminals
	tool  tools.Tool
}

// newAgent makes an agent; change may alter the row's settings.
func newAgent(t testing.TB, change ...func(*bash.Config)) *agent {
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
	return newAgentIn(t, in, t.TempDir(), change...)
}

func newAgentIn(t testing.TB, in *proc.Instance, dir string, change ...func(*bash.Config)) *agent {
	t.Helper()
	c := bash.DefaultConfig()
	c.Timeout = bash.Duration(20 * time.Second)
	for _, f := range change {
		f(&c)
	}
	a := &agent{t: t, dir: dir, shell: term.New(term.Options{Proc: in, Dir: dir, Session: "s-1"})}
	var err error
	if a.tool, err = bash.New(c, a.shell); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close() })
	return a
}

func (a *agent) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := a.shell.Close(ctx); err != nil {
		a.t.Error(err)
	}
}

// call sends arguments as the pipeline would.
func (a *agent) call(ctx context.Context, arguments map[string]any, live io.Writer) tools.Result {
	a.t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.tool.Run(ctx, tools.Call{ID: "c", Name: bash.Name, Arguments: raw, Output: live})
}

// sh runs a command and returns the text the model gets.
func (a *agent) sh(command string) string {
	a.t.Helper()
	return a.result(command).Text()
}

func (a *agent) result(command string) tools.Result {
	a.t.Helper()
	return a.call(context.Background(), map[string]any{"command": command}, io.Discard)
}

// is runs a command and wants exactly this text.
func (a *agent) is(command, want string) {
	a.t.Helper()
	if got := a.sh(command); got != want {
		a.t.Fatalf("%.300q:\n got %.2000q\nwant %.2000q", command, got, want)
	}
}

// has runs a command and wants these parts.
func (a *agent) has(command string, parts ...string) string {
	a.t.Helper()
	got := a.sh(command)
	for _, p := range parts {
		if !strings.Contains(got, p) {
			a.t.Fatalf("%.300q:\n got %.2000q\nwant %.300q in it", command, got, p)
		}
	}
	return got
}

// within runs f and wants it done in time: the limits are far above what it takes, and far below the tool's timeout.
func (a *agent) within(d time.Duration, f func()) {
	a.t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > d {
		a.t.Fatalf("took %v, want at most %v", took, d)
	}
}

func meta(t testing.TB, r tools.Result) bash.Meta {
	t.Helper()
	m, ok := r.Meta.(bash.Meta)
	if !ok {
		t.Fatalf("meta is %T", r.Meta)
	}
	return m
}

// eventually waits for a condition.
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

// alive says whether a process exists and is more than a zombie.
func alive(pid string) bool {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	rest := string(data[bytes.LastIndexByte(data, ')')+1:])
	return !strings.HasPrefix(rest, " Z") && !strings.HasPrefix(rest, " X")
}

// A command under a name in another case isn't run.
func TestTheCommandIsNamedExactly(t *testing.T) {
	a := newAgent(t)
	for arguments, want := range map[string]string{
		`{"command":"echo shown","Command":"echo hidden"}`: "shown",
		`{"COMMAND":"echo hidden","command":"echo shown"}`: "shown",
		`{"command":"echo shown","Restart":"x"}`:           "shown",
	} {
		res := a.tool.Run(context.Background(), tools.Call{ID: "c", Name: bash.Name, Arguments: json.RawMessage(arguments), Output: io.Discard})
		if res.IsError || res.Text() != want {
			t.Errorf("%s: %+v", arguments, res)
		}
	}
	res := a.tool.Run(context.Background(), tools.Call{ID: "c", Name: bash.Name, Arguments: json.RawMessage(`{"Command":"echo hidden"}`), Output: io.Discard})
	if res.Error == nil || res.Error.Code != bash.CodeBadArguments {
		t.Errorf("%+v", res)
	}
}
