package web_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web"
)

// scrape reads the metrics: value by name with labels.
func (r *rig) scrape() map[string]float64 {
	r.t.Helper()
	a := r.send("GET", "/metrics", nil, nil)
	if a.status != 200 {
		r.t.Fatalf("%d %s", a.status, a.body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(a.body)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if value == "" {
			name, value, _ = strings.Cut(name, " ")
		} else {
			name += "}"
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		out[name] = v
	}
	return out
}

// named keeps the metrics whose names begin with prefix.
func named(all map[string]float64, prefix string) map[string]float64 {
	out := map[string]float64{}
	for k, v := range all {
		if strings.HasPrefix(k, prefix) {
			out[k] = v
		}
	}
	return out
}

func (r *rig) same(what string, got, want map[string]float64) {
	r.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) { // maps print in the order of their keys
		r.t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t, options{})
	r.want(200, "GET", "/host", nil, nil)
	a := r.send("GET", "/metrics", nil, nil)
	for _, want := range []string{
		`dsh_http_requests_total{method="GET",route="/api/v1/host",status="200"} 1`, "dsh_sessions_live 0", `dsh_sessions{status="running"} 0`,
		`dsh_stream_clients{kind="stream"} 0`, "process_resident_memory_bytes", "dsh_processes 0", "dsh_database_bytes ", "dsh_commit_queue_length 0",
	} {
		if !bytes.Contains(a.body, []byte(want)) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// TestMetricsAreDocumented holds the guide's table and what is counted together.
func TestMetricsAreDocumented(t *testing.T) {
	r := newRig(t, options{})
	guide, err := os.ReadFile("../docs/guide/metrics.md")
	r.must(err)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(dsh_[a-z_]+)`").FindAllSubmatch(guide, -1) {
		documented[string(m[1])] = true
	}
	for _, name := range web.MetricNames(r.server) {
		if !documented[name] {
			t.Errorf("the guide lacks %s", name)
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("only the guide knows %v", documented)
	}
}

// TestMetricsAgreeWithTheLog drives turns and counts again what the log says.
func TestMetricsAgreeWithTheLog(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(
		script.Turn{
			script.CallJSON("c1", "bash", map[string]string{"command": "sleep 60 & echo eins"}),
			script.CallJSON("c2", "bash", map[string]string{"command": "echo zwei"}),
			script.Call("c3", "no_such_tool", `{}`),
			script.CallJSON("c4", "str_replace_editor", map[string]string{"command": "view", "path": "/no/such/file"}),
			script.Usage(model.Usage{InputTokens: 100, OutputTokens: 20, CacheReadTokens: 7}),
		},
		script.Turn{script.Reasoning("hm"), script.Text("done"), script.Usage(model.Usage{InputTokens: 11, OutputTokens: 3, ReasoningTokens: 2})},
		script.Turn{script.Fail(&model.Error{Code: model.CodeInvalidRequest, Message: "no"})},
	)})
	r.create(map[string]any{"id": "one"})
	r.say("one", "hi")
	r.say("one", "fail")

	events := r.log("one")
	turns, calls, tokens := map[string]float64{}, map[string]float64{}, map[string]float64{}
	names, answers := map[string]string{}, 0.0
	for _, e := range events {
		p, _, err := session.DecodePayload(e)
		r.must(err)
		switch p := p.(type) {
		case session.TurnEnd:
			turns[fmt.Sprintf("dsh_turns_total{end=%q}", p.Reason.Kind)]++
		case session.ToolCall:
			names[p.CallID] = p.Name
		case session.ToolResult:
			outcome, tool := "ok", names[p.Message.Source.CallID]
			if p.Message.Content[0].IsError {
				outcome = "error"
			}
			if tool == "no_such_tool" {
				tool = "unknown"
			}
			calls[fmt.Sprintf("dsh_tool_calls_total{outcome=%q,tool=%q}", outcome, tool)]++
		case session.AssistantMessage:
			if p.Interrupted {
				continue
			}
			answers++
			for kind, n := range map[string]int64{"input": p.Usage.InputTokens, "output": p.Usage.OutputTokens, "cache-read": p.Usage.CacheReadTokens, "reasoning": p.Usage.ReasoningTokens} {
				if n > 0 {
					tokens[fmt.Sprintf("dsh_model_tokens_total{kind=%q,provider=%q}", kind, p.Message.Source.Provider)] += float64(n)
				}
			}
		}
	}
	if turns[`dsh_turns_total{end="completed"}`] != 1 || turns[`dsh_turns_total{end="error"}`] != 1 || len(calls) != 3 || answers < 2 {
		t.Fatalf("the script went otherwise: %v %v %v", turns, calls, answers)
	}
	got := r.scrape()
	r.same("turns", named(got, "dsh_turns_total"), turns)
	r.same("calls", named(got, "dsh_tool_calls_total"), calls)
	r.same("tokens", named(got, "dsh_model_tokens_total"), tokens)
	took, first := named(got, "dsh_model_seconds_count"), named(got, "dsh_model_first_token_seconds_count")
	if len(took) != 1 || len(first) != 1 || sum(took) != answers || sum(first) != answers {
		t.Errorf("times of answers: %v %v, want %v", took, first, answers)
	}
	if n := sum(named(got, "dsh_tool_call_seconds_count")); n != sum(calls) {
		t.Errorf("times of %v calls, want %v", n, sum(calls))
	}
	if n := got["dsh_events_committed_total"]; n != float64(len(events)) {
		t.Errorf("%v events, want %d", n, len(events))
	}
	if n, m := got["dsh_commit_seconds_count"], got["dsh_commit_queue_seconds_count"]; n < 5 || n != m || got["dsh_commit_failures_total"] != 0 {
		t.Errorf("%v commits, %v waits", n, m)
	}
	if n := got["dsh_processes"]; n < 2 { // the shell and what it left behind
		t.Errorf("%v processes", n)
	}
	if n := got["dsh_database_bytes"]; n < 10_000 {
		t.Errorf("a database of %v bytes", n)
	}

	t.Run("a copy isn't work", func(t *testing.T) {
		r.want(201, "POST", "/sessions/one/fork", map[string]any{}, nil)
		again := r.scrape()
		r.same("turns", named(again, "dsh_turns_total"), turns)
		r.same("calls", named(again, "dsh_tool_calls_total"), calls)
		r.same("tokens", named(again, "dsh_model_tokens_total"), tokens)
		if again["dsh_events_committed_total"] <= got["dsh_events_committed_total"] {
			t.Error("the copied events are committed too")
		}
	})
	t.Run("streams", func(t *testing.T) {
		v := r.view()
		v.subscribe("one", -1)
		v.until("caughtUp", isType("caughtUp"))
		if n := r.scrape()[`dsh_stream_clients{kind="stream"}`]; n != 1 {
			t.Errorf("%v clients", n)
		}
	})
}

func sum(all map[string]float64) (n float64) {
	for _, v := range all {
		n += v
	}
	return n
}

// TestMetricsAreBounded has a model invent names: they share one series.
func TestMetricsAreBounded(t *testing.T) {
	const invented = 300
	turn := make(script.Turn, invented)
	for i := range turn {
		turn[i] = script.Call(fmt.Sprint("c", i), fmt.Sprint("tool_", i), `{}`)
	}
	r := newRig(t, options{source: script.ByHistory(turn, script.Turn{script.Text("done")})})
	r.create(map[string]any{"id": "one"})
	before := len(r.scrape())
	r.say("one", "hi")
	got := r.scrape()
	r.same("calls", named(got, "dsh_tool_calls_total"), map[string]float64{`dsh_tool_calls_total{outcome="error",tool="unknown"}`: invented})
	if grown := len(got) - before; grown > 120 {
		t.Errorf("%d series more", grown)
	}
	labels := map[string]bool{}
	label := web.Names(64)
	for i := range 1000 {
		labels[label(fmt.Sprint("name", i))] = true
	}
	if len(labels) != 65 || !labels["other"] || label("name3") != "name3" || label("") != "other" {
		t.Errorf("%d labels", len(labels))
	}
}

// TestInventedMethodsShareASeries has a client without a token invent methods.
func TestInventedMethodsShareASeries(t *testing.T) {
	r := newRig(t, options{})
	for i := range 50 {
		r.send(fmt.Sprint("METHOD", i), "/", nil, nil)
		r.send(fmt.Sprint("METHOD", i), "/api/v1/host", nil, nil)
	}
	r.send("OPTIONS", "/", nil, nil)
	r.same("requests", named(r.scrape(), `dsh_http_requests_total{`), map[string]float64{`dsh_http_requests_total{method="other",route="-",status="405"}`: 101})
}

// TestSlowScrapers leaves answers unread: others are answered and turns go on.
func TestSlowScrapers(t *testing.T) {
	r := newRig(t, options{})
	r.create(map[string]any{"id": "one"})
	for range 8 {
		c, err := net.Dial("tcp", r.addr)
		r.must(err)
		defer func() { _ = c.Close() }()
		r.must(c.(*net.TCPConn).SetReadBuffer(4096))
		for range 400 { // more than the kernel keeps for one connection
			if _, err := fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", r.addr); err != nil {
				break
			}
		}
		line, err := bufio.NewReaderSize(io.LimitReader(c, 16), 16).ReadString(' ')
		if err != nil || line != "HTTP/1.1 " {
			t.Fatalf("%q %v", line, err)
		}
	}
	r.say("one", "hi")
	if got := r.scrape(); got[`dsh_turns_total{end="completed"}`] != 1 {
		t.Errorf("turns %v", named(got, "dsh_turns_total"))
	}
}
