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
