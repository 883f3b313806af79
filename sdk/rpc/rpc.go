// Package rpc serves a host over newline-delimited JSON-RPC 2.0 on two streams.
//
// One object a line, either way, of any length. Lines that aren't requests are skipped. Requests of one session are answered in order, those
// of different sessions when they are done. Guarantees of the notifications: each session's events come in order, each once, and only when they are
// durable; the answer to a prompt comes before the event that queues its message; running follows the event that queues a message, idle the
// turn/end after which nothing is due. A client that stops reading stops the notifications, not the agents: they are read from the log as fast
// as they can be written, so nothing piles up. Requests wait in a bounded queue; when it is full, reading stops.
package rpc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/session"
)

// serverName is how the server calls itself; clients of this protocol look for it.
const serverName = "deepseek-harness-sdk-runtime"

// Bounds of what is read and not yet done.
const (
	maxRequests = 256
	maxBytes    = 64 << 20
)

const (
	// endTime bounds the end of all agents, tellTime then what their sessions still have to say.
	endTime  = 800 * time.Millisecond
	tellTime = 200 * time.Millisecond
	// After the answer to shutdown the server goes on answering for a moment, so that a client which still asks isn't left without one.
	lingerQuiet = 40 * time.Millisecond
	lingerMost  = 400 * time.Millisecond
)

// Config is what a server is made of. Everything is required.
type Config struct {
	Host *host.Host
	// In and Out are the client's streams. Closing one must end a Read or Write in progress. Serve closes both.
	In  io.ReadCloser
	Out io.WriteCloser
	// Own makes this process the only writer of a stored session, session.ErrNotFound when there is none; Disown gives it back.
	Own    func(id string) error
	Disown func(id string) error
	// Cwd is the working directory of sessions when the client names none.
	Cwd     string
	Version string
	Logger  *slog.Logger
}

// Server is one client's connection.
type Server struct {
	cfg   Config
	out   *output
	tasks sync.WaitGroup // lanes, followers, the shutdown
	opens sync.WaitGroup // jobs that may open a session

	// Owned by Serve's loop.
	settings *settings
	ended    chan struct{} // closed when all sessions are closed; nil before a shutdown

	mu       sync.Mutex
	lanes    map[string][]job // by session; "" for what belongs to none. An entry has a goroutine.
	waiting  int              // jobs
	bytes    int              // of their requests
	room     chan struct{}    // capacity 1: a job is done
	sessions map[string]*conversation
	closing  bool // no session is opened any more
}

// job is one request under way.
type job struct {
	size int
	run  func()
}

// New makes a server; Serve runs it.
func New(cfg Config) *Server {
	return &Server{
		cfg: cfg, out: newOutput(cfg.Out), lanes: map[string][]job{}, room: make(chan struct{}, 1), sessions: map[string]*conversation{},
	}
}

var errShuttingDown = errors.New("the server is shutting down")

// Serve answers until the client asks for a shutdown, closes one of the streams, or ctx ends. Then every session is closed, each turn with a
// logged reason, and what is left to say is written, for a bounded time. It returns with no goroutine left.
func (s *Server) Serve(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	requests := make(chan request)
	var reader sync.WaitGroup
	reader.Go(func() { s.read(work, requests) })
	s.loop(ctx, work, requests)
	if s.ended == nil {
		s.end(work)
	} else {
		<-s.ended
	}
	cancel()
	s.out.stop()
	_ = s.cfg.In.Close() // it ends a read in progress; what was read is done
	s.tasks.Wait()
	reader.Wait()
}

// read takes requests apart, line by line. A last line without its end is none.
func (s *Server) read(ctx context.Context, out chan<- request) {
	defer close(out)
	in := bufio.NewReaderSize(s.cfg.In, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		r, ok := parseRequest(line)
		if !ok {
			continue
		}
		select {
		case out <- r:
		case <-ctx.Done():
			return
		}
	}
}

// loop takes requests until there is a reason to end. work is the context of what they do.
func (s *Server) loop(ctx, work context.Context, requests <-chan request) {
	var quiet, most <-chan time.Time
	ended := (chan struct{})(nil)
	for {
		s.mu.Lock()
		full := s.waiting > 0 && (s.waiting >= maxRequests || s.bytes > maxBytes)
		s.mu.Unlock()
		in := requests
		if full {
			in = nil
		}
		select {
		case r, ok := <-in:
			if !ok {
				s.settle(ctx)
				return
			}
			s.take(work, r)
			ended = s.ended
			if quiet != nil {
				ended, quiet = nil, time.After(lingerQuiet)
			}
		case <-s.room:
		case <-ended:
			ended, quiet, most = nil, time.After(lingerQuiet), time.After(lingerMost)
		case <-quiet:
			s.settle(ctx)
			return
		case <-most:
			return
		case <-s.out.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// settle waits for the requests that came before the end of the input.
func (s *Server) settle(ctx context.Context) {
	deadline := time.After(endTime)
	for {
		s.mu.Lock()
		left := s.waiting
		s.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-s.room:
		case <-deadline:
			return
		case <-s.out.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// take decides on a request, in the order they came, and lets it run.
func (s *Server) take(ctx context.Context, r request) {
	now := s.settings
	switch r.method {
	case "initialize":
		set, err := r.settings(s.cfg.Host, s.cfg.Cwd)
		if err == nil {
			s.settings = set
		}
		s.answer("", r, func() (any, error) { return s.hello(), err })
	case "shutdown":
		first := s.ended == nil
		if first {
			s.ended = make(chan struct{})
		}
		ended := s.ended
		if first {
			s.tasks.Go(func() {
				s.end(ctx)
				s.reply(r, struct{}{}, nil)
				close(ended)
			})
			return
		}
		s.answer("", r, func() (any, error) { <-ended; return struct{}{}, nil })
	case "session/list":
		s.answer("", r, func() (any, error) { return s.list(ctx, r) })
	case "session/prompt", "session/resume", "session/cancel", "session/close":
		id, err := r.text("sessionId", true)
		switch {
		case err != nil:
		case s.ended != nil:
			err = errShuttingDown
		case now == nil:
			err = errors.New("initialize comes first")
		}
		if err != nil {
			s.answer("", r, func() (any, error) { return nil, err })
			return
		}
		switch r.method {
		case "session/prompt":
			s.run(id, r, func() { s.prompt(ctx, id, r, now) })
		case "session/resume":
			s.answer(id, r, func() (any, error) { return struct{}{}, s.resume(ctx, id, now) })
		case "session/cancel":
			s.answer(id, r, func() (any, error) { return struct{}{}, s.cancel(ctx, id, r) })
		case "session/close":
			s.answer(id, r, func() (any, error) { return struct{}{}, s.close(ctx, id) })
		}
	default:
		s.answer("", r, func() (any, error) { return nil, &methodError{r.method} })
	}
}

// hello is the answer to initialize.
func (s *Server) hello() any {
	return map[string]any{
		"serverInfo": map[string]string{"name": serverName, "version": s.cfg.Version},
		"capabilities": map[string]any{
			"methods":       []string{"session/prompt", "session/resume", "session/cancel", "session/close", "session/list", "shutdown"},
			"notifications": []string{"session.event", "session.status", "session.delta"},
		},
	}
}

// answer runs a request in its lane and answers it.
func (s *Server) answer(lane string, r request, do func() (any, error)) {
	s.run(lane, r, func() {
		result, err := do()
		s.reply(r, result, err)
	})
}

// reply answers a request; a notification gets none.
func (s *Server) reply(r request, result any, err error) {
	if err != nil {
		s.cfg.Logger.Debug("refused", "method", r.method, "error", err)
	}
	if r.id != nil {
		s.out.write(appendReply(nil, r.id, result, err))
	}
}

// run puts a job at the end of its lane; a lane's jobs run one after the other.
func (s *Server) run(lane string, r request, f func()) {
	j := job{size: r.size, run: f}
	if lane != "" {
		s.opens.Add(1)
		j.run = func() { defer s.opens.Done(); f() }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	s.bytes += j.size
	queue, running := s.lanes[lane]
	s.lanes[lane] = append(queue, j)
	if !running {
		s.tasks.Go(func() { s.drain(lane) })
	}
}

func (s *Server) drain(lane string) {
	for {
		s.mu.Lock()
		queue := s.lanes[lane]
		if len(queue) == 0 {
			delete(s.lanes, lane)
			s.mu.Unlock()
			return
		}
		j := queue[0]
		queue[0] = job{}
		s.lanes[lane] = queue[1:]
		s.mu.Unlock()
		j.run()
		s.mu.Lock()
		s.waiting--
		s.bytes -= j.size
		s.mu.Unlock()
		select {
		case s.room <- struct{}{}:
		default:
		}
	}
}

// list gives a page of the stored sessions.
func (s *Server) list(ctx context.Context, r request) (any, error) {
	limit, err := r.count("limit")
	if err != nil {
		return nil, err
	}
	cursor, err := r.text("cursor", false)
	if err != nil {
		return nil, err
	}
	list, err := s.cfg.Host.List(ctx, session.Query{Limit: limit, Cursor: cursor})
	if errors.Is(err, session.ErrBadCursor) {
		return nil, &paramError{"cursor", err.Error()}
	}
	return list, err
}

// end closes every session, all at once, and waits until what they have to say is written. Requests that came before it are done first.
func (s *Server) end(ctx context.Context) {
	opened := make(chan struct{})
	s.tasks.Go(func() { s.opens.Wait(); close(opened) })
	select {
	case <-opened:
	case <-time.After(endTime / 2):
	}
	s.cfg.Host.Drain()
	s.mu.Lock()
	s.closing = true
	all := make([]*conversation, 0, len(s.sessions))
	for _, c := range s.sessions {
		all = append(all, c)
	}
	clear(s.sessions)
	s.mu.Unlock()
	var group sync.WaitGroup
	for _, c := range all {
		group.Go(func() {
			if err := s.finish(ctx, c, endTime, tellTime); err != nil {
				s.cfg.Logger.Error("close session", "session", c.id, "error", err)
			}
		})
	}
	group.Wait()
}
