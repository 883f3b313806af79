package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/anthropic"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

func fine() answer { return ok(start, textStart, text(0, "x"), stopped(0), finish("end_turn"), end) }

// with is an adapter with a changed configuration.
func with(s *server, change func(*anthropic.Config)) *anthropic.Adapter {
	c := anthropic.Config{Model: "m", BaseURL: func() string { return s.URL }, Transport: s.Client().Transport}
	change(&c)
	return anthropic.New(c)
}

func TestRefusals(t *testing.T) {
	refusal := func(status int, kind, message string, header ...string) answer {
		a := answer{status: status, header: map[string]string{"Content-Type": "application/json"},
			pieces: []string{fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)}}
		for i := 0; i+1 < len(header); i += 2 {
			a.header[header[i]] = header[i+1]
		}
		return a
	}
	for _, c := range []struct {
		name   string
		answer answer
		code   model.Code
		retry  bool
		after  time.Duration
	}{
		{"L36 429", refusal(429, "rate_limit_error", "slow down", "Retry-After", "2"), model.CodeRateLimit, true, 2 * time.Second},
		{"L37 429 for an hour", refusal(429, "rate_limit_error", "slow down", "Retry-After", "3600"), model.CodeRateLimit, true, time.Hour},
		{"L38 500", refusal(500, "api_error", "oops"), model.CodeServer, true, 0},
		{"L40 403", refusal(403, "permission_error", "no"), model.CodeAuth, false, 0},
		{"L40 402", refusal(402, "billing_error", "pay"), model.CodeQuota, false, 0},
		{"L41 400", refusal(400, "invalid_request_error", "messages: roles must alternate"), model.CodeInvalidRequest, false, 0},
		{"L41 413", refusal(413, "request_too_large", "too large"), model.CodeInvalidRequest, false, 0},
		{"L41 422", refusal(422, "invalid_request_error", "no"), model.CodeInvalidRequest, false, 0},
		{"404", refusal(404, "not_found_error", "model: m"), model.CodeInvalidRequest, false, 0},
		{"redirect", answer{status: 307, header: map[string]string{"Location": "https://elsewhere.example/v1/messages?k=1"}}, model.CodeInvalidRequest, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := ask(t, adapter(serve(t, c.answer), wire.Clocks{}))
			var e *model.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Retryable() != c.retry || e.RetryAfter != c.after {
				t.Fatalf("%+v", err)
			}
			if !strings.HasSuffix(e.URL, "/v1/messages") || strings.Contains(e.Error(), "k=1") {
				t.Errorf("the error must name the place without its query: %q, %v", e.URL, e)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	key := func(k string) func(*anthropic.Config) {
		return func(c *anthropic.Config) { c.Key = func(context.Context) (string, error) { return k, nil } }
	}
	t.Run("L50 newline is trimmed", func(t *testing.T) {
		s := serve(t, fine())
		if _, _, err := ask(t, with(s, key("sk-abc\n"))); err != nil {
			t.Fatal(err)
		}
		same(t, s.heads[0].Header.Get("X-Api-Key"), "sk-abc")
	})
	t.Run("L50 inner space is refused before any connection", func(t *testing.T) {
		s := serve(t, fine())
		_, _, err := ask(t, with(s, key("sk abc")))
		if code(t, err) != model.CodeInvalidCredential || strings.Contains(err.Error(), "abc") || len(s.bodies) != 0 {
			t.Fatalf("%v after %d requests", err, len(s.bodies))
		}
	})
	t.Run("L51 changed between turns", func(t *testing.T) {
		s := serve(t, fine())
		current := ""
		a := with(s, func(c *anthropic.Config) { c.Key = func(context.Context) (string, error) { return current, nil } })
		for _, current = range []string{"one-key-one", "two-key-two"} {
			if _, _, err := ask(t, a); err != nil {
				t.Fatal(err)
			}
		}
		same(t, s.heads[1].Header.Get("X-Api-Key"), "two-key-two")
	})
	t.Run("L55 not echoed", func(t *testing.T) {
		const secret = "sk-ant-0123456789abcdef"
		for _, body := range []string{
			`{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key: ` + secret + `"}}`,
			`<html>` + secret + `</html>`,
		} {
			s := serve(t, answer{status: 401, pieces: []string{body}})
			_, _, err := ask(t, with(s, key(secret)))
			if all := fmt.Sprintf("%v %+v", err, err); strings.Contains(all, secret) || strings.Contains(all, "cdef") {
				t.Errorf("the error holds the key: %s", all)
			}
		}
	})
	t.Run("not forwarded on redirects", func(t *testing.T) {
		other := serve(t, fine())
		s := serve(t, answer{status: 307, header: map[string]string{"Location": other.URL + "/v1/messages"}})
		if _, _, err := ask(t, with(s, key("sk-abc"))); err == nil || len(other.bodies) != 0 {
			t.Fatalf("%v, and the other server saw %d requests", err, len(other.bodies))
		}
	})
}

func TestL52BaseURLForms(t *testing.T) {
	for suffix, want := range map[string]string{
		"": "/v1/messages", "/": "/v1/messages", "/v1": "/v1/messages", "/v1//": "/v1/messages", "/v1/messages": "/v1/messages",
		"/gw/rollout-7/v1?x=1&y=2": "/gw/rollout-7/v1/messages?x=1&y=2",
	} {
		s := serve(t, fine())
		if _, _, err := ask(t, with(s, func(c *anthropic.Config) { c.BaseURL = func() string { return s.URL + suffix } })); err != nil {
			t.Fatalf("%q: %v", suffix, err)
		}
		same(t, s.heads[0].URL.RequestURI(), want)
	}
}

func TestL32LongLine(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 3<<20/16)
	resp, _, err := ask(t, adapter(serve(t, ok(start, textStart, text(0, big), stopped(0), finish("end_turn"), end)), wire.Clocks{}))
	if err != nil || model.JoinText(resp.Content) != big {
		t.Fatalf("error %v, %d bytes of text", err, len(model.JoinText(resp.Content)))
	}
}

func TestL45CancelBeforeHeaders(t *testing.T) {
	s := serve(t, answer{then: "hold"})
	ctx, cancel := context.WithCancel(t.Context())
	a := adapter(s, wire.Clocks{})
	p, err := a.Prepare(model.Request{Messages: []model.Message{user("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		defer cancel()
		for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
			s.mu.Lock()
			arrived := len(s.bodies) > 0
			s.mu.Unlock()
			if arrived {
				return
			}
		}
	})
	_, err = a.Stream(ctx, p, func(model.Delta) {})
	group.Wait()
	if code(t, err) != model.CodeAborted {
		t.Fatal(err)
	}
	<-s.left // the connection is closed
}

// What happened to a history is mended in what is sent: L48 orphan and doubled results, L49 an empty result, L7 a call without reasoning.
func TestHistoryOnTheWire(t *testing.T) {
	s := serve(t, fine())
	if _, _, err := ask(t, adapter(s, wire.Clocks{}), user("hi"), toolResult("orphan", "nobody asked", false), assistant(call("c", "bash", "{}")),
		toolResult("c", "", false), toolResult("c", "again", false), user("go on")); err != nil {
		t.Fatal(err)
	}
	body := s.bodies[0]
	if n := strings.Count(body, `"type":"tool_result"`); n != 1 {
		t.Errorf("%d results for one call: %s", n, body)
	}
	for _, not := range []string{"nobody asked", "again", `"thinking"`, `"text":""`} {
		if strings.Contains(body, not) {
			t.Errorf("the request holds %s: %s", not, body)
		}
	}
	if !strings.Contains(body, strings.TrimSpace(wire.Empty())) {
		t.Errorf("an empty result went out empty: %s", body)
	}
}
