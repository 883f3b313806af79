package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/anthropic"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers every request with exactly the pieces given, each flushed alone.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	heads  []*http.Request
	left   chan struct{}
}

type answer struct {
	status int
	header map[string]string
	pieces []string
	then   string // "", "reset", "hold", "pings"
}

func serve(t *testing.T, a answer) *server {
	t.Helper()
	s := &server{left: make(chan struct{}, 16)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies, s.heads = append(s.bodies, string(body)), append(s.heads, r)
		s.mu.Unlock()
		control := http.NewResponseController(w)
		if a.then == "reset" && len(a.pieces) == 0 {
			if conn, _, err := control.Hijack(); err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for k, v := range a.header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(max(a.status, 200))
		for _, p := range a.pieces {
			_, _ = io.WriteString(w, p)
			_ = control.Flush()
		}
		switch a.then {
		case "reset":
			panic(http.ErrAbortHandler)
		case "hold":
			<-r.Context().Done()
			s.left <- struct{}{}
		case "pings":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "event: ping\ndata: {\"type\":\"ping\"}\n\n"); err != nil || control.Flush() != nil {
					return
				}
				select {
				case <-r.Context().Done():
				case <-time.After(2 * time.Millisecond):
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// sse writes payloads as the wire does, each under the name of its type.
func sse(payloads ...string) []string {
	var out []string
	for _, p := range payloads {
		var v struct{ Type string }
		_ = json.Unmarshal([]byte(p), &v)
		out = append(out, fmt.Sprintf("event: %s\ndata: %s\n\n", v.Type, p))
	}
	return out
}

func ok(payloads ...string) answer { return answer{pieces: sse(payloads...)} }

const (
	start     = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":7,"cache_read_input_tokens":64,"output_tokens":1}}}`
	textStart = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	ping      = `{"type":"ping"}`
	end       = `{"type":"message_stop"}`
)

func text(i int, s string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%q}}`, i, s)
}

func stopped(i int) string { return fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i) }

func finish(reason string) string {
	return fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":9}}`, reason)
}

func toolStart(i int, id, name string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%q,"name":%q,"input":{}}}`, i, id, name)
}

func input(i int, s string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}`, i, s)
}

func adapter(s *server, c wire.Clocks) *anthropic.Adapter {
	return anthropic.New(anthropic.Config{
		Provider: "test", Model: "m", BaseURL: func() string { return s.URL }, Transport: s.Client().Transport, Clocks: c,
		Key: func(context.Context) (string, error) { return "sk-ant-0123456789", nil },
	})
}

func user(s string) model.Message {
	return model.Message{Role: model.RoleUser, Content: []model.Block{model.Text(s)}, Source: model.Source{Kind: model.SourceUser}}
}

func assistant(blocks ...model.Block) model.Message {
	return model.Message{Role: model.RoleAssistant, Content: blocks, Source: model.Source{Kind: model.SourceModel}}
}

func call(id, name, args string) model.Block {
	return model.Block{Type: model.BlockToolCall, ID: id, Name: name, Arguments: args}
}

func toolResult(id, s string, isError bool) model.Message {
	b := model.Block{Type: model.BlockToolResult, ToolCallID: id, IsError: isError}
	if s != "" {
		b.Content = []model.Block{model.Text(s)}
	}
	return model.Message{Role: model.RoleUser, Content: []model.Block{b}, Source: model.Source{Kind: model.SourceTool, CallID: id}}
}

func ask(t *testing.T, a *anthropic.Adapter, messages ...model.Message) (*model.Response, []model.Delta, error) {
	t.Helper()
	if len(messages) == 0 {
		messages = []model.Message{user("hi")}
	}
	p, err := a.Prepare(model.Request{System: "sys", Messages: messages})
	if err != nil {
		t.Fatal(err)
	}
	var deltas []model.Delta
	resp, err := a.Stream(t.Context(), p, func(d model.Delta) { deltas = append(deltas, d) })
	return resp, deltas, err
}

func code(t *testing.T, err error) model.Code {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T %v, want a *model.Error", err, err)
	}
	return e.Code
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

type outcome struct {
	content    []model.Block
	stop       model.StopReason
	usage      *model.Usage
	code       model.Code
	incomplete []string
}

func TestStreams(t *testing.T) {
	hello := []model.Block{model.Text("hello")}
	begun := &model.Usage{InputTokens: 7, CacheReadTokens: 64, OutputTokens: 1}
	full := &model.Usage{InputTokens: 7, CacheReadTokens: 64, OutputTokens: 9}
	cases := []struct {
		name   string
		answer answer
		clocks wire.Clocks
		want   outcome
	}{
		{name: "L1 text and usage", answer: ok(start, textStart, ping, text(0, "he"), text(0, "llo"), stopped(0), finish("end_turn"), end),
			want: outcome{content: hello, stop: model.StopEnd, usage: full}},
		{name: "L2 usage is cumulative", answer: ok(start, textStart, text(0, "hello"), finish("end_turn"), `{"type":"message_delta","delta":{},"usage":{"output_tokens":12,"input_tokens":8}}`, end),
			want: outcome{content: hello, stop: model.StopEnd, usage: &model.Usage{InputTokens: 8, CacheReadTokens: 64, OutputTokens: 12}}},
		{name: "L4 thinking with a signature", answer: ok(start, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"si"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"g=="}}`, stopped(0),
			`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}`, stopped(1),
			`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"b"}}`, finish("end_turn"), end),
			want: outcome{content: []model.Block{{Type: model.BlockReasoning, Text: "a", Signature: "sig=="}, {Type: model.BlockReasoning, Signature: "redacted:xyz"}, model.Text("b")}, stop: model.StopEnd, usage: full}},
		{name: "L8 two calls interleaved", answer: ok(start, toolStart(0, "a", "x"), toolStart(1, "b", "y"), input(0, `{"p"`), input(1, `{"q":`), input(0, `:1}`), input(1, `2}`), finish("tool_use"), end),
			want: outcome{content: []model.Block{call("a", "x", `{"p":1}`), call("b", "y", `{"q":2}`)}, stop: model.StopTools, usage: full}},
		{name: "L13 no id, repeated id", answer: ok(start, toolStart(0, "", "x"), toolStart(1, "d", "y"), toolStart(2, "d", "z"), finish("tool_use"), end),
			want: outcome{content: []model.Block{call("call_1_0", "x", `{}`), call("d", "y", `{}`), call("d-2", "z", `{}`)}, stop: model.StopTools, usage: full}},
		{name: "L15 input at the block's start", answer: ok(start, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"x","input":{"p": 1}}}`, finish("tool_use"), end),
			want: outcome{content: []model.Block{call("a", "x", `{"p": 1}`)}, stop: model.StopTools, usage: full}},
		{name: "L18 cut at the length", answer: ok(start, toolStart(0, "a", "x"), input(0, `{"p":`), finish("max_tokens"), end),
			want: outcome{content: []model.Block{call("a", "x", `{"p":`)}, stop: model.StopMaxTokens, usage: full, incomplete: []string{"a"}}},
		{name: "L19 broken arguments", answer: ok(start, toolStart(0, "a", "x"), input(0, `{"p":`), finish("tool_use"), end),
			want: outcome{content: []model.Block{call("a", "x", `{"p":`)}, stop: model.StopTools, usage: full}},
		{name: "L22 end after the stop reason", answer: ok(start, textStart, text(0, "hello"), finish("end_turn")), want: outcome{content: hello, stop: model.StopEnd, usage: full}},
		{name: "L22 broken after the stop reason", answer: answer{pieces: sse(start, textStart, text(0, "hello"), finish("end_turn")), then: "reset"}, want: outcome{content: hello, stop: model.StopEnd, usage: full}},
		{name: "L23 end before", answer: ok(start, textStart, text(0, "hel")), want: outcome{content: []model.Block{model.Text("hel")}, usage: begun, code: model.CodeStreamClosed}},
		{name: "L23 cut inside an event", answer: answer{pieces: append(sse(start, textStart, text(0, "hel")), "event: content_block_delta\ndata: {\"type\":\"con")},
			want: outcome{content: []model.Block{model.Text("hel")}, usage: begun, code: model.CodeStreamClosed}},
		{name: "broken JSON inside", answer: answer{pieces: append(append(sse(start), "data: {\"type\":\"x}\n\n"), sse(textStart, text(0, "x"), end)...)}, want: outcome{usage: begun, code: model.CodeMalformedResponse}},
		{name: "L24 stop reason, then held open", answer: answer{pieces: sse(start, textStart, text(0, "hello"), finish("end_turn")), then: "hold"}, clocks: wire.Clocks{Grace: 30 * time.Millisecond},
			want: outcome{content: hello, stop: model.StopEnd, usage: full}},
		{name: "L24 message_stop, then held open", answer: answer{pieces: sse(start, textStart, text(0, "hello"), finish("end_turn"), end), then: "hold"},
			want: outcome{content: hello, stop: model.StopEnd, usage: full}},
		{name: "L25 pings only", answer: answer{then: "pings"}, clocks: wire.Clocks{Payload: 50 * time.Millisecond}, want: outcome{code: model.CodeTimeout}},
		{name: "L26 nothing", answer: ok(start, finish("end_turn"), end), want: outcome{usage: full, code: model.CodeEmptyResponse}},
		{name: "L28 refusal", answer: ok(start, textStart, text(0, "a"), finish("refusal"), end), want: outcome{content: []model.Block{model.Text("a")}, usage: full, code: model.CodeContentFilter}},
		{name: "L29 error in the stream", answer: ok(start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), want: outcome{usage: begun, code: model.CodeServer}},
		{name: "L29 rate limit in the stream", answer: ok(`{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`), want: outcome{code: model.CodeRateLimit}},
		{name: "unknown events and blocks", answer: ok(start, `{"type":"news","x":1}`, `{"type":"content_block_start","index":0,"content_block":{"type":"server_thing"}}`, text(0, "no"),
			`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`, text(1, "hello"), finish("end_turn"), end), want: outcome{content: hello, stop: model.StopEnd, usage: full}},
		{name: "L31 CRLF, no space", answer: answer{pieces: []string{"\ufeffevent:content_block_start\r\ndata:" + textStart + "\r\n\r\ndata:" + text(0, "hello") + "\r\n\r\ndata:" + finish("end_turn") + "\r\n\r\n"}},
			want: outcome{content: hello, stop: model.StopEnd, usage: &model.Usage{OutputTokens: 9}}},
		{name: "L34 text/html", answer: answer{header: map[string]string{"Content-Type": "text/html"}, pieces: []string{"<html>"}}, want: outcome{code: model.CodeInvalidRequest}},
		{name: "L35 whole message", answer: answer{header: map[string]string{"Content-Type": "application/json"}, pieces: []string{
			`{"type":"message","content":[{"type":"text","text":"hello"},{"type":"tool_use","id":"a","name":"x","input":{"p":1}}],"stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":9}}`}},
			want: outcome{content: append(hello[:1:1], call("a", "x", `{"p":1}`)), stop: model.StopTools, usage: &model.Usage{InputTokens: 7, OutputTokens: 9}}},
		{name: "L38 529", answer: answer{status: 529, pieces: []string{`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}}, want: outcome{code: model.CodeServer}},
		{name: "L40 401", answer: answer{status: 401, pieces: []string{`{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`}}, want: outcome{code: model.CodeAuth}},
		{name: "L40 quota by wording", answer: answer{status: 400, pieces: []string{`{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}`}}, want: outcome{code: model.CodeQuota}},
		{name: "L41 context window", answer: answer{status: 400, pieces: []string{`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`}}, want: outcome{code: model.CodeContextWindow}},
		{name: "L41 context window at the end", answer: ok(start, textStart, text(0, "a"), finish("model_context_window_exceeded"), end), want: outcome{content: []model.Block{model.Text("a")}, usage: full, code: model.CodeContextWindow}},
		{name: "L43 reset before headers", answer: answer{then: "reset"}, want: outcome{code: model.CodeTransport}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			resp, deltas, err := ask(t, adapter(serve(t, c.answer), c.clocks))
			var got outcome
			if err != nil {
				got.code = code(t, err)
			}
			if resp != nil {
				got.content, got.usage, got.incomplete = resp.Content, resp.Usage, resp.Incomplete
				if err == nil {
					got.stop = resp.Stop
				}
			}
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(outcome{})); d != "" {
				t.Errorf("error %v; difference (-want +got):\n%s", err, d)
			}
			streamed := map[int]string{}
			for _, d := range deltas {
				streamed[d.Block] += d.Text
			}
			for i, b := range got.content {
				if s := b.Text + b.Arguments; streamed[i] != s && streamed[i] != "" {
					t.Errorf("block %d: streamed %q, answer %q", i, streamed[i], s)
				}
			}
		})
	}
}

func TestL44CancelMidText(t *testing.T) {
	s := serve(t, answer{pieces: sse(start, textStart, text(0, "half")), then: "hold"})
	a := adapter(s, wire.Clocks{})
	p, err := a.Prepare(model.Request{Messages: []model.Message{user("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := a.Stream(ctx, p, func(model.Delta) { cancel() })
	if code(t, err) != model.CodeAborted || model.JoinText(resp.Content) != "half" {
		t.Fatalf("%v, %v", resp, err)
	}
	<-s.left
}

func TestGoldenBody(t *testing.T) {
	a := anthropic.New(anthropic.Config{Model: "m", BaseURL: func() string { return "http://h" }})
	p, err := a.Prepare(model.Request{
		System: "sys", ReasoningEffort: "low", Params: map[string]json.RawMessage{"thinking": json.RawMessage(`{"type": "adaptive"}`)},
		Tools: []model.Tool{{Name: "bash", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`)}},
		Messages: []model.Message{
			user("q"),
			assistant(model.Block{Type: model.BlockReasoning, Text: "why", Signature: "s=="}, model.Block{Type: model.BlockReasoning, Signature: "redacted:xyz"},
				model.Block{Type: model.BlockReasoning, Text: "of another wire"}, model.Text("I look."), call("c:1", "bash", `{"a": 1}`), call("c:1", "bash", `{"a":`)),
			toolResult("c:1", "out", false), toolResult("c:1", "", true), user("go on"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, string(p.Body), `{"model":"m","system":"sys","messages":[`+
		`{"role":"user","content":[{"type":"text","text":"q"}]},`+
		`{"role":"assistant","content":[{"type":"thinking","thinking":"why","signature":"s=="},{"type":"redacted_thinking","data":"xyz"},{"type":"text","text":"I look."},`+
		`{"type":"tool_use","id":"c_1","name":"bash","input":{"a":1}},{"type":"tool_use","id":"c_1-2","name":"bash","input":{}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c_1","content":[{"type":"text","text":"out"}]},`+
		`{"type":"tool_result","tool_use_id":"c_1-2","content":[{"type":"text","text":"(no output)"}],"is_error":true}]},`+
		`{"role":"user","content":[{"type":"text","text":"go on"}]}],`+
		`"tools":[{"name":"bash","description":"d","input_schema":{"type":"object"}}],"stream":true,"max_tokens":8192,"output_config":{"effort":"low"},"thinking":{"type":"adaptive"}}`)
	same(t, len(p.Messages), 4)
}

func TestHeadersAndURL(t *testing.T) {
	s := serve(t, ok(start, textStart, text(0, "x"), finish("end_turn"), end))
	if _, _, err := ask(t, adapter(s, wire.Clocks{})); err != nil {
		t.Fatal(err)
	}
	h := s.heads[0]
	same(t, []string{h.URL.Path, h.Header.Get("X-Api-Key"), h.Header.Get("Anthropic-Version"), h.Header.Get("Authorization")}, []string{"/v1/messages", "sk-ant-0123456789", "2023-06-01", ""})
}

func TestRepair(t *testing.T) {
	s := serve(t, answer{status: 400, pieces: []string{`{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid ` + "`signature` in `thinking`" + ` block"}}`}})
	a := adapter(s, wire.Clocks{})
	_, _, err := ask(t, a)
	var e *model.Error
	if !errors.As(err, &e) || !e.ReasoningForm {
		t.Fatal(err)
	}
	p, err := a.Prepare(model.Request{RepairReasoning: true, Messages: []model.Message{user("q"), assistant(model.Block{Type: model.BlockReasoning, Text: "t", Signature: "s"}, model.Text("a"))}})
	if err != nil || strings.Contains(string(p.Body), "thinking") {
		t.Errorf("%s, %v", p.Body, err)
	}
}

// A session that only grows makes requests that only extend.
func TestRequestsOnlyExtend(t *testing.T) {
	texts := rapid.SampledFrom([]string{"", " ", "a", "é\n", `{"x":1}`, `{"x":`})
	ids := rapid.SampledFrom([]string{"", "a", "b:1", "b_1"})
	a := anthropic.New(anthropic.Config{Model: "m", BaseURL: func() string { return "http://h" }})
	rapid.Check(t, func(t *rapid.T) {
		var log []model.Message
		var before *model.Prepared
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			log = append(log, user(texts.Draw(t, "user")))
			p, err := a.Prepare(model.Request{System: "s", Messages: log})
			if err != nil || !json.Valid(p.Body) {
				t.Fatalf("%v: %s", err, p.Body)
			}
			if ok, where := p.Extends(before); !ok {
				t.Fatalf("diverges at %s", where)
			}
			before = p
			m := assistant(model.Text(texts.Draw(t, "text")))
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				m.Content = append(m.Content, call(ids.Draw(t, "id"), "bash", texts.Draw(t, "args")))
			}
			log = append(log, m)
			for _, c := range m.ToolCalls() {
				log = append(log, toolResult(c.ID, texts.Draw(t, "result"), false))
			}
		}
	})
}

// The fast path gives what the full decoder gives: a stream that can be learned and the same stream made unlearnable by a counter end alike.
func TestFastPath(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a", `","text":"`, "\u2028", "\xff", `\`}))
		learned, counted := sse(start), sse(start)
		add := func(s string) {
			learned = append(learned, "data: "+s+"\n\n")
			counted = append(counted, fmt.Sprintf("data: {\"n\":%d,%s\n\n", len(counted), s[1:]))
		}
		add(toolStart(0, "a", "x"))
		add(`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`)
		add(`{"type":"content_block_start","index":2,"content_block":{"type":"thinking","thinking":""}}`)
		for range rapid.IntRange(0, 12).Draw(rt, "pieces") {
			raw, err := json.Marshal(texts.Draw(rt, "text"))
			if err != nil {
				rt.Fatal(err)
			}
			i := rapid.IntRange(0, 2).Draw(rt, "block")
			kind := []string{`"input_json_delta","partial_json"`, `"text_delta","text"`, `"thinking_delta","thinking"`}[i]
			add(fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%s:%s}}`, i, kind, raw))
		}
		add(finish("end_turn"))
		var got [2]*model.Response
		for i, pieces := range [][]string{learned, counted} {
			a := anthropic.New(anthropic.Config{Model: "m", BaseURL: func() string { return "http://h" }, Transport: canned(strings.Join(pieces, ""))})
			resp, _, err := ask(t, a)
			if err != nil {
				rt.Fatal(err)
			}
			got[i] = resp
		}
		if d := cmp.Diff(got[1].Content, got[0].Content); d != "" {
			rt.Fatalf("(-decoder +template)\n%s", d)
		}
	})
}

// A string under the right name in the wrong place isn't taken for the text, and an event that does more isn't cut short.
func TestFastPathIsNotFooled(t *testing.T) {
	var pieces []string
	for _, s := range []string{"a", "b", "c"} {
		pieces = append(pieces,
			fmt.Sprintf(`{"type":"content_block_delta","index":0,"x":{"text":%q},"delta":{"type":"text_delta","text":"1"}}`, s),
			fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"text":%q,"type":"text_delta","text":"2"}}`, s),
			fmt.Sprintf(`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":%q}}`, s))
	}
	all := append([]string{start, textStart, `{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`}, pieces...)
	resp, _, err := ask(t, adapter(serve(t, ok(append(all, finish("end_turn"), end)...)), wire.Clocks{}))
	if err != nil {
		t.Fatal(err)
	}
	same(t, resp.Content, []model.Block{model.Text("121212"), model.Text("abc")})
}

// FuzzEvents: any events give an answer or a typed error, never a panic, and what was streamed is what is kept.
func FuzzEvents(f *testing.F) {
	f.Add(strings.Join(sse(start, textStart, text(0, "he"), finish("end_turn"), end), ""))
	f.Add(strings.Join(sse(toolStart(0, "a", "x"), input(0, "{"), `{"type":"content_block_delta","index":-4,"delta":null}`, `{"type":"error"}`), ""))
	f.Fuzz(func(t *testing.T, raw string) {
		a := anthropic.New(anthropic.Config{Model: "m", BaseURL: func() string { return "http://h" }, Transport: canned(raw)})
		resp, _, err := ask(t, a)
		if err != nil {
			code(t, err)
		} else if resp == nil {
			t.Fatal("neither answer nor error")
		}
	})
}

type canned string

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(c)))}, nil
}

func BenchmarkStreamText(b *testing.B) {
	const chunks = 10_000
	raw := strings.Join(sse(start, textStart), "") + strings.Repeat(sse(text(0, " hello"))[0], chunks) + strings.Join(sse(finish("end_turn"), end), "")
	a := anthropic.New(anthropic.Config{Model: "m", BaseURL: func() string { return "http://h" }, Transport: canned(raw)})
	p, err := a.Prepare(model.Request{Messages: []model.Message{user("hi")}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Stream(context.Background(), p, func(model.Delta) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/chunks, "ns/chunk")
}
