package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/web"
	"github.com/dsh-web/dsh-web/web/guard"
)

func TestMain(m *testing.M) {
	proc.RunKeeperIfAsked()
	if filepath.Base(os.Args[0]) == "websocat" { // see TestGuide
		if err := websocat(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patience bounds what a test waits for; nothing waits that long unless it fails.
const patience = 30 * time.Second

// options change a rig before it starts.
type options struct {
	source  script.Source // what the model says; the demo when nil
	noAuth  bool
	web     func(*web.Config)
	presets map[string]string // the user's presets, by id
	log     io.Writer         // takes all of the program's log
	dir     string            // the data of a stopped rig
}

// rig is a server on a real port over a real host, store and shell; only the model follows a script.
type rig struct {
	t      testing.TB
	dir    string
	ws     string
	host   *host.Host
	server *web.Server
	keys   *guard.Keys
	addr   string
	base   string
	token  string
	client *http.Client
	stop   func()
}

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	r := &rig{t: t, dir: o.dir, ws: t.TempDir()}
	if r.dir == "" {
		r.dir = t.TempDir()
	}
	for id, text := range o.presets {
		writePreset(t, filepath.Join(r.dir, "presets", id), text)
	}
	ctx := context.Background()
	store, err := sqlite.Open(ctx, filepath.Join(r.dir, "db"), sqlite.Options{Synchronous: "normal"})
	r.must(err)
	processes, err := proc.Open(proc.Options{})
	r.must(err)
	keys := credential.New(r.dir, func(string) (string, bool) { return "", false })
	demo := script.Factory(script.Options{})
	router, err := model.NewRouter(model.Config{Lookup: keys.Lookup, Kinds: map[string]model.Factory{
		"openai": demo,
		model.KindScript: func(b model.Binding) (model.Adapter, error) {
			if o.source != nil && b.Model == model.ModelDemo {
				return script.New(o.source), nil
			}
			return demo(b)
		},
	}})
	r.must(err)
	logger := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if o.log != nil {
		logger = slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	r.host = host.New(host.Config{
		Store: store, Router: router, Credentials: keys, Proc: processes,
		Roster:      presets.NewRoster(nil, filepath.Join(r.dir, "presets")),
		Attachments: filepath.Join(r.dir, "attachments"), DefaultPreset: "minimal", MaxLive: 1000, KeepRecorded: true, Logger: logger,
	})
	r.must(r.host.Start(ctx))
	if !o.noAuth {
		r.keys, err = guard.OpenKeys(r.dir, nil)
		r.must(err)
		r.token = r.keys.Owner()
	}
	cfg := web.Config{
		Host: r.host, Keys: r.keys, Node: "test", Version: "0.0.0-test", DefaultPreset: "minimal", Logger: logger,
		Assets: fstest.MapFS{
			"index.html":            {Data: []byte("<!doctype html><html><head><title>x</title></head></html>")},
			"favicon.svg":           {Data: []byte("<svg/>")},
			"assets/app-1a2b3c.js":  {Data: []byte(strings.Repeat("console.log(1);\n", 100))},
			"assets/z-1a2b3c.js":    {Data: []byte("plain")},
			"assets/z-1a2b3c.js.br": {Data: []byte("brotli")},
			"assets/z-1a2b3c.js.gz": {Data: []byte("gzip")},
		},
	}
	if o.web != nil {
		o.web(&cfg)
	}
	r.server, err = web.New(cfg)
	r.must(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.addr = ln.Addr().String()
	r.base = "http://" + r.addr + strings.TrimSuffix(cfg.BasePath, "/")
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ctx, ln) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	r.client = &http.Client{Transport: transport}
	closed := false
	r.stop = func() {
		if closed {
			return
		}
		closed = true
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.server.Close(ctx); err != nil {
			t.Errorf("close server: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		transport.CloseIdleConnections()
		if err := r.host.Close(ctx); err != nil {
			t.Errorf("close host: %v", err)
		}
		if err := processes.Close(ctx); err != nil {
			t.Errorf("close processes: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

type testLog struct{ t testing.TB }

func (w testLog) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("answer %d %s: %v", a.status, a.body, err)
	}
}

// code is the code of a problem.
func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal(a.body, &p)
	return p.Code
}

// call makes a request of the API and checks the answer against the document.
func (r *rig) call(method, path string, body any) answer {
	r.t.Helper()
	return r.send(method, "/api/v1"+path, body, map[string]string{"Authorization": "Bearer " + r.token})
}

func (r *rig) send(method, path string, body any, header map[string]string) answer {
	r.t.Helper()
	var in io.Reader
	if body != nil {
		text, ok := body.(string)
		if !ok {
			b, err := json.Marshal(body)
			r.must(err)
			text = string(b)
		}
		in = strings.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, in)
	r.must(err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	res, err := r.client.Do(req)
	r.must(err)
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	r.must(err)
	a := answer{res.StatusCode, res.Header, data}
	checkAnswer(r.t, r.server, method, path, a)
	return a
}

// want makes a request that must have this status, and decodes its answer into out when that isn't nil.
func (r *rig) want(status int, method, path string, body, out any) answer {
	r.t.Helper()
	a := r.call(method, path, body)
	if a.status != status {
		r.t.Fatalf("%s %s: %d %s, want %d", method, path, a.status, bytes.TrimSpace(a.body), status)
	}
	if out != nil {
		a.into(r.t, out)
	}
	return a
}

// refused makes a request that must be refused with this code.
func (r *rig) refused(status int, code, method, path string, body any) answer {
	r.t.Helper()
	a := r.call(method, path, body)
	if a.status != status || a.code() != code || a.header.Get("Content-Type") != "application/problem+json" {
		r.t.Errorf("%s %s %v: %d %s %s, want %d %s", method, path, body, a.status, a.header.Get("Content-Type"), bytes.TrimSpace(a.body), status, code)
	}
	return a
}

func (r *rig) create(body map[string]any) host.Info {
	r.t.Helper()
	if body["workspace"] == nil {
		body["workspace"] = r.ws
	}
	var info host.Info
	r.want(201, "POST", "/sessions", body, &info)
	return info
}

// say sends a message and waits for the end of its turn.
func (r *rig) say(id, text string) web.Sent {
	r.t.Helper()
	var sent web.Sent
	r.want(200, "POST", "/sessions/"+id+"/messages?wait=idle&timeout=30s", map[string]any{"content": text}, &sent)
	return sent
}

// log reads a whole log over the API.
func (r *rig) log(id string) []session.Event {
	r.t.Helper()
	var out []session.Event
	after := int64(-1)
	for {
		var page struct {
			Events  []session.Event
			HasMore bool
		}
		r.want(200, "GET", fmt.Sprintf("/sessions/%s/events?after=%d&limit=1000", id, after), nil, &page)
		out = append(out, page.Events...)
		if !page.HasMore {
			return out
		}
		after = out[len(out)-1].Seq
	}
}

func eventTypes(events []session.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Type)
		b.WriteByte('\n')
	}
	return b.String()
}

// plain makes a request without looking at its answer, for measurements.
func (r *rig) plain(method, path string) int {
	req, err := http.NewRequest(method, r.base+"/api/v1"+path, nil)
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+r.token)
	res, err := r.client.Do(req)
	r.must(err)
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*p/100)]
}
