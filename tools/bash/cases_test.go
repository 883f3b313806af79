//go:build linux

package bash_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/tools/bash"
)

// step is one call of a case: a command, and the exact text it gives.
type step struct{ command, want string }

// TestExact holds the cases whose results are known to the byte. Each runs in a shell of its own; the steps share it.
func TestExact(t *testing.T) {
	for _, c := range []struct {
		id    string
		steps []step
	}{
		{"B01", []step{{"echo hi", "hi"}}},
		{"B04", []step{{"cd /usr; export A=1", ""}, {"echo $PWD $A", "/usr 1"}}},
		{"B05", []step{{"f(){ echo F$1; }; alias q='echo Q'; shopt -s extglob; umask 027", ""}, {"f 2\nq\numask", "F2\nQ\n0027"}}},
		{"B08", []step{{"(exit 7)", "[exit code: 7]"}}},
		{"B09", []step{{"echo out; false", "out\n[exit code: 1]"}}},
		{"B13", []step{{"true", ""}}},
		{"B15", []step{{`printf 'a\n\n'`, "a\n"}}},
		{"B18", []step{{"cat <<'EOF'\nalpha\nbeta\nEOF", "alpha\nbeta"}}},
		{"B19", []step{{"cat > Makefile <<'EOF'\nall:\n\techo hi\nEOF\ncat -A Makefile", "all:$\n^Iecho hi$"}}},
		{"B20", []step{{"cat <<E\nbody\nE", "body"}}},
		{"B25", []step{{"# only a comment", ""}, {"echo a # c", "a"}}},
		{"B26", []step{{"echo a\n\n\necho b\nfor i in 1 2; do\n\n echo $i\ndone\n", "a\nb\n1\n2"}}},
		{"B27", []step{{`echo "a!b" '!x' !`, "a!b !x !"}}},
		{"B32", []step{{"PS1='$ '; PROMPT_COMMAND='echo PC'; PS0=z", ""}, {"echo x", "x"}}},
		{"B37", []step{{"set -e", ""}, {"false; echo after", "after"}}},
		{"B46", []step{{"alias eval=false printf=false builtin=false; echo x", "x"}, {"echo y", "y"}}},
		{"B48", []step{{"stty raw -echo -opost </dev/tty; echo x", "x"}, {`printf 'a\nb\n'`, "a\nb"}}},
		{"B48 sane", []step{{"stty sane </dev/tty; echo x", "x"}, {`printf 'a\nb\n'`, "a\nb"}}},
		{"B53", []step{{`printf '__X_END_1:0\n'; printf '\033]777;E1\007'; (exit 3)`, "__X_END_1:0\n[exit code: 3]"}}},
		{"B61", []step{{`printf '\033[31mred\033[0m\033]0;t\007\n'`, "red"}}},
		{"B63", []step{{`printf 'a\r\nb\r\n'`, "a\nb"}}},
		{"B65", []step{{"echo a; echo b >&2; echo c", "a\nb\nc"}}},
		{"leading blanks", []step{{`printf '  a\n\n\nb'`, "  a\n\n\nb"}, {`printf '\n\n'`, "\n"}}},
		{"assoc", []step{{"declare -A m; m[k]=v; declare -i n=4", ""}, {"n=n+1; echo ${m[k]} $n", "v 5"}}},
		{"status lives on", []step{{"false", "[exit code: 1]"}, {"echo $?", "1"}, {"(exit 42)", "[exit code: 42]"}, {"echo $?", "42"}, {"echo $?", "0"}}},
		{"progress", []step{{`printf '10%%\r20%%\r100%%\ndone\n'; printf 'ab\bc\n'`, "100%\ndone\nac"}}},
		{"nul and bell", []step{{`printf 'a\0b\007c\001\n'`, "a\u2400bc\u2401"}}},
		{"conda-like", []step{{`_OLD="$PS1"; PS1="(env) $PS1"; export PS1`, ""}, {"echo x", "x"}}},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t)
			for _, s := range c.steps {
				a.is(s.command, s.want)
			}
		})
	}
}

func TestB02(t *testing.T) {
	a := newAgent(t)
	for _, args := range []map[string]any{{}, {"command": ""}, {"command": " \n\t"}, {"restart": false}, {"other": 1}} {
		if r := a.call(context.Background(), args, io.Discard); !r.IsError || r.Text() == "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if a.shell.Used() || a.shell.State().PID != 0 {
		t.Error("a shell was started")
	}
}

func TestB07(t *testing.T) {
	a, b := newAgent(t), newAgent(t)
	a.is("export Z=1", "")
	b.is("echo [$Z]", "[]")
}

func TestB21(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	a.within(2*time.Second, func() { a.has("cat <<EOF\nabc", "abc") })
	a.is("echo ok", "ok")
}

func TestB23(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	body := strings.Repeat("some line of text\n", 700)
	a.within(3*time.Second, func() { a.is("cat > f <<'EOF'\n"+body+"EOF\nwc -l < f", "700") })
}

func TestB24(t *testing.T) {
	a := newAgent(t)
	a.is("V=kept", "")
	for _, c := range []string{"echo 'q", "echo $(", "if true; then", ")", "f() {", "echo \"q", "cat <(", "case x in", "echo ${", "(("} {
		a.within(3*time.Second, func() {
			got := a.has(c, "[exit code: ")
			if !strings.Contains(got, "syntax error") && !strings.Contains(got, "unexpected EOF") && !strings.Contains(got, "bad substitution") {
				t.Errorf("%q: %q", c, got)
			}
		})
		a.is("echo $V", "kept")
	}
}

func TestB29(t *testing.T) {
	a := newAgent(t)
	for _, n := range []int{5_000, 200_000, 2_000_000} {
		a.is("x='"+strings.Repeat("z", n)+"'; echo ${#x}", fmt.Sprint(n))
	}
}

func TestB31(t *testing.T) {
	a := newAgent(t)
	a.is("V=1", "")
	if r := a.result("echo a\x00b"); !r.IsError {
		t.Errorf("%+v", r)
	}
	a.is("echo $V", "1")
}

func TestB34(t *testing.T) {
	a := newAgent(t)
	f := filepath.Join(t.TempDir(), "f")
	a.is("exec >"+f+" 2>&1; echo in", "")
	a.is("echo more", "")
	if got, err := os.ReadFile(f); err != nil || string(got) != "in\nmore\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestB35(t *testing.T) {
	a := newAgent(t)
	got := a.has("set -x; echo x", "x")
	noDriver(t, got)
	if strings.Contains(got, "[exit code") {
		t.Errorf("%q", got)
	}
	got = a.has("echo y; false", "echo y", "y\n", "[exit code: 1]")
	noDriver(t, got)
	noDriver(t, a.has("set -v; echo z", "z"))
	noDriver(t, a.has("echo q", "q"))
	noDriver(t, a.sh("nope_nope 2>&1; set -u; echo $undefined_thing"))
	noDriver(t, a.has("echo r", "r"))
}

// noDriver fails when text holds anything of the driver.
func noDriver(t testing.TB, text string) {
	t.Helper()
	for _, bad := range []string{`\builtin`, "builtin eval", "builtin echo", "builtin printf", ">&11", ">&12", `\036`, "\x1e", "HISTFILE PROMPT"} {
		if strings.Contains(text, bad) {
			t.Errorf("driver text %q in %.1000q", bad, text)
		}
	}
}

func TestB36(t *testing.T) {
	a := newAgent(t)
	a.has("set -u; echo $nope", "unbound variable", "[exit code: 1]")
	a.is("set +u; echo ok", "ok")
	a.has("echo ${x?gone}", "gone", "[exit code: 1]")
	a.is("echo ok", "ok")
}

func TestB38(t *testing.T) {
	a := newAgent(t)
	a.is("export K=1; cd /usr", "")
	if got := a.has("set -e; false; echo no", "[shell exited: code 1]", "fresh shell"); strings.Contains(got, "no\n") {
		t.Errorf("%q", got)
	}
	a.is("echo $K $PWD", "1 /usr")
}

func TestB39(t *testing.T) {
	a := newAgent(t, func(c *bash.Config) { c.Restore = bash.RestoreNone })
	a.is("cd /usr", "")
	a.has("exit 3", "[shell exited: code 3]", "fresh shell")
	a.is("echo $PWD", a.dir)
}

func TestB40(t *testing.T) {
	a := newAgent(t)
	a.has("kill -9 $$", "[shell killed by signal: SIGKILL]")
	a.is("echo ok", "ok")
}

func TestB42(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	a.within(3*time.Second, func() { a.has("echo $$ > pid; exec sleep 100", "replaced") })
	pid, err := os.ReadFile(filepath.Join(a.dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	if alive(strings.TrimSpace(string(pid))) {
		t.Error("sleep lives")
	}
	a.is("echo ok", "ok")
}

func TestB43(t *testing.T) {
	a := newAgent(t)
	a.within(5*time.Second, func() { a.sh("exec bash --noprofile --norc -i") })
	a.is("echo ok", "ok")
}

func TestB44(t *testing.T) {
	a := newAgent(t)
	a.has("return 5", "can only `return'", "[exit code: ")
	a.has("break 9", "only meaningful in a")
	a.is("echo ok", "ok")
}

func TestB47(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	a.within(4*time.Second, func() { a.has("builtin() { :; }", "fresh shell") })
	a.is("echo y", "y")
}

func TestB48(t *testing.T) {
	a := newAgent(t, func(c *bash.Config) { c.Stdin = bash.StdinTTY })
	a.is("stty raw -echo -opost; echo x", "x")
	a.is(`printf 'a\nb\n'`, "a\nb")
	a.is("stty -a | grep -o -e '-opost' -e '-echo ' -e ' icanon' | tr -d '\\n'", "-opost icanon-echo ")
	b := newAgent(t)
	b.has("stty raw -echo -opost; echo x", "x")
	b.is(`printf 'a\nb\n'`, "a\nb")
}

func TestB51(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	a.within(4*time.Second, func() { a.has("kill -STOP $$; echo on", "on", "continued") })
}

func TestB54(t *testing.T) {
	a := newAgent(t)
	noDriver(t, a.sh("echo one"))
	noDriver(t, a.sh("history; set; ps axww -o args | grep -v grep; fc -l; declare -f; alias; trap; shopt; set -o; env"))
	noDriver(t, a.sh("set -o history; history"))
	noDriver(t, a.sh("history"))
	noDriver(t, a.sh("cat /proc/$$/cmdline | tr '\\0' ' '"))
}

func TestB54a(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".bash_history")
	if err := os.WriteFile(file, []byte("secret one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, func(c *bash.Config) { c.Env = map[string]string{"HOME": home} })
	a.is("echo x", "x")
	a.is("history", "")
	a.close()
	if got, err := os.ReadFile(file); err != nil || string(got) != "secret one\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestB54b(t *testing.T) {
	a := newAgent(t)
	a.is("export K=5; cd /usr", "")
	a.within(5*time.Second, func() { t.Logf("%q", a.sh("set -o vi")) })
	a.has("echo $K $PWD", "5 /usr")
}

func TestB56(t *testing.T) {
	a := newAgent(t)
	got := a.has("seq 1 12050", "grep -n")
	if !strings.HasPrefix(got, "1\n2\n3\n") {
		t.Errorf("%.50q", got)
	}
	out, _, _ := strings.Cut(got, "\n[")
	if n := utf8.RuneCountInString(out); n > 16000 || n < 15990 {
		t.Errorf("%d characters", n)
	}
}

func TestB57(t *testing.T) {
	a := newAgent(t, func(c *bash.Config) { c.Clip = bash.ClipHeadTail })
	got := a.has("seq 1 200000; echo LAST", "LAST", "left out")
	if !strings.HasPrefix(got, "1\n2\n") || !strings.HasSuffix(got, "LAST") {
		t.Errorf("%.50q", got)
	}
}

func TestB59(t *testing.T) {
	a := newAgent(t)
	if got := a.sh("head -c 300000 /dev/urandom"); !utf8.ValidString(got) {
		t.Error("invalid UTF-8")
	}
}

func TestB62(t *testing.T) {
	a := newAgent(t)
	a.is(`printf '\033]0;'; head -c 1000000 /dev/zero | tr '\0' x; printf '\007after\n'`, "after")
}

func TestB66(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	a.within(2*time.Second, func() {
		got := a.sh("sleep 60 & echo $!")
		pid := got[strings.LastIndexByte(got, '\n')+1:]
		if !alive(pid) {
			t.Errorf("%q", got)
		}
	})
}

func TestB67(t *testing.T) {
	a := newAgent(t)
	got := a.sh("(sleep 0.3; echo late; touch mark) & echo now")
	if !strings.HasSuffix(got, "now") || strings.Contains(got, "late") {
		t.Errorf("%q", got)
	}
	eventually(t, "the background job", func() bool {
		_, err := os.Stat(filepath.Join(a.dir, "mark"))
		return err == nil
	})
	got = a.has("echo next", "late\n")
	if !strings.HasSuffix(got, "next") || !strings.HasPrefix(got, "[Output since") {
		t.Errorf("%q", got)
	}
}

func TestB69(t *testing.T) {
	a := newAgent(t)
	a.within(5*time.Second, func() { a.sh("python3 -m http.server 0 &") })
	a.has("echo ok", "ok")
}

func TestB70(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	a.within(5*time.Second, func() {
		a.is("cat", "")
		a.is("read x; echo $?", "1")
		a.has("python3 -c 'input()'", "EOFError")
	})
}

func TestB71(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.is("V=1", "")
	a.within(7*time.Second, func() {
		a.has(`python3 -c 'import sys; print("Password: ", end="", flush=True); open("/dev/tty").readline()'`, "waited for input", "python3", "Password:")
	})
	a.is("echo $V", "1")
}

func TestB73(t *testing.T) {
	a := newAgent(t, func(c *bash.Config) { c.Timeout = bash.Duration(500 * time.Millisecond) })
	a.is("true", "")
	if r := a.result("echo before; sleep 30"); !strings.HasPrefix(r.Text(), "before\n") || !strings.Contains(r.Text(), "Timed out") || !r.IsError {
		t.Errorf("%+v", r)
	}
	got := a.has("echo $PPID ok", "ok")
	if strings.Contains(got, "before") {
		t.Errorf("%q", got)
	}
}

func TestB74(t *testing.T) {
	for _, c := range []struct{ after, restore, want string }{
		{bash.AfterKeep, bash.RestoreEnv, "1"},
		{bash.AfterKeep, bash.RestoreNone, "1"},
		{bash.AfterReset, bash.RestoreNone, ""},
		{bash.AfterReset, bash.RestoreEnv, "1"},
	} {
		t.Run(c.after+" "+c.restore, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, func(conf *bash.Config) {
				conf.AfterTimeout, conf.Restore, conf.Timeout = c.after, c.restore, bash.Duration(500*time.Millisecond)
			})
			a.is("export K=1", "")
			a.has("sleep 30", "Timed out")
			a.is("echo $K", c.want)
		})
	}
}

func TestB77(t *testing.T) {
	a := newAgent(t)
	a.is("true", "")
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan string, 1)
	started := make(chan struct{})
	go func() { // joined by first
		first <- a.call(ctx, map[string]any{"command": "echo first; touch on; sleep 30"}, writerFunc(func(p []byte) {
			select {
			case <-started:
			default:
				close(started)
			}
		})).Text()
	}()
	<-started
	second := make(chan string, 1)
	go func() { second <- a.sh("echo second") }() // joined by second
	cancel()
	if got := <-first; !strings.HasPrefix(got, "first\n") || !strings.Contains(got, "Cancelled") {
		t.Errorf("%q", got)
	}
	if got := <-second; got != "second" {
		t.Errorf("%q", got)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
