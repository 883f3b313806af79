// Package web serves one host over HTTP: the REST API with its OpenAPI document, the event stream, the terminal stream, and the page.
//
// The stream's guarantees. Order: the durable events of a session arrive in the order of its log. Loss: none; each arrives exactly once
// per subscription. Live text and output are provisional: what was skipped is said, what was withdrawn is dropped. Blocking: nothing is
// queued; a subscription pulls by cursor and has one frame in flight, so a slow reader delays nobody else and is closed after 10 s.
package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/web/guard"
	"github.com/dsh-web/dsh-web/web/socket"
)

// Config is what a Server is made of.
type Config struct {
	Host *host.Host
	// Keys holds the tokens; nil turns authority off, which only loopback listeners allow.
	Keys *guard.Keys
	// Hosts are further names of this host, as NAME or NAME:PORT.
	Hosts []string
	// BasePath is the path under which the page and the API stand, "" or "/" for the root.
	BasePath string
	// UIDev is the address of a development server for the page, "" for the embedded one.
	UIDev string
	// Node names this machine in GET /host and in the stream's hello.
	Node            string
	Version, Commit string
	// DefaultPreset is what a session without one gets.
	DefaultPreset string
	// Sandbox and Report give further facts for GET /host; nil gives none. They must answer at once.
	Sandbox func() any
	Limits  Limits
	// Assets replaces the embedded page, for tests.
	Assets fs.FS
	Logger *slog.Logger
}

// Limits bound what clients can take. Zero takes the default beside it.
type Limits struct {
	Connections int // 4096
	Heads       int // unfinished request heads, 256
	Sockets     int // websockets, 512
	Streams     int // SSE streams and waiting requests, 512
}

// Server serves a host. New allocates; Serve runs until Close.
type Server struct {
	cfg    Config
	host   *host.Host
	base   string // "" or "/prefix"
	guard  *guard.Guard
	keys   *guard.Keys
	log    *slog.Logger
	conns  *guard.Conns
	http   *http.Server
	page   *chi.Mux    // everything outside the API
	api    func() *api // made at its first use: describing its types takes some milliseconds
	assets *assets
	stats  *metrics
	shelf  shelf

	sockets *slots
	streams *slots
	// patience is how long a socket's reader may be slow; see socket.Options.
	patience socket.Options
	// stopping ends what would go on for ever: sockets, streams, waits.
	stopping context.Context
	stop     context.CancelFunc
	// observe begins to hear of commits, with the first Serve; undo ends it.
	observe func() (undo func())
	counts  sync.WaitGroup // of the goroutine that reads what was heard
}

// New makes a server. Nothing listens yet.
func New(cfg Config) (*Server, error) {
	if cfg.Host == nil {
		return nil, errors.New("web: no host")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	base, err := basePath(cfg.BasePath)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, host: cfg.Host, base: base, keys: cfg.Keys, log: cfg.Logger,
		conns:   guard.NewConns(cfg.Limits.Connections, cfg.Limits.Heads),
		sockets: newSlots(cfg.Limits.Sockets, 512), streams: newSlots(cfg.Limits.Streams, 512),
		patience: socket.Options{Protocol: streamProtocol},
	}
	s.stats = newMetrics(s)
	s.guard, err = guard.New(guard.Config{Keys: cfg.Keys, Hosts: cfg.Hosts, Logger: cfg.Logger, Observe: s.stats.request})
	if err != nil {
		return nil, err
	}
	if s.assets, err = newAssets(cfg.Assets, base, cfg.UIDev); err != nil {
		return nil, err
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.observe = sync.OnceValue(s.startCounting)
	s.page = s.pageRoutes()
	s.api = sync.OnceValue(s.apiRoutes)
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    32 << 10,
		ConnState:         s.conns.State,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return s, nil
}

func basePath(p string) (string, error) {
	p = strings.TrimSuffix(p, "/")
	if p == "" {
		return "", nil
	}
	if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, "\"'<>&?#%\\ ") || strings.Contains(p, "//") || strings.Contains(p, "..") {
		return "", fmt.Errorf("base path %q: want a plain path like /dsh", p)
	}
	return p, nil
}

// handler is the routers behind the base path.
func (s *Server) handler() http.Handler {
	routers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, apiRoot+"/") {
			s.api().router.ServeHTTP(w, r)
			return
		}
		s.page.ServeHTTP(w, r)
	})
	if s.base == "" {
		return routers
	}
	inside := http.StripPrefix(s.base, routers)
	outside := s.guard.Refused(routeNotFound())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, s.base+"/") {
			inside.ServeHTTP(w, r)
			return
		}
		outside.ServeHTTP(w, r)
	})
}

// Serve answers on ln until ctx ends or Close is called; what is open by then goes on until Close. Several listeners may be served at a
// time. It refuses, and closes, a listener that would be unsafe.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if err := s.guard.CheckListener(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	s.observe()
	var early sync.WaitGroup
	defer early.Wait()
	early.Go(func() { s.api() }) // so that the first caller needn't wait for it
	counted := s.conns.Listener(ln)
	defer context.AfterFunc(ctx, func() { _ = counted.Close() })() // whoever closes it hears of a failure
	err := s.http.Serve(counted)
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
		return nil
	}
	return err
}

// startCounting has the metrics hear of commits.
func (s *Server) startCounting() (undo func()) {
	undo = s.host.Observe(s.stats.observer())
	s.counts.Go(func() { s.stats.tally.run(s.stopping) }) // Close waits for it
	return undo
}

// LoginURL is an address that logs one browser in, once, within five minutes. Without authority it is just the address.
func (s *Server) LoginURL(addr net.Addr) string {
	url := "http://" + addr.String() + s.base + "/"
	if s.keys == nil {
		return url
	}
	code, _ := s.keys.NewCode()
	return url + "#code=" + code
}

// Close stops accepting, ends sockets, streams and waits, lets other requests finish until ctx ends, and waits for all of them.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("finish requests: %w", err), s.http.Close())
	}
	if late := s.sockets.wait(ctx); late != nil {
		err = errors.Join(err, fmt.Errorf("close sockets: %w", late))
	}
	s.observe()()
	s.counts.Wait()
	return err
}

// slots counts users of something limited.
type slots struct {
	max   int
	tasks sync.WaitGroup // of run; each ends once it has given its place back
	mu    sync.Mutex
	n     int
	// empty is made by a waiter and closed when n falls to 0.
	empty chan struct{}
}

func newSlots(n, def int) *slots {
	if n == 0 {
		n = def
	}
	return &slots{max: n}
}

// take reserves a place; release gives it back. ok is false when there is none.
func (s *slots) take() (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= s.max {
		return nil, false
	}
	s.n++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n--
		if s.n == 0 && s.empty != nil {
			close(s.empty)
			s.empty = nil
		}
	}), true
}

// run runs f on a goroutine of its own that holds the place; wait waits for it. A handler that has given its connection to a socket ends this
// way: the server's goroutine, its stack and the request would be kept for nothing.
func (s *slots) run(release, f func()) {
	s.tasks.Go(func() {
		defer release()
		f()
	})
}

// wait waits until every place is free. Nobody may take one meanwhile.
func (s *slots) wait(ctx context.Context) error {
	s.mu.Lock()
	if s.n == 0 {
		s.mu.Unlock()
		s.tasks.Wait()
		return nil
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	s.mu.Unlock()
	select {
	case <-empty:
		s.tasks.Wait()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
