package openai_test

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

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers every request with exactly the pieces given, each flushed alone, so that chunk borders are the test's.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
	heads  []*http.Request
	left   chan struct{} // one value for each request whose client went away
}

type answer struct {
	status int
	header map[string]string
	pieces []string
	then   string // "", "reset", "hold"
}

// serve answers request n with answers[n], the last one over and over.
func serve(t *testing.T, answers ...answer) *server {
	t.Helper()
	s := &server{left: make(chan struct{}, 16)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		n := min(len(s.bodies), len(answers)-1)
		s.bodies, s.heads = append(s.bodies, body), append(s.heads, r)
		s.mu.Unlock()
		s.write(w, r, answers[n])
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) write(w http.ResponseWriter, r *http.Request, a answer) {
	control := http.NewResponseController(w)
	if a.then == "reset" && len(a.pieces) == 0 {
		conn, _, err := control.Hijack()
		if err == nil {
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
	case "hold":
		<-r.Context().Done()
		s.left <- struct{}{}
	case "comments":
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, ": still here\n\n"); err != nil || control.Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
	case "reset":
		panic(http.ErrAbortHandler)
	}
}

func (s *server) body(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.bodies[n])
}

func sse(payloads ...string) []string {
	var out []string
	for _, p := range payloads {
		out = append(out, "data: "+p+"\n\n")
	}
	return out
}

func ok(payloads ...string) answer { return answer{pieces: sse(payloads...)} }

const (
	role   = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	stop   = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	done   = `[DONE]`
	counts = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}`
)

func content(s string) string {
	return fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, s)
}

func calls(s string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[%s]},"finish_reason":null}]}`, s)
}

func finish(reason string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason)
}

func adapter(s *server, change ...func(*openai.Config)) *openai.Adapter {
	cfg := openai.Config{
		Provider: "test", Model: "m", BaseURL: func() string { return s.URL }, Transport: s.Client().Transport,
		Key: func(context.Context) (string, error) { return "sk-0123456789abcdef", nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	return openai.New(cfg)
}

func thinking(c *openai.Config) { c.Thinking = true }

func clocks(c wire.Clocks) func(*openai.Config) { return func(cfg *openai.Config) { cfg.Clocks = c } }

func user(s string) model.Message {
	return model.Message{Role: model.RoleUser, Content: []model.Block{model.Text(s)}, Source: model.Source{Kind: model.SourceUser}}
}

func assistant(blocks ...model.Block) model.Message {
	return model.Message{Role: model.RoleAssistant, Content: blocks, Source: model.Source{Kind: model.SourceModel}}
}

func call(id, name, args string) model.Block {
	return model.Block{Type: model.BlockToolCall, ID: id, Name: name, Arguments: args}
}

func toolResult(id, text string) model.Message {
	b := model.Block{Type: model.BlockToolResult, ToolCallID: id}
	if text != "" {
		b.Content = []model.Block{model.Text(text)}
	}
	return model.Message{Role: model.RoleUser, Content: []model.Block{b}, Source: model.Source{Kind: model.SourceTool, CallID: id}}
}

func ask(t *testing.T, a *openai.Adapter, messages ...model.Message) (*model.Response, []model.Delta, error) {
	t.Helper()
	if len(messages) == 0 {
		messages = []model.Message{user("hi")}
	}
	return stream(t.Context(), t, a, model.Request{System: "sys", Messages: messages})
}

func stream(ctx context.Context, t *testing.T, a *openai.Adapter, r model.Request) (*model.Response, []model.Delta, error) {
	t.Helper()
	p, err := a.Prepare(r)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	var deltas []model.Delta
	resp, err := a.Stream(ctx, p, func(d model.Delta) { deltas = append(deltas, d) })
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

// wireMessages reads the messages of a recorded body.
func wireMessages(t *testing.T, body string) []map[string]any {
	t.Helper()
	var in struct {
		Messages []map[string]any `json:"messages"`
	}
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		t.Fatalf("recorded body: %v\n%s", err, body)
	}
	return in.Messages
}

// outcome is what a stream must come to.
type outcome struct {
	content    []model.Block
	stop       model.StopReason
	usage      *model.Usage
	code       model.Code
	incomplete []string
}

func reasoning(s string) model.Block { return model.Block{Type: model.BlockReasoning, Text: s} }

func TestStreams(t *testing.T) {
	hello := []model.Block{model.Text("hello")}
	seven := &model.Usage{InputTokens: 7, OutputTokens: 2}
	cases := []struct {
		name   string
		answer answer
		want   outcome
		change []func(*openai.Config)
	}{
		{name: "L1 role, text, usage, DONE", answer: ok(role, content("he"), content("llo"), stop, counts, done),
			want: outcome{content: hello, stop: model.StopEnd, usage: seven}},
		{name: "L2 usage on the finish chunk", answer: ok(content("hello"), `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`, done),
			want: outcome{content: hello, stop: model.StopEnd, usage: seven}},
		{name: "L3 choices null", answer: ok(content("hello"), stop, `{"choices":null,"usage":{"prompt_tokens":7,"completion_tokens":2}}`, done),
			want: outcome{content: hello, stop: model.StopEnd, usage: seven}},
		{name: "L3 null choice, null data, null delta", answer: ok(`null`, `{"choices":[null]}`, `{"choices":[{"delta":null}]}`, content("hello"), stop, done),
			want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L4 reasoning_content then content", answer: ok(`{"choices":[{"delta":{"reasoning_content":"a","content":null}}]}`, content("b"), stop, done),
			want: outcome{content: []model.Block{reasoning("a"), model.Text("b")}, stop: model.StopEnd}},
		{name: "L5 reasoning", answer: ok(`{"choices":[{"delta":{"reasoning":"a"}}]}`, content("b"), stop, done),
			want: outcome{content: []model.Block{reasoning("a"), model.Text("b")}, stop: model.StopEnd}},
		{name: "L5 both fields: reasoning_content wins", answer: ok(`{"choices":[{"delta":{"reasoning":"no","reasoning_content":"a"}}]}`, content("b"), stop, done),
			want: outcome{content: []model.Block{reasoning("a"), model.Text("b")}, stop: model.StopEnd}},
		{name: "L7 thinking, a call, no reasoning", change: []func(*openai.Config){thinking},
			answer: ok(calls(`{"index":0,"id":"c1","function":{"name":"bash","arguments":"{}"}}`), finish("tool_calls"), done),
			want:   outcome{content: []model.Block{reasoning(""), call("c1", "bash", "{}")}, stop: model.StopTools}},
		{name: "L8 two calls interleaved", answer: ok(
			calls(`{"index":0,"id":"a","function":{"name":"x","arguments":""}}`), calls(`{"index":1,"id":"b","function":{"name":"y","arguments":""}}`),
			calls(`{"index":0,"function":{"arguments":"{\"p\""}}`), calls(`{"index":1,"function":{"arguments":"{\"q\":"}}`),
			calls(`{"index":0,"function":{"arguments":":1}"}}`), calls(`{"index":1,"function":{"arguments":"2}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("a", "x", `{"p":1}`), call("b", "y", `{"q":2}`)}, stop: model.StopTools}},
		{name: "L9 both index 0, different ids", answer: ok(
			calls(`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\""}}`), calls(`{"index":0,"function":{"arguments":":1}"}}`),
			calls(`{"index":0,"id":"b","function":{"name":"y","arguments":"{}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("a", "x", `{"p":1}`), call("b", "y", `{}`)}, stop: model.StopTools}},
		{name: "L9 index 0 for whole calls without ids", answer: ok(
			calls(`{"index":0,"function":{"name":"x","arguments":"{\"p\":1}"}}`), calls(`{"index":0,"function":{"name":"x","arguments":"{\"p\":2}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("call_1_0", "x", `{"p":1}`), call("call_1_1", "x", `{"p":2}`)}, stop: model.StopTools}},
		{name: "L11 no index, continuation without id", answer: ok(
			calls(`{"id":"a","function":{"name":"x","arguments":"{\"p\""}}`), calls(`{"function":{"arguments":":1"}}`), calls(`{"index":-1,"function":{"arguments":"}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("a", "x", `{"p":1}`)}, stop: model.StopTools}},
		{name: "L11 unseen index with neither id nor name", answer: ok(
			calls(`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"p\""}}`), calls(`{"index":7,"function":{"arguments":":1}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("a", "x", `{"p":1}`)}, stop: model.StopTools}},
		{name: "L12 id then empty, name then null", answer: ok(
			calls(`{"index":0,"id":"c1","function":{"name":"bash","arguments":"{\"a\":"}}`), calls(`{"index":0,"id":"","function":{"name":null,"arguments":"1}"}}`),
			calls(`{"index":0,"id":null,"function":{"name":"","arguments":""}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("c1", "bash", `{"a":1}`)}, stop: model.StopTools}},
		{name: "L12 a name that grows, and one that repeats", answer: ok(
			calls(`{"index":0,"id":"c1","function":{"name":"ba","arguments":""}}`), calls(`{"index":0,"function":{"name":"bash","arguments":"{"}}`),
			calls(`{"index":0,"function":{"name":"bash","arguments":"}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("c1", "bash", `{}`)}, stop: model.StopTools}},
		{name: "L12 the first name wins", answer: ok(
			calls(`{"index":0,"id":"c1","function":{"name":"bash","arguments":"{"}}`), calls(`{"index":0,"function":{"name":"other","arguments":"}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("c1", "bash", `{}`)}, stop: model.StopTools}},
		{name: "L13 id null throughout", answer: ok(
			calls(`{"index":0,"id":null,"function":{"name":"bash","arguments":"{\"a\":"}}`), calls(`{"index":0,"id":null,"function":{"arguments":"1}"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("call_1_0", "bash", `{"a":1}`)}, stop: model.StopTools}},
		{name: "L15 whole call in one chunk, finish stop", answer: ok(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"bash","arguments":"{\"a\":1}"}}]},"finish_reason":"stop"}]}`, done),
			want: outcome{content: []model.Block{call("c", "bash", `{"a":1}`)}, stop: model.StopEnd}},
		{name: "L15 object arguments", answer: ok(calls(`{"index":0,"id":"c","function":{"name":"bash","arguments":{"a": [1, "é"]}}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("c", "bash", `{"a": [1, "é"]}`)}, stop: model.StopTools}},
		{name: "L15 the old function_call", answer: ok(`{"choices":[{"delta":{"function_call":{"name":"bash","arguments":"{\"a\""}}}]}`, `{"choices":[{"delta":{"function_call":{"arguments":":1}"}}}]}`, finish("function_call"), done),
			want: outcome{content: []model.Block{call("call_1_0", "bash", `{"a":1}`)}, stop: model.StopTools}},
		{name: "L17 arguments null", answer: ok(calls(`{"index":0,"id":"c","function":{"name":"bash","arguments":null}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("c", "bash", `{}`)}, stop: model.StopTools}},
		{name: "L18 cut after length", answer: ok(content("x"), calls(`{"index":0,"id":"c","function":{"name":"bash","arguments":"{\"a\":"}}`), finish("length"), done),
			want: outcome{content: []model.Block{model.Text("x"), call("c", "bash", `{"a":`)}, stop: model.StopMaxTokens, incomplete: []string{"c"}}},
		{name: "L19 cut after tool_calls", answer: ok(calls(`{"index":0,"id":"c","function":{"name":"bash","arguments":"{\"a\":"}}`), finish("tool_calls"), done),
			want: outcome{content: []model.Block{call("c", "bash", `{"a":`)}, stop: model.StopTools}},
		{name: "L22 end after finish, no DONE", answer: ok(content("hello"), stop), want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L22 connection broken after finish", answer: answer{pieces: sse(content("hello"), stop), then: "reset"}, want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L23 end before finish", answer: ok(content("hel")), want: outcome{content: []model.Block{model.Text("hel")}, code: model.CodeStreamClosed}},
		{name: "L23 connection broken before finish", answer: answer{pieces: sse(content("hel")), then: "reset"},
			want: outcome{content: []model.Block{model.Text("hel")}, code: model.CodeStreamClosed}},
		{name: "L23 cut inside a chunk", answer: answer{pieces: append(sse(content("hel")), `data: {"choices":[{"del`)},
			want: outcome{content: []model.Block{model.Text("hel")}, code: model.CodeStreamClosed}},
		{name: "L23 finish reason empty isn't one", answer: ok(content("hel"), `{"choices":[{"delta":{},"finish_reason":""}]}`),
			want: outcome{content: []model.Block{model.Text("hel")}, code: model.CodeStreamClosed}},
		{name: "L23 a cut call is never whole", answer: ok(calls(`{"index":0,"id":"c","function":{"name":"bash","arguments":"{}"}}`)),
			want: outcome{content: []model.Block{call("c", "bash", "{}")}, code: model.CodeStreamClosed, incomplete: []string{"c"}}},
		{name: "broken JSON inside", answer: ok(content("hel"), `{"choices":[{"delta":{"content":"x}}]}`, content("lo"), stop, done),
			want: outcome{content: []model.Block{model.Text("hel")}, code: model.CodeMalformedResponse}},
		{name: "broken JSON after the finish", answer: ok(content("hello"), stop, `{"usage":`, counts, done), want: outcome{content: hello, stop: model.StopEnd, usage: seven}},
		{name: "an error after the finish", answer: ok(content("hello"), stop, `{"error":{"message":"late"}}`, done), want: outcome{content: hello, stop: model.StopEnd}},
		{name: "words that keep alive", answer: ok(`ping`, content("hello"), `keep-alive`, stop, done), want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L24 finish, then held open", answer: answer{pieces: sse(content("hello"), stop, counts), then: "hold"}, change: []func(*openai.Config){clocks(wire.Clocks{Grace: 30 * time.Millisecond})},
			want: outcome{content: hello, stop: model.StopEnd, usage: seven}},
		{name: "L24 finish, then comments for ever", answer: answer{pieces: sse(content("hello"), stop), then: "comments"}, change: []func(*openai.Config){clocks(wire.Clocks{Grace: 30 * time.Millisecond})},
			want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L25 comments only", answer: answer{then: "comments"}, change: []func(*openai.Config){clocks(wire.Clocks{Payload: 50 * time.Millisecond})},
			want: outcome{code: model.CodeTimeout}},
		{name: "L25 silence", answer: answer{pieces: sse(content("a")), then: "hold"}, change: []func(*openai.Config){clocks(wire.Clocks{Bytes: 50 * time.Millisecond})},
			want: outcome{content: []model.Block{model.Text("a")}, code: model.CodeTimeout}},
		{name: "L26 DONE only", answer: ok(done), want: outcome{code: model.CodeEmptyResponse}},
		{name: "L26 stop without a block", answer: ok(role, stop, done), want: outcome{code: model.CodeEmptyResponse}},
		{name: "L28 content_filter", answer: ok(content("a"), finish("content_filter"), done), want: outcome{content: []model.Block{model.Text("a")}, code: model.CodeContentFilter}},
		{name: "L29 error in the stream", answer: ok(content("a"), `{"error":{"message":"Overloaded","type":"overloaded_error","code":529}}`),
			want: outcome{content: []model.Block{model.Text("a")}, code: model.CodeServer}},
		{name: "L29 error as a bare line", answer: answer{pieces: append(sse(content("a")), `{"error":{"message":"rate limited","code":429}}`+"\n")},
			want: outcome{content: []model.Block{model.Text("a")}, code: model.CodeRateLimit}},
		{name: "L29 error as text", answer: ok(`{"error":"the engine died"}`), want: outcome{code: model.CodeServer}},
		{name: "L31 CRLF, BOM, no space", answer: answer{pieces: []string{"\ufeffdata:" + content("he") + "\r\n\r", "\ndata:" + content("llo") + "\r\n\r\n: c\r\nid: 3\r\nevent: x\r\ndata: " + stop + "\r\n\r\ndata:[DONE]\r\n\r\n"}},
			want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L31 multi-line data", answer: answer{pieces: []string{"data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"hello\"}}]}\n\n", "data: " + stop + "\n\n"}},
			want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L31 no empty lines between events", answer: answer{pieces: []string{"data: " + content("he") + "\n", "data: " + content("llo") + "\n", "data: " + stop + "\ndata: [DONE]\n"}},
			want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L34 text/html", answer: answer{header: map[string]string{"Content-Type": "text/html"}, pieces: []string{"<html>Welcome</html>"}}, want: outcome{code: model.CodeInvalidRequest}},
		{name: "L34 a stream under another type", answer: answer{header: map[string]string{"Content-Type": "text/plain"}, pieces: sse(content("hello"), stop, done)},
			want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L35 a JSON completion", answer: answer{header: map[string]string{"Content-Type": "application/json"}, pieces: []string{
			`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hello","tool_calls":[{"id":"c","type":"function","function":{"name":"bash","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`}},
			want: outcome{content: append(hello[:1:1], call("c", "bash", "{}")), stop: model.StopTools, usage: seven}},
		{name: "L35 an error with status 200", answer: answer{header: map[string]string{"Content-Type": "application/json"}, pieces: []string{`{"error":{"message":"nope","type":"invalid_request_error"}}`}},
			want: outcome{code: model.CodeInvalidRequest}},
		{name: "L46 cached tokens", answer: ok(content("hello"), stop, `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36,"completion_tokens_details":{"reasoning_tokens":1}}}`, done),
			want: outcome{content: hello, stop: model.StopEnd, usage: &model.Usage{InputTokens: 36, OutputTokens: 2, CacheReadTokens: 64, ReasoningTokens: 1}}},
		{name: "L46 more cached than there was", answer: ok(content("hello"), stop, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":64}}}`, done),
			want: outcome{content: hello, stop: model.StopEnd, usage: &model.Usage{OutputTokens: 2, CacheReadTokens: 64}}},
		{name: "L60 finish in the chunk of the last piece", answer: ok(calls(`{"index":0,"id":"c","function":{"name":"bash","arguments":"{\"a\":"}}`),
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"finish_reason":"tool_calls"}]}`, done),
			want: outcome{content: []model.Block{call("c", "bash", `{"a":1}`)}, stop: model.StopTools}},
		{name: "late pieces after finish", answer: ok(content("he"), stop, content("llo"), done), want: outcome{content: hello, stop: model.StopEnd}},
		{name: "text in parts", answer: ok(`{"choices":[{"delta":{"content":[{"type":"text","text":"he"},{"type":"text","text":"llo"}]}}]}`, stop, done), want: outcome{content: hello, stop: model.StopEnd}},
		{name: "a second choice isn't ours", answer: ok(`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"hello"}}]}`, stop, done), want: outcome{content: hello, stop: model.StopEnd}},
		{name: "the server ran out of resources", answer: ok(content("a"), finish("insufficient_system_resource"), done), want: outcome{content: []model.Block{model.Text("a")}, code: model.CodeServer}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			resp, deltas, err := ask(t, adapter(serve(t, c.answer), c.change...))
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
			checkDeltas(t, resp, deltas)
		})
	}
}

// checkDeltas proves that the pieces add up to the answer.
func checkDeltas(t *testing.T, resp *model.Response, deltas []model.Delta) {
	t.Helper()
	if resp == nil {
		return
	}
	streamed := map[int]string{}
	for _, d := range deltas {
		streamed[d.Block] += d.Text
	}
	n := 0
	for _, b := range resp.Content {
		text := b.Text + b.Arguments
		if b.Type == model.BlockReasoning && text == "" {
			continue // recorded, not streamed
		}
		if streamed[n] != text && !(streamed[n] == "" && text == "{}") {
			t.Errorf("block %d: streamed %q, answer %q", n, streamed[n], text)
		}
		n++
	}
}

func TestL32LongLine(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 3<<20/16)
	resp, _, err := ask(t, adapter(serve(t, ok(content(big), stop, done))))
	if err != nil || model.JoinText(resp.Content) != big {
		t.Fatalf("error %v, %d bytes of text", err, len(model.JoinText(resp.Content)))
	}
}

// Each piece is handed on before the next one arrives.
func TestNothingIsHeldBack(t *testing.T) {
	next := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 20 {
			fmt.Fprintf(w, "data: %s\n\n", content(fmt.Sprint(i)))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintf(w, "data: %s\n\n", stop)
	}))
	defer srv.Close()
	a := openai.New(openai.Config{Model: "m", BaseURL: func() string { return srv.URL }, Transport: srv.Client().Transport})
	p, err := a.Prepare(model.Request{Messages: []model.Message{user("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	resp, err := a.Stream(t.Context(), p, func(model.Delta) { n++; next <- struct{}{} })
	if err != nil || n != 20 {
		t.Fatalf("%d pieces, %v, %v", n, resp, err)
	}
}

func TestReasoningGoesBack(t *testing.T) {
	answered := []model.Message{user("hi"), assistant(reasoning("a\u00e9 \n<x>"), model.Text("b")), user("more")}
	t.Run("L4 byte-exact", func(t *testing.T) {
		s := serve(t, ok(content("x"), stop))
		if _, _, err := ask(t, adapter(s, thinking), answered...); err != nil {
			t.Fatal(err)
		}
		same(t, wireMessages(t, s.body(0))[2], map[string]any{"role": "assistant", "content": "b", "reasoning_content": "a\u00e9 \n<x>"})
	})
	t.Run("L5 in the dialect's field", func(t *testing.T) {
		s := serve(t, ok(content("x"), stop))
		a := adapter(s, thinking, func(c *openai.Config) { c.Dialect.ReasoningField = "reasoning" })
		if _, _, err := ask(t, a, answered...); err != nil {
			t.Fatal(err)
		}
		same(t, wireMessages(t, s.body(0))[2], map[string]any{"role": "assistant", "content": "b", "reasoning": "a\u00e9 \n<x>"})
	})
	t.Run("L7 empty beside calls", func(t *testing.T) {
		s := serve(t, ok(calls(`{"index":0,"id":"c1","function":{"name":"bash","arguments":"{}"}}`), finish("tool_calls"), done), ok(content("x"), stop))
		a := adapter(s, thinking)
		resp, _, err := ask(t, a)
		if err != nil {
			t.Fatal(err)
		}
		// The log writes and reads the message before it goes back.
		raw, err := json.Marshal(assistant(resp.Content...))
		var back model.Message
		if err != nil || json.Unmarshal(raw, &back) != nil {
			t.Fatal(err)
		}
		if _, _, err := ask(t, a, user("hi"), back, toolResult("c1", "out")); err != nil {
			t.Fatal(err)
		}
		m := wireMessages(t, s.body(1))[2]
		if v, has := m["reasoning_content"]; !has || v != "" {
			t.Errorf("assistant message is %v", m)
		}
	})
	t.Run("never inferred backwards", func(t *testing.T) {
		s := serve(t, ok(content("x"), stop))
		if _, _, err := ask(t, adapter(s, thinking), user("hi"), assistant(call("c", "bash", "{}")), toolResult("c", "out")); err != nil {
			t.Fatal(err)
		}
		if m := wireMessages(t, s.body(0))[2]; m["reasoning_content"] != nil {
			t.Errorf("a message that recorded no reasoning went out as %v", m)
		}
	})
	t.Run("L42 repaired once", func(t *testing.T) {
		s := serve(t,
			answer{status: 400, header: map[string]string{"Content-Type": "application/json"}, pieces: []string{`{"error":{"message":"Missing reasoning_content in the assistant message","type":"invalid_request_error"}}`}},
			ok(content("x"), stop))
		a := adapter(s, thinking)
		r := model.Request{Messages: []model.Message{user("hi"), assistant(call("c", "bash", "{}")), toolResult("c", "out")}}
		_, _, err := stream(t.Context(), t, a, r)
		var e *model.Error
		if !errors.As(err, &e) || !e.ReasoningForm || e.Retryable() {
			t.Fatalf("first answer: %v", err)
		}
		r.RepairReasoning = true
		if _, _, err := stream(t.Context(), t, a, r); err != nil {
			t.Fatal(err)
		}
		if v, has := wireMessages(t, s.body(1))[1]["reasoning_content"]; !has || v != "" {
			t.Errorf("the repaired request lacks the field: %s", s.body(1))
		}
		r.Messages[1].Content = append([]model.Block{reasoning("a")}, r.Messages[1].Content...)
		p, err := a.Prepare(r)
		if err != nil || strings.Contains(string(p.Body), "reasoning_content") {
			t.Errorf("with the field everywhere the repair must drop it: %s, %v", p.Body, err)
		}
	})
}

func TestRefusals(t *testing.T) {
	refusal := func(status int, body string, header ...string) answer {
		a := answer{status: status, header: map[string]string{"Content-Type": "application/json"}, pieces: []string{body}}
		for i := 0; i+1 < len(header); i += 2 {
			a.header[header[i]] = header[i+1]
		}
		return a
	}
	cases := []struct {
		name   string
		answer answer
		code   model.Code
		retry  bool
	}{
		{"L36 429", refusal(429, `{"error":{"message":"slow down"}}`, "Retry-After", "2"), model.CodeRateLimit, true},
		{"L37 429 for an hour", refusal(429, `{"error":{"message":"slow down"}}`, "Retry-After", "3600"), model.CodeRateLimit, true},
		{"L38 500", refusal(500, `oops`), model.CodeServer, true},
		{"L38 529", refusal(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), model.CodeServer, true},
		{"L40 401", refusal(401, `{"error":{"message":"bad key"}}`), model.CodeAuth, false},
		{"L40 403", refusal(403, ``), model.CodeAuth, false},
		{"L40 402", refusal(402, `{"error":{"message":"Insufficient Balance"}}`), model.CodeQuota, false},
		{"L40 429 that is a quota", refusal(429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`), model.CodeQuota, false},
		{"L41 422", refusal(422, `{"detail":[{"loc":["body"],"msg":"field required"}]}`), model.CodeInvalidRequest, false},
		{"L41 413", refusal(413, `too large`), model.CodeInvalidRequest, false},
		{"L41 context length", refusal(400, `{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}`), model.CodeContextWindow, false},
		{"L41 context length of vLLM", refusal(400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens","type":"BadRequestError","code":400}`), model.CodeContextWindow, false},
		{"L42 400 about reasoning_content", refusal(400, `{"error":{"message":"reasoning_content is not allowed"}}`), model.CodeInvalidRequest, false},
		{"404", refusal(404, `{"detail":"Not Found"}`), model.CodeInvalidRequest, false},
		{"redirect", refusal(307, ``, "Location", "https://elsewhere.example/v1/chat/completions?k=1"), model.CodeInvalidRequest, false},
		{"L43 reset before headers", answer{then: "reset"}, model.CodeTransport, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.answer)
			_, _, err := ask(t, adapter(s))
			var e *model.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Retryable() != c.retry {
				t.Fatalf("got %v, want %s", err, c.code)
			}
			if !strings.HasPrefix(e.URL, s.URL) || strings.ContainsAny(e.URL, "?@") {
				t.Errorf("the error names the URL %q", e.URL)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]struct {
		delay time.Duration
		ok    bool
	}{"2": {2 * time.Second, true}, "60": {time.Minute, true}, "3600": {0, false}, "0.25": {250 * time.Millisecond, true}} {
		s := serve(t, answer{status: 429, header: map[string]string{"Retry-After": header}, pieces: []string{"x"}})
		_, _, err := ask(t, adapter(s))
		if d, ok := model.RetryDelay(err, 1, 0.9); d != want.delay || ok != want.ok {
			t.Errorf("Retry-After %s: wait %v, %v", header, d, ok)
		}
	}
}

func TestL44CancelMidText(t *testing.T) {
	s := serve(t, answer{pieces: sse(content("half")), then: "hold"})
	a := adapter(s)
	p, err := a.Prepare(model.Request{Messages: []model.Message{user("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := a.Stream(ctx, p, func(model.Delta) { cancel() })
	if code(t, err) != model.CodeAborted || model.JoinText(resp.Content) != "half" {
		t.Fatalf("%v, %v", resp, err)
	}
	<-s.left // the connection is closed: the server's request context ended
}

func TestCancelBeforeHeaders(t *testing.T) {
	arrived := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	}))
	defer srv.Close()
	a := openai.New(openai.Config{Model: "m", BaseURL: func() string { return srv.URL }, Transport: srv.Client().Transport})
	p, err := a.Prepare(model.Request{Messages: []model.Message{user("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { <-arrived; cancel() })
	_, err = a.Stream(ctx, p, func(model.Delta) {})
	wg.Wait()
	if code(t, err) != model.CodeAborted {
		t.Fatal(err)
	}
}

func TestKeys(t *testing.T) {
	key := func(k string) func(*openai.Config) {
		return func(c *openai.Config) { c.Key = func(context.Context) (string, error) { return k, nil } }
	}
	t.Run("L50 newline is trimmed", func(t *testing.T) {
		s := serve(t, ok(content("x"), stop))
		if _, _, err := ask(t, adapter(s, key("sk-abc\n"))); err != nil {
			t.Fatal(err)
		}
		same(t, s.heads[0].Header.Get("Authorization"), "Bearer sk-abc")
	})
	t.Run("L50 inner space is refused before any connection", func(t *testing.T) {
		s := serve(t, ok(content("x"), stop))
		_, _, err := ask(t, adapter(s, key("sk abc")))
		if code(t, err) != model.CodeInvalidCredential || strings.Contains(err.Error(), "abc") || len(s.bodies) != 0 {
			t.Fatalf("%v after %d requests", err, len(s.bodies))
		}
	})
	t.Run("L51 changed between turns", func(t *testing.T) {
		s := serve(t, ok(content("x"), stop))
		current := "one-key-one"
		a := adapter(s, func(c *openai.Config) { c.Key = func(context.Context) (string, error) { return current, nil } })
		for _, current = range []string{"one-key-one", "two-key-two"} {
			if _, _, err := ask(t, a); err != nil {
				t.Fatal(err)
			}
		}
		same(t, s.heads[1].Header.Get("Authorization"), "Bearer two-key-two")
	})
	t.Run("L55 not echoed", func(t *testing.T) {
		const secret = "sk-0123456789abcdef"
		for _, body := range []string{
			`{"error":{"message":"Incorrect API key provided: ` + secret + `. Find yours"}}`,
			`{"error":{"message":"Your api key: sk-0*****cdef is invalid"}}`,
			`<html>` + secret + `</html>`,
		} {
			s := serve(t, answer{status: 401, pieces: []string{body}})
			_, _, err := ask(t, adapter(s, key(secret)))
			if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, secret) || strings.Contains(text, "sk-0") || strings.Contains(text, "cdef") {
				t.Errorf("the error holds the key: %s", text)
			}
		}
	})
	t.Run("a missing key keeps its code", func(t *testing.T) {
		s := serve(t, ok(content("x"), stop))
		_, _, err := ask(t, adapter(s, func(c *openai.Config) {
			c.Key = func(context.Context) (string, error) { return "", &model.Error{Code: model.CodeMissingCredential} }
		}))
		if code(t, err) != model.CodeMissingCredential {
			t.Fatal(err)
		}
	})
	t.Run("not forwarded on redirects", func(t *testing.T) {
		other := serve(t, ok(content("x"), stop))
		s := serve(t, answer{status: 307, header: map[string]string{"Location": other.URL + "/chat/completions"}})
		_, _, err := ask(t, adapter(s))
		if err == nil || len(other.bodies) != 0 {
			t.Fatalf("%v, and the other server saw %d requests", err, len(other.bodies))
		}
	})
}

func TestL52BaseURLForms(t *testing.T) {
	for suffix, want := range map[string]string{
		"": "/chat/completions", "/": "/chat/completions", "/v1": "/v1/chat/completions", "/v1/": "/v1/chat/completions", "/v1//": "/v1/chat/completions",
		"/v1/chat/completions": "/v1/chat/completions", "/gw/rollout-7/v1?x=1&y=2": "/gw/rollout-7/v1/chat/completions?x=1&y=2", "/a%2Fb/v1": "/a%2Fb/v1/chat/completions",
	} {
		s := serve(t, ok(content("x"), stop))
		a := adapter(s, func(c *openai.Config) { c.BaseURL = func() string { return s.URL + suffix } })
		if _, _, err := ask(t, a); err != nil {
			t.Fatalf("%q: %v", suffix, err)
		}
		same(t, s.heads[0].URL.RequestURI(), want)
	}
	for _, bad := range []string{"", "localhost:80", "ftp://x/v1", "file:///etc/passwd"} {
		s := serve(t, ok(content("x"), stop))
		a := adapter(s, func(c *openai.Config) { c.BaseURL = func() string { return bad } })
		if _, _, err := ask(t, a); code(t, err) != model.CodeInvalidRequest {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestConnectionIsReused(t *testing.T) {
	s := serve(t, ok(content("x"), stop, done))
	var mu sync.Mutex
	remotes := map[string]bool{}
	a := adapter(s)
	for range 5 {
		if _, _, err := ask(t, a); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, h := range s.heads {
		remotes[h.RemoteAddr] = true
	}
	if len(remotes) != 1 {
		t.Errorf("%d connections for 5 calls", len(remotes))
	}
}

func TestCaptureTokens(t *testing.T) {
	const ids, logprobs = `[ 1, 23,456 ]`, `{"content":[{"token":"he","logprob":-0.10000000000000001,"bytes":[104,101],"top_logprobs":[]}]}`
	s := serve(t, ok(
		`{"id":"c","prompt_token_ids":`+ids+`,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":"he"},"logprobs":`+logprobs+`,"finish_reason":null,"token_ids":[258]}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":"llo"},"logprobs":null,"finish_reason":null,"token_ids":[385]}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":[2]}]}`, counts, done))
	resp, _, err := ask(t, adapter(s, func(c *openai.Config) { c.CaptureTokens = true }))
	if err != nil {
		t.Fatal(err)
	}
	same(t, string(resp.Tokens), `{"prompt_token_ids":`+ids+`,"chunks":[{"token_ids":[258],"logprobs":`+logprobs+`},{"token_ids":[385]},{"token_ids":[2]}]}`)
	same(t, model.JoinText(resp.Content), "hello")
	for _, want := range []string{`"logprobs":true`, `"return_token_ids":true`} {
		if !strings.Contains(s.body(0), want) {
			t.Errorf("the request lacks %s", want)
		}
	}
}

func TestGuard(t *testing.T) {
	s := serve(t, ok(content("x"), stop))
	guarded := wire.NewTransport(wire.TransportConfig{Guard: true})
	defer guarded.CloseIdleConnections()
	for _, url := range []string{"http://169.254.169.254/v1", "http://[fe80::1]/v1", "http://[::ffff:169.254.1.1]/v1", "http://100.100.100.200"} {
		a := adapter(s, func(c *openai.Config) { c.Transport = guarded; c.BaseURL = func() string { return url } })
		_, _, err := ask(t, a)
		if code(t, err) != model.CodeInvalidRequest || !strings.Contains(err.Error(), "refused to connect") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, _, err := ask(t, adapter(s, func(c *openai.Config) { c.Transport = guarded })); err != nil {
		t.Errorf("loopback that isn't ours: %v", err)
	}
}
