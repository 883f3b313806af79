//go:build linux

package bash_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/tools/bash"
)

// soak says that the long variants of the tests were asked for.
func soak() bool { return os.Getenv("DSH_SOAK") == "1" }

// seeded returns a source whose seed is in the log, so that a failure can be run again: DSH_SEED=N.
func seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DSH_SEED"); s != "" {
		_, _ = fmt.Sscan(s, &seed)
	}
	t.Logf("DSH_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestB58(t *testing.T) {
	a := newAgent(t, func(c *bash.Config) { c.Timeout = bash.Duration(2 * time.Second) })
	a.is("true", "")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := a.result("yes")
	if !strings.HasPrefix(r.Text(), "y\ny\n") || !strings.Contains(r.Text(), "Timed out") {
		t.Errorf("%.100q", r.Text())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 10<<20 {
		t.Errorf("grew by %d bytes", grown)
	}
	a.is("echo fine", "fine")
}

// interruptible are kinds of job that a cancel meets.
var interruptible = []string{
	"while :; do :; done",
	"while :; do echo x; done",
	"for i in $(seq 1 100000); do echo $i; done",
	"while :; do /bin/true; done",
	"sleep 5",
	"sleep 5; echo no",
	"(sleep 5; echo no)",
	"yes | head -c 100000000 > /dev/null; sleep 5",
	"cat /dev/zero | tr '\\0' x | wc -c",
	"f() { sleep 5; }; f",
	"x=$(sleep 5); echo $x",
	"{ sleep 5; } 2>&1 | cat",
	"python3 -c 'while True: pass'",
	"bash -c 'sleep 5; sleep 5'",
	"find /proc /usr -name nothing_has_this_name 2>/dev/null",
	"eval 'while :; do sleep 0.01; done'",
	"trap : USR1; while :; do sleep 0.005; done",
	"true",
	"echo short",
	": > f; while read -r l < f || :; do :; done",
}

func TestB76(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	if soak() {
		rounds = 3000
	}
	t.Parallel()
	rnd := seeded(t)
	a := newAgent(t)
	a.is("KEPT=yes; mkdir sub; cd sub", "")
	kinds := map[string]int{}
	for i := range rounds {
		job := interruptible[rnd.IntN(len(interruptible))]
		kinds[job]++
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(15000))*time.Microsecond)
		got := a.call(ctx, map[string]any{"command": job}, io.Discard)
		cancel()
		if m, ok := got.Meta.(bash.Meta); ok && m.Reset {
			t.Fatalf("round %d, %q: the shell was lost: %.300q", i, job, got.Text())
		}
		follow := a.sh("echo ok $KEPT ${PWD##*/}")
		// bash may have a notice of the interrupted job to tell first.
		if follow != "ok yes sub" && !strings.HasSuffix(follow, "]\nok yes sub") {
			t.Fatalf("round %d, after %q: %.500q", i, job, follow)
		}
	}
	if len(kinds) < 10 {
		t.Errorf("only %d kinds", len(kinds))
	}
}

// random makes a command with output of a known size and status.
func random(rnd *rand.Rand, n int) (command, output string, status int) {
	var b strings.Builder
	size := rnd.IntN(400)
	if rnd.IntN(20) == 0 {
		size = rnd.IntN(15000)
	}
	for b.Len() < size {
		switch rnd.IntN(12) {
		case 0:
			b.WriteByte('\n')
		case 1:
			b.WriteString("  ")
		case 2:
			b.WriteString("'\"\\$`!")
		case 3:
			b.WriteString("\t%s#é世界🙂")
		default:
			fmt.Fprintf(&b, "%x", rnd.Uint32())
		}
	}
	output = b.String()
	if rnd.IntN(2) == 0 {
		output += "\n"
	}
	quoted := "'" + strings.ReplaceAll(output, "'", `'\''`) + "'"
	switch rnd.IntN(12) {
	default:
		command = "printf %s " + quoted
	case 1:
		command = "(printf %s " + quoted + " >&2)"
	case 2:
		command = "x=" + quoted + "\nprintf '%s' \"$x\""
	case 3:
		command = fmt.Sprintf("cat > f%d.txt <<'END_OF_IT'\n%s\nEND_OF_IT\nhead -c -1 f%d.txt", n%7, output, n%7)
	case 4:
		command = "printf %s " + quoted + " | cat"
	}
	if rnd.IntN(3) == 0 {
		status = rnd.IntN(255) + 1
		command += fmt.Sprintf("; (exit %d)", status)
	}
	return command, output, status
}

// wanted is the text of a result, by the rules.
func wanted(output string, status int) string {
	text := strings.TrimSuffix(output, "\n")
	if status == 0 {
		return text
	}
	if text != "" {
		text += "\n"
	}
	return text + fmt.Sprintf("[exit code: %d]", status)
}

// TestB55 compares every byte of thousands of results.
func TestB55(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 500
	}
	if soak() {
		rounds = 20000
	}
	t.Parallel()
	rnd := seeded(t)
	a := newAgent(t)
	for i := range rounds {
		command, output, status := random(rnd, i)
		if got, want := a.sh(command), wanted(output, status); got != want {
			t.Fatalf("round %d: %.2000q\n got %.2000q\nwant %.2000q", i, command, got, want)
		}
	}
}

// TestB78 leaves all sorts of processes behind and closes the agent.
func TestB78(t *testing.T) {
	in, err := proc.Open(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	terminals := func() int {
		list, err := filepath.Glob("/dev/pts/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := terminals()
	a := newAgentIn(t, in, t.TempDir())
	a.is("true", "")
	shell := a.shell.State().PID
	done := make(chan string, 1)
	started := make(chan struct{})
	go func() { // joined by done
		done <- a.call(context.Background(), map[string]any{"command": `sleep 99 & (setsid sleep 98 &); env -i setsid sh -c 'sleep 97 & exec sleep 96' & echo on; sleep 95`},
			writerFunc(func(p []byte) {
				if strings.Contains(string(p), "on") {
					close(started)
				}
			})).Text()
	}()
	<-started
	var left []proc.Process
	eventually(t, "five processes", func() bool {
		left, err = a.shell.Processes()
		return err == nil && len(left) >= 5
	})
	start := time.Now()
	a.close()
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("closing took %v", took)
	}
	<-done
	for _, p := range left {
		if alive(fmt.Sprint(p.PID)) {
			t.Errorf("%v lives", p)
		}
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", shell)); err == nil {
		t.Error("the shell is a zombie")
	}
	if r := a.result("echo x"); !r.IsError {
		t.Errorf("a closed agent ran something: %+v", r)
	}
	if err := in.Close(context.Background()); err != nil {
		t.Error(err)
	}
	// Other tests may hold terminals; this one gave its own back.
	eventually(t, "the terminal to go", func() bool { return terminals() <= before })
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func threads(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestB79(t *testing.T) {
	rounds := 600
	if testing.Short() {
		rounds = 60
	}
	in, err := proc.Open(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cycle := func() {
		a := newAgentIn(t, in, dir)
		a.is("echo hi", "hi")
		a.close()
	}
	for range 5 {
		cycle()
	}
	fds, routines, tasks := descriptors(t), runtime.NumGoroutine(), threads(t)
	for range rounds {
		cycle()
	}
	if n := descriptors(t); n > fds+2 {
		t.Errorf("descriptors: %d, then %d", fds, n)
	}
	if n := threads(t); n > tasks+6 {
		t.Errorf("threads: %d, then %d", tasks, n)
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= routines+2 })
	if err := in.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
