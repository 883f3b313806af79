// Package guard stands in front of every route and every upgrade of the host. It decides by connection, host name, origin, authority and
// body, in that order, before a handler sees the request; and it sets the headers that tell a browser what the page may do.
//
// Nothing is allowed by default: a route that was not given a Rule is refused, and a check that can't decide refuses.
package guard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// Access says who may use a route. The zero value lets nobody in.
type Access uint8

// The kinds of access.
const (
	Nobody   Access = iota
	Open            // everybody who reaches the listener: assets, health, the exchange of a login code
	Owner           // bearer token
	Loopback        // bearer token, or a peer on this machine
	Upgrade         // bearer token, or a single-use ticket among the subprotocols
)

// Body says what a route takes. The zero value takes none.
type Body uint8

// The kinds of bodies.
const (
	NoBody Body = iota
	JSON        // application/json, checked and bounded by MaxJSON
	Bytes       // any type, bounded by Rule.MaxBytes; the handler reads it
)

// Limits of JSON bodies.
const (
	MaxJSON      = 1 << 20 // bytes
	MaxJSONDepth = 64
)

// bytesFactor is how much more time than a JSON body an upload is given.
const bytesFactor = 10

// Rule classifies one route.
type Rule struct {
	Route    string // the route's template, for the access log
	Access   Access
	Body     Body
	MaxBytes int64 // for Bytes
	Stream   bool  // its answer may take long: no write deadline
	API      bool  // never cached
}

// Config of a Guard.
type Config struct {
	// Keys decides about tokens. Nil turns authority off; Serve-time checks allow that on loopback only.
	Keys *Keys
	// Hosts are further names, or names with a port, that this host is known by.
	Hosts []string
	// Logger gets one line per request. Nil discards.
	Logger *slog.Logger
	// Observe is called once per answered request, for metrics. A method that no route takes is "other". Nil is none.
	Observe func(route, method string, status int, took time.Duration)
	// BodyTimeout for a whole JSON body, 30 s when 0; WriteTimeout for an answer that is no stream, 60 s when 0; Linger for the rest of a body
	// that was refused, 1 s when 0: a sender that is cut off at once wouldn't see its answer.
	BodyTimeout, WriteTimeout, Linger time.Duration
}

// Guard checks requests. It may be used from any goroutine.
type Guard struct {
	shared  shared
	policy  atomic.Pointer[policy] // the one made last
	keys    *Keys
	hosts   hostList
	log     *slog.Logger
	observe func(route, method string, status int, took time.Duration)
	body    time.Duration
	write   time.Duration
	linger  time.Duration
}

// New makes a guard. An entry of Hosts that is no host name is an error.
func New(c Config) (*Guard, error) {
	hosts, err := parseHosts(c.Hosts)
	if err != nil {
		return nil, err
	}
	g := &Guard{shared: newShared(), keys: c.Keys, hosts: hosts, log: c.Logger, observe: c.Observe, body: c.BodyTimeout, write: c.WriteTimeout, linger: c.Linger}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.body == 0 {
		g.body = 30 * time.Second
	}
	if g.write == 0 {
		g.write = time.Minute
	}
	if g.linger == 0 {
		g.linger = time.Second
	}
	return g, nil
}

// CheckListener says why serving on addr would be unsafe: beyond loopback and the unix socket it takes authority and at least one
// configured host name.
func (g *Guard) CheckListener(addr net.Addr) error {
	if addr.Network() == "unix" {
		return nil
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err == nil && at.Addr().Unmap().IsLoopback() {
		return nil
	}
	switch {
	case g.keys == nil:
		return errors.New("listening on " + addr.String() + " needs --auth on: without it everybody who reaches this address would own the host")
	case len(g.hosts) == 0:
		return errors.New("listening on " + addr.String() + " needs --allow-host NAME: the name that browsers will use for this host")
	}
	return nil
}

// Who is the authority behind a request.
type Who struct {
	// ID is a token's id, "owner", "local" for the unix socket, or "" when authority is off or the route is open.
	ID string
	// Gone is closed when the token is revoked. Nil never is.
	Gone <-chan struct{}
}

type whoKey struct{}

// From tells who made the request with this context.
func From(ctx context.Context) Who {
	who, _ := ctx.Value(whoKey{}).(Who)
	return who
}

// Handler puts the guard before next. Requests that it refuses never reach next.
func (g *Guard) Handler(rule Rule, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		id := requestID()
		g.headers(w.Header(), r, rule, id)
		rec := &recorder{ResponseWriter: w}
		out := http.ResponseWriter(rec)
		defer func() {
			status := rec.status
			if status == 0 {
				status = http.StatusOK
			}
			took, method := time.Since(begun), methodName(r.Method)
			g.log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("id", id), slog.String("method", method),
				slog.String("route", rule.Route), slog.Int("status", status), slog.Int64("bytes", rec.bytes), slog.Duration("took", took))
			if g.observe != nil {
				g.observe(rule.Route, method, status, took)
			}
		}()
		who, refusal := g.check(rule, r)
		if refusal == nil && rule.Access == Upgrade {
			// The websocket library must get the server's own writer; rec notes what is known anyhow.
			out, rec.status = w, http.StatusSwitchingProtocols
		}
		if refusal == nil {
			refusal = g.prepare(rule, w, r)
		}
		if refusal != nil {
			if r.ContentLength != 0 { // before it answers, the server takes in what is left of a body, for as long as it is let
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.linger))
			}
			rec.status = 0
			WriteProblem(rec, *refusal)
			return
		}
		if who.ID != "" {
			r = r.WithContext(context.WithValue(r.Context(), whoKey{}, who))
		}
		defer g.caught(id, rule, rec)
		next.ServeHTTP(out, r)
	})
}

// methodName bounds what a client can put into the log and the metrics: a method is any word, of any length.
func methodName(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return method
	}
	return "other"
}

// caught turns a handler's panic into a logged failure of its request alone. http.ErrAbortHandler goes on: it cuts an answer short on purpose.
func (g *Guard) caught(id string, rule Rule, rec *recorder) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	g.log.Error("a handler panicked", "id", id, "route", rule.Route, "panic", v, "stack", string(debug.Stack()))
	if rec.status != 0 {
		panic(http.ErrAbortHandler) // the answer has begun, or is no longer HTTP
	}
	WriteProblem(rec, Problem{Status: http.StatusInternalServerError, Code: "internal", Detail: "The host failed; its log says why, under this answer's X-Request-Id."})
}

// Refused answers requests that match no route: same headers, same log.
func (g *Guard) Refused(p Problem) http.Handler {
	return g.Handler(Rule{Route: "-", Access: Open, API: true}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		WriteProblem(w, p)
	}))
}

// check judges what comes before the body.
func (g *Guard) check(rule Rule, r *http.Request) (Who, *Problem) {
	local := isUnix(r)
	if !local && !g.hosts.allow(r.Host, localPort(r)) {
		return Who{}, &Problem{Status: http.StatusMisdirectedRequest, Code: "host-refused",
			Detail: "This host isn't known by that name; --allow-host adds one."}
	}
	if p := checkOrigin(r); p != nil {
		return Who{}, p
	}
	switch {
	case rule.Access == Open:
		return Who{}, nil
	case rule.Access == Nobody:
		return Who{}, &Problem{Status: http.StatusForbidden, Code: "unclassified", Detail: "This route has no access rule."}
	case local:
		return Who{ID: "local"}, nil
	case g.keys == nil:
		return Who{}, nil
	case rule.Access == Loopback && fromLoopback(r):
		return Who{}, nil
	}
	if who, ok := g.keys.Check(bearer(r)); ok {
		return who, nil
	}
	if rule.Access == Upgrade {
		if who, ok := g.keys.redeem(ticketOf(r)); ok {
			return who, nil
		}
	}
	return Who{}, &Problem{Status: http.StatusUnauthorized, Code: "unauthorized",
		Detail: "A bearer token is needed: open the login address that the host printed, or run `dsh-web open`."}
}

// checkOrigin refuses what another page asked for. A page on another port of this machine is another page.
func checkOrigin(r *http.Request) *Problem {
	refused := &Problem{Status: http.StatusForbidden, Code: "origin-refused", Detail: "Requests from other pages are refused."}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return refused
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		scheme, host, ok := strings.Cut(origin, "://")
		if !ok || (scheme != "http" && scheme != "https") || !strings.EqualFold(host, r.Host) {
			return refused
		}
	}
	return nil
}

// prepare sets deadlines and reads a JSON body.
func (g *Guard) prepare(rule Rule, w http.ResponseWriter, r *http.Request) *Problem {
	rc := http.NewResponseController(w)
	until := time.Time{} // the connection may carry a deadline from its last request
	if !rule.Stream && rule.Access != Upgrade {
		until = time.Now().Add(g.write)
	}
	if rule.Body == Bytes {
		until = until.Add(bytesFactor * g.body)
	}
	_ = rc.SetWriteDeadline(until) // a writer without deadlines (tests) has none to set
	switch rule.Body {
	case NoBody:
		if r.ContentLength != 0 {
			return g.skipBody(rc, w, r)
		}
	case JSON:
		return g.readJSON(rc, w, r)
	case Bytes:
		_ = rc.SetReadDeadline(time.Now().Add(bytesFactor * g.body))
		r.Body = http.MaxBytesReader(w, r.Body, rule.MaxBytes)
	}
	return nil
}

// policy is the content security policy for one host name, which the page's sockets need in it.
type policy struct {
	host  string
	value []string
}

func newPolicy(host, sockets string) *policy {
	return &policy{host: host, value: []string{"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; " +
		"font-src 'self'; connect-src 'self'" + sockets + "; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types dompurify"}}
}

// policyFor is the policy of a judged host name. Nearly all requests carry the same one.
func (g *Guard) policyFor(host string) []string {
	last := g.policy.Load()
	if last == nil || last.host != host {
		last = newPolicy(host, " ws://"+host+" wss://"+host)
		g.policy.Store(last)
	}
	return last.value
}

// shared are header values that never change. Nobody appends to them in place: each is as long as its room.
type shared struct{ nosniff, noReferrer, deny, sameOrigin, noStore, policy []string }

func newShared() shared {
	return shared{[]string{"nosniff"}, []string{"no-referrer"}, []string{"DENY"}, []string{"same-origin"}, []string{"no-store"}, newPolicy("", "").value}
}

// headers sets what every answer carries. The names are in their canonical form.
func (g *Guard) headers(h http.Header, r *http.Request, rule Rule, id string) {
	h["Content-Security-Policy"] = g.shared.policy
	if g.hosts.allow(r.Host, localPort(r)) { // only a name that was judged may stand in a header
		h["Content-Security-Policy"] = g.policyFor(r.Host)
	}
	h["X-Content-Type-Options"] = g.shared.nosniff
	h["Referrer-Policy"] = g.shared.noReferrer
	h["X-Frame-Options"] = g.shared.deny
	h["Cross-Origin-Opener-Policy"] = g.shared.sameOrigin
	h["Cross-Origin-Resource-Policy"] = g.shared.sameOrigin
	h["X-Request-Id"] = []string{id}
	if rule.API {
		h["Cache-Control"] = g.shared.noStore
	}
}

// recorder notes status and size for the access log.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap gives the server's writer to http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader notes the status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 || r.status == http.StatusContinue {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts bytes.
func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// ticketOf finds a ticket among the offered subprotocols.
func ticketOf(r *http.Request) string {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(offer), "ticket."); ok {
				return value
			}
		}
	}
	return ""
}

func localAddr(r *http.Request) net.Addr {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return addr
}

// isUnix says that the request came over the unix socket, whose file mode is the authority.
func isUnix(r *http.Request) bool {
	addr := localAddr(r)
	return addr != nil && addr.Network() == "unix"
}

func localPort(r *http.Request) uint16 {
	if tcp, ok := localAddr(r).(*net.TCPAddr); ok {
		return uint16(tcp.Port)
	}
	return 0
}

func fromLoopback(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

func requestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
