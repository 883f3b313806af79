//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/presets"
)

var update = flag.Bool("update", false, "write the golden files")

// once runs dsh to its end, without a client.
func once(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = append([]string{asBinary + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	home := "DSH_HOME=" + t.TempDir()
	serve := []string{"--profile", "sdk-minimal"}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inTheWay := func(name string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	sessions, instances, log := inTheWay("sessions"), inTheWay(".instances"), t.TempDir()
	if err := os.MkdirAll(filepath.Join(log, ".log-id"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		env    []string
		args   []string
		code   int
		stdout string // contains
		stderr string // contains
	}{
		{"help", nil, []string{"--help"}, 0, "usage: dsh --profile", ""},
		{"version", nil, []string{"--version"}, 0, "dsh ", ""},
		{"nothing", nil, nil, 2, "", "usage: dsh --profile"},
		{"patch", nil, []string{"--profile", "sdk-minimal", "--patch", "x.yml"}, 1, "", "--patch"},
		{"patch alone", nil, []string{"--patch=x"}, 1, "", "--patch"},
		{"unknown flag", nil, []string{"--nope"}, 2, "", "--nope"},
		{"an argument", nil, []string{"--profile", "sdk-minimal", "x"}, 2, "", `"x"`},
		{"unknown profile", nil, []string{"--profile", "nope"}, 1, "", "sdk-minimal"},
		{"dump without a profile", nil, []string{"--dump-config"}, 2, "", "--profile"},
		{"no home", nil, serve, 2, "", "DSH_HOME"},
		{"home is a file", []string{"DSH_HOME=" + file}, serve, 1, "", "DSH_HOME"},
		{"root is a file", []string{home, "DSH_SESSION_ROOT=" + file}, serve, 1, "", "DSH_SESSION_ROOT"},
		{"window", []string{home, "DSH_CONTEXT_WINDOW=much"}, serve, 1, "", "DSH_CONTEXT_WINDOW"},
		{"window 0", []string{home, "DSH_CONTEXT_WINDOW=0"}, serve, 1, "", "DSH_CONTEXT_WINDOW"},
		{"synchronous", []string{home, "DSH_SYNCHRONOUS=off"}, serve, 1, "", "DSH_SYNCHRONOUS"},
		{"base URL", []string{home, "DEEPSEEK_BASE_URL=localhost:8000"}, serve, 1, "", "dsh: DEEPSEEK_BASE_URL: "},
		{"cwd", []string{home, "DSH_CWD=/not/there"}, serve, 1, "", "DSH_CWD"},
		{"cwd of two lines", []string{home, "DSH_CWD=/not\nthere"}, serve, 1, "", `DSH_CWD: stat /not\nthere`},
		{"sessions can't be made in the home", []string{"DSH_HOME=" + sessions}, serve, 1, "", "dsh: DSH_HOME: "},
		{"processes can't be recorded in the home", []string{"DSH_HOME=" + instances}, serve, 1, "", "dsh: DSH_HOME: "},
		{"processes can't be recorded in the root", []string{"DSH_SESSION_ROOT=" + instances}, serve, 1, "", "dsh: DSH_SESSION_ROOT: "},
		{"a root that is none", []string{home, "DSH_SESSION_ROOT=" + log}, serve, 1, "", "dsh: DSH_SESSION_ROOT: "},
		{"an empty input", []string{home}, serve, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := once(t, c.env, c.args...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d\nstdout %s\nstderr %s", code, stdout, stderr)
			}
			if c.code == 1 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("stderr isn't one line: %q", stderr)
			}
			if c.stdout == "" && stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
}

// TestDumpConfig: the composition as people read it, and it reads back as the same one.
func TestDumpConfig(t *testing.T) {
	code, dump, stderr := once(t, []string{"DSH_MODEL=x"}, "--profile", "sdk-minimal", "--dump-config")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	golden := "testdata/sdk-minimal.yml"
	if *update {
		if err := os.WriteFile(golden, []byte(dump), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if dump != string(want) {
		t.Errorf("the composition changed; if that is meant, run go test ./cmd/dsh -update\n%s", dump)
	}
	back, err := presets.Parse("sdk-minimal", golden, []byte(dump))
	if err != nil {
		t.Fatal(err)
	}
	same, err := composition("sdk-minimal", func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	if back.Hash != same.Hash {
		t.Error("the dump is another composition")
	}
	if _, own, _ := once(t, []string{"DSH_SYSTEM_PROMPT=Mine."}, "--profile", "sdk-minimal", "--dump-config"); !strings.Contains(own, "text: Mine.") {
		t.Errorf("the persona isn't in it:\n%s", own)
	}
}

// TestDumpReadsBack: whatever the prompt is.
func TestDumpReadsBack(t *testing.T) {
	prompts := []string{
		"two\nlines", " lead", "trail \n\n", "\n\nlead", "a\r\nb", "\u0085\u2028\ufeff", "# c", "---\nx", "null", "{{x}}", "🙂", "\x00\x7f", "- a: b\n  c", "'\"\\",
		"\t\nb", "\t'\n", "\t\n \t|é}", " \t\n\tb", "\n\t\nb", "a\n\t\nb", "\tb", "a\tb\n",
	}
	const alphabet = " \t\na"
	for i := range 4 * 4 * 4 * 4 { // every text of four of these
		var b strings.Builder
		for n := i; b.Len() < 4; n /= 4 {
			b.WriteByte(alphabet[n%4])
		}
		prompts = append(prompts, b.String())
	}
	for _, prompt := range prompts {
		c, err := composition("sdk-minimal", func(string) (string, bool) { return prompt, true })
		if err != nil {
			t.Fatalf("%q: %v", prompt, err)
		}
		var dump bytes.Buffer
		if err := dumpConfig(&dump, c); err != nil {
			t.Fatalf("%q: %v", prompt, err)
		}
		back, err := presets.Parse("sdk-minimal", "dump", dump.Bytes())
		if err != nil {
			t.Errorf("%q: %v", prompt, err)
		} else if back.Hash != c.Hash {
			t.Errorf("%q reads back as another composition:\n%s", prompt, dump.String())
		}
	}
}

// TestStandardOutput: what libraries print doesn't reach the client.
func TestStandardOutput(t *testing.T) {
	r := newRig(t, script.ByHistory(script.Turn{bashCall("c1", "echo quiet")}, script.Turn{script.Text("done")}))
	c := r.start(noise + "=1")
	c.initialize()
	c.turn("s", "x")
	r.await("the noise is in stderr", func() bool { return strings.Contains(c.stderr.String(), "NOISE") })
	c.call("bye", "shutdown", nil)
	c.wait()
	for f := range c.frames {
		c.seen = append(c.seen, f)
	}
	for _, f := range c.seen {
		if f.Method == "garbage" || strings.Contains(f.raw, "NOISE") {
			t.Errorf("on standard output: %s", f.raw)
		}
	}
}

// TestNoListeners: the process listens nowhere.
func TestNoListeners(t *testing.T) {
	if _, err := os.Stat("/proc/self/net/tcp"); err != nil {
		t.Skip("no /proc here")
	}
	r := newRig(t, script.ByHistory(script.Turn{bashCall("c1", "true")}, script.Turn{script.Text("done")}))
	c := r.start()
	c.initialize()
	c.turn("s", "x")
	dir := filepath.Join("/proc", strconv.Itoa(c.cmd.Process.Pid))
	listening := map[string]string{}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		raw, err := os.ReadFile(filepath.Join(dir, "net", table))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(raw), "\n")[1:] {
			f := strings.Fields(line)
			switch {
			case len(f) > 9 && table != "unix" && (f[3] == "0A" || strings.HasPrefix(table, "udp")):
				listening[f[9]] = table
			case len(f) > 6 && table == "unix" && f[3] == "00010000":
				listening[f[6]] = table
			}
		}
	}
	fds, err := filepath.Glob(filepath.Join(dir, "fd", "*"))
	if err != nil || len(fds) == 0 {
		t.Fatalf("descriptors: %v %v", fds, err)
	}
	for _, fd := range fds {
		link, _ := os.Readlink(fd)
		if inode, ok := strings.CutPrefix(link, "socket:["); ok && listening[strings.TrimSuffix(inode, "]")] != "" {
			t.Errorf("it listens: %s %s", fd, listening[strings.TrimSuffix(inode, "]")])
		}
	}
}

func rss(t testing.TB, pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("resident memory: %v", err)
	}
	_, after, _ := strings.Cut(string(raw), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// TestStalledClient: for a client that doesn't read, notifications wait in the log, not in memory, and nothing is lost.
func TestStalledClient(t *testing.T) {
	const turns, size = 8, 2 << 20 // what one session's history holds, and as much again in frames that nobody takes
	r := newRig(t, func(model.Request) (script.Turn, error) {
		return script.Turn{script.Repeat(size/1024, strings.Repeat("x", 1024))}, nil
	})
	c := r.start()
	c.initialize()
	c.turn("warm", "up")
	c.gate.Lock() // the reader takes nothing more
	read := sync.OnceFunc(c.gate.Unlock)
	defer read()
	before := rss(t, c.cmd.Process.Pid)
	for i := range turns {
		c.send(i, "session/prompt", prompt(fmt.Sprint("s", i), "x"))
		r.await("the turn is in the log", func() bool {
			logs, err := filepath.Glob(filepath.Join(r.home, "sessions", "--*--", "s*", "session.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			ends := 0
			for _, l := range logs {
				raw, err := os.ReadFile(l)
				if err != nil {
					t.Fatal(err)
				}
				ends += bytes.Count(raw, []byte(`"type":"turn/end"`))
			}
			return ends == i+1
		})
	}
	grown := rss(t, c.cmd.Process.Pid) - before
	t.Logf("resident memory grew by %d KiB over %d KiB of answers", grown>>10, turns*size>>10)
	if grown > 10*turns*size {
		t.Errorf("resident memory grew by %d KiB", grown>>10)
	}
	read()
	told := 0
	c.until("every turn", func(f frame) bool {
		if f.event("turn/end") {
			told++
		}
		return told == turns
	})
}

// TestStalledClientEnds: a client that doesn't read can't keep the process.
func TestStalledClientEnds(t *testing.T) {
	r := newRig(t, script.ByHistory(script.Turn{script.Repeat(1024, strings.Repeat("x", 1024))}))
	c := r.start()
	c.initialize()
	c.gate.Lock()
	defer c.gate.Unlock()
	c.send(1, "session/prompt", prompt("s", "x"))
	r.await("the turn is in the log", func() bool {
		logs, _ := filepath.Glob(filepath.Join(r.home, "sessions", "--*--", "s", "session.jsonl"))
		if len(logs) == 0 {
			return false
		}
		raw, err := os.ReadFile(logs[0])
		return err == nil && bytes.Contains(raw, []byte(`"type":"turn/end"`))
	})
	begin := time.Now()
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("ended after %s", time.Since(begin))
}

// TestSessionRootAlone: DSH_SESSION_ROOT is enough; images are kept and reach the log by id.
func TestSessionRootAlone(t *testing.T) {
	r := newRig(t, say("seen"))
	root := t.TempDir()
	c := r.start("DSH_HOME=", "DSH_SESSION_ROOT="+root, "DSH_CWD="+r.ws)
	delete(c.params, "cwd")
	c.initialize()
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	c.call(1, "session/prompt", map[string]any{"sessionId": "s", "contentBlocks": []any{
		map[string]any{"type": "text", "text": "look"}, map[string]any{"type": "image", "data": pixel, "mimeType": "image/png"},
	}})
	c.until("idle", func(f frame) bool { return f.Params.Status == "idle" })
	logs, err := filepath.Glob(filepath.Join(root, "--*--", "s", "session.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v %v", logs, err)
	}
	raw, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(raw, []byte(`"attachmentId"`)) || bytes.Contains(raw, []byte(pixel)) || !bytes.Contains(raw, []byte(`"cwd":"`+r.ws+`"`)) {
		t.Errorf("log %s", raw)
	}
	if entries, err := os.ReadDir(r.home); err != nil || len(entries) != 0 {
		t.Errorf("something was written to the home that isn't given: %v %v", entries, err)
	}
}

// TestKillRounds: whatever was told before a kill -9 is in the log, every message that was accepted runs once, and the session goes on.
func TestKillRounds(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	if os.Getenv("DSH_SOAK") != "" {
		rounds = 300
	}
	r := newRig(t, script.ByHistory(script.Turn{script.Text("a"), bashCall("", "echo one"), bashCall("", "echo two")}, script.Turn{script.Text("done")}))
	var accepted []string // a message may come too late in its round, when one of the round before runs first
	for round := range rounds {
		c := r.start()
		c.initialize()
		c.send(1, "session/prompt", prompt("s", fmt.Sprint("round ", round)))
		n := 0
		c.until("enough", func(f frame) bool { // a later moment each round
			if f.Error != nil {
				t.Fatalf("round %d: %s", round, f.raw)
			}
			n++
			return n > round*3%24 || f.Params.Status == "idle"
		})
		_ = c.cmd.Process.Kill()
		c.wait()
		for f := range c.frames {
			c.seen = append(c.seen, f)
		}
		_, lines := r.log("s")
		for _, f := range c.seen {
			var receipt struct{ MessageID string }
			if json.Unmarshal(f.Result, &receipt) == nil && receipt.MessageID != "" {
				accepted = append(accepted, receipt.MessageID)
			}
			if f.Method != "session.event" {
				continue
			}
			var e struct{ Seq int64 }
			at := int(f.Params.Event.Seq) + 1
			if at >= len(lines) || json.Unmarshal([]byte(lines[at]), &e) != nil || e.Seq != f.Params.Event.Seq || !strings.Contains(f.raw, lines[at]) {
				t.Fatalf("round %d: event %d was told and isn't in the log", round, f.Params.Event.Seq)
			}
		}
	}
	d := r.start()
	d.initialize()
	d.call(1, "session/prompt", prompt("s", "last"))
	d.until("idle", func(f frame) bool { return f.Params.Status == "idle" })
	_, lines := r.log("s")
	starts, ends, ran := 0, 0, map[string]int{}
	for _, l := range lines {
		switch typeOf(l) {
		case "turn/start":
			starts++
		case "turn/end":
			ends++
		case "user/message":
			var e struct{ Data struct{ ID string } }
			if err := json.Unmarshal([]byte(l), &e); err != nil {
				t.Fatal(err)
			}
			ran[e.Data.ID]++
		}
	}
	if starts != ends {
		t.Errorf("%d turns began and %d ended", starts, ends)
	}
	for _, id := range accepted {
		if ran[id] != 1 {
			t.Errorf("%s ran %d times", id, ran[id])
		}
	}
	if len(accepted) < rounds/2 {
		t.Errorf("%d messages were accepted in %d rounds", len(accepted), rounds)
	}
}
