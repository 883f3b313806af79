package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/web/socket"
)

func TestMain(m *testing.M) {
	proc.RunKeeperIfAsked()
	if os.Getenv(runAsHost) != "" {
		main()
		return
	}
	testscript.Main(m, map[string]func(){"dsh-web": main})
}

// patience bounds what a script waits for; nothing waits that long unless it fails.
const patience = 60 * time.Second

// TestScripts runs testdata/script. Besides the usual commands they have:
//
//	serve [FLAG...]            start a host on port 0 with $WORK/data; sets $URL, $TOKEN and $LOGIN
//	view FILE                  show a bundle, as dsh-web view does
//	halt                       stop it as SIGTERM does, and wait; prints its log on stderr. (stop is testscript's own: it ends the script.)
//	api METHOD PATH [JSON]     one request; prints the status and the body. Fails when the status is 400 or more
//	model NAME                 let testdata/recordings/NAME.jsonl answer for the model, from the next serve on; - ends that. See recording_test.go
//	modelserver                start a model server that follows the demo's script, and point DEEPSEEK_BASE_URL at it
//	fetch PATH FILE            one GET, its body into a file
//	ws SESSION AFTER TYPE      follow the event stream until an event of TYPE; prints one frame a line
//	pending SESSION            the approval or question that waits in the session; sets $ASKED to its id and $HASH to its hash
//	await SESSION TYPE [N]     wait until the session's log holds N (1) events of TYPE
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Values["host"] = &scriptHost{}
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("DSH_WEB_DEMO_PACE", "0s")
			e.Defer(func() { _ = hostOf(e.Values["host"]).stop() })
			return os.Mkdir(filepath.Join(e.WorkDir, "ws"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": cmdServe, "view": cmdView, "fetch": cmdFetch, "model": cmdModel, "modelserver": cmdModelServer, "halt": cmdHalt, "api": cmdAPI, "ws": cmdWS, "await": cmdAwait, "pending": cmdPending,
		},
	})
}

// scriptHost is the host of one script, run in this process.
type scriptHost struct {
	cancel context.CancelFunc
	done   chan error
	url    string
	token  string
	stderr *syncWriter // of the host that runs or ran last
	recording
}

func hostOf(v any) *scriptHost { return v.(*scriptHost) }

func (h *scriptHost) stop() error {
	if h.cancel == nil {
		return nil
	}
	h.cancel()
	h.cancel = nil
	return <-h.done
}

// lines passes what a host prints on, line by line.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	out chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for {
		line, err := l.buf.ReadString('\n')
		if err != nil {
			l.buf.WriteString(line)
			return len(p), nil
		}
		l.out <- strings.TrimSuffix(line, "\n")
	}
}

func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	data := ts.MkAbs("data")
	h := hostOf(ts.Value("host"))
	h.start(ts, neg, append(append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data}, h.flags(ts)...), args...))
	if raw, err := os.ReadFile(filepath.Join(data, "token")); err == nil {
		h.token = strings.TrimSpace(string(raw))
		ts.Setenv("TOKEN", h.token)
	}
}

func cmdView(ts *testscript.TestScript, neg bool, args []string) {
	h := hostOf(ts.Value("host"))
	h.start(ts, neg, append([]string{"view", "--auth", "off"}, ts.MkAbs(args[0])))
	h.token = ""
}

// start runs a command that serves, in this process, until it has said where.
func (h *scriptHost) start(ts *testscript.TestScript, neg bool, args []string) {
	if h.cancel != nil {
		ts.Fatalf("a host is running")
	}
	var env []string
	for _, name := range []string{"HOME", "PATH", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL", "DSH_SYSTEM_PROMPT", "DSH_MODEL", "DSH_WEB_DEMO_PACE"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	out := &lines{out: make(chan string, 64)}
	stderr := &syncWriter{}
	h.stderr = stderr
	h.done = make(chan error, 1)
	go func() { h.done <- run(ctx, args, env, out, stderr) }()
	select {
	case line := <-out.out:
		h.cancel = cancel
		h.url = strings.TrimSuffix(strings.TrimPrefix(line, "dsh-web listening on "), "/")
		ts.Setenv("URL", h.url)
		ts.Setenv("LOGIN", strings.TrimPrefix(<-out.out, "open "))
		if neg {
			ts.Fatalf("the host started")
		}
	case err := <-h.done:
		cancel()
		if !neg {
			ts.Fatalf("%s: %v\n%s", args[0], err, stderr.String())
		}
		fmt.Fprintln(ts.Stderr(), err)
	case <-time.After(patience):
		cancel()
		ts.Fatalf("%s: nothing printed", args[0])
	}
}

func cmdModelServer(ts *testscript.TestScript, _ bool, _ []string) {
	server := httptest.NewServer(script.NewHandler(script.Demo(script.Options{})))
	ts.Defer(server.Close)
	ts.Setenv("DEEPSEEK_BASE_URL", server.URL)
	ts.Setenv("DEEPSEEK_API_KEY", "sk-recorded-0123456789")
}

func cmdFetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fetch PATH FILE")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := hostOf(ts.Value("host")).request(ctx, http.MethodGet, args[0], "")
	ts.Check(err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	ts.Check(err)
	if res.StatusCode != http.StatusOK {
		ts.Fatalf("fetch %s: status %d\n%s", args[0], res.StatusCode, raw)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), raw, 0o644))
}

type syncWriter struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *syncWriter) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func cmdHalt(ts *testscript.TestScript, _ bool, _ []string) {
	h := hostOf(ts.Value("host"))
	ts.Check(h.stop())
	fmt.Fprint(ts.Stderr(), h.stderr.String())
	h.settle(ts)
}

func (h *scriptHost) request(ctx context.Context, method, path, body string) (*http.Response, error) {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, r)
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	return http.DefaultClient.Do(req)
}

func cmdAPI(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: api METHOD PATH [JSON]")
	}
	body := ""
	if len(args) == 3 {
		body = args[2]
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := hostOf(ts.Value("host")).request(ctx, args[0], args[1], body)
	ts.Check(err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	ts.Check(err)
	var pretty bytes.Buffer
	if json.Indent(&pretty, raw, "", " ") != nil {
		pretty.Reset()
		pretty.Write(raw)
	}
	hostOf(ts.Value("host")).drifted(ts)
	fmt.Fprintf(ts.Stdout(), "%d\n%s\n", res.StatusCode, strings.TrimSpace(pretty.String()))
	if failed := res.StatusCode >= 400; failed != neg {
		ts.Fatalf("%s %s: status %d\n%s", args[0], args[1], res.StatusCode, pretty.String())
	}
}

func cmdWS(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: ws SESSION AFTER TYPE")
	}
	after, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	h := hostOf(ts.Value("host"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := socket.Dial(ctx, strings.Replace(h.url, "http", "ws", 1)+"/api/v1/stream",
		http.Header{"Authorization": {"Bearer " + h.token}}, socket.Options{ReadLimit: 1 << 24}, "dsh-web.v1")
	ts.Check(err)
	defer conn.Abort()
	ask, err := json.Marshal(map[string]any{"type": "subscribe", "session": args[0], "after": after})
	ts.Check(err)
	ts.Check(conn.Write(false, ask))
	for {
		_, frame, err := conn.Read(ctx)
		ts.Check(err)
		fmt.Fprintf(ts.Stdout(), "%s\n", frame)
		var f struct {
			Type  string
			Event struct{ Type string }
		}
		ts.Check(json.Unmarshal(frame, &f))
		if f.Event.Type == args[2] || f.Type == args[2] {
			return
		}
	}
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: await SESSION TYPE [N]")
	}
	want := 1
	if len(args) == 3 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		want = n
	}
	h := hostOf(ts.Value("host"))
	ts.Check(h.await(args[0], args[1], want))
	h.drifted(ts)
}

func cmdPending(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pending SESSION")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, path := range []string{"/api/v1/approvals?session=", "/api/v1/questions?session="} {
		res, err := hostOf(ts.Value("host")).request(ctx, http.MethodGet, path+args[0], "")
		ts.Check(err)
		var list struct {
			Approvals, Questions []struct{ ID, ArgsHash string }
		}
		err = json.NewDecoder(res.Body).Decode(&list)
		res.Body.Close()
		ts.Check(err)
		for _, a := range append(list.Approvals, list.Questions...) {
			ts.Setenv("ASKED", a.ID)
			ts.Setenv("HASH", a.ArgsHash)
			return
		}
	}
	ts.Fatalf("nothing waits in the session %s", args[0])
}

// await follows the session over server-sent events until its log holds n events of the type.
func (h *scriptHost) await(session, typ string, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/api/v1/sessions/"+session+"/events?after=-1", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(res.Body)
		return fmt.Errorf("follow %s: status %d: %s", session, res.StatusCode, raw)
	}
	seen := 0
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		var e struct{ Type string }
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		if e.Type == typ {
			if seen++; seen == n {
				return nil
			}
		}
	}
	return errors.Join(fmt.Errorf("the session has %d events of type %s, not %d", seen, typ, n), lines.Err())
}
