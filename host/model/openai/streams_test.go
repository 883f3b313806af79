package openai_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

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
		{name: "L24 finish, then held open", answer: answer{pieces: []string{strings.Join(sse(content("hello"), stop, counts), "")}, then: "hold"}, change: []func(*openai.Config){clocks(wire.Clocks{Grace: 30 * time.Millisecond})},
			want: outcome{content: hello, stop: model.StopEnd, usage: seven}},
		{name: "L24 finish, then comments for ever", answer: answer{pieces: sse(content("hello"), stop), then: "comments"}, change: []func(*openai.Config){clocks(wire.Clocks{Grace: 30 * time.Millisecond})},
			want: outcome{content: hello, stop: model.StopEnd}},
		{name: "L25 comments only", answer: answer{then: "comments"}, change: []func(*openai.Config){clocks(wire.Clocks{Payload: 50 * time.Millisecond})},
			want: outcome{code: model.CodeTimeout}},
		{name: "L25 silence", answer: answer{pieces: sse(content("a")), then: "hold"}, change: []func(*openai.Config){clocks(wire.Clocks{Bytes: time.Second})},
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
