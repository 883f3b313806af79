package script

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
)

// Recorded is one request as the handler got it.
type Recorded struct {
	Path   string
	Query  string
	Header http.Header
	Body   []byte // the exact bytes
}

// Handler serves a source over HTTP in the chat-completions form, streaming, and keeps every request. It is safe for concurrent use.
//
// A request with return_token_ids gets token ids in the form of vLLM: prompt_token_ids on the first chunk, token_ids on every piece, and with
// logprobs their log-probabilities. Its tokenizer is the plainest there is: a token is a character, its id the code point.
type Handler struct {
	source Source
	// Took, when not nil, is told after each answer how long it took, from the last byte of the request read to the last one written. Set it first.
	Took func(time.Duration)

	mu       sync.Mutex
	requests []Recorded
}

// NewHandler makes a handler.
func NewHandler(source Source) *Handler { return &Handler{source: source} }

// Requests returns what came in so far, in order of arrival.
func (h *Handler) Requests() []Recorded {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Recorded(nil), h.requests...)
}

// ServeHTTP answers any POST whose path ends in /chat/completions.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	if h.Took != nil {
		begun := time.Now()
		defer func() { h.Took(time.Since(begun)) }()
	}
	h.mu.Lock()
	h.requests = append(h.requests, Recorded{Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Body: body})
	n := len(h.requests)
	h.mu.Unlock()
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		refuse(w, http.StatusNotFound, "not_found", "the script serves POST .../chat/completions, not "+r.Method+" "+r.URL.Path)
		return
	}
	req, asked, err := parse(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	turn, err := h.source(req)
	if err != nil {
		var e *model.Error
		if !errors.As(err, &e) {
			e = &model.Error{Code: model.CodeInvalidRequest, Message: err.Error()}
		}
		turn = Turn{Fail(e)}
	}
	s := &serving{
		w: w, r: r, out: bufio.NewWriterSize(w, 32<<10), stop: model.StopEnd,
		head: fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1700000000,"model":%s,"choices":[`, n, quote(asked.Model)),
		id:   "call_" + strconv.Itoa(n), ids: asked.TokenIDs, logprobs: asked.Logprobs,
	}
	if s.ids {
		s.prompt = `"prompt_token_ids":` + tokenIDs(promptText(req))
	}
	s.play(turn)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"message":%s,"type":%s}}`, quote(message), quote(kind))
}

func quote(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(raw)
}

// serving is the state of one HTTP answer.
type serving struct {
	w     http.ResponseWriter
	r     *http.Request
	out   *bufio.Writer
	head  string
	id    string
	begun bool

	ids, logprobs bool   // what the client wants of each piece
	prompt        string // a field for the first chunk

	raw   bool // the script writes bytes itself
	calls int
	stop  model.StopReason
	set   bool
	usage *model.Usage
}

func (s *serving) play(turn Turn) {
	ctx := s.r.Context()
	for _, step := range turn {
		if ctx.Err() != nil {
			return
		}
		switch step.kind {
		case stepHead:
			for name, values := range step.http.header {
				s.w.Header()[name] = values
			}
			s.w.WriteHeader(step.http.status)
			s.begun, s.raw = true, true
			s.flush()
		case stepRaw:
			s.raw = true
			s.begin()
			s.out.Write(step.raw)
			s.flush()
		case stepText:
			s.delta(`{"content":`+quote(step.text)+`}`, step.text)
			s.flush()
		case stepReasoning:
			s.delta(`{"reasoning_content":`+quote(step.text)+`}`, step.text)
			s.flush()
		case stepRepeat:
			s.begin()
			frame := []byte(s.frame(`{"content":`+quote(step.text)+`}`, step.text))
			for range step.count {
				if _, err := s.out.Write(frame); err != nil {
					return
				}
			}
			s.flush()
		case stepCall:
			s.call(step)
			s.flush()
		case stepFail:
			s.fail(step.err)
			return
		case stepCut:
			s.begin()
			s.flush()
			return
		case stepReset:
			s.reset()
		case stepStop:
			s.stop, s.set = step.stop, true
		case stepUsage:
			s.usage = &step.usage
		default:
			if s.begun {
				s.flush()
			}
			if !step.idle(ctx) {
				return
			}
		}
	}
	if !s.raw {
		s.end()
	}
}

func (s *serving) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
	if !s.raw {
		first := s.frame(`{"role":"assistant","content":""}`, "")
		if s.prompt != "" {
			first = strings.Replace(first, `{"id":`, "{"+s.prompt+`,"id":`, 1)
		}
		s.out.WriteString(first)
	}
}

func (s *serving) frame(delta, text string) string {
	logprobs, ids := "null", ""
	if s.ids {
		ids = `,"token_ids":` + tokenIDs(text)
	}
	if s.logprobs && text != "" {
		logprobs = `{"content":` + tokenLogprobs(text) + `}`
	}
	return "data: " + s.head + `{"index":0,"delta":` + delta + `,"logprobs":` + logprobs + `,"finish_reason":null` + ids + "}]}\n\n"
}

// delta writes one piece, which stands for the tokens of text.
func (s *serving) delta(delta, text string) {
	s.begin()
	s.out.WriteString(s.frame(delta, text))
}

func tokenIDs(text string) string {
	out := []byte("[")
	for i, r := range []rune(text) {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(r), 10)
	}
	return string(append(out, ']'))
}

func tokenLogprobs(text string) string {
	var out []string
	for _, r := range text {
		out = append(out, fmt.Sprintf(`{"token":%s,"logprob":-0.%03d,"bytes":null,"top_logprobs":[]}`, quote(string(r)), r%1000))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// promptText is what the prompt's tokens are made of.
func promptText(r model.Request) string {
	out := r.System
	for _, m := range r.Messages {
		out += "\n" + string(m.Role) + ":"
		for _, b := range m.Content {
			out += b.Text + b.Arguments + model.JoinText(b.Content)
		}
	}
	return out
}

func (s *serving) call(step Step) {
	id := step.id
	if id == "" {
		id = fmt.Sprintf("%s_%d", s.id, s.calls)
	}
	s.delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`, s.calls, quote(id), quote(step.name)), step.name)
	s.delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, s.calls, quote(step.text)), step.text)
	s.calls++
}

func (s *serving) fail(e *model.Error) {
	status := e.Status
	if status == 0 {
		status = statusOf(e.Code)
	}
	if s.begun {
		fmt.Fprintf(s.out, "data: {\"error\":{\"message\":%s,\"type\":%s,\"code\":%d}}\n\n", quote(e.Message), quote(string(e.Code)), status)
		s.flush()
		return
	}
	if e.RetryAfter > 0 {
		s.w.Header().Set("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())))
	}
	refuse(s.w, status, string(e.Code), e.Message)
}

func statusOf(code model.Code) int {
	switch code {
	case model.CodeAuth:
		return http.StatusUnauthorized
	case model.CodeQuota:
		return http.StatusPaymentRequired
	case model.CodeRateLimit:
		return http.StatusTooManyRequests
	case model.CodeInvalidRequest, model.CodeContextWindow:
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// reset breaks the connection so that the client sees a reset, also before any header.
func (s *serving) reset() {
	if s.begun {
		s.flush()
	}
	if conn, _, err := http.NewResponseController(s.w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}

func (s *serving) end() {
	s.begin()
	finish := "stop"
	switch {
	case s.stop == model.StopMaxTokens:
		finish = "length"
	case s.stop == model.StopTools, s.calls > 0 && !s.set:
		finish = "tool_calls"
	}
	fmt.Fprintf(s.out, "data: %s{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":%s}]}\n\n", s.head, quote(finish))
	if u := s.usage; u != nil {
		fmt.Fprintf(s.out, "data: %s],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d},\"completion_tokens_details\":{\"reasoning_tokens\":%d}}}\n\n",
			s.head, u.InputTokens+u.CacheReadTokens, u.OutputTokens, u.CacheReadTokens, u.ReasoningTokens)
	}
	s.out.WriteString("data: [DONE]\n\n")
	s.flush()
}

func (s *serving) flush() {
	_ = s.out.Flush()
	_ = http.NewResponseController(s.w).Flush()
}

// wishes are the fields of a request that shape the answer.
type wishes struct {
	Model    string `json:"model"`
	TokenIDs bool   `json:"return_token_ids"`
	Logprobs bool   `json:"logprobs"`
}

// parse reads a chat-completions request back into one of ours, as far as sources look at it.
func parse(body []byte) (model.Request, wishes, error) {
	var in struct {
		wishes
		Messages []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			Reasoning  *string         `json:"reasoning_content"`
			ToolCallID string          `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function model.Tool `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return model.Request{}, wishes{}, fmt.Errorf("the body isn't a chat-completions request: %w", err)
	}
	var r model.Request
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.Function)
	}
	for _, m := range in.Messages {
		content := contentText(m.Content)
		switch m.Role {
		case "system", "developer":
			r.System = content
		case "assistant":
			msg := model.Message{Role: model.RoleAssistant, Source: model.Source{Kind: model.SourceModel}}
			if m.Reasoning != nil {
				msg.Content = append(msg.Content, model.Block{Type: model.BlockReasoning, Text: *m.Reasoning})
			}
			if content != "" {
				msg.Content = append(msg.Content, model.Text(content))
			}
			for _, c := range m.ToolCalls {
				msg.Content = append(msg.Content, model.Block{Type: model.BlockToolCall, ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
			}
			r.Messages = append(r.Messages, msg)
		case "tool":
			r.Messages = append(r.Messages, model.Message{
				Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: m.ToolCallID},
				Content: []model.Block{{Type: model.BlockToolResult, ToolCallID: m.ToolCallID, Content: []model.Block{model.Text(content)}}},
			})
		default:
			r.Messages = append(r.Messages, model.Message{Role: model.RoleUser, Source: model.Source{Kind: model.SourceUser}, Content: []model.Block{model.Text(content)}})
		}
	}
	return r, in.wishes, nil
}

func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(raw, &parts)
	for _, p := range parts {
		s += p.Text
	}
	return s
}
