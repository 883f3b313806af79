package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// rig is one agent over a real log, with a scripted model.
type rig struct {
	t        *testing.T
	root     *scope.Scope
	journal  *session.Journal
	log      *session.Log
	agent    *agent.Agent
	prompts  prompt.Registry
	tools    tools.Registry
	limits   agent.Limits
	requests []model.Request
	commits  atomic.Int64
	persona  atomic.Pointer[string]
	prepare  func() // called before each request is prepared
	logged   messages
	mu       sync.Mutex
	violated []error
}

// recorder keeps the requests an adapter was given.
type recorder struct {
	model.Adapter
	r *rig
}

func (a recorder) Prepare(req model.Request) (*model.Prepared, error) {
	a.r.mu.Lock()
	a.r.requests = append(a.r.requests, req)
	a.r.mu.Unlock()
	if a.r.prepare != nil {
		a.r.prepare()
	}
	return a.Adapter.Prepare(req)
}

// messages is a log handler that keeps what was logged, up to its capacity.
type messages chan string

func (messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) WithAttrs([]slog.Attr) slog.Handler     { return m }
func (m messages) WithGroup(string) slog.Handler          { return m }
func (m messages) Handle(_ context.Context, r slog.Record) error {
	select {
	case m <- r.Message:
	default:
	}
	return nil
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func newRig(t *testing.T, source script.Source) *rig {
	t.Helper()
	store, err := sqlite.Open(context.Background(), t.TempDir(), sqlite.Options{Synchronous: "normal"})
	if err != nil {
		t.Fatal(err)
	}
	return newRigOn(t, store, source)
}

func newRigOn(t *testing.T, store session.Store, source script.Source) *rig {
	t.Helper()
	var err error
	r := &rig{t: t, root: scope.New("host"), logged: make(messages, 100)}
	r.journal = session.NewJournal(store, session.Options{Checked: true, AfterCommit: func([]session.Committed) { r.commits.Add(1) }})
	r.must(r.journal.Start(context.Background()))
	r.log, err = r.journal.Create(context.Background(), session.Header{ID: "s", Version: 1, Cwd: "/"}, nil)
	r.must(err)
	adapter := recorder{script.New(source), r}
	r.agent = agent.New(agent.Config{
		Scope: r.root, View: func() *scope.Scope { return r.root }, Log: r.log, Prompt: &r.prompts, Tools: &r.tools,
		Route: func() (model.Route, model.Selection, error) {
			return model.Route{Provider: "test", Model: "m", Adapter: adapter}, model.Selection{}, nil
		},
		Limits:    func() agent.Limits { return r.limits },
		Violation: func(err error) { r.violated = append(r.violated, err) },
		Logger:    slog.New(r.logged),
	})
	r.persona.Store(new("Be brief."))
	r.must(r.prompts.AddSection(r.root, prompt.Section{Name: "persona", Text: func(context.Context) (string, error) { return *r.persona.Load(), nil }}))
	r.must(r.agent.Start())
	t.Cleanup(func() {
		r.agent.Stop(agent.ByShutdown)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.root.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		r.journal.Release(r.log)
		if err := r.journal.Close(ctx); err != nil {
			t.Errorf("close journal: %v", err)
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tool(name string, parallel bool, run func(context.Context, tools.Call) tools.Result) {
	r.t.Helper()
	r.must(r.tools.Add(r.root, tools.Tool{Name: name, Parameters: json.RawMessage(`{"type":"object"}`), Parallel: parallel, Run: run}))
}

func message(id, text string) model.Message {
	return model.Message{ID: id, Role: model.RoleUser, Content: []model.Block{model.Text(text)}, Source: model.Source{Kind: model.SourceUser}}
}

func (r *rig) send(id, text string, steer bool) {
	r.t.Helper()
	if alive, err := r.agent.Send(context.Background(), message(id, text), steer); err != nil || !alive {
		r.t.Fatal(alive, err)
	}
}

// queue has a message durable before the loop hears of it.
func (r *rig) queue(id, text string) {
	r.t.Helper()
	r.must(agent.Accept(context.Background(), r.log, message(id, text), false))
	r.agent.Wake()
}

// cancel ends what became of one message.
func (r *rig) cancel(id string) error {
	err := agent.Withdraw(context.Background(), r.log, id)
	if errors.Is(err, agent.ErrStarted) {
		r.agent.CancelTurnOf(id)
		return nil
	}
	return err
}

// until waits for a state; it fails when that doesn't come.
func (r *rig) until(what string, ok func(session.State) bool) session.State {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		changed := r.log.Changed()
		if st := r.log.State(); ok(st) {
			return st
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatalf("never: %s; the log: %v", what, r.types())
		}
	}
}

func (r *rig) idle(turns int) session.State {
	r.t.Helper()
	return r.until(fmt.Sprintf("%d turns done", turns), func(st session.State) bool { return st.Turns >= turns && !st.TurnOpen && st.Queued() == 0 })
}

func (r *rig) events() []session.Event {
	r.t.Helper()
	page, err := r.log.Read(context.Background(), -1, 1000, 1<<30)
	r.must(err)
	return page.Events
}

func (r *rig) types() []string {
	var out []string
	for _, e := range r.events() {
		out = append(out, e.Type)
	}
	return out
}

func decode[P session.Payload](r *rig) []P {
	r.t.Helper()
	var out []P
	for _, e := range r.events() {
		var p P
		if e.Type == p.EventType() {
			r.must(json.Unmarshal(e.Data, &p))
			out = append(out, p)
		}
	}
	return out
}

func echo(_ context.Context, c tools.Call) tools.Result { return tools.TextResult("echo " + c.ID) }

func TestATurnWithOneCallCostsFourCommits(t *testing.T) {
	for name, want := range map[string]int64{
		"sent":   4, // message and checkpoint; answer and call; result and checkpoint; answer and end
		"queued": 5, // the message alone
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { turnOfOneCall(t, name == "queued", want) })
		})
	}
}

func turnOfOneCall(t *testing.T, queued bool, commits int64) {
	r := newRig(t, script.ByHistory(script.Turn{script.Call("c1", "echo", "{}")}, script.Turn{script.Text("done")}))
	r.tool("echo", false, echo)
	before := r.commits.Load()
	synctest.Wait() // the loop rests
	if queued {
		r.queue("m1", "go")
	} else {
		r.send("m1", "go", false)
	}
	r.idle(1)
	r.must(r.root.Close(context.Background())) // the loop's last append has returned
	if n := r.commits.Load() - before; n != commits {
		t.Errorf("%d commits, want %d", n, commits)
	}
	want := "agent/inbox/spliced session/title turn/start agent/inbox/spliced step/start user/message request/header request/context request/sent " +
		"assistant/message tool/call tool/result step/end step/start request/sent assistant/message step/end turn/end"
	if got := strings.Join(r.types(), " "); got != want {
		t.Errorf("events:\n got %s\nwant %s", got, want)
	}
	if end := decode[session.TurnEnd](r); end[0].Reason.Kind != session.EndCompleted {
		t.Errorf("end: %+v", end)
	}
}

func TestMessagesRunOneTurnEachInOrder(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, script.Sequence(script.Turn{script.Wait(gate), script.Text("1")}, script.Turn{script.Text("2")}, script.Turn{script.Text("3")}))
	r.send("m1", "first", false)
	r.until("a turn runs", func(st session.State) bool { return st.TurnOpen })
	r.send("m2", "second", false)
	r.send("m3", "third", false)
	r.send("m3", "third again", false) // a repeat is the same message
	r.must(agent.Edit(context.Background(), r.log, "m2", []model.Block{model.Text("second, edited")}, nil))
	close(gate)
	r.idle(3)
	var asked []string
	for _, q := range r.requests {
		asked = append(asked, q.Messages[len(q.Messages)-1].Text())
	}
	if got := strings.Join(asked, "|"); got != "first|second, edited|third" {
		t.Errorf("asked %s", got)
	}
	if err := agent.Remove(context.Background(), r.log, "m2"); err != agent.ErrStarted {
		t.Errorf("removing a message that ran: %v", err)
	}
	if err := agent.Remove(context.Background(), r.log, "ghost"); err != agent.ErrUnknownMessage {
		t.Errorf("removing an unknown message: %v", err)
	}
}

func TestSteerJoinsTheRunningTurn(t *testing.T) {
	r := newRig(t, script.ByHistory(script.Turn{script.Call("c1", "hold", "{}")}, script.Turn{script.Text("done")}))
	started, gate := make(chan struct{}), make(chan struct{})
	r.tool("hold", false, func(context.Context, tools.Call) tools.Result {
		close(started)
		<-gate
		return tools.TextResult("held")
	})
	r.send("m1", "go", false)
	<-started
	r.send("m2", "turn left", true)
	close(gate)
	st := r.idle(1)
	if st.Turns != 1 {
		t.Errorf("%d turns, want 1", st.Turns)
	}
	last := r.requests[len(r.requests)-1].Messages
	if got := last[len(last)-1].Text(); got != "turn left" {
		t.Errorf("the second step ends with %q", got)
	}
}

func TestCancel(t *testing.T) {
	t.Run("while streaming keeps the text", func(t *testing.T) {
		said := make(chan struct{})
		r := newRig(t, script.Sequence(script.Turn{script.Text("half a "), script.Text("sentence"), script.Do(func() { close(said) }), script.Stall()}, script.Turn{script.Text("ok")}))
		r.send("m1", "go", false)
		<-said
		r.until("the text is live", func(session.State) bool {
			v := r.log.Live().View()
			return len(v.Blocks) == 1 && v.Blocks[0].Len == len("half a sentence")
		})
		r.must(r.agent.Cancel(context.Background(), false))
		r.idle(1)
		end := decode[session.TurnEnd](r)[0].Reason
		if end.Kind != session.EndAborted || end.By != agent.ByUser {
			t.Errorf("end: %+v", end)
		}
		m := decode[session.AssistantMessage](r)
		if len(m) != 1 || !m[0].Interrupted || m[0].Message.Text() != "half a sentence" {
			t.Errorf("kept: %+v", m)
		}
		if n := len(r.log.Live().View().Blocks); n != 0 {
			t.Errorf("%d live blocks are left", n)
		}
		r.send("m2", "next", false)
		r.idle(2)
		last := r.requests[len(r.requests)-1].Messages
		if len(last) != 3 || last[1].Text() != "half a sentence" {
			t.Errorf("the next request doesn't hold what was said: %+v", last)
		}
	})
	t.Run("while a tool runs tells the tool", func(t *testing.T) {
		r := newRig(t, script.Sequence(script.Turn{script.Call("c1", "wait", "{}"), script.Call("c2", "wait", "{}")}))
		started := make(chan struct{})
		r.tool("wait", false, func(ctx context.Context, _ tools.Call) tools.Result {
			close(started)
			<-ctx.Done()
			return tools.ErrorResult("wait", tools.CodeCancelled, "told")
		})
		r.send("m1", "go", false)
		<-started
		r.must(r.agent.Cancel(context.Background(), false))
		r.idle(1)
		res := decode[session.ToolResult](r)
		if len(res) != 2 || model.JoinText(res[0].Message.Content[0].Content) != "told" || !strings.Contains(model.JoinText(res[1].Message.Content[0].Content), "Not run") {
			t.Errorf("results: %+v", res)
		}
		if calls := decode[session.ToolCall](r); len(calls) != 1 {
			t.Errorf("%d calls are logged as started, want 1", len(calls))
		}
	})
	t.Run("before the turn removes the message", func(t *testing.T) {
		r := newRig(t, script.Sequence())
		r.agent.Park()
		r.send("m1", "go", false)
		r.must(r.agent.Cancel(context.Background(), false))
		st := r.log.State()
		if st.Queued() != 0 || st.Turns != 0 || len(r.requests) != 0 {
			t.Errorf("queue %d, turns %d, requests %d", st.Queued(), st.Turns, len(r.requests))
		}
		last := decode[session.InboxSpliced](r)
		if got := last[len(last)-1].Outcome; got != "cancelled" {
			t.Errorf("outcome %q", got)
		}
	})
	t.Run("keepQueue runs what waits", func(t *testing.T) {
		stalled := make(chan struct{})
		r := newRig(t, script.Sequence(script.Turn{script.Do(func() { close(stalled) }), script.Stall()}, script.Turn{script.Text("2")}))
		r.send("m1", "one", false)
		<-stalled
		r.send("m2", "two", false)
		r.must(r.agent.Cancel(context.Background(), true))
		r.idle(2)
		ends := decode[session.TurnEnd](r)
		if ends[0].Reason.Kind != session.EndAborted || ends[1].Reason.Kind != session.EndCompleted {
			t.Errorf("ends: %+v", ends)
		}
	})
}

func TestRetries(t *testing.T) {
	server := func() script.Turn {
		return script.Turn{script.Fail(&model.Error{Code: model.CodeServer, Status: 500, Message: "down"})}
	}
	t.Run("L38 the sixth attempt succeeds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, script.Sequence(server(), server(), server(), server(), server(), script.Turn{script.Text("up")}))
			r.send("m1", "go", false)
			r.idle(1)
			if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndCompleted {
				t.Errorf("end: %+v", end)
			}
			retries := decode[session.Retry](r)
			if len(retries) != 5 || len(decode[session.RetryStarted](r)) != 5 || retries[4].Retry != 5 || retries[0].DelayMs < 450 || retries[0].DelayMs > 550 {
				t.Errorf("retries: %+v", retries)
			}
			sent := decode[session.RequestSent](r)
			if len(sent) != 6 || sent[5].Attempt != 6 || sent[5].BodySHA256 != sent[0].BodySHA256 {
				t.Errorf("sent: %+v", sent)
			}
		})
	})
	t.Run("L39 six failures end the turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, script.Sequence(server(), server(), server(), server(), server(), server()))
			r.send("m1", "go", false)
			r.idle(1)
			if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndError || end.Code != "SERVER" || end.Status != 500 {
				t.Errorf("end: %+v", end)
			}
		})
	})
	t.Run("L37 a long Retry-After fails now", func(t *testing.T) {
		r := newRig(t, script.Sequence(script.Turn{script.Fail(&model.Error{Code: model.CodeRateLimit, Status: 429, RetryAfter: time.Hour})}))
		r.send("m1", "go", false)
		r.idle(1)
		if end := decode[session.TurnEnd](r)[0].Reason; end.Code != "RATE_LIMIT" || !strings.Contains(end.Message, "1h0m0s") {
			t.Errorf("end: %+v", end)
		}
	})
	t.Run("L45 a cancel ends the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, script.Sequence(server()))
			r.send("m1", "go", false)
			r.until("a retry waits", func(session.State) bool { return len(decode[session.Retry](r)) == 1 })
			before := time.Now()
			r.must(r.agent.Cancel(context.Background(), false))
			r.idle(1)
			if d := time.Since(before); d != 0 {
				t.Errorf("it took %v", d)
			}
			if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndAborted {
				t.Errorf("end: %+v", end)
			}
		})
	})
	t.Run("text of a failed attempt is withdrawn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, script.Sequence(script.Turn{script.Text("wrong"), script.Cut()}, script.Turn{script.Text("right")}))
			r.send("m1", "go", false)
			r.until("the retry waits", func(session.State) bool { return len(decode[session.Retry](r)) == 1 })
			if v := r.log.Live().View(); len(v.Blocks) != 0 {
				t.Errorf("live: %+v", v.Blocks)
			}
			r.idle(1)
			m := decode[session.AssistantMessage](r)
			if len(m) != 1 || m[0].Message.Text() != "right" {
				t.Errorf("messages: %+v", m)
			}
		})
	})
}

func TestL53ParallelCallsWithABarrier(t *testing.T) {
	var calls []script.Step
	for i := range 13 {
		name := "par"
		if i == 6 {
			name = "excl"
		}
		calls = append(calls, script.Call(fmt.Sprintf("c%02d", i), name, "{}"))
	}
	r := newRig(t, script.ByHistory(script.Turn(calls), script.Turn{script.Text("done")}))
	var running, most atomic.Int64
	count := func(c tools.Call) tools.Result {
		n := running.Add(1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		defer running.Add(-1)
		return tools.TextResult(c.ID)
	}
	r.tool("par", true, func(_ context.Context, c tools.Call) tools.Result { return count(c) })
	r.tool("excl", false, func(_ context.Context, c tools.Call) tools.Result {
		if n := running.Load(); n != 0 {
			t.Errorf("%d calls run beside the exclusive one", n)
		}
		return count(c)
	})
	r.send("m1", "go", false)
	r.idle(1)
	if m := most.Load(); m > 10 {
		t.Errorf("%d calls ran at once", m)
	}
	var order []string
	for _, p := range decode[session.ToolCall](r) {
		order = append(order, p.CallID)
	}
	if !slices.IsSorted(order) || len(order) != 13 {
		t.Errorf("calls: %v", order)
	}
	if n := len(decode[session.ToolResult](r)); n != 13 {
		t.Errorf("%d results", n)
	}
}

func TestEveryEndHasItsReason(t *testing.T) {
	for _, c := range []struct {
		name   string
		turn   script.Turn
		limits agent.Limits
		kind   string
		code   string
	}{
		{"max tokens", script.Turn{script.Text("cut"), script.Call("c1", "echo", "{}"), script.Stop(model.StopMaxTokens)}, agent.Limits{}, session.EndMaxTokens, "MAX_TOKENS"},
		{"steps", script.Turn{script.Call("c1", "echo", "{}")}, agent.Limits{Steps: 1}, session.EndMaxSteps, "MAX_STEPS"},
		{"context", script.Turn{script.Fail(&model.Error{Code: model.CodeContextWindow, Status: 400})}, agent.Limits{}, session.EndContextFull, "CONTEXT_WINDOW_EXCEEDED"},
		{"key", script.Turn{script.Fail(&model.Error{Code: model.CodeMissingCredential})}, agent.Limits{}, session.EndError, "MISSING_CREDENTIAL"},
		{"panic in a tool", script.Turn{script.Call("c1", "bomb", "{}")}, agent.Limits{Steps: 1}, session.EndMaxSteps, "MAX_STEPS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, script.Sequence(c.turn))
			r.limits = c.limits
			ran := false
			r.tool("echo", false, func(ctx context.Context, call tools.Call) tools.Result { ran = true; return echo(ctx, call) })
			r.tool("bomb", false, func(context.Context, tools.Call) tools.Result { panic("boom") })
			r.send("m1", "go", false)
			r.idle(1)
			end := decode[session.TurnEnd](r)[0].Reason
			if end.Kind != c.kind || end.Code != c.code || end.Message == "" {
				t.Errorf("end: %+v", end)
			}
			if c.kind == session.EndMaxTokens && ran {
				t.Error("a call of a cut answer ran")
			}
			// Whatever happened, every call of the history has a result.
			st := r.log.State()
			if len(st.OpenCalls) != 0 || st.StepOpen {
				t.Errorf("open: %+v, step %v", st.OpenCalls, st.StepOpen)
			}
		})
	}
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, script.Sequence(script.Turn{script.Stall()}))
			r.limits = agent.Limits{Time: 5 * time.Second}
			r.send("m1", "go", false)
			r.idle(1)
			if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndTimeout {
				t.Errorf("end: %+v", end)
			}
		})
	})
	t.Run("shutdown", func(t *testing.T) {
		stalled := make(chan struct{})
		r := newRig(t, script.Sequence(script.Turn{script.Do(func() { close(stalled) }), script.Stall()}))
		r.send("m1", "go", false)
		<-stalled
		r.agent.Stop(agent.ByShutdown)
		r.idle(1)
		if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndAborted || end.By != agent.ByShutdown {
			t.Errorf("end: %+v", end)
		}
	})
}

func TestPromptIsFrozenAndAViolationReported(t *testing.T) {
	r := newRig(t, script.ByHistory(script.Turn{script.Text("1")}, script.Turn{script.Text("2")}))
	r.send("m1", "one", false)
	r.idle(1)
	r.must(r.prompts.AddSection(r.root, prompt.Section{Name: "late", Order: 1, Text: prompt.Fixed("Be loud.")}))
	r.send("m2", "two", false)
	r.idle(2)
	if len(r.violated) == 0 {
		t.Error("nobody heard of the change")
	}
	for i, q := range r.requests {
		if q.System != "Be brief." {
			t.Errorf("request %d was sent with %q", i, q.System)
		}
	}
}

func TestRuntimeContextIsToldWhenItChanges(t *testing.T) {
	r := newRig(t, script.ByHistory(script.Turn{script.Text("1")}, script.Turn{script.Text("2")}, script.Turn{script.Text("3")}))
	mode := "read-only"
	r.must(r.prompts.AddContext(r.root, prompt.Context{Name: "mode", Text: func(context.Context) (string, error) { return "Mode: " + mode, nil }}))
	for i, m := range []string{"read-only", "read-only", "full"} {
		mode = m
		r.send(fmt.Sprint("m", i), "go", false)
		r.idle(i + 1)
	}
	var host []string
	for _, m := range decode[session.UserMessage](r) {
		if m.Source.Kind == model.SourceHost {
			host = append(host, m.Text())
		}
	}
	if got := strings.Join(host, "|"); got != "Mode: read-only|Mode: full" {
		t.Errorf("told: %s", got)
	}
}
