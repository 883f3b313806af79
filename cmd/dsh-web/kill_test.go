package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runAsHost makes this test binary the program, for tests that kill it.
const runAsHost = "DSH_TEST_RUN_MAIN"

// process is a host in a process of its own.
type process struct {
	scriptHost
	cmd *exec.Cmd
}

func startProcess(t *testing.T, data string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], "serve", "--listen", "127.0.0.1:0", "--data", data, "--log-level", "error")}
	p.cmd.Env = append(os.Environ(), runAsHost+"=1", "DSH_WEB_DEMO_PACE=1ms")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the host printed nothing: %v", err)
	}
	p.url = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "dsh-web listening on "), "/")
	raw, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	p.token = strings.TrimSpace(string(raw))
	return p
}

// kill ends the process as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// try makes a request whose failure is no news: the host may be dying.
func (p *process) try(ctx context.Context, method, path, body string) (status int, answer []byte) {
	res, err := p.request(ctx, method, path, body)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, raw
}

// seen is what a client was shown: the bytes of each event by seq.
type seen struct {
	mu     sync.Mutex
	events map[int64]string
	last   int64
}

func (s *seen) add(t *testing.T, raw string) {
	t.Helper()
	var e struct{ Seq int64 }
	if err := json.Unmarshal([]byte(raw), &e); err != nil {
		return // a line cut by the kill
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.events[e.Seq]; ok && before != raw {
		t.Errorf("event %d was shown as\n%s\nand is now\n%s", e.Seq, before, raw)
	}
	s.events[e.Seq] = raw
	s.last = max(s.last, e.Seq)
}

// follow reads the session's events from after on until the host dies or ctx ends.
func (s *seen) follow(ctx context.Context, t *testing.T, p *process, session string, after int64) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/sessions/%s/events?after=%d", p.url, session, after), nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+p.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			s.add(t, data)
		}
	}
}

// TestKilledAtRandomMoments kills the whole host with SIGKILL while it works. What a client was shown is there afterwards, byte for byte and
// without a gap; an accepted message is never lost; every turn has its end; a call's side
// effect happens at most once; no process of an agent lives on.
func TestKilledAtRandomMoments(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	if os.Getenv("DSH_SOAK") != "" {
		rounds = 300
	}
	data, ws := t.TempDir(), t.TempDir()
	shown := &seen{events: map[int64]string{}, last: -1}
	accepted := map[string]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	marker := fmt.Sprintf("%d.%d", 4000+os.Getpid()%1000, time.Now().UnixNano()%100000)
	for round := range rounds {
		p := startProcess(t, data)
		if round == 0 {
			if status, raw := p.try(ctx, "POST", "/api/v1/sessions", `{"id":"s","preset":"minimal","workspace":"`+ws+`"}`); status != 201 {
				t.Fatalf("create: %d %s", status, raw)
			}
		}
		shown.check(ctx, t, p, accepted)
		if n := living(t, "sleep "+marker); n != 0 {
			t.Fatalf("round %d: %d processes of the killed host's agents are alive", round, n)
		}
		var group sync.WaitGroup
		group.Go(func() { shown.follow(ctx, t, p, "s", shown.last) })
		id := fmt.Sprintf("m%d", round)
		body := fmt.Sprintf(`{"id":%q,"content":"run: sleep %s & echo one\nsay: text that streams\nrun: echo two >> f%d"}`, id, marker, round)
		group.Go(func() {
			if status, _ := p.try(ctx, "POST", "/api/v1/sessions/s/messages", body); status == 202 {
				shown.mu.Lock()
				accepted[id] = true
				shown.mu.Unlock()
			}
		})
		wait := time.NewTimer(time.Duration(rand.IntN(120)) * time.Millisecond)
		<-wait.C
		p.kill()
		group.Wait()
		if t.Failed() {
			t.Fatalf("after round %d", round)
		}
	}
	p := startProcess(t, data)
	shown.check(ctx, t, p, accepted)
	ran := 0
	for round := range rounds {
		raw, err := os.ReadFile(filepath.Join(ws, fmt.Sprintf("f%d", round)))
		if err == nil {
			ran++
		}
		if len(raw) > len("two\n") {
			t.Errorf("round %d: the call ran more than once: %q", round, raw)
		}
	}
	if len(accepted) == 0 || len(shown.events) == 0 {
		t.Errorf("nothing was tested: %d messages accepted, %d events shown", len(accepted), len(shown.events))
	}
	t.Logf("%d rounds, %d messages accepted, %d events shown, %d last calls ran", rounds, len(accepted), len(shown.events), ran)
}

// check compares the log with what was shown and accepted.
func (s *seen) check(ctx context.Context, t *testing.T, p *process, accepted map[string]bool) {
	t.Helper()
	var all []string
	ids := map[string]bool{}
	turns := 0
	for after := int64(-1); ; {
		status, raw := p.try(ctx, "GET", fmt.Sprintf("/api/v1/sessions/s/events?after=%d&limit=1000", after), "")
		if status != 200 {
			t.Fatalf("read the log: %d %s", status, raw)
		}
		var page struct {
			Events  []json.RawMessage
			HasMore bool
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			var head struct {
				Seq  int64
				Type string
				Data struct{ Inserted []struct{ ID string } }
			}
			if err := json.Unmarshal(e, &head); err != nil {
				t.Fatal(err)
			}
			if head.Seq != int64(len(all)) {
				t.Fatalf("event %d stands where event %d belongs", head.Seq, len(all))
			}
			all = append(all, string(e))
			for _, m := range head.Data.Inserted {
				ids[m.ID] = true
			}
			switch head.Type {
			case "turn/start":
				turns++
			case "turn/end":
				turns--
			}
		}
		if !page.HasMore {
			break
		}
		after = int64(len(all)) - 1
	}
	for seq, raw := range s.events {
		if seq >= int64(len(all)) {
			t.Errorf("event %d was shown and is gone", seq)
		} else if all[seq] != raw {
			t.Errorf("event %d was shown as\n%s\nand is now\n%s", seq, raw, all[seq])
		}
	}
	for id := range accepted {
		if !ids[id] {
			t.Errorf("message %s was accepted and is gone", id)
		}
	}
	if turns != 0 {
		t.Errorf("%d turns are open after recovery", turns)
	}
}

// living counts the processes whose command line is exactly this. There is nothing to wait for: a stopped host has ended them, and after a
// kill the next start sweeps before it listens.
func living(t *testing.T, command string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err == nil && strings.TrimRight(strings.ReplaceAll(string(raw), "\x00", " "), " ") == command {
			n++
		}
	}
	return n
}

// TestCleanStopLeavesNothing: SIGTERM ends the host with status 0 and leaves no process of its agents.
func TestCleanStopLeavesNothing(t *testing.T) {
	data, ws := t.TempDir(), t.TempDir()
	p := startProcess(t, data)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	marker := fmt.Sprintf("%d.%d", 5000+os.Getpid()%1000, time.Now().UnixNano()%100000)
	body := `{"id":"s","preset":"minimal","workspace":"` + ws + `","message":"run: (setsid sleep ` + marker + ` &) ; sleep ` + marker + ` & echo up\nrun: sleep ` + marker + `"}`
	if status, raw := p.try(ctx, "POST", "/api/v1/sessions", body); status != 201 {
		t.Fatalf("create: %d %s", status, raw)
	}
	if err := p.await("s", "tool/call", 2); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the host ended with %v", err)
	}
	if n := living(t, "sleep "+marker); n != 0 {
		t.Errorf("%d processes are alive", n)
	}
	again := startProcess(t, data)
	status, raw := again.try(ctx, "GET", "/api/v1/sessions/s/events?after=-1", "")
	if status != 200 || !strings.Contains(string(raw), `"by":"shutdown"`) {
		t.Errorf("the turn's end is not logged: %d %s", status, raw)
	}
}
