package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/model"
)

// refused turns a response with an error status into an error.
func (s *Stream) refused(body []byte) error {
	status := s.resp.StatusCode
	message, kind := describe(body)
	e := s.fail(classify(status, kind, message), message, status, nil)
	e.RetryAfter = retryAfter(s.resp.Header, time.Now())
	e.ReasoningForm = aboutReasoning(e.Code, message)
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	if status == http.StatusNotFound {
		e.Message += "; check the base URL (many servers want it to end in /v1) and the model's name"
	}
	return e
}

// Failure turns an error object inside a stream, or in place of a completion, into an error. It returns nil when data holds none.
func (s *Stream) Failure(data []byte) *model.Error {
	message, kind, status, ok := parseFailure(data)
	if !ok {
		return nil
	}
	if status == 0 {
		status = statusOf(kind)
	}
	code := model.CodeServer
	if status != 0 || kind != "" || message != "" {
		code = classify(status, kind, message)
	}
	if message == "" {
		message = "the server reported an error inside the stream"
	}
	e := s.fail(code, message, status, nil)
	e.ReasoningForm = aboutReasoning(code, message)
	return e
}

// describe finds the text of an error body, and its machine-readable type. Bodies that aren't JSON give their beginning.
func describe(body []byte) (message, kind string) {
	if message, kind, _, ok := parseFailure(body); ok {
		return message, kind
	}
	return clip(strings.TrimSpace(string(body)), 300), ""
}

// parseFailure understands {"error": {...}}, {"error": "text"}, {"object": "error", ...}, {"type": "error", ...}, {"detail": ...} and
// {"message": ...}.
func parseFailure(data []byte) (message, kind string, status int, ok bool) {
	var top struct {
		Error   json.RawMessage `json:"error"`
		Object  string          `json:"object"`
		Type    string          `json:"type"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Code    json.RawMessage `json:"code"`
		Choices json.RawMessage `json:"choices"`
	}
	if json.Unmarshal(data, &top) != nil {
		return "", "", 0, false
	}
	var inner struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Status  json.RawMessage `json:"status"`
	}
	var text string
	switch {
	case present(top.Error) && json.Unmarshal(top.Error, &text) == nil:
		message = text
	case present(top.Error) && json.Unmarshal(top.Error, &inner) == nil:
		message, kind = inner.Message, inner.Type
		status = number(inner.Code)
		if status == 0 {
			status = number(inner.Status)
		}
		if name := word(inner.Code); name != "" {
			kind = strings.TrimSpace(kind + " " + name)
		}
	case top.Object == "error" || top.Type == "error":
		message, kind, status = top.Message, top.Type, number(top.Code)
	case present(top.Detail) && len(top.Choices) == 0:
		if json.Unmarshal(top.Detail, &message) != nil {
			message = string(top.Detail)
		}
	case top.Message != "" && len(top.Choices) == 0:
		message, kind, status = top.Message, word(top.Code), number(top.Code)
	default:
		return "", "", 0, false
	}
	return clip(message, 600), clip(kind, 100), status, true
}

func present(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null" && string(raw) != "false" && string(raw) != `""` && string(raw) != "{}"
}

func number(raw json.RawMessage) int {
	n, err := strconv.Atoi(strings.Trim(string(raw), `"`))
	if err != nil || n < 100 || n > 599 {
		return 0
	}
	return n
}

func word(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// statusOf maps the error types that servers name inside streams to the status they would have had.
func statusOf(kind string) int {
	for _, k := range []struct {
		part   string
		status int
	}{
		{"overloaded", 529}, {"rate_limit", 429}, {"authentication", 401}, {"permission", 403}, {"billing", 402}, {"insufficient_quota", 402},
		{"insufficient_balance", 402}, {"not_found", 404}, {"request_too_large", 413}, {"invalid_request", 400}, {"badrequest", 400},
		{"timeout", 504}, {"api_error", 500}, {"server_error", 500}, {"internal", 500},
	} {
		if strings.Contains(strings.ToLower(kind), k.part) {
			return k.status
		}
	}
	return 0
}

// classify gives the code of a status, refined by what the server wrote.
func classify(status int, kind, message string) model.Code {
	text := strings.ToLower(kind + " " + message)
	if status >= 400 && status < 500 || status == 0 {
		switch {
		case status != http.StatusTooManyRequests && containsAny(text, "context_length", "context length", "context window", "maximum context", "max_model_len",
			"prompt is too long", "input is too long", "too many tokens", "exceed_context_size", "exceeds the available context"):
			return model.CodeContextWindow
		case containsAny(text, "content_filter", "content management policy"):
			return model.CodeContentFilter
		case containsAny(text, "insufficient_quota", "insufficient balance", "insufficient_balance", "exceeded your current quota", "credit balance", "billing", "payment required"):
			return model.CodeQuota
		}
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return model.CodeAuth
	case status == http.StatusPaymentRequired:
		return model.CodeQuota
	case status == http.StatusTooManyRequests:
		return model.CodeRateLimit
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return model.CodeServer // worth another try, unlike the other 4xx
	case status >= 400 && status < 500:
		return model.CodeInvalidRequest
	}
	return model.CodeServer
}

func containsAny(text string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// aboutReasoning says whether a refusal is about the reasoning that messages carry or lack.
func aboutReasoning(code model.Code, message string) bool {
	return code == model.CodeInvalidRequest && containsAny(strings.ToLower(message), "reasoning_content", "messages.reasoning", "\"reasoning\"", "'reasoning'", "`reasoning`", "`thinking` block", "`signature`")
}

// retryAfter reads the server's wish: milliseconds, seconds, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil && t.After(now) {
		return t.Sub(now).Round(time.Second)
	}
	return 0
}

// clip shortens text to n bytes at a rune border and makes control characters spaces.
func clip(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// redact takes a secret out of a text. A server may echo the key it refuses, often with the middle starred out, so its ends go too.
func redact(s, secret string) string {
	if secret == "" {
		return s
	}
	s = strings.ReplaceAll(s, secret, "[key]")
	if len(secret) < 12 {
		return s
	}
	words := strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"'()[]{},;:`, r) })
	for _, w := range words {
		if strings.ContainsAny(w, "*.…") && (strings.HasPrefix(w, secret[:4]) || strings.HasSuffix(strings.TrimRight(w, "."), secret[len(secret)-4:])) {
			s = strings.ReplaceAll(s, w, "[key]")
		}
	}
	return s
}

// cleanURL drops user, password, query and fragment.
func cleanURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// Key trims a key and refuses one that isn't made of visible ASCII characters, before any connection.
func Key(provider, key string) (string, error) {
	key = strings.TrimSpace(key)
	for i := range len(key) {
		if key[i] <= ' ' || key[i] >= 0x7f {
			return "", &model.Error{
				Code: model.CodeInvalidCredential, Provider: provider,
				Message: "the key holds spaces, line breaks or other characters that no HTTP header can carry",
			}
		}
	}
	return key, nil
}

// FetchKey asks for a key and checks it. A nil function means that there is none. Errors are *model.Error.
func FetchKey(ctx context.Context, provider string, key func(context.Context) (string, error)) (string, error) {
	if key == nil {
		return "", nil
	}
	value, err := key(ctx)
	if err != nil {
		var e *model.Error
		if errors.As(err, &e) {
			return "", e
		}
		return "", &model.Error{Code: model.CodeMissingCredential, Provider: provider, Message: "the key can't be read", Err: err}
	}
	return Key(provider, value)
}
