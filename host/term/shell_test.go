//go:build linux

package term_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/term"
)

func wantOutput(t testing.TB, ts *term.Terminals, command, want string) term.Outcome {
	t.Helper()
	got, out := run(t, ts, command)
	if got != want {
		t.Fatalf("%.300q:\n got %.1000q\nwant %.1000q\n%+v", command, got, want, out)
	}
	return out
}

// TestB30: bytes go in and come out as they are, control bytes and broken UTF-8 included.
func TestB30(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	var all []byte
	for b := 1; b < 256; b++ {
		if b != '\'' {
			all = append(all, byte(b))
		}
	}
	for _, s := range []string{"\x03\x04\x15\x1b\x7f\xff\xc3\x28\xe2\x82", "\x01\x1e\t\r\n", string(all)} {
		wantOutput(t, ts, "printf %s '"+s+"'", s)
		got, _ := run(t, ts, "printf %s '"+s+"' | od -An -v -tx1 | tr -d ' \\n'")
		if want := fmt.Sprintf("%x", s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNUL(t *testing.T) {
	ts := open(t, term.Shell{})
	if _, err := ts.Run(t.Context(), term.Request{Command: "a\x00b"}); !errors.Is(err, term.ErrNUL) {
		t.Errorf("%v", err)
	}
	if ts.Used() {
		t.Error("a shell was started")
	}
}

// TestQueue: a call that is cancelled while it waits for its turn ran nothing and doesn't hold up the next.
func TestQueue(t *testing.T) {
	ts := open(t, term.Shell{})
	_, out := run(t, ts, "true")
	running := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := ts.Run(t.Context(), term.Request{
			Command: "echo first; while [ ! -e go ]; do sleep 0.01; done",
			Output:  func([]byte) { close(running) },
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-running
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ts.Run(ctx, term.Request{Command: "touch never"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(out.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	wantOutput(t, ts, "ls", "go\n")
}

// TestParallel: the shells of several agents run at the same time.
func TestParallel(t *testing.T) {
	in := instance(t)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 4 {
		ts := open(t, term.Shell{}, func(o *term.Options) { o.Proc, o.Dir = in, dir })
		wg.Go(func() {
			// Each waits for all the others.
			out, err := ts.Run(t.Context(), term.Request{
				Command: fmt.Sprintf("touch %d; while [ $(ls | wc -l) -lt 4 ]; do sleep 0.01; done", i), Timeout: 10 * time.Second,
			})
			if err != nil || out.TimedOut {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
	wg.Wait()
}

func TestEnvironment(t *testing.T) {
	ts := open(t, term.Shell{Env: map[string]string{"MINE": "1", "PAGER": "more"}, PassEnv: []string{"GOOD_TOKEN"}}, func(o *term.Options) {
		o.Environ = []string{
			"PATH=/usr/bin:/bin", "HOME=/root", "BASH_ENV=/x", "ENV=/x", "SHELLOPTS=xtrace", "BASHOPTS=x", "PROMPT_COMMAND=echo no", "PS0=no", "PS4=no",
			"TMOUT=1", "CDPATH=/usr", "GLOBIGNORE=*", "BASH_FUNC_ls%%=() { echo no; }", "API_KEY=1", "my_token=1", "A_SECRET_B=1", "PASSWORDS=1",
			"GOOD_TOKEN=2", "DSH_DATA=x", "DSH_SESSION_ID=other", "PLAIN=yes",
		}
	})
	got, _ := run(t, ts, "env | sort")
	for _, want := range []string{
		"PATH=/usr/bin:/bin", "HOME=/root", "TERM=dumb", "PAGER=more", "GIT_PAGER=cat", "EDITOR=true", "GIT_TERMINAL_PROMPT=0",
		"DEBIAN_FRONTEND=noninteractive", "PIP_PROGRESS_BAR=off", "LANG=C.UTF-8", "DSH_SHELL=1", "DSH_SESSION_ID=test", "MINE=1", "GOOD_TOKEN=2", "PLAIN=yes",
	} {
		if !strings.Contains("\n"+got, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	for _, bad := range []string{"BASH_ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "TMOUT", "CDPATH", "GLOBIGNORE", "BASH_FUNC", "API_KEY", "my_token", "A_SECRET", "PASSWORDS", "DSH_DATA"} {
		if strings.Contains("\n"+got, "\n"+bad) {
			t.Errorf("%s in\n%s", bad, got)
		}
	}
	wantOutput(t, ts, "ls >/dev/null; echo $?", "0\n")
}

func TestLocale(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, "C.UTF-8"},
		{[]string{"LANG=C"}, "C.UTF-8"},
		{[]string{"LANG=de_DE.UTF-8"}, "de_DE.UTF-8"},
		{[]string{"LANG=C", "LC_ALL=C.utf8"}, "C"},
	} {
		ts := open(t, term.Shell{}, func(o *term.Options) { o.Environ = append([]string{"PATH=/usr/bin:/bin"}, c.env...) })
		wantOutput(t, ts, "echo $LANG", c.want+"\n")
	}
}

func TestStartup(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".bashrc", "RC=1; echo noise; alias greet='echo hello'\n")
	write(".bash_profile", "PROFILE=1; export P=2\n")
	env := map[string]string{"HOME": home}
	ts := open(t, term.Shell{Startup: []string{term.StartupBashrc}, Env: env})
	wantOutput(t, ts, "echo $RC$PROFILE\ngreet", "1\nhello\n")
	ts = open(t, term.Shell{Startup: []string{term.StartupLogin}, Env: env})
	wantOutput(t, ts, "echo $RC$PROFILE$P", "12\n")
	ts = open(t, term.Shell{Startup: []string{"A=1", "B=2; echo x\nC=3"}})
	wantOutput(t, ts, "echo $A$B$C", "123\n")
	ts = open(t, term.Shell{Startup: []string{"exit 4"}})
	if _, err := ts.Run(t.Context(), term.Request{Command: "true"}); err == nil || !strings.Contains(err.Error(), "startup") {
		t.Errorf("%v", err)
	}
	ts = open(t, term.Shell{Startup: []string{"sleep 60"}})
	if _, err := ts.Run(t.Context(), term.Request{Command: "true", Timeout: 300 * time.Millisecond}); err == nil {
		t.Errorf("%v", err)
	}
}

func TestConfigureLate(t *testing.T) {
	ts := open(t, term.Shell{})
	run(t, ts, "true")
	if err := ts.Configure(term.Shell{}); !errors.Is(err, term.ErrStarted) {
		t.Errorf("%v", err)
	}
}

// TestRestore: what a shell gets back after the one before died, and what not.
func TestRestore(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	run(t, ts, "export A='x\ny \"q\" $z' B=2; unset PAGER; C=3; f() { :; }; cd /usr/lib")
	_, out := run(t, ts, "kill -9 $$")
	if out.Died == nil || out.Died.Signal != "SIGKILL" || !out.Reset || !out.WillRestore {
		t.Errorf("%+v", out)
	}
	out = wantOutput(t, ts, `echo "$A|$B|$C|$PWD|${PAGER-none}"; pwd; type f 2>/dev/null`, "x\ny \"q\" $z|2||/usr/lib|none\n/usr/lib\n")
	if out.Fresh == nil || !out.Fresh.Restored || out.Fresh.Died != nil {
		t.Errorf("%+v", out.Fresh)
	}
}

// TestRestoreLink: a directory that was entered through a symbolic link keeps its name.
func TestRestoreLink(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	_, out := run(t, ts, "mkdir real && ln -s real link && cd link")
	run(t, ts, "kill -9 $$")
	wantOutput(t, ts, "echo ${PWD##*/}; pwd -P", "link\n"+out.Dir+"\n")
}

// TestDiedBetween: a shell that died while no call ran is reported by the next call, which runs, once.
func TestDiedBetween(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	_, out := run(t, ts, "export K=1; cd /usr; (sleep 0.05; kill -9 $$) &")
	if !out.Ended {
		t.Fatalf("%+v", out)
	}
	eventually(t, "the shell to die", func() bool { return ts.State().PID == 0 })
	out = wantOutput(t, ts, "echo $K $PWD", "1 /usr\n")
	if out.Fresh == nil || out.Fresh.Died == nil || out.Fresh.Died.Signal != "SIGKILL" || !out.Fresh.Restored {
		t.Errorf("%+v", out.Fresh)
	}
}

// TestRunOnce: a command that kills its shell isn't run again in the next one.
func TestRunOnce(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	run(t, ts, "true")
	for range 20 {
		run(t, ts, "echo x >> count; kill -9 $$")
	}
	got, _ := run(t, ts, "wc -l < count")
	if strings.TrimSpace(got) != "20" {
		t.Errorf("%q", got)
	}
}

func TestDirectoryGone(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	_, out := run(t, ts, "mkdir -p a/b && cd a/b")
	b := out.Dir
	got, _ := run(t, ts, "[ -d ../../a/b ] && rm -rf ../../a; cd ../..; echo $?")
	if !strings.HasSuffix(got, "0\n") { // bash complains, and goes by its logical path
		t.Errorf("%q", got)
	}
	run(t, ts, "mkdir -p a/b && cd a/b && rm -rf ../../a")
	_, _ = run(t, ts, "exit 1")
	_, out = run(t, ts, "pwd")
	if out.Fresh == nil || out.Fresh.DirGone == "" || out.Fresh.Dir == "" || out.Fresh.Dir == out.Fresh.DirGone {
		t.Errorf("%+v (%s)", out.Fresh, b)
	}
}

func TestRestart(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	_, out := run(t, ts, "export A=1; cd /; sleep 300 & echo")
	before := ts.State()
	got, out2 := runReq(t, t.Context(), ts, term.Request{Command: "echo [$A]; pwd", Restart: true, Timeout: 10 * time.Second})
	if !strings.HasPrefix(got, "[]\n/tmp") || out2.Fresh == nil || !out2.Fresh.Asked {
		t.Errorf("%q %+v %+v", got, out2, out)
	}
	if list, err := ts.Processes(); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if after := ts.State(); after.Generation != before.Generation+1 || after.PID == before.PID {
		t.Errorf("%+v, then %+v", before, after)
	}
	if _, out := runReq(t, t.Context(), ts, term.Request{Restart: true}); out.Fresh == nil || !out.Fresh.Asked {
		t.Errorf("%+v", out)
	}
}

func TestResumed(t *testing.T) {
	ts := open(t, term.Shell{}, func(o *term.Options) { o.Resumed = true })
	if _, out := run(t, ts, "true"); !out.Resumed {
		t.Errorf("%+v", out)
	}
	if _, out := run(t, ts, "true"); out.Resumed {
		t.Errorf("%+v", out)
	}
}

// TestLeftOver: background processes are told once, with their port.
func TestLeftOver(t *testing.T) {
	ts := open(t, term.Shell{})
	script := `import socket,time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); open("port", "w").write(str(s.getsockname()[1])); time.sleep(300)`
	_, out := run(t, ts, "python3 -S -c '"+script+"' & while [ ! -s port ]; do sleep 0.01; done; cat port; sleep 299 &")
	port, err := os.ReadFile(filepath.Join(out.Dir, "port"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]int{}
	for _, p := range out.LeftOver {
		told[strings.Fields(p.Command)[0]] = p.Ports
	}
	if len(out.LeftOver) < 2 || len(told["sleep"]) != 0 && fmt.Sprint(told["python3"]) != "["+string(port)+"]" {
		t.Errorf("%+v, port %s", out.LeftOver, port)
	}
	found := false
	for _, p := range out.LeftOver {
		for _, n := range p.Ports {
			found = found || strconv.Itoa(n) == string(port)
		}
	}
	if !found {
		t.Errorf("no port %s in %+v", port, out.LeftOver)
	}
	if _, out := run(t, ts, "sleep 0.1"); len(out.LeftOver) != 0 {
		t.Errorf("told again: %+v", out.LeftOver)
	}
	if list, err := ts.Processes(); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestServerSurvives: the ladder leaves earlier background jobs alone.
func TestServerSurvives(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	run(t, ts, "sleep 300 & sleep 301 & disown; (setsid sleep 302 &)")
	eventually(t, "three jobs", func() bool { list, err := ts.Processes(); return err == nil && len(list) == 3 })
	for _, c := range []string{"sleep 30", "while :; do sleep 0.01; done", "(trap '' INT; sleep 30)", "(trap '' INT TERM; sleep 30)", "while :; do :; done"} {
		_, out := runReq(t, t.Context(), ts, term.Request{Command: c, Timeout: 100 * time.Millisecond})
		if !out.TimedOut || out.Reset {
			t.Errorf("%q: %+v", c, out)
		}
	}
	if list, err := ts.Processes(); err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestRungs: what each program needs to end.
func TestRungs(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	run(t, ts, "true")
	for _, c := range []struct {
		command, rung string
		reset         bool
	}{
		{"sleep 30", "SIGINT", false},
		{"sh -c 'trap \"\" INT; echo on; sleep 30; exit 1'", "SIGTERM", false},
		{"sh -c 'trap \"\" INT TERM; sleep 30; exit 1'", "SIGKILL", false},
		{"trap '' INT; while :; do :; done", "SIGTERM", true}, // only the shell itself is left to kill
	} {
		_, out := runReq(t, t.Context(), ts, term.Request{Command: c.command, Timeout: 300 * time.Millisecond})
		if !out.TimedOut || out.Rung != c.rung || out.Reset != c.reset {
			t.Errorf("%q: %+v", c.command, out)
		}
	}
	wantOutput(t, ts, "echo ok", "ok\n")
}

// TestTTYStdin: with the terminal as standard input programs see one, and one that waits for a person is stopped.
func TestTTYStdin(t *testing.T) {
	t.Parallel()
	ts := open(t, term.Shell{StdinTTY: true})
	wantOutput(t, ts, "[ -t 0 ] && echo tty; [ -t 1 ] && stty size", "tty\n40 160\n")
	_, out := run(t, ts, "read -p 'name? ' x")
	if out.Waiting == nil || out.Reset {
		t.Errorf("%+v", out)
	}
	wantOutput(t, ts, "echo ok", "ok\n")
}

// TestWaiting: who waits for the terminal is recognised, and who only looks like it is not.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, command string
		waits         bool
	}{
		{"read", "read x </dev/tty", true},
		{"child", "sh -c 'cat </dev/tty; true'; true", true},
		{"pipeline", "true | python3 -S -c 'open(\"/dev/tty\").readline()'", true},
		{"poll", "python3 -S -c 'import select; f = open(\"/dev/tty\"); p = select.poll(); p.register(f, 1); p.poll()'", true},
		{"select", "python3 -S -c 'import select; f = open(\"/dev/tty\"); select.select([f], [], [])'", true},
		{"loop", "python3 -S -c 'import select, os; f = open(\"/dev/tty\"); r, w = os.pipe(); select.select([f, r], [], [])'", false},
		{"sleep", "sleep 30", false},
		{"busy", "while :; do :; done", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := open(t, term.Shell{})
			_, out := runReq(t, t.Context(), ts, term.Request{Command: c.command, Timeout: 8 * time.Second})
			if (out.Waiting != nil) != c.waits || out.TimedOut == c.waits {
				t.Errorf("%+v", out)
			}
			if out.Reset {
				t.Errorf("the shell was reset: %+v", out)
			}
		})
	}
}

// TestPassword: programs that turn the echo off to ask for a password.
func TestPassword(t *testing.T) {
	t.Parallel()
	ts := open(t, term.Shell{})
	got, out := run(t, ts, "python3 -c 'import getpass; getpass.getpass(\"Secret: \")'")
	if out.Waiting == nil || !strings.Contains(got, "Secret: ") || !strings.Contains(out.Waiting.Command, "python3") {
		t.Errorf("%q %+v", got, out)
	}
}

// TestFastEnough: a large amount of output arrives whole and in order.
func TestFlood(t *testing.T) {
	ts := open(t, term.Shell{})
	var sum int64
	var lines int
	_, err := ts.Run(t.Context(), term.Request{Command: "seq 1 300000", Output: func(p []byte) {
		sum += int64(len(p))
		lines += bytes.Count(p, []byte{'\n'})
	}})
	if err != nil || lines != 300000 || sum != 1988895 {
		t.Errorf("%d lines, %d bytes, %v", lines, sum, err)
	}
}

// TestBackgroundFlood: a background job that never stops printing leaves the shell usable, and memory bounded.
func TestBackgroundFlood(t *testing.T) {
	ts := open(t, term.Shell{})
	run(t, ts, "yes & echo")
	eventually(t, "a flood", func() bool { return ts.End() > 300<<10 })
	for range 5 {
		got, out := run(t, ts, "echo mark")
		if !strings.Contains(got, "mark") || !out.Ended || len(out.Idle) > 64<<10 {
			t.Errorf("%d bytes, %d idle, %d skipped", len(got), len(out.Idle), out.IdleSkipped)
		}
	}
	run(t, ts, "kill %1; wait")
	run(t, ts, "true")
	wantOutput(t, ts, "echo quiet", "quiet\n")
}

// TestThreads: 400 shells, each having run something, on few threads.
func TestThreads(t *testing.T) {
	count := 400
	if testing.Short() {
		count = 60
	}
	in := instance(t)
	dir := t.TempDir()
	var all []*term.Terminals
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range count {
		ts := term.New(term.Options{Proc: in, Dir: dir})
		if err := ts.Configure(term.Shell{Restore: true}); err != nil {
			t.Fatal(err)
		}
		all = append(all, ts)
		if out, err := ts.Run(t.Context(), term.Request{Command: "true", Timeout: 30 * time.Second}); err != nil || !out.Ended {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)) / int64(count)
	t.Logf("%d shells: %d threads, %d bytes each in this process", count, len(tasks), each)
	if each > 16<<10 {
		t.Errorf("%d bytes for each shell", each)
	}
	if len(tasks) >= 12+runtime.GOMAXPROCS(0) && !raceEnabled {
		t.Errorf("%d threads", len(tasks))
	}
	pss := treeMemory(t, all[0])
	t.Logf("the tree of one: %d bytes, shared pages by their share", pss+each)
	if pss+each > 400<<10 && count >= 400 { // what shells share weighs less the more there are
		t.Errorf("the tree of one takes %d bytes", pss+each)
	}
	var wg sync.WaitGroup
	for _, ts := range all {
		wg.Go(func() {
			if err := ts.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// treeMemory is the proportional set size of a shell.
func treeMemory(t testing.TB, ts *term.Terminals) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", ts.State().PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// TestFollow: a watcher that reads by offset sees everything that a call printed, once.
func TestFollow(t *testing.T) {
	ts := open(t, term.Shell{})
	defer ts.Watch()()
	want := make(chan string, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		var all strings.Builder
		for range 5 {
			s, _ := run(t, ts, "seq 1 3000")
			all.WriteString(s)
		}
		want <- all.String()
	})
	var got []byte
	var next int64
	buf := make([]byte, 1000)
	total := 5 * 13893
	for len(got) < total {
		changed := ts.Changed()
		n, at := ts.ReadAt(next, buf)
		if n > 0 {
			if at != next {
				t.Fatalf("skipped from %d to %d", next, at)
			}
			got = append(got, buf[:n]...)
			next = at + int64(n)
			continue
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatalf("%d bytes, then nothing", len(got))
		}
	}
	wg.Wait()
	if string(got) != <-want || ts.End() != int64(total) {
		t.Error("the watcher saw something else")
	}
	// One who lags is told where the ring begins.
	run(t, ts, "seq 1 100000")
	if n, at := ts.ReadAt(0, buf); at == 0 || n != len(buf) || ts.End()-at > 256<<10+8<<10 {
		t.Errorf("%d at %d of %d", n, at, ts.End())
	}
	if n, at := ts.ReadAt(1<<40, buf); n != 0 || at != ts.End() {
		t.Errorf("%d at %d", n, at)
	}
}

// TestKeyboard: a person works in the agent's own shell; the agent's calls wait, and are told.
func TestKeyboard(t *testing.T) {
	var mu sync.Mutex
	var typed string
	ts := open(t, term.Shell{Restore: true}, func(o *term.Options) {
		o.Taken = func(by string, p []byte) {
			mu.Lock()
			defer mu.Unlock()
			typed += by + ":" + string(p)
		}
	})
	run(t, ts, "V=agent; cd /usr")
	k, err := ts.Take(t.Context(), "eve")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ts.Take(t.Context(), "mallory"); !errors.Is(err, term.ErrBusy) {
		t.Errorf("%v", err)
	}
	if st := ts.State(); st.Writer != "eve" || st.Running {
		t.Errorf("%+v", st)
	}
	screen := func() string {
		b := make([]byte, 64<<10)
		n, _ := ts.ReadAt(0, b)
		return string(b[:n])
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen: %q", screen())
		}
	})
	sees := func(text string) {
		t.Helper()
		eventually(t, text, func() bool { return strings.Contains(screen(), text) })
	}
	write := func(text string) {
		t.Helper()
		if _, err := k.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	sees("/usr $ ")
	if err := k.Resize(50, 100); err != nil {
		t.Fatal(err)
	}
	write("stty size; echo $V-\"x\"; V=person\n")
	sees("50 100\r\nagent-x\r\n")
	write("\x04") // end of input at the prompt is not the end of the shell
	sees("/usr $ /usr $ ")
	write("cat\n")
	eventually(t, "the program", func() bool { return strings.HasPrefix(ts.State().Foreground, "cat") })
	write("to the program\n")
	sees("to the program\r\nto the program\r\n")
	write("\x03")
	eventually(t, "the prompt", func() bool { return strings.HasSuffix(screen(), "\n/usr $ ") }) // what is typed before may be lost with the loop
	write("sleep 1000\n")
	eventually(t, "the program", func() bool { return strings.HasPrefix(ts.State().Foreground, "sleep") })
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write([]byte("x")); !errors.Is(err, term.ErrNotHolder) {
		t.Errorf("%v", err)
	}
	out := wantOutput(t, ts, "echo $V $PWD; stty size </dev/tty; [ -t 0 ] || echo eof", "person /usr\n40 160\neof\n")
	if !out.Person || len(bytes.TrimSpace(out.Idle)) != 0 || out.Fresh != nil {
		t.Errorf("%+v", out)
	}
	if out := wantOutput(t, ts, "echo x", "x\n"); out.Person {
		t.Errorf("%+v", out)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.HasPrefix(typed, "eve:stty size") || !strings.Contains(typed, "sleep 1000") {
		t.Errorf("%q", typed)
	}
}

// TestKeyboardExit: a person who ends the shell loses the keyboard, and the next call starts a new shell.
func TestKeyboardExit(t *testing.T) {
	ts := open(t, term.Shell{Restore: true})
	k, err := ts.Take(t.Context(), "eve")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write([]byte("exit\n")); err != nil {
		t.Fatal(err)
	}
	<-k.Lost()
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, ts, "echo ok", "ok\n")
}

// TestCloseBusy: closing ends a running call and a held keyboard.
func TestCloseBusy(t *testing.T) {
	ts := open(t, term.Shell{})
	started := make(chan struct{})
	result := make(chan error, 1)
	go func() { // joined by result
		_, err := ts.Run(context.Background(), term.Request{Command: "echo x; sleep 100", Output: func([]byte) { close(started) }})
		result <- err
	}()
	<-started
	if err := ts.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, term.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := ts.Run(t.Context(), term.Request{Command: "true"}); !errors.Is(err, term.ErrClosed) {
		t.Errorf("%v", err)
	}
	ts = open(t, term.Shell{})
	k, err := ts.Take(t.Context(), "eve")
	if err != nil {
		t.Fatal(err)
	}
	if err := ts.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-k.Lost():
	default:
		t.Error("the keyboard isn't lost")
	}
	if _, err := ts.Take(t.Context(), "eve"); !errors.Is(err, term.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestInherited: nothing of the host's descriptors reaches a command.
func TestInherited(t *testing.T) {
	ts := open(t, term.Shell{})
	wantOutput(t, ts, "ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ") // 3 is the listing itself
}
