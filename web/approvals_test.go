package web_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/session"
)

// careful asks before bash runs, and can ask its user.
const careful = `version: 1
extends: minimal
name: Careful
rows:
  - {id: approvals, use: approvals, with: {tools: [bash]}}
  - {id: ask, use: tool-ask}
`

var carefulPresets = map[string]string{
	"careful": careful,
	"hasty":   "version: 1\nextends: minimal\nrows:\n  - {id: approvals, use: approvals, with: {tools: [bash], expire: 20ms}}\n",
}

// begin sends a message without waiting for its turn.
func (r *rig) begin(id, text string) {
	r.t.Helper()
	r.want(202, "POST", "/sessions/"+id+"/messages", map[string]any{"content": text}, nil)
}

// feed gives frames until one is right.
func (r *rig) feed(right func(host.Frame) bool) host.Frame {
	r.t.Helper()
	sub := r.host.Feed().Subscribe()
	defer sub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		f, err := sub.Next(ctx)
		r.must(err)
		if right(f) {
			return f
		}
	}
}

// pending waits until the session asks something.
func (r *rig) pending(id string) host.Approval {
	r.t.Helper()
	var out host.Approval
	r.feed(func(f host.Frame) bool {
		for _, a := range f.Approvals {
			if a.Session == id {
				out = a
				return true
			}
		}
		return false
	})
	return out
}

// idle waits until the session's turn is over and gives the last tool result.
func (r *rig) idle(id string) string {
	r.t.Helper()
	h, err := r.host.Session(context.Background(), id)
	r.must(err)
	defer h.Release()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := h.WaitIdle(ctx)
	r.must(err)
	text := ""
	for _, e := range st.History {
		if e.Message.Source.CallID != "" {
			raw, err := json.Marshal(e.Message.Content)
			r.must(err)
			text = string(raw)
		}
	}
	return text
}

func decision(a host.Approval, word, scope string) map[string]any {
	out := map[string]any{"decision": word, "argsHash": a.ArgsHash}
	if scope != "" {
		out["scope"] = scope
	}
	return out
}

func TestApprovals(t *testing.T) {
	r := newRig(t, options{presets: carefulPresets})
	r.create(map[string]any{"id": "one", "preset": "careful"})
	r.create(map[string]any{"id": "other", "preset": "careful"})
	r.begin("one", "run: echo first > file; cat file")
	a := r.pending("one")
	if a.Tool != "bash" || a.Kind != "approval" || !strings.Contains(a.Arguments, "echo first") || a.ArgsHash != approval.HashArguments(a.Arguments) || a.Cwd != r.ws ||
		!strings.Contains(a.Reason, "bash") || !strings.Contains(string(a.Detail), "redirects") {
		t.Errorf("%+v", a)
	}

	// Every list says so, also to one that comes later.
	var list struct{ Approvals []host.Approval }
	r.want(200, "GET", "/approvals?status=pending", nil, &list)
	if len(list.Approvals) != 1 || list.Approvals[0].ID != a.ID || list.Approvals[0].Session != "one" {
		t.Errorf("%+v", list)
	}
	r.want(200, "GET", "/approvals?session=one", nil, &list)
	if len(list.Approvals) != 1 {
		t.Errorf("%+v", list)
	}
	r.want(200, "GET", "/approvals?session=other", nil, &list)
	if len(list.Approvals) != 0 {
		t.Errorf("%+v", list)
	}
	var questions struct{ Questions []host.Approval }
	r.want(200, "GET", "/questions", nil, &questions)
	if len(questions.Questions) != 0 {
		t.Errorf("%+v", questions)
	}
	r.refused(404, "session-not-found", "GET", "/approvals?session=nobody", nil)
	r.refused(422, "validation", "GET", "/approvals?status=settled", nil)
	var info host.Info
	r.want(200, "GET", "/sessions/one", nil, &info)
	if info.PendingApprovals != 1 || info.Status != "running" {
		t.Errorf("%+v", info)
	}
	first := r.feed(func(host.Frame) bool { return true })
	if len(first.Approvals) != 1 || len(first.Sessions) != 2 {
		t.Errorf("the first frame: %+v", first)
	}

	at := "/approvals/" + a.ID + "/decision"
	for _, id := range []string{"x", "x~one", "x~nobody", "~one", a.ID + "x", "x~..", strings.Repeat("y", 300)} {
		r.refused(404, "approval-not-found", "POST", "/approvals/"+id+"/decision", decision(a, "allow", ""))
	}
	for _, body := range []map[string]any{{}, {"decision": "allow"}, {"decision": "maybe", "argsHash": a.ArgsHash}, {"decision": "allow", "argsHash": a.ArgsHash, "scope": "ever"},
		{"decision": "allow", "argsHash": a.ArgsHash, "by": "me"}} {
		r.refused(422, "validation", "POST", at, body)
	}
	r.refused(404, "approval-not-found", "POST", "/questions/"+a.ID+"/answer", map[string]any{"answer": "yes", "argsHash": a.ArgsHash})
	changed := decision(a, "allow", "")
	changed["argsHash"] = approval.HashArguments(`{"command":"true"}`)
	r.refused(409, "approval-changed", "POST", at, changed)
	r.refused(422, "validation", "POST", at, decision(a, "allow", "session")) // it redirects

	// Two tabs watch; one decides, the other is told.
	r.want(200, "POST", at, decision(a, "allow", "once"), nil)
	var p struct{ Outcome string }
	r.refused(409, "approval-settled", "POST", at, decision(a, "deny", "")).into(t, &p)
	if p.Outcome != "allowed" {
		t.Errorf("outcome %q", p.Outcome)
	}
	if got := r.idle("one"); !strings.Contains(got, "first") {
		t.Errorf("result %s", got)
	}
	if f := r.feed(func(host.Frame) bool { return true }); len(f.Approvals) != 0 {
		t.Errorf("the first frame afterwards: %+v", f.Approvals)
	}
	r.refused(409, "approval-settled", "POST", at, decision(a, "allow", ""))

	// Denied with a reason: the file isn't written, the model reads why.
	r.begin("one", "run: rm file")
	a = r.pending("one")
	denial := decision(a, "deny", "")
	denial["reason"] = "Keep the file."
	r.want(200, "POST", "/approvals/"+a.ID+"/decision", denial, nil)
	if got := r.idle("one"); !strings.Contains(got, "denied this call") || !strings.Contains(got, "Keep the file.") {
		t.Errorf("result %s", got)
	}
	r.begin("one", "run: cat file")
	a = r.pending("one")
	r.want(200, "POST", "/approvals/"+a.ID+"/decision", decision(a, "allow", ""), nil)
	if got := r.idle("one"); !strings.Contains(got, "first") {
		t.Errorf("result %s", got)
	}
}

// TestApprovalsInTheStream watches with two viewers: one is there before anything is asked, one comes while it waits. Each frame fits the document.
func TestApprovalsInTheStream(t *testing.T) {
	r := newRig(t, options{presets: carefulPresets})
	r.create(map[string]any{"id": "one", "preset": "careful"})
	waits := func(v *viewer) func(frame) bool {
		return func(f frame) bool {
			var feed host.Frame
			r.must(json.Unmarshal(v.raw, &feed))
			return f.Type == "feed" && len(feed.Approvals) == 1 && feed.Approvals[0].Session == "one" && feed.Sessions[0].PendingApprovals == 1
		}
	}
	over := func(v *viewer) func(frame) bool {
		return func(f frame) bool {
			var feed host.Frame
			r.must(json.Unmarshal(v.raw, &feed))
			return f.Type == "feed" && len(feed.Approvals) == 0 && len(feed.Sessions) == 1 && feed.Sessions[0].PendingApprovals == 0
		}
	}
	early := r.view()
	early.send(`{"type":"watch"}`)
	early.until("the first frame", isType("feed"))
	r.begin("one", "run: echo hi > file")
	early.until("what waits", waits(early))
	late := r.view()
	late.send(`{"type":"watch"}`)
	late.until("what waits, in the first frame", waits(late))
	late.subscribe("one", -1)
	late.until("the event", isEvent("approval/asked"))
	a := r.pending("one")
	r.want(200, "POST", "/approvals/"+a.ID+"/decision", decision(a, "allow", ""), nil)
	late.until("the decision", isEvent("approval/decided"))
	early.until("its end", over(early))
	r.idle("one")
}

func TestApprovalExpires(t *testing.T) {
	r := newRig(t, options{presets: carefulPresets})
	r.create(map[string]any{"id": "one", "preset": "hasty"})
	if sent := r.say("one", "run: echo no"); sent.Status != "idle" {
		t.Errorf("%+v", sent)
	}
	var asked session.ApprovalAsked
	for _, e := range r.log("one") {
		if e.Type == asked.EventType() {
			r.must(json.Unmarshal(e.Data, &asked))
		}
	}
	if got := r.idle("one"); !strings.Contains(got, "nobody answered within 20ms") {
		t.Errorf("result %s", got)
	}
	var p struct{ Outcome string }
	r.refused(409, "approval-settled", "POST", "/approvals/"+asked.ID+"/decision", decision(host.Approval{ApprovalAsked: asked}, "allow", "")).into(t, &p)
	if p.Outcome != "expired" {
		t.Errorf("outcome %q", p.Outcome)
	}
}

func TestGrants(t *testing.T) {
	r := newRig(t, options{presets: carefulPresets})
	r.create(map[string]any{"id": "one", "preset": "careful"})
	r.begin("one", "run: echo again")
	a := r.pending("one")
	r.want(200, "POST", "/approvals/"+a.ID+"/decision", decision(a, "allow", "session"), nil)
	r.idle("one")
	if sent := r.say("one", "run: echo again"); sent.Status != "idle" {
		t.Errorf("%+v", sent)
	}
	var leave host.Leave
	r.want(200, "GET", "/sessions/one/grants", nil, &leave)
	if leave.Policy != "ask" || len(leave.Grants) != 1 || leave.Grants[0].ID != a.ID || strings.Join(leave.Grants[0].Covers[0], " ") != "echo again" {
		t.Errorf("%+v", leave)
	}
	for _, command := range []string{"echo again && rm -rf x", "echo again; echo more", "echo again | bash", "env A=1 echo again", "echo $X"} {
		r.begin("one", "run: "+command)
		b := r.pending("one")
		r.want(200, "POST", "/approvals/"+b.ID+"/decision", decision(b, "deny", ""), nil)
		r.idle("one")
	}
	// A fork has none of it.
	var fork host.Info
	r.want(201, "POST", "/sessions/one/fork", map[string]any{}, &fork)
	r.want(200, "GET", "/sessions/"+fork.ID+"/grants", nil, &leave)
	if leave.Policy != "ask" || len(leave.Grants) != 0 {
		t.Errorf("the fork: %+v", leave)
	}
	r.want(204, "DELETE", "/sessions/one/grants/"+a.ID, nil, nil)
	r.refused(404, "grant-not-found", "DELETE", "/sessions/one/grants/"+a.ID, nil)
	r.refused(404, "session-not-found", "DELETE", "/sessions/nobody/grants/"+a.ID, nil)
	r.refused(404, "session-not-found", "GET", "/sessions/nobody/grants", nil)
	r.begin("one", "run: echo again")
	a = r.pending("one")
	r.want(200, "POST", "/approvals/"+a.ID+"/decision", decision(a, "deny", ""), nil)
	r.idle("one")
}

func TestApprovalPolicy(t *testing.T) {
	r := newRig(t, options{presets: carefulPresets})
	r.create(map[string]any{"id": "bare"})
	r.refused(409, "not-confined", "PATCH", "/sessions/bare", map[string]any{"approvalPolicy": "ask"})
	r.refused(409, "not-confined", "PATCH", "/sessions/bare", map[string]any{"approvalPolicy": "full", "acknowledgeFullAccess": true})
	var leave host.Leave
	r.want(200, "GET", "/sessions/bare/grants", nil, &leave)
	if leave.Policy != "" || len(leave.Grants) != 0 {
		t.Errorf("%+v", leave)
	}
	if sent := r.say("bare", "run: echo free"); sent.Status != "idle" || !strings.Contains(r.idle("bare"), "free") {
		t.Errorf("%+v", sent)
	}

	r.create(map[string]any{"id": "one", "preset": "careful"})
	r.refused(422, "validation", "PATCH", "/sessions/one", map[string]any{"approvalPolicy": "full"})
	r.refused(422, "validation", "PATCH", "/sessions/one", map[string]any{"approvalPolicy": "some"})
	for _, c := range []struct{ policy, says string }{{"never", "denies such calls"}, {"full", "free"}} {
		r.want(200, "PATCH", "/sessions/one", map[string]any{"approvalPolicy": c.policy, "acknowledgeFullAccess": c.policy == "full"}, nil)
		r.want(200, "GET", "/sessions/one/grants", nil, &leave)
		if leave.Policy != c.policy {
			t.Errorf("%+v", leave)
		}
		r.say("one", "run: echo free")
		if got := r.idle("one"); !strings.Contains(got, c.says) {
			t.Errorf("%s: %s", c.policy, got)
		}
	}
	if types := eventTypes(r.log("one")); strings.Contains(types, "approval/asked") {
		t.Errorf("something was asked:\n%s", types)
	}
	r.want(200, "PATCH", "/sessions/one", map[string]any{"approvalPolicy": "ask"}, nil)
	r.begin("one", "run: echo free")
	a := r.pending("one")
	r.want(200, "POST", "/approvals/"+a.ID+"/decision", decision(a, "allow", ""), nil)
	r.idle("one")
}

// TestWhatWaitsIsTold looks at a session that waits for its owner in the answer of a wait that is over first, and in the metrics. How long the
// owner took isn't counted as the tool's time.
func TestWhatWaitsIsTold(t *testing.T) {
	r := newRig(t, options{presets: carefulPresets})
	r.create(map[string]any{"id": "one", "preset": "careful"})
	if n := r.scrape()["dsh_approvals_pending"]; n != 0 {
		t.Errorf("%v are pending at first", n)
	}
	r.begin("one", "run: echo now")
	a := r.pending("one")
	var sent map[string]any
	r.want(200, "POST", "/sessions/one/messages?wait=idle&timeout=1ms", map[string]any{"content": "say: hi"}, &sent)
	if sent["status"] != "running" || sent["pendingApprovals"] != 1.0 {
		t.Errorf("%v", sent)
	}
	if n := r.scrape()["dsh_approvals_pending"]; n != 1 {
		t.Errorf("%v are pending", n)
	}
	// A policy is for what is asked from now on.
	r.want(200, "PATCH", "/sessions/one", map[string]any{"approvalPolicy": "full", "acknowledgeFullAccess": true}, nil)
	if n := r.scrape()["dsh_approvals_pending"]; n != 1 {
		t.Errorf("%v are pending under another policy", n)
	}
	r.want(200, "POST", "/approvals/"+a.ID+"/decision", decision(a, "allow", ""), nil)
	r.idle("one")

	var decided, result int64
	for _, e := range r.log("one") {
		switch e.Type {
		case "approval/decided":
			decided = e.Time
		case "tool/result":
			result = e.Time
		}
	}
	got := r.scrape()
	if n := got["dsh_approvals_pending"]; n != 0 {
		t.Errorf("%v are pending at last", n)
	}
	if took, want := got[`dsh_tool_call_seconds_sum{tool="bash"}`], float64(result-decided)/1000; math.Abs(took-want) > 1e-6 {
		t.Errorf("the call took %v, want %v", took, want)
	}
}

func TestQuestions(t *testing.T) {
	r := newRig(t, options{presets: carefulPresets})
	r.create(map[string]any{"id": "one", "preset": "careful"})
	r.begin("one", "ask: Which one? | this | that")
	q := r.pending("one")
	if q.Kind != "question" || string(q.Detail) != `{"question":"Which one?","options":["this","that"]}` {
		t.Errorf("%+v", q)
	}
	var list struct{ Questions []host.Approval }
	r.want(200, "GET", "/questions?session=one", nil, &list)
	if len(list.Questions) != 1 || list.Questions[0].ID != q.ID {
		t.Errorf("%+v", list)
	}
	at := "/questions/" + q.ID + "/answer"
	for _, body := range []map[string]any{{"argsHash": q.ArgsHash}, {"argsHash": q.ArgsHash, "answer": "x", "decline": true}, {"argsHash": q.ArgsHash, "answer": ""}, {"answer": "this"}} {
		r.refused(422, "validation", "POST", at, body)
	}
	r.refused(409, "approval-changed", "POST", at, map[string]any{"answer": "this", "argsHash": "0"})
	r.refused(404, "approval-not-found", "POST", "/approvals/"+q.ID+"/decision", decision(q, "allow", ""))
	r.want(200, "POST", at, map[string]any{"answer": "neither", "argsHash": q.ArgsHash}, nil)
	r.refused(409, "approval-settled", "POST", at, map[string]any{"answer": "this", "argsHash": q.ArgsHash})
	if got := r.idle("one"); !strings.Contains(got, "neither") {
		t.Errorf("result %s", got)
	}
	r.begin("one", "ask: And now?")
	q = r.pending("one")
	r.want(200, "POST", "/questions/"+q.ID+"/answer", map[string]any{"decline": true, "reason": "Guess.", "argsHash": q.ArgsHash}, nil)
	if got := r.idle("one"); !strings.Contains(got, "doesn't want to answer: Guess.") {
		t.Errorf("result %s", got)
	}
}
