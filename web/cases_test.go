package web_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/web"
	"github.com/dsh-web/dsh-web/web/socket"
)

// lines is a log that is looked at afterwards.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write keeps p.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// TestPlantedKeysLeaveNoTrace stores a provider's key and creates a session with one of its own; a tool prints both. Nothing that is kept or
// told holds either, but the two places where they are stored: credentials.yaml, and for the session's own key its private row.
func TestPlantedKeysLeaveNoTrace(t *testing.T) {
	const stored, own = "sk-planted-0123456789abcdef", "sk-mine-fedcba9876543210"
	output := &lines{}
	r := newRig(t, options{log: output, source: script.ByHistory(
		script.Turn{script.CallJSON("c1", "bash", map[string]string{
			"command": `printf '%s%s\n' sk-planted- 0123456789abcdef; printf '%s%s\n' sk-mine- fedcba9876543210; read -t 20 x < go`})},
		script.Turn{script.Text("done")})})
	r.want(204, "PUT", "/providers/deepseek/credential", map[string]any{"key": stored}, nil)
	r.create(map[string]any{"id": "one", "model": map[string]any{"provider": "demo", "model": "demo", "apiKey": own}})
	mkfifo(t, r.ws+"/go")
	v := r.view()
	var told bytes.Buffer
	keep := func(f frame) { told.Write(v.raw) }
	v.subscribe("one", -1)
	v.send(`{"type":"watch"}`)
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "print the keys"}, nil)
	seen := ""
	for !strings.Contains(seen, "redacted") || strings.Count(seen, "\n") < 2 {
		f := v.next()
		if keep(f); f.Type == "output" {
			seen += f.Text
		}
	}
	feed(t, r.ws+"/go", "x\n")
	for {
		f := v.next()
		if keep(f); f.Type == "event" && f.Event.Type == "turn/end" {
			break
		}
	}
	r.refused(422, "validation", "POST", "/sessions", map[string]any{"workspace": r.ws, "model": map[string]any{"provider": "nobody", "apiKey": own}})
	for _, path := range []string{"/sessions/one", "/sessions", "/sessions/one/events", "/sessions/one/prompt", "/sessions/one/proof", "/sessions/one/scope",
		"/sessions/one/export?format=jsonl", "/sessions/one/export?format=openai", "/sessions/one/export?format=atif", "/sessions/one/export?format=bundle",
		"/providers", "/models", "/host", "/approvals"} {
		told.Write(r.call("GET", path, nil).body)
	}
	told.Write(r.send("GET", "/metrics", nil, nil).body)
	var fork host.Info
	r.want(201, "POST", "/sessions/one/fork", map[string]any{}, &fork)
	told.Write(r.call("GET", "/sessions/"+fork.ID+"/events", nil).body)
	r.stop()
	if !bytes.Contains(told.Bytes(), []byte("redacted")) {
		t.Error("the tool's output isn't there at all")
	}
	for _, key := range []string{stored, own} {
		if bytes.Contains(told.Bytes(), []byte(key)) {
			t.Errorf("%s was told to a client", key)
		}
		if output.mu.Lock(); bytes.Contains(output.all.Bytes(), []byte(key)) {
			t.Errorf("%s is in the program's log", key)
		}
		output.mu.Unlock()
	}
	r.must(filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(data, []byte(stored)) != (d.Name() == "credentials.yaml") {
			t.Errorf("the stored key and %s", path)
		}
		return nil
	}))
	if output.all.Len() == 0 {
		t.Error("nothing was logged")
	}
}

var parameter = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// TestStrangeIDsOnEveryRoute puts what is no id wherever a route takes one.
func TestStrangeIDsOnEveryRoute(t *testing.T) {
	r := newRig(t, options{})
	r.create(map[string]any{"id": "one"})
	ids := []string{"nobody", "..%2fone", "..%2f..%2fetc%2fpasswd", "%2e%2e", "%2e", "a%2fb", "one%00", "%00", "%ff%fe", strings.Repeat("a", 300), "one%0a", "one%20", "ONE"}
	asked := 0
	for _, route := range web.Routes(r.server) {
		method, pattern, _ := strings.Cut(route, " ")
		if !parameter.MatchString(pattern) {
			continue
		}
		for _, id := range ids {
			req, err := http.NewRequest(method, r.base+parameter.ReplaceAllLiteralString(pattern, id), nil)
			r.must(err)
			if method != http.MethodGet && method != http.MethodDelete {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
				req.Header.Set("Content-Type", "application/json")
			}
			req.Header.Set("Authorization", "Bearer "+r.token)
			res, err := r.client.Do(req)
			r.must(err)
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode < 400 || res.StatusCode >= 500 {
				t.Errorf("%s with %s: %d %.200s", route, id, res.StatusCode, body)
			}
			asked++
		}
	}
	if asked < 300 {
		t.Errorf("only %d requests", asked)
	}
	if n := len(r.sessions()); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// TestHostileFramesOfTheStream sends the server itself what no client would.
func TestHostileFramesOfTheStream(t *testing.T) {
	r := newRig(t, options{})
	r.create(map[string]any{"id": "one"})
	t.Run("2 MiB", func(t *testing.T) {
		c := r.stall("one")
		head := binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, 2<<20)
		go func() { _, _ = c.Write(append(head, make([]byte, 4+2<<20)...)) }() // ends with the connection
		code := 0
		_ = readFrames(c, func(data []byte) bool { code = closeStatus(data); return code == 0 })
		if code != int(socket.TooBig) {
			t.Errorf("closed with %d", code)
		}
	})
	t.Run("endless fragments", func(t *testing.T) {
		web.HurryReads(r.server, 200*time.Millisecond)
		c := r.stall("one")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := c.Write([]byte{0x01, 0x80, 0, 0, 0, 0})
			for err == nil {
				_, err = c.Write([]byte{0x00, 0x80, 0, 0, 0, 0})
			}
		}()
		_ = readFrames(c, func([]byte) bool { return true })
		_ = c.Close()
		<-done
	})
	if status := r.plain("GET", "/host"); status != 200 {
		t.Errorf("afterwards %d", status)
	}
}

// closeStatus is the code of a close frame's content, which is no JSON.
func closeStatus(data []byte) int {
	if len(data) < 2 || data[0] == '{' {
		return 0
	}
	return int(binary.BigEndian.Uint16(data))
}

// TestGuessesOverHTTP tries wrong codes: after some they are answered with 429, and a good one still works.
func TestGuessesOverHTTP(t *testing.T) {
	guesses := 500
	if soak() {
		guesses = 10_000
	}
	r := newRig(t, options{})
	code, _ := r.keys.NewCode()
	counts := map[int]int{}
	for i := range guesses {
		res, err := r.client.Post(r.base+"/api/v1/auth/exchange", "application/json", strings.NewReader(fmt.Sprintf(`{"code":"guess%d"}`, i)))
		r.must(err)
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		counts[res.StatusCode]++
	}
	if counts[429] < guesses*9/10 || counts[401]+counts[429] != guesses {
		t.Errorf("answers %v", counts)
	}
	if a := r.send("POST", "/api/v1/auth/exchange", map[string]any{"code": code}, nil); a.status != 200 {
		t.Errorf("the good code: %d", a.status)
	}
}

// TestAThousandSockets opens as many as nobody may: the ones over the limit get 429, the ones before go on.
func TestAThousandSockets(t *testing.T) {
	count := 150
	limit := 100
	if soak() {
		count, limit = 1_000, 512
	}
	r := newRig(t, options{web: func(c *web.Config) { c.Limits.Sockets = limit }})
	r.create(map[string]any{"id": "one"})
	var open []*socket.Conn
	refused := 0
	for range count {
		c, res, err := socket.Dial(t.Context(), "ws"+strings.TrimPrefix(r.base, "http")+"/api/v1/stream", http.Header{"Authorization": {"Bearer " + r.token}}, socket.Options{}, "dsh-web.v1")
		switch {
		case err == nil:
			open = append(open, c)
			defer c.Abort()
		case res != nil && res.StatusCode == 429:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if len(open) != limit || refused != count-limit {
		t.Errorf("%d open, %d refused", len(open), refused)
	}
	r.must(open[0].Write(false, []byte(`{"type":"subscribe","session":"one","after":-1}`)))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, data, err := open[0].Read(ctx)
		r.must(err)
		if bytes.HasPrefix(data, []byte(`{"type":"caughtUp"`)) {
			break
		}
	}
	if status := r.plain("GET", "/host"); status != 200 {
		t.Errorf("the API answers %d", status)
	}
}

// TestCancelBeforeTheFirstRequest cancels a turn that is held before its first request: it isn't sent, the turn ends, and the next one runs.
func TestCancelBeforeTheFirstRequest(t *testing.T) {
	r := newRig(t, options{source: hello()})
	for i := range 10 {
		id := fmt.Sprint("s", i)
		r.create(map[string]any{"id": id})
		r.want(202, "POST", "/sessions/"+id+"/messages", map[string]any{"content": "first"}, nil)
		r.want(202, "POST", "/sessions/"+id+"/cancel", map[string]any{}, nil)
		sent := r.say(id, "second")
		if sent.Status != "idle" || sent.TurnEnd == nil || sent.TurnEnd.Reason.Kind != "completed" {
			t.Errorf("the turn after it: %+v", sent)
		}
		// Whenever the cancel came: every turn that began has ended, and an answer stands only after a request.
		open, requests := 0, 0
		for _, e := range r.log(id) {
			switch e.Type {
			case "turn/start":
				open++
			case "turn/end":
				open--
			case "request/sent":
				requests++
			case "assistant/message":
				if requests == 0 {
					t.Errorf("event %d answers no request", e.Seq)
				}
			}
		}
		if open != 0 {
			t.Errorf("%d turns are open", open)
		}
	}
}

// TestOneDamagedSessionIsListed garbles one of two logs while the host is down: the list says why, the other one works.
func TestOneDamagedSessionIsListed(t *testing.T) {
	r := newRig(t, options{source: hello()})
	for _, id := range []string{"bad", "good"} {
		r.create(map[string]any{"id": id})
		r.say(id, "hi")
	}
	r.stop()
	db, err := sql.Open(sql.Drivers()[0], filepath.Join(r.dir, "db", "dsh-web.db"))
	r.must(err)
	for _, table := range []string{"arrival WHERE session = 1 AND seq = 3", "event WHERE key = 1 << 32 | 3"} { // wherever it is by now
		name, where, _ := strings.Cut(table, " ")
		_, err = db.Exec("UPDATE " + name + " SET body = x'00ff' " + where)
		r.must(err)
	}
	r.must(db.Close())

	r = newRig(t, options{source: hello(), dir: r.dir})
	if a := r.call("POST", "/sessions/bad/messages", map[string]any{"content": "hi"}); a.status < 400 {
		t.Errorf("a message to the damaged one: %d %s", a.status, a.body)
	}
	var list host.List
	r.want(200, "GET", "/sessions", nil, &list)
	for _, s := range list.Sessions {
		if damaged := s.ID == "bad"; damaged != (s.Status == "damaged") || damaged != (s.Damage != "") {
			t.Errorf("%s is %s: %q", s.ID, s.Status, s.Damage)
		}
	}
	r.want(200, "GET", "/sessions?status=damaged", nil, &list)
	if len(list.Sessions) != 1 || list.Sessions[0].ID != "bad" {
		t.Errorf("damaged: %+v", list.Sessions)
	}
	if sent := r.say("good", "more"); sent.Status != "idle" {
		t.Errorf("the other one: %+v", sent)
	}
	if n := r.scrape()[`dsh_sessions{status="damaged"}`]; n != 1 {
		t.Errorf("%v damaged in the metrics", n)
	}
}

// TestTwoCallsStream runs a turn of two tool calls on the minimal preset: its events arrive in their order, and the session is idle.
func TestTwoCallsStream(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(
		script.Turn{script.CallJSON("c1", "bash", map[string]string{"command": "echo eins > f"})},
		script.Turn{script.CallJSON("c2", "str_replace_editor", map[string]string{"command": "view", "path": "f"})},
		script.Turn{script.Text("done")})})
	r.create(map[string]any{"id": "one", "preset": "minimal"})
	v := r.view()
	v.subscribe("one", -1)
	sent := r.say("one", "hi")
	want := []string{"agent/inbox/spliced", "turn/start", "tool/call", "tool/result", "tool/call", "tool/result", "assistant/message", "turn/end"}
	got := eventsOf(v.until("turn/end", isEvent("turn/end")))
	for _, e := range got {
		if len(want) > 0 && e.Type == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 || sent.Status != "idle" {
		t.Errorf("no %v in %s; then %s", want, eventTypes(got), sent.Status)
	}
}
