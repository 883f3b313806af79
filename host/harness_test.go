package host_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/model/wire"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/presets"
)

func TestMain(m *testing.M) {
	proc.RunKeeperIfAsked()
	goleak.VerifyTestMain(m)
}

// patience bounds what a test waits for; nothing waits that long unless it fails.
const patience = 30 * time.Second

// rig is a whole host over a real store, a real shell and a model server on loopback that follows a script.
type rig struct {
	t      testing.TB
	dir    string
	ws     string
	host   *host.Host
	proc   *proc.Instance
	wire   *script.Handler
	server *httptest.Server
	stop   func()
}

// options change a rig before it starts.
type options struct {
	source  script.Source
	dir     string // of an earlier rig, to go on with its data
	env     map[string]string
	roots   []string
	config  func(*host.Config)
	onStart func(*host.Host)
}

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	r := &rig{t: t, dir: o.dir, ws: t.TempDir()}
	if r.dir == "" {
		r.dir = t.TempDir()
	}
	if o.source == nil {
		o.source = script.ByHistory(script.Turn{script.Text("done")})
	}
	r.wire = script.NewHandler(o.source)
	r.server = httptest.NewServer(r.wire)
	ctx := context.Background()
	store, err := sqlite.Open(ctx, r.dir, sqlite.Options{})
	r.must(err)
	r.proc, err = proc.Open(proc.Options{})
	r.must(err)
	lookup := func(name string) (string, bool) {
		switch name {
		case "DEEPSEEK_BASE_URL":
			return r.server.URL, true
		case "DEEPSEEK_API_KEY":
			return "sk-test-0123456789", true
		}
		v, ok := o.env[name]
		return v, ok
	}
	keys := credential.New(r.dir, lookup)
	transport := wire.NewTransport(wire.TransportConfig{})
	router, err := model.NewRouter(model.Config{Lookup: keys.Lookup, Kinds: map[string]model.Factory{
		"openai":         openai.Factory(openai.Config{Transport: transport}),
		model.KindScript: script.Factory(script.Options{}),
	}})
	r.must(err)
	cfg := host.Config{
		Store: store, Router: router, Credentials: keys, Proc: r.proc,
		Roster:        presets.NewRoster(o.roots, filepath.Join(r.dir, "presets")),
		Attachments:   filepath.Join(r.dir, "attachments"),
		DefaultPreset: "minimal", MaxLive: 1000, KeepRecorded: true,
		Violation: func(err error) { t.Errorf("the prompt changed after its first request: %v", err) },
		Logger:    slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if o.config != nil {
		o.config(&cfg)
	}
	r.host = host.New(cfg)
	r.must(r.host.Start(ctx))
	if o.onStart != nil {
		o.onStart(r.host)
	}
	closed := false
	r.stop = func() {
		if closed {
			return
		}
		closed = true
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.host.Close(ctx); err != nil {
			t.Errorf("close host: %v", err)
		}
		if err := r.proc.Close(ctx); err != nil {
			t.Errorf("close processes: %v", err)
		}
		transport.CloseIdleConnections()
		r.server.CloseClientConnections()
		r.server.Close()
	}
	t.Cleanup(r.stop)
	return r
}

type writer struct{ t testing.TB }

func (w writer) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) create(id, preset string) host.Info {
	r.t.Helper()
	info, created, err := r.host.Create(r.ctx(), host.Spec{ID: id, Preset: preset, Workspace: r.ws})
	r.must(err)
	if !created {
		r.t.Fatalf("session %s existed", id)
	}
	return info
}

func (r *rig) session(id string) *host.Session {
	r.t.Helper()
	s, err := r.host.Session(r.ctx(), id)
	r.must(err)
	r.t.Cleanup(s.Release)
	return s
}

func text(s string) []model.Block { return []model.Block{model.Text(s)} }

// say sends a message and waits for the turn's end.
func (r *rig) say(id, message string) session.State {
	r.t.Helper()
	s := r.session(id)
	_, err := s.Send(r.ctx(), host.Message{Content: text(message)})
	r.must(err)
	st, err := s.WaitIdle(r.ctx())
	r.must(err)
	return st
}

// events reads a whole log.
func (r *rig) events(id string) []session.Event {
	r.t.Helper()
	var out []session.Event
	after := int64(-1)
	for {
		page, err := r.host.Journal().Read(r.ctx(), id, after, 1000, 1<<30)
		r.must(err)
		out = append(out, page.Events...)
		if !page.HasMore {
			return out
		}
		after = out[len(out)-1].Seq
	}
}

func count(events []session.Event, typ string) int {
	n := 0
	for _, e := range events {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// results gives the text of every tool result in a log.
func results(t testing.TB, events []session.Event) []string {
	t.Helper()
	var out []string
	for _, e := range events {
		if e.Type != (session.ToolResult{}).EventType() {
			continue
		}
		var p session.ToolResult
		if err := json.Unmarshal(e.Data, &p); err != nil {
			t.Fatal(err)
		}
		out = append(out, model.JoinText(p.Message.Content[0].Content))
	}
	return out
}

func bash(id, command string) script.Step {
	return script.CallJSON(id, "bash", map[string]string{"command": command})
}

func runShell(t testing.TB, shell *term.Terminals) {
	t.Helper()
	out, err := shell.Run(context.Background(), term.Request{Command: "true", Timeout: patience})
	if err != nil || !out.Ended {
		t.Fatalf("run true: %+v, %v", out, err)
	}
}
