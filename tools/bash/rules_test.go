//go:build linux

package bash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/bash"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update when that is meant):\n%s", path, cmp.Diff(string(want), string(got)))
	}
}

// TestGoldens: what the model is told about the tool changes only on purpose.
func TestGoldens(t *testing.T) {
	a := newAgent(t)
	golden(t, "schema.json", append(bytes.Clone(a.tool.Parameters), '\n'))
	golden(t, "description.txt", []byte(a.tool.Description+"\n"))
	if a.tool.Name != "bash" || a.tool.Parallel {
		t.Errorf("%+v", a.tool)
	}
	if !json.Valid(a.tool.Parameters) {
		t.Error("the schema is no JSON")
	}
	b := newAgent(t, func(c *bash.Config) { c.Description = "Another text." })
	if b.tool.Description != "Another text." {
		t.Errorf("%q", b.tool.Description)
	}
}

// TestMinimalDescription: the text of the preset that reproduces the training environment says what that environment says.
func TestMinimalDescription(t *testing.T) {
	data, err := os.ReadFile("../../presets/shipped/minimal/preset.yml")
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		ID   string
		Rows []row
		With map[string]any
	}
	var preset struct{ Rows []row }
	if err := yaml.Unmarshal(data, &preset); err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, r := range preset.Rows {
		for _, r := range r.Rows {
			if r.ID == "bash" {
				text, _ = r.With["description"].(string)
			}
		}
	}
	golden(t, "minimal-description.txt", []byte(text+"\n"))
	for _, fact := range []string{"XML", "internet", "apt", "pip", "later calls", "later messages", "sed -n 10,25p PATH", "print very much", "background"} {
		if !strings.Contains(text, fact) {
			t.Errorf("no word of %s in:\n%s", fact, text)
		}
	}
}

// TestRestart: rule of the schema: alone it gives a fresh shell, with a command the command runs in the fresh one.
func TestRestart(t *testing.T) {
	a := newAgent(t)
	a.is("A=1; cd /", "")
	if got := a.call(context.Background(), map[string]any{"restart": true}, io.Discard); got.Text() != "[The shell was restarted.]" || len(got.Events) != 1 {
		t.Errorf("%+v", got)
	}
	a.is("echo [$A] $PWD", "[] "+a.dir)
	a.is("A=1", "")
	if got := a.call(context.Background(), map[string]any{"restart": true, "command": "echo [$A]", "extra": []int{1}}, io.Discard).Text(); got != "[]" {
		t.Errorf("%q", got)
	}
	if r := a.call(context.Background(), map[string]any{"command": 7}, io.Discard); !r.IsError || r.Error.Code != bash.CodeBadArguments {
		t.Errorf("%+v", r)
	}
}

// TestRule10: what is said when the shell ends, and that the log hears of it.
func TestRule10(t *testing.T) {
	a := newAgent(t)
	r := a.result("echo partial; exit 3")
	if want := "partial\nexit\n[shell exited: code 3]\n"; !strings.HasPrefix(r.Text(), want) || r.IsError {
		t.Errorf("%q", r.Text())
	}
	if len(r.Events) != 1 || r.Events[0].(session.ShellReset).Cause != "exited" {
		t.Errorf("%+v", r.Events)
	}
	m := meta(t, r)
	if m.ExitCode == nil || *m.ExitCode != 3 || !m.Reset {
		t.Errorf("%+v", m)
	}
	r = a.result("echo partial; kill -9 $$")
	if !strings.HasPrefix(r.Text(), "partial\n[shell killed by signal: SIGKILL]\n") || meta(t, r).Signal != "SIGKILL" {
		t.Errorf("%q", r.Text())
	}
}

// TestRule13: a DEBUG trap sees the user's commands and none of ours, in this call and in later ones.
func TestRule13(t *testing.T) {
	a := newAgent(t)
	a.is(`trap 'echo "[$BASH_COMMAND]"' DEBUG`, "")
	a.is("echo x; (exit 3)", "[echo x]\nx\n[exit code: 3]")
	a.is("echo $?", "[echo $?]\n3")
	a.is("trap -p DEBUG", "[trap -p DEBUG]\ntrap -- 'echo \"[$BASH_COMMAND]\"' DEBUG")
	a.is("set -x", "[set -x]")
	got := a.has("echo y; false", "[echo y]\n", "y")
	noDriver(t, got)
	noDriver(t, a.has("echo $?", "\n1"))
	a.sh("set +x")
	a.has("set -u; echo $undefined_thing", "unbound variable", "[exit code: 1]")
	a.is("set +u", "[set +u]")
	a.is("trap - DEBUG", "[trap - DEBUG]")
	a.is("echo z", "z")
}

// TestRule14: bash's own line about a background job is shown.
func TestRule14(t *testing.T) {
	a := newAgent(t)
	got := a.sh("sleep 60 &")
	if !strings.HasPrefix(got, "[1] ") {
		t.Errorf("%q", got)
	}
}

// TestRule15: what left the shell's process group lives on after the call, and dies with the agent.
func TestRule15(t *testing.T) {
	a := newAgent(t)
	a.sh("setsid sleep 297 & nohup sleep 298 >/dev/null 2>&1 & sleep 299 & disown -a; true")
	var list []proc.Process
	eventually(t, "three sleeps", func() bool {
		list, _ = a.shell.Processes()
		n := 0
		for _, p := range list {
			if strings.HasPrefix(p.Command, "sleep 29") {
				n++
			}
		}
		return n == 3
	})
	a.is("echo still", "still")
	if now, err := a.shell.Processes(); err != nil || len(now) != 3 {
		t.Errorf("%v, %v", now, err)
	}
	a.close()
	for _, p := range list {
		if alive(fmt.Sprint(p.PID)) {
			t.Errorf("%v lives", p)
		}
	}
}

// TestRule17: pagers and editors don't wait for anybody.
func TestRule17(t *testing.T) {
	a := newAgent(t)
	a.sh("git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one; for i in $(seq 1 60); do git -c user.name=a -c user.email=a@b commit -q --allow-empty -m m$i; done")
	a.within(10*time.Second, func() {
		a.has("git log --format=%s", "m60\n", "\none")
		a.sh("git commit --amend --allow-empty; true")
		a.has("man ls 2>&1 || echo none") // nothing waits, whether there are manuals or not
	})
}

// TestRule17Stuck: a pager or an editor that got hold of the terminal is stopped, and the shell stays.
func TestRule17Stuck(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.is("V=1; seq 1 200 > f", "")
	for _, program := range []string{"less f", "vi f"} {
		a.within(8*time.Second, func() { a.has(program, "Stopped: "+program[:2], "kept") })
	}
	a.is("echo $V", "1")
}

// TestRule20: escapes and broken text, also torn over writes.
func TestRule20(t *testing.T) {
	a := newAgent(t)
	a.is(`printf 'a\033'; sleep 0.05; printf '[3'; sleep 0.05; printf '1mb\033[0m\n'`, "ab")
	a.is(`printf '\033Pq#0\033\\x\033(By\033=z\033]8;;http://x\033\\link\033]8;;\033\\\n'`, "xyzlink")
	a.is(`printf '\xc3'; sleep 0.05; printf '\xa9 \xff \xe2\x82\n'`, "é \uFFFD \uFFFD")
	a.is(`printf '\033[2J\033[H\033[?25l\a'`, "")
}

// TestRule23: live output reaches viewers while the command runs.
func TestRule23(t *testing.T) {
	a := newAgent(t)
	seen := make(chan struct{})
	done := make(chan string, 1)
	go func() { // joined by done
		done <- a.call(context.Background(), map[string]any{"command": "echo early; while [ ! -e go ]; do sleep 0.01; done; echo late"}, writerFunc(func(p []byte) {
			if bytes.Contains(p, []byte("early")) {
				close(seen)
			}
		})).Text()
	}()
	<-seen
	if err := os.WriteFile(filepath.Join(a.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != "early\nlate" {
		t.Errorf("%q", got)
	}
}

// TestRule24: a cancel keeps what was printed, and the shell when it answers.
func TestRule24(t *testing.T) {
	a := newAgent(t)
	a.is("V=1", "")
	cancelled := func(command string) tools.Result {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		return a.call(ctx, map[string]any{"command": command}, writerFunc(func([]byte) { cancel() }))
	}
	r := cancelled("echo some; sleep 30")
	if !strings.HasPrefix(r.Text(), "some\n[Cancelled:") || !strings.Contains(r.Text(), "kept") || r.Error == nil || r.Error.Code != bash.CodeCancelled {
		t.Errorf("%+v", r)
	}
	a.is("echo $V", "1")
	r = cancelled("trap '' INT TERM; echo some; while :; do :; done")
	if !strings.HasPrefix(r.Text(), "some\n[Cancelled:") || !strings.Contains(r.Text(), "fresh shell") || !meta(t, r).Reset {
		t.Errorf("%+v", r)
	}
	a.is("echo [$V]", "[]")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := a.call(ctx, map[string]any{"command": "touch never"}, io.Discard); !r.IsError {
		t.Errorf("%+v", r)
	}
}

// TestRule25: the text of a timeout says what became of the state, and what may be the cause.
func TestRule25(t *testing.T) {
	a := newAgent(t, func(c *bash.Config) { c.Timeout = bash.Duration(300 * time.Millisecond) })
	a.is("true", "")
	r := a.result("echo some; sleep 30")
	if got := r.Text(); !strings.Contains(got, "kept") || !strings.Contains(got, "memory") || !strings.Contains(got, "300ms") || r.Error.Code != bash.CodeTimeout {
		t.Errorf("%+v", r)
	}
	r = a.result("trap '' INT TERM; echo some; while :; do :; done")
	if got := r.Text(); !strings.HasPrefix(got, "some\n") || !strings.Contains(got, "fresh shell") || !strings.Contains(got, "memory") {
		t.Errorf("%q", got)
	}
}

// TestRule26: a shell that died between the calls is reported, and the command runs in a new one, once.
func TestRule26(t *testing.T) {
	a := newAgent(t)
	a.sh("export K=1; (sleep 0.05; kill -9 $$) &")
	eventually(t, "the shell to die", func() bool { return a.shell.State().PID == 0 })
	r := a.result("echo $K >> f; cat f")
	if got := r.Text(); !strings.Contains(got, "1\n") || !strings.Contains(got, "SIGKILL") || !strings.Contains(got, "fresh") || strings.Contains(got, "1\n1") {
		t.Errorf("%q", got)
	}
	if len(r.Events) != 1 || r.Events[0].(session.ShellReset).Cause != "killed" {
		t.Errorf("%+v", r.Events)
	}
}

// TestRule27: a deleted directory.
func TestRule27(t *testing.T) {
	a := newAgent(t)
	a.sh("mkdir -p x/y && cd x/y && rm -r ../../x")
	a.has("touch f", "No such file", "[exit code: 1]")
	a.is("cd "+a.dir+"; pwd", a.dir)
	a.sh("mkdir -p x/y && cd x/y && rm -r ../../x")
	a.sh("exit 0")
	a.has("pwd", a.dir+"\n", "no longer exists")
}

// TestRule28: a stopped child is reported by bash, and the shell goes on.
func TestRule28(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	a.within(5*time.Second, func() { a.has("sh -c 'kill -STOP $$'; echo on", "Stopped", "on") })
	a.has("kill -KILL %1; wait; echo over", "over")
}

// TestRule30: left-over processes are for the UI, once, with their ports, and not in the model's text.
func TestRule30(t *testing.T) {
	a := newAgent(t)
	r := a.result(`python3 -S -c 'import socket,time; s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen(); open("up","w"); time.sleep(300)' & while [ ! -e up ]; do sleep 0.01; done`)
	m := meta(t, r)
	if len(m.LeftOver) == 0 || strings.Contains(r.Text(), "socket") {
		t.Errorf("%+v %q", m, r.Text())
	}
	ports := 0
	for _, p := range m.LeftOver {
		ports += len(p.Ports)
	}
	if ports != 1 {
		t.Errorf("%+v", m.LeftOver)
	}
	if m := meta(t, a.result("sleep 0.1")); len(m.LeftOver) != 0 {
		t.Errorf("told again: %+v", m.LeftOver)
	}
}

// TestResumed: the first result after a resume ends with one line about the new shell.
func TestResumed(t *testing.T) {
	in, err := proc.Open(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	shell := term.New(term.Options{Proc: in, Dir: t.TempDir(), Resumed: true})
	tool, err := bash.New(bash.DefaultConfig(), shell)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, shell: shell, tool: tool}
	got := a.sh("echo hi")
	if !strings.HasPrefix(got, "hi\n[This shell is new") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	a.is("echo hi", "hi")
	a.close()
	if err := in.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestPerson: the result after a person had the keyboard says so.
func TestPerson(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	k, err := a.shell.Take(context.Background(), "eve")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.has("echo x", "x\n[A person used this shell")
	a.is("echo x", "x")
}

// TestMeta: what the UI gets with an ordinary result.
func TestMeta(t *testing.T) {
	a := newAgent(t)
	m := meta(t, a.result("cd /usr; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; (exit 2)"))
	if m.ExitCode == nil || *m.ExitCode != 2 || m.Cwd != "/usr" || m.DurationMs <= 0 || m.CPUMs <= 0 || m.Clipped || m.Reset {
		t.Errorf("%+v", m)
	}
	if m := meta(t, a.result("seq 1 100000")); !m.Clipped {
		t.Errorf("%+v", m)
	}
}

// TestFailed: a shell that can't be started is an error result.
func TestFailed(t *testing.T) {
	a := newAgent(t, func(c *bash.Config) { c.Startup = bash.Startup{Commands: []string{"exit 1"}} })
	if r := a.result("echo x"); !r.IsError || r.Error.Code != bash.CodeFailed || !strings.Contains(r.Text(), "startup") {
		t.Errorf("%+v", r)
	}
}
