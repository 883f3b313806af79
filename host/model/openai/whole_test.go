package openai_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/replay"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// converse runs a small agent against the adapter until an answer makes no calls, and returns everything that came of it.
func converse(t *testing.T, a *openai.Adapter, text string) (out []string, log []model.Message) {
	t.Helper()
	tools := []model.Tool{{Name: "bash", Parameters: []byte(`{"type":"object","properties":{"command":{"type":"string"}}}`)}}
	log = []model.Message{user(text)}
	var before *model.Prepared
	for n := 1; n < 20; n++ {
		p := prepare(t, a, model.Request{System: "sys", Tools: tools, Messages: log, Session: "s", Call: n})
		if ok, where := p.Extends(before); !ok {
			t.Fatalf("request %d diverges at %s", n, where)
		}
		before = p
		var deltas []string
		resp, err := a.Stream(t.Context(), p, func(d model.Delta) { deltas = append(deltas, d.Text) })
		if err != nil {
			if _, again := model.RetryDelay(err, 1, 0.5); again {
				t.Errorf("would be retried: %v", err)
			}
			return append(out, err.Error()), log
		}
		out = append(out, fmt.Sprintf("%s %q %+v %v", p.BodySHA256(), deltas, resp.Content, resp.Usage))
		m := assistant(resp.Content...)
		log = append(log, m)
		for _, c := range m.ToolCalls() {
			log = append(log, toolResult(c.ID, "result of "+c.Arguments))
		}
		if len(m.ToolCalls()) == 0 {
			return out, log
		}
	}
	t.Fatal("never ends")
	return nil, nil
}

// A whole session over real HTTP is recorded, and played back twice without a server: the same answers piece by piece, the same requests.
func TestRecordedSessionPlaysBack(t *testing.T) {
	h := script.NewHandler(script.Demo(script.Options{}))
	srv := httptest.NewServer(h)
	var file bytes.Buffer
	rec := replay.NewRecorder(srv.Client().Transport, &file)
	with := func(c *openai.Config) {
		c.Annotate, c.Thinking = replay.Annotate, true
		c.BaseURL = func() string { return srv.URL + "/v1" }
	}
	const text = "think: hm\nsay: Hello é\nrun: one\nrun: two\nsay: bye"
	live, log := converse(t, offline(with, func(c *openai.Config) { c.Transport = rec }), text)
	srv.Close()
	if rec.Err() != nil || len(live) != 3 {
		t.Fatalf("%v, %q", rec.Err(), live)
	}
	for i, r := range h.Requests() {
		if !strings.HasPrefix(live[i], (&model.Prepared{Body: r.Body}).BodySHA256()) {
			t.Errorf("request %d: the hash isn't that of the bytes on the wire", i)
		}
	}
	for range 2 {
		player, err := replay.NewPlayer(bytes.NewReader(file.Bytes()), replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		played, again := converse(t, offline(with, func(c *openai.Config) { c.Transport = player }), text)
		same(t, played, live)
		same(t, again, log)
		if err := player.Finish(); err != nil {
			t.Error(err)
		}
	}
	player, err := replay.NewPlayer(bytes.NewReader(file.Bytes()), replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	drifted, _ := converse(t, offline(with, func(c *openai.Config) { c.Transport, c.Model = player, "other" }), text)
	if len(drifted) != 1 || !strings.Contains(drifted[0], `model: "m" -> "other"`) || !strings.Contains(drifted[0], `call 1 of session "s"`) {
		t.Errorf("%q", drifted)
	}
}

// The scripted server speaks the form of vLLM: what it sampled comes out as it was sent.
func TestTokensOfAWholeSession(t *testing.T) {
	srv := httptest.NewServer(script.NewHandler(script.Demo(script.Options{})))
	defer srv.Close()
	a := offline(func(c *openai.Config) {
		c.CaptureTokens, c.Transport, c.BaseURL = true, srv.Client().Transport, func() string { return srv.URL }
	})
	p := prepare(t, a, model.Request{System: "s", Messages: []model.Message{user("say: hé")}})
	resp, err := a.Stream(t.Context(), p, func(model.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	same(t, string(resp.Tokens), `{"prompt_token_ids":[115,10,117,115,101,114,58,115,97,121,58,32,104,233],"chunks":[{"token_ids":[]},{"token_ids":[104,233],"logprobs":`+
		`{"content":[{"token":"h","logprob":-0.104,"bytes":null,"top_logprobs":[]},{"token":"é","logprob":-0.233,"bytes":null,"top_logprobs":[]}]}}]}`)
}

// Many sessions stream through one transport at once, and each gets its own answer.
func TestManyStreamsAtOnce(t *testing.T) {
	srv := httptest.NewServer(script.NewHandler(script.Demo(script.Options{})))
	defer srv.Close()
	transport := wire.NewTransport(wire.TransportConfig{Guard: true})
	defer transport.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			a := offline(func(c *openai.Config) { c.Transport, c.BaseURL = transport, func() string { return srv.URL } })
			want := strings.Repeat(fmt.Sprintf("word%d ", i), 50)
			p, err := a.Prepare(model.Request{Messages: []model.Message{user("say: " + want + "end")}})
			if err != nil {
				t.Error(err)
				return
			}
			streamed := ""
			resp, err := a.Stream(t.Context(), p, func(d model.Delta) { streamed += d.Text })
			if err != nil || model.JoinText(resp.Content) != want+"end" || streamed != want+"end" {
				t.Errorf("session %d: %v, %q", i, err, streamed)
			}
		})
	}
	wg.Wait()
}
