package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

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
