package guard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/web/guard"
)

func TestMain(m *testing.M) {
	// The standard server sleeps half a second when it has refused a body, which is longer than goleak waits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// site is a guarded server on a real port.
type site struct {
	addr    string
	port    string
	keys    *guard.Keys
	guard   *guard.Guard
	effects atomic.Int32 // how often a handler was reached
	conns   *guard.Conns
	log     *bytes.Buffer
	client  *http.Client
}

func newSite(t testing.TB, hosts ...string) *site {
	t.Helper()
	keys, err := guard.OpenKeys(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{keys: keys, conns: guard.NewConns(0, 8), log: &bytes.Buffer{}}
	g, err := guard.New(guard.Config{Keys: keys, Hosts: hosts, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
		BodyTimeout: 300 * time.Millisecond, Linger: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s.guard = g
	reached := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.effects.Add(1)
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s:%d", guard.From(r.Context()).ID, len(body))
	})
	mux := http.NewServeMux()
	mux.Handle("/open", g.Handler(guard.Rule{Route: "/open", Access: guard.Open}, reached))
	mux.Handle("/owner", g.Handler(guard.Rule{Route: "/owner", Access: guard.Owner, Body: guard.JSON, API: true}, reached))
	mux.Handle("/bytes", g.Handler(guard.Rule{Route: "/bytes", Access: guard.Owner, Body: guard.Bytes, MaxBytes: 10, API: true}, reached))
	mux.Handle("/metrics", g.Handler(guard.Rule{Route: "/metrics", Access: guard.Loopback}, reached))
	mux.Handle("/socket", g.Handler(guard.Rule{Route: "/socket", Access: guard.Upgrade}, reached))
	mux.Handle("/panic", g.Handler(guard.Rule{Route: "/panic", Access: guard.Open}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") })))
	mux.Handle("/nobody", g.Handler(guard.Rule{Route: "/nobody"}, reached))
	mux.Handle("/", g.Refused(guard.Problem{Status: 404, Code: "route-not-found"}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	_, s.port, _ = net.SplitHostPort(s.addr)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10, ConnState: s.conns.State,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(s.conns.Listener(ln)) }()
	tr := &http.Transport{}
	s.client = &http.Client{Transport: tr}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		<-done
	})
	return s
}

type call struct {
	method, path, host string
	header             map[string]string
	body               io.Reader
	token              string
}

// do makes a request and gives the status and the problem's code, or the body.
func (s *site) do(t testing.TB, c call) (int, string) {
	t.Helper()
	if c.method == "" {
		c.method = "GET"
	}
	req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+s.addr+c.path, c.body)
	if err != nil {
		t.Fatal(err)
	}
	if c.host != "" {
		req.Host = c.host
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	var p guard.Problem
	if answer.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(body, &p); err != nil || p.Status != answer.StatusCode || p.Title == "" {
			t.Fatalf("problem %s: %v", body, err)
		}
		return answer.StatusCode, p.Code
	}
	return answer.StatusCode, string(body)
}

func TestHostNames(t *testing.T) {
	s := newSite(t, "dsh.example", "other.example:8443")
	for host, want := range map[string]int{
		"127.0.0.1:" + s.port: 200, "localhost:" + s.port: 200, "LOCALHOST:" + s.port: 200, "[::1]:" + s.port: 200,
		"dsh.example": 200, "dsh.example:" + s.port: 200, "other.example:8443": 200,
		"evil.example": 421, "evil.example:" + s.port: 421, "127.evil.com:" + s.port: 421, "127.0.0.1.nip.io:" + s.port: 421,
		"0x7f.1:" + s.port: 421, "127.1:" + s.port: 421, "2130706433:" + s.port: 421, "127.0.0.1:1": 421, "localhost": 421, "127.0.0.1": 421,
		"localhost.:" + s.port: 421, "127.0.0.1.:" + s.port: 421, "[::ffff:127.0.0.1]:" + s.port: 421, "dsh.example:9": 421,
		"other.example": 421, "xdsh.example": 421, "dsh.example.evil": 421,
	} {
		for _, path := range []string{"/open", "/socket", "/unknown"} {
			wantHere := want
			if path == "/unknown" && want == 200 {
				wantHere = 404
			}
			status, code := s.do(t, call{path: path, host: host, token: s.keys.Owner()})
			if status != wantHere || (want == 421 && code != "host-refused") {
				t.Errorf("Host %q on %s: %d %s, want %d", host, path, status, code, wantHere)
			}
		}
	}
	t.Run("empty", func(t *testing.T) {
		for _, head := range []string{"GET /open HTTP/1.1\r\nHost: \r\n\r\n", "GET /open HTTP/1.0\r\n\r\n"} {
			if line := s.rawLine(t, head); !strings.Contains(line, " 421 ") {
				t.Errorf("%q answered %q", head, line)
			}
		}
	})
	t.Run("absolute target", func(t *testing.T) {
		if line := s.rawLine(t, "GET http://evil.example/open HTTP/1.1\r\nHost: 127.0.0.1:"+s.port+"\r\n\r\n"); !strings.Contains(line, " 421 ") {
			t.Errorf("answered %q", line)
		}
	})
}

func (s *site) rawLine(t testing.TB, head string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, head)
	line, _ := bufio.NewReader(c).ReadString('\n')
	return line
}

func TestOrigins(t *testing.T) {
	s := newSite(t)
	own := "http://127.0.0.1:" + s.port
	for _, c := range []struct {
		header map[string]string
		want   int
	}{
		{map[string]string{"Origin": own}, 200},
		{map[string]string{"Origin": own, "Sec-Fetch-Site": "same-origin"}, 200},
		{map[string]string{"Sec-Fetch-Site": "none"}, 200},
		{map[string]string{"Origin": "null"}, 403},
		{map[string]string{"Origin": "http://evil.example"}, 403},
		{map[string]string{"Origin": "http://127.0.0.1:1"}, 403},
		{map[string]string{"Origin": "http://localhost:" + s.port}, 403},
		{map[string]string{"Origin": "ftp://127.0.0.1:" + s.port}, 403},
		{map[string]string{"Origin": own + ".evil.example"}, 403},
		{map[string]string{"Origin": ""}, 403},
		{map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{map[string]string{"Origin": own, "Sec-Fetch-Site": "cross-site"}, 403},
	} {
		for _, path := range []string{"/open", "/owner", "/socket"} {
			status, code := s.do(t, call{path: path, header: c.header, token: s.keys.Owner()})
			if status != c.want || (c.want == 403 && code != "origin-refused") {
				t.Errorf("%v on %s: %d %s, want %d", c.header, path, status, code, c.want)
			}
		}
	}
}

func TestAuthority(t *testing.T) {
	s := newSite(t)
	owner := s.keys.Owner()
	for _, c := range []struct {
		name string
		call call
		want int
	}{
		{"open without", call{path: "/open"}, 200},
		{"owner without", call{path: "/owner"}, 401},
		{"owner wrong", call{path: "/owner", token: strings.Repeat("x", 43)}, 401},
		{"owner right", call{path: "/owner", token: owner}, 200},
		{"token in the query", call{path: "/owner?token=" + owner + "&access_token=" + owner}, 401},
		{"basic", call{path: "/owner", header: map[string]string{"Authorization": "Basic " + owner}}, 401},
		{"metrics from here", call{path: "/metrics"}, 200},
		{"unclassified", call{path: "/nobody", token: owner}, 403},
		{"socket without", call{path: "/socket"}, 401},
		{"socket with bearer", call{path: "/socket", token: owner}, 200},
		{"ticket elsewhere", call{path: "/owner", header: map[string]string{"Sec-WebSocket-Protocol": "ticket." + first(s.keys.Ticket(guard.Who{}))}}, 401},
	} {
		before := s.effects.Load()
		status, code := s.do(t, c.call)
		if status != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, status, code, c.want)
		}
		if reached := s.effects.Load() != before; reached != (c.want == 200) {
			t.Errorf("%s: handler reached: %v", c.name, reached)
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

func TestHugeBodyWithoutToken(t *testing.T) {
	s := newSite(t)
	var taken atomic.Int64
	body := readerFunc(func(p []byte) (int, error) {
		if taken.Load() >= 1<<30 {
			return 0, io.EOF
		}
		taken.Add(int64(len(p)))
		return len(p), nil
	})
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintf(c, "POST /owner HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", s.addr, 1<<30)
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = io.Copy(c, body) }()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, " 401 ") {
		t.Fatalf("answered %q, %v", line, err)
	}
	_ = c.Close()
	<-sent
	if taken.Load() > 64<<20 {
		t.Fatalf("the server took %d bytes of a body it had refused", taken.Load())
	}
}

// TestSlowBodies sends the heads of requests and no more: each is answered, and its connection ended, by the guard's limits.
func TestSlowBodies(t *testing.T) {
	s := newSite(t)
	owner := "Authorization: Bearer " + s.keys.Owner() + "\r\n"
	const js = "Content-Type: application/json\r\n"
	for name, c := range map[string]struct {
		head   string
		status string
	}{
		"no token":              {"POST /owner HTTP/1.1\r\n" + js, "401"},
		"wrong type":            {"POST /owner HTTP/1.1\r\n" + owner, "415"},
		"JSON":                  {"POST /owner HTTP/1.1\r\n" + owner + js, "400"},
		"a route without body":  {"GET /open HTTP/1.1\r\n", "400"},
		"no route":              {"POST /nothing HTTP/1.1\r\n", "400"},
		"an upgrade":            {"GET /socket HTTP/1.1\r\n" + owner, "400"},
		"an upgrade, no token":  {"GET /socket HTTP/1.1\r\n", "401"},
		"a route for nobody":    {"POST /nobody HTTP/1.1\r\n" + owner, "403"},
		"bytes without a token": {"POST /bytes HTTP/1.1\r\n", "401"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, length := range []string{"Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n64\r\n{"} {
				c1, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c1.Close() }()
				_, _ = io.WriteString(c1, c.head+"Host: "+s.addr+"\r\n"+length)
				_ = c1.SetReadDeadline(time.Now().Add(10 * time.Second))
				answer, err := io.ReadAll(c1)
				if errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.status) {
					t.Errorf("%v, answered %.40q", err, answer)
				}
			}
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestBodies(t *testing.T) {
	s := newSite(t)
	js := map[string]string{"Content-Type": "application/json"}
	for _, c := range []struct {
		name   string
		header map[string]string
		body   string
		want   int
		code   string
	}{
		{"json", js, `{"a":{"A":[1,"}{"]}}`, 200, ""},
		{"charset", map[string]string{"Content-Type": "application/json; charset=UTF-8"}, `{}`, 200, ""},
		{"empty", nil, ``, 200, ""},
		{"text", map[string]string{"Content-Type": "text/plain"}, `{}`, 415, "media-type"},
		{"form", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, `a=b`, 415, "media-type"},
		{"no type", nil, `{}`, 415, "media-type"},
		{"other charset", map[string]string{"Content-Type": "application/json; charset=utf-16"}, `{}`, 415, "media-type"},
		{"suffix", map[string]string{"Content-Type": "application/jsonp"}, `{}`, 415, "media-type"},
		{"broken", js, `{"a":`, 400, "bad-json"},
		{"two values", js, `{} {}`, 400, "bad-json"},
		{"twice", js, `{"a":1,"b":{"a":1},"a":2}`, 400, "bad-json"},
		{"twice escaped", js, `{"a":1,"\u0061":2}`, 400, "bad-json"},
		{"latin-1", js, "{\"a\":\"\xe9\"}", 400, "bad-json"},
		{"deep enough", js, strings.Repeat("[", 64) + strings.Repeat("]", 64), 200, ""},
		{"too deep", js, strings.Repeat("[", 65) + strings.Repeat("]", 65), 400, "bad-json"},
		{"too long", js, `"` + strings.Repeat("x", guard.MaxJSON) + `"`, 413, "too-large"},
	} {
		before := s.effects.Load()
		status, code := s.do(t, call{method: "POST", path: "/owner", header: c.header, body: strings.NewReader(c.body), token: s.keys.Owner()})
		if status != c.want || (c.code != "" && code != c.code) {
			t.Errorf("%s: %d %s, want %d %s", c.name, status, code, c.want, c.code)
		}
		if reached := s.effects.Load() != before; reached != (c.want == 200) {
			t.Errorf("%s: handler reached: %v", c.name, reached)
		}
	}
	t.Run("chunked and too long", func(t *testing.T) {
		body := io.MultiReader(strings.NewReader(`"`), io.LimitReader(readerFunc(func(p []byte) (int, error) {
			for i := range p {
				p[i] = 'x'
			}
			return len(p), nil
		}), guard.MaxJSON))
		if status, code := s.do(t, call{method: "POST", path: "/owner", header: js, body: body, token: s.keys.Owner()}); status != 413 {
			t.Errorf("%d %s", status, code)
		}
	})
}

func TestHeaders(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/open", "/owner", "/unknown", "/nobody"} {
		answer, err := s.client.Get("http://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		h := answer.Header
		csp := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "ws://" + s.addr} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: policy %q lacks %q", path, csp, part)
			}
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": ""} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if path != "/open" && path != "/nobody" && h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Cache-Control %q", path, h.Get("Cache-Control"))
		}
	}
}

func TestPanicEndsOneRequest(t *testing.T) {
	s := newSite(t)
	if status, code := s.do(t, call{path: "/panic"}); status != 500 || code != "internal" {
		t.Errorf("%d %s", status, code)
	}
	if status, _ := s.do(t, call{path: "/open"}); status != 200 {
		t.Errorf("%d", status)
	}
	s.client.CloseIdleConnections()
	if !strings.Contains(s.log.String(), "oops") {
		t.Error("nobody was told")
	}
}

func TestAccessLogTellsNoSecrets(t *testing.T) {
	s := newSite(t)
	s.do(t, call{method: "POST", path: "/owner?query=secretquery", token: s.keys.Owner(), header: map[string]string{
		"Content-Type": "application/json", "X-Thing": "secretheader"}, body: strings.NewReader(`"secretbody"`)})
	s.client.CloseIdleConnections()
	line := s.log.String()
	for _, want := range []string{"method=POST", "route=/owner", "status=200", "bytes=8"} {
		if !strings.Contains(line, want) {
			t.Errorf("log %q lacks %s", line, want)
		}
	}
	for _, secret := range []string{"secretquery", "secretheader", "secretbody", s.keys.Owner()} {
		if strings.Contains(line, secret) {
			t.Errorf("log tells %s", secret)
		}
	}
}

func TestCodes(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	dir := t.TempDir()
	keys, err := guard.OpenKeys(dir, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	code, _ := keys.NewCode()
	token, info, err := keys.Exchange(code, "Firefox")
	if err != nil {
		t.Fatal(err)
	}
	if who, ok := keys.Check(token); !ok || who.ID != info.ID {
		t.Fatalf("token doesn't check: %v %v", who, ok)
	}
	t.Run("twice", func(t *testing.T) {
		if _, _, err := keys.Exchange(code, ""); !errors.Is(err, guard.ErrCode) {
			t.Fatal(err)
		}
	})
	t.Run("after 5 minutes", func(t *testing.T) {
		old, _ := keys.NewCode()
		now = now.Add(guard.CodeLife)
		if _, _, err := keys.Exchange(old, ""); !errors.Is(err, guard.ErrCode) {
			t.Fatal(err)
		}
	})
	t.Run("10,000 guesses", func(t *testing.T) {
		good, _ := keys.NewCode()
		limited := 0
		for i := range 10_000 {
			if _, _, err := keys.Exchange(fmt.Sprint(i), ""); errors.Is(err, guard.ErrGuesses) {
				limited++
			} else if !errors.Is(err, guard.ErrCode) {
				t.Fatal(err)
			}
		}
		if limited < 9_900 {
			t.Errorf("only %d of 10,000 were limited", limited)
		}
		if _, _, err := keys.Exchange(good, ""); err != nil {
			t.Errorf("guessing locks the owner out: %v", err)
		}
	})
	t.Run("kept as hashes over a restart", func(t *testing.T) {
		file := filepath.Join(dir, "tokens.json")
		data, err := os.ReadFile(file)
		if err != nil || bytes.Contains(data, []byte(token)) {
			t.Fatalf("%v, or the file holds the token", err)
		}
		for _, name := range []string{"token", "tokens.json"} {
			if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", name, st.Mode(), err)
			}
		}
		again, err := guard.OpenKeys(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := again.Check(token); !ok || again.Owner() != keys.Owner() {
			t.Fatal("lost over a restart")
		}
	})
	t.Run("revoked", func(t *testing.T) {
		who, _ := keys.Check(token)
		ticket, _ := keys.Ticket(who)
		if err := keys.Revoke(info.ID); err != nil {
			t.Fatal(err)
		}
		<-who.Gone
		if _, ok := keys.Check(token); ok {
			t.Fatal("still good")
		}
		if guard.Redeem(keys, ticket) {
			t.Fatal("its ticket is still good")
		}
		if err := keys.Revoke(info.ID); !errors.Is(err, guard.ErrToken) {
			t.Fatal(err)
		}
	})
	t.Run("tickets", func(t *testing.T) {
		ticket, _ := keys.Ticket(guard.Who{ID: "owner"})
		if !guard.Redeem(keys, ticket) || guard.Redeem(keys, ticket) {
			t.Fatal("want once")
		}
		late, _ := keys.Ticket(guard.Who{ID: "owner"})
		now = now.Add(guard.TicketLife)
		if guard.Redeem(keys, late) {
			t.Fatal("expired")
		}
	})
	t.Run("bounded", func(t *testing.T) {
		guard.Bound(keys, 8)
		for range 12 {
			code, _ := keys.NewCode()
			if _, _, err := keys.Exchange(code, strings.Repeat("é", 500)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(keys.Tokens()); n != 8 {
			t.Fatalf("%d tokens", n)
		}
	})
}

func TestListenRules(t *testing.T) {
	keys, err := guard.OpenKeys(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr  string
		keys  *guard.Keys
		hosts []string
		ok    bool
	}{
		{"127.0.0.1:1", nil, nil, true}, {"[::1]:1", nil, nil, true}, {"0.0.0.0:1", nil, nil, false}, {"0.0.0.0:1", keys, nil, false},
		{"0.0.0.0:1", nil, []string{"a.example"}, false}, {"0.0.0.0:1", keys, []string{"a.example"}, true}, {"[::]:1", keys, nil, false},
		{"192.0.2.1:1", keys, []string{"a.example"}, true},
	} {
		g, err := guard.New(guard.Config{Keys: c.keys, Hosts: c.hosts})
		if err != nil {
			t.Fatal(err)
		}
		addr, err := net.ResolveTCPAddr("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.CheckListener(addr); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, bad := range []string{"", "a b", "a:0", "a:b", "http://a", "a/b", "*"} {
		if _, err := guard.New(guard.Config{Hosts: []string{bad}}); err == nil {
			t.Errorf("host %q passed", bad)
		}
	}
}

func TestSlowHeads(t *testing.T) {
	s := newSite(t) // 8 unfinished heads
	var slow []net.Conn
	for range 50 {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET /open HTTP/1.1\r\nHost: ")
		slow = append(slow, c)
	}
	if status, _ := s.do(t, call{path: "/open"}); status != 200 {
		t.Fatalf("answers %d meanwhile", status)
	}
	for i, c := range slow[:40] { // the oldest had to go
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open: %v", i, err)
		}
	}
	t.Run("second head of a kept connection", func(t *testing.T) {
		s := newSite(t)
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "GET /open HTTP/1.1\r\nHost: "+s.addr+"\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
		_ = answer.Body.Close()
		_, _ = io.WriteString(c, "GET /open HT")
		for range 9 {
			other, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Close() }()
			_, _ = io.WriteString(other, "GET")
			_, _ = s.do(t, call{path: "/open"}) // by now the server has seen it
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("an unfinished second head isn't counted")
		}
	})
}

func TestConnectionLimit(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := guard.NewConns(2, 2)
	limited := conns.Listener(ln)
	var held []net.Conn
	accepted := make(chan net.Conn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		held = append(held, <-accepted)
	}
	third, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = third.Close() }()
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Fatal("a third connection stays")
	}
	_ = held[0].Close()
	_ = held[0].Close()
	if conns.Open() != 1 {
		t.Fatalf("%d open after one was closed twice", conns.Open())
	}
	fourth, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fourth.Close() }()
	_ = (<-accepted).Close()
	_ = held[1].Close()
	for range 2 {
		if err := limited.Close(); err != nil {
			t.Error(err)
		}
	}
	<-done
}

func TestUnixSocketNeedsNoToken(t *testing.T) {
	s := newSite(t)
	path := filepath.Join(t.TempDir(), "sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: s.guard.Handler(guard.Rule{Access: guard.Owner}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, guard.From(r.Context()).ID)
	}))}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	defer func() { tr.CloseIdleConnections(); _ = srv.Close(); <-done }()
	answer, err := (&http.Client{Transport: tr}).Get("http://anything/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if string(body) != "local" {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
}

func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":1,"a":2}`, `[[[]]]`, `"\""`, `{"\"":[{"}":1}]}`, `{`, `1`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if guard.CheckJSON(data) == nil && !json.Valid(data) {
			t.Fatalf("passed %q", data)
		}
	})
}

// A method is whatever the client says, of any length up to the limit of a head.
func TestTheLogHoldsNoInventedMethod(t *testing.T) {
	var log bytes.Buffer
	var counted string
	g, err := guard.New(guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Observe: func(_, method string, _ int, _ time.Duration) { counted = method }})
	if err != nil {
		t.Fatal(err)
	}
	h := g.Refused(guard.Problem{Status: http.StatusNotFound})
	for method, want := range map[string]string{strings.Repeat("X", 9000): "other", "OPTIONS": "other", "get": "other", "PATCH": "PATCH"} {
		log.Reset()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/", nil))
		if line := log.String(); counted != want || !strings.Contains(line, "method="+want+" ") || len(line) > 400 {
			t.Errorf("%.10s is counted as %.20s and logged as %.200s", method, counted, line)
		}
	}
}
