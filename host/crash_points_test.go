package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
)

// The child of TestCrashAroundATool takes its orders from these.
const (
	crashPoint = "DSH_TEST_CRASH_POINT"
	crashData  = "DSH_TEST_CRASH_DATA"
)

// die ends this process as a crash does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dyingStore is a real store in a process that dies at the commit which holds an event of a type.
type dyingStore struct {
	session.Store
	typ    string
	before bool
}

func (s dyingStore) Commit(epoch int64, changes []session.Change) error {
	last := false
	for _, c := range changes {
		for _, e := range c.Events {
			last = last || bytes.Contains(e.Data, []byte(`"type":"`+s.typ+`"`))
		}
	}
	if last && s.before {
		die()
	}
	err := s.Store.Commit(epoch, changes)
	if last {
		die()
	}
	return err
}

var crashPoints = []struct {
	name    string
	typ     string // dies at the commit that holds it
	before  bool
	command string // of the call; %d is the host's process
	request int    // dies when so many requests have come to the model

	ran     [2]int // how often the side effect may have happened
	results int
	end     string
	text    string // in the result
}{
	{name: "before the call is durable", typ: "tool/call", before: true, end: session.EndInterrupted},
	{name: "after the call is durable, before anybody hears of it", typ: "tool/call", results: 1, end: session.EndInterrupted, text: "unknown"},
	{name: "in the call, before its side effect", command: "kill -9 %d; echo ran >> side", ran: [2]int{0, 1}, results: 1, end: session.EndInterrupted, text: "unknown"},
	{name: "in the call, after its side effect", command: "echo ran >> side; kill -9 %d; read", ran: [2]int{1, 1}, results: 1, end: session.EndInterrupted, text: "unknown"},
	{name: "after the call, before its result is durable", typ: "tool/result", before: true, ran: [2]int{1, 1}, results: 1, end: session.EndInterrupted, text: "unknown"},
	{name: "after its result is durable, before anybody hears of it", typ: "tool/result", ran: [2]int{1, 1}, results: 1, end: session.EndInterrupted, text: "made"},
	{name: "while the model answers the result", request: 2, ran: [2]int{1, 1}, results: 1, end: session.EndInterrupted, text: "made"},
	{name: "before the turn's end is durable", typ: "turn/end", before: true, ran: [2]int{1, 1}, results: 1, end: session.EndInterrupted, text: "made"},
	{name: "after the turn's end is durable, before anybody hears of it", typ: "turn/end", ran: [2]int{1, 1}, results: 1, end: session.EndCompleted, text: "made"},
}

// TestCrashChild is the host that dies; it does nothing by itself.
func TestCrashChild(t *testing.T) {
	for _, p := range crashPoints {
		if p.name != os.Getenv(crashPoint) {
			continue
		}
		command := "echo ran >> side; echo made"
		if p.command != "" {
			command = fmt.Sprintf(p.command, os.Getpid())
		}
		requests := 0
		answers := script.ByHistory(script.Turn{bash("call_side", command)}, script.Turn{script.Text("done")})
		r := newRig(t, options{
			dir: os.Getenv(crashData),
			source: func(q model.Request) (script.Turn, error) {
				if requests++; requests == p.request {
					die()
				}
				return answers(q)
			},
			config: func(c *host.Config) {
				if p.typ != "" {
					c.Store = dyingStore{c.Store, p.typ, p.before}
				}
			},
		})
		ws := filepath.Join(r.dir, "ws")
		_, _, err := r.host.Create(r.ctx(), host.Spec{ID: "s", Preset: "minimal", Workspace: ws})
		r.must(err)
		r.say("s", "go")
		t.Fatal("the host lived through its crash")
	}
}

// TestCrashAroundATool kills a host at each point of a call's life. Afterwards the call's side effect has happened at most once and is never
// repeated, the log says how the turn ended, and the session goes on.
func TestCrashAroundATool(t *testing.T) {
	for _, p := range crashPoints {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			ws := filepath.Join(data, "ws")
			if err := os.Mkdir(ws, 0o700); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestCrashChild$", "-test.v")
			child.Env = append(os.Environ(), crashPoint+"="+p.name, crashData+"="+data, "TMPDIR="+t.TempDir())
			out, err := child.CombinedOutput()
			if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || ctx.Err() != nil {
				t.Fatalf("the host did not die as it should: %v\n%s", err, out)
			}

			r := newRig(t, options{dir: data, source: script.ByHistory(script.Turn{script.Text("again")})})
			before := r.events("s")
			if n := count(before, "tool/result"); n != p.results {
				t.Errorf("%d results, want %d", n, p.results)
			}
			for _, text := range results(t, before) {
				if !strings.Contains(text, p.text) {
					t.Errorf("the call's result is %q, want %q in it", text, p.text)
				}
			}
			if end := before[len(before)-1]; end.Type != "turn/end" || !strings.Contains(string(end.Data), `"kind":"`+p.end+`"`) {
				t.Errorf("the log ends with %s %s, want a turn/end of kind %s", end.Type, end.Data, p.end)
			}
			st := r.say("s", "go on")
			if st.LastEnd == nil || st.LastEnd.Reason.Kind != session.EndCompleted {
				t.Errorf("the next turn ended with %+v", st.LastEnd)
			}
			after := r.events("s")
			for i, e := range after {
				if e.Seq != int64(i) {
					t.Fatalf("event %d stands at %d", e.Seq, i)
				}
			}
			if calls := count(after, "tool/call"); calls != p.results {
				t.Errorf("%d calls and %d results", calls, p.results)
			}
			side, err := os.ReadFile(filepath.Join(ws, "side"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if ran := strings.Count(string(side), "ran\n"); ran < p.ran[0] || ran > p.ran[1] {
				t.Errorf("the side effect happened %d times, want %d to %d", ran, p.ran[0], p.ran[1])
			}
			checkPairs(t, r.wire.Requests()[0].Body, p.results)
		})
	}
}

// checkPairs wants each call of a request answered once, right after it.
func checkPairs(t *testing.T, raw []byte, calls int) {
	t.Helper()
	var body struct {
		Messages []struct {
			Role       string
			ToolCallID string                `json:"tool_call_id"`
			ToolCalls  []struct{ ID string } `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i, m := range body.Messages {
		for _, c := range m.ToolCalls {
			seen++
			if i+1 >= len(body.Messages) || body.Messages[i+1].ToolCallID != c.ID {
				t.Errorf("the call %s has no result right after it:\n%s", c.ID, raw)
			}
		}
	}
	if seen != calls {
		t.Errorf("the next request holds %d calls, want %d:\n%s", seen, calls, raw)
	}
}
