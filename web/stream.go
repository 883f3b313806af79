package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dsh-web/dsh-web/web/guard"
	"github.com/dsh-web/dsh-web/web/socket"
)

const (
	streamProtocol = "dsh-web.v1"
	pingEvery      = 20 * time.Second
	pongWithin     = 25 * time.Second // so a dead peer is known after 45 s
	feedPace       = 50 * time.Millisecond

	// What a client may send: at most burst messages at once and rate a second; at most subscriptions of them.
	commandRate   = 100
	commandBurst  = 500
	subscriptions = 1024
)

// streamRoute adds the event stream: a route of its own in the router, and its words in the document.
func (a *api) streamRoute() {
	s := a.server
	const path = apiRoot + "/stream"
	a.router.Method("GET", path, s.guard.Handler(guard.Rule{Route: path, Access: guard.Upgrade, Stream: true, API: true}, http.HandlerFunc(s.openStream)))
	documentFrames(a.OpenAPI().Components.Schemas)
	a.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "stream", Method: "GET", Path: path, Tags: []string{"events"}, Summary: "The event stream, a websocket",
		Description: "Text messages: the server sends StreamFrame, the client StreamCommand. Offer the subprotocols dsh-web.v1 and ticket.VALUE, or send the bearer token.",
		Security:    []map[string][]string{{"bearer": {}}},
		Responses:   map[string]*huma.Response{"101": {Description: "Switching Protocols"}, "401": {Description: "Unauthorized"}, "429": {Description: "Too Many Requests"}},
	})
}

// viewer is one open event stream. Its reader owns subs.
type viewer struct {
	server *Server
	conn   *socket.Conn
	ctx    context.Context
	tasks  *sync.WaitGroup
	subs   map[string]*running
	feed   bool
}

// running is a subscription's goroutine.
type running struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *Server) openStream(w http.ResponseWriter, r *http.Request) {
	release, ok := s.sockets.take()
	if !ok {
		guard.WriteProblem(w, *s.problem(r.Context(), "stream", tooMany("sockets")))
		return
	}
	conn, err := socket.Accept(w, r, s.patience)
	if err != nil {
		release()
		return // Accept has answered
	}
	who := guard.From(r.Context())
	s.sockets.run(release, func() { s.serveStream(conn, who) })
}

func (s *Server) serveStream(conn *socket.Conn, who guard.Who) {
	defer s.stats.client(kindStream)()
	ctx, cancel := context.WithCancel(context.Background()) // the socket's own life
	defer cancel()
	var tasks sync.WaitGroup
	v := &viewer{server: s, conn: conn, ctx: ctx, tasks: &tasks, subs: map[string]*running{}}
	tasks.Go(func() { s.keep(ctx, conn, &tasks, who.Gone) })
	v.read()
	cancel()
	conn.Abort()
	tasks.Wait()
}

// keep pings a socket, and closes it when its token is revoked or the server stops.
func (s *Server) keep(ctx context.Context, conn *socket.Conn, tasks *sync.WaitGroup, gone <-chan struct{}) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tasks.Go(func() {
				within, cancel := context.WithTimeout(ctx, pongWithin)
				defer cancel()
				_ = conn.Ping(within) // a failure has cut the connection; its reader ends it
			})
		case <-gone:
			_ = conn.Close(socket.Unauthorized, "token revoked") // the reader ends it
			return
		case <-s.stopping.Done():
			_ = conn.Close(socket.GoingAway, "the host stops") // the reader ends it
			return
		case <-ctx.Done():
			return
		}
	}
}

// read takes commands until the connection ends.
func (v *viewer) read() {
	if !v.send(encodeFrame(HelloFrame{Type: "hello", LogID: v.server.host.Journal().LogID(), Node: v.server.cfg.Node, Version: v.server.cfg.Version})) {
		return
	}
	budget, last := float64(commandBurst), time.Now()
	for {
		binary, data, err := v.conn.Read(v.ctx)
		if err != nil {
			return
		}
		now := time.Now()
		budget = min(commandBurst, budget+now.Sub(last).Seconds()*commandRate)
		last = now
		if budget--; budget < 0 {
			_ = v.conn.Close(socket.Busy, "too many messages") // it ends here either way
			return
		}
		if !v.command(binary, data) {
			return
		}
	}
}

// command runs one command. False says that the connection is over.
func (v *viewer) command(binary bool, data []byte) bool {
	var c StreamCommand
	if err := decodeCommand(binary, data, &c); err != nil {
		return v.fail(codeBadJSON, "The message isn't a command: "+err.Error()+".", "")
	}
	switch c.Type {
	case "subscribe":
		v.unsubscribe(c.Session)
		if len(v.subs) >= subscriptions {
			return v.fail(codeLimit, "Too many subscriptions on one socket.", c.Session)
		}
		v.subscribe(c)
	case "unsubscribe":
		v.unsubscribe(c.Session)
	case "watch":
		if !v.feed {
			v.feed = true
			v.tasks.Go(v.watch)
		}
	default:
		return v.fail(codeValidation, "The type of a command is subscribe, unsubscribe or watch.", c.Session)
	}
	return true
}

func decodeCommand(binary bool, data []byte, c *StreamCommand) error {
	if binary {
		return errors.New("it is binary")
	}
	if err := guard.CheckJSON(data); err != nil {
		return err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return errors.New("it isn't an object")
	}
	for name := range fields {
		switch name {
		case "type", "session", "after":
		default:
			return errors.New("it has an unknown member")
		}
	}
	if err := json.Unmarshal(data, c); err != nil {
		return errors.New("a member has the wrong type")
	}
	return nil
}

func (v *viewer) subscribe(c StreamCommand) {
	ctx, cancel := context.WithCancel(v.ctx)
	sub := &running{cancel: cancel, done: make(chan struct{})}
	v.subs[c.Session] = sub
	v.tasks.Go(func() {
		defer close(sub.done)
		defer cancel()
		if err := v.follow(ctx, c.Session, c.After); err != nil && ctx.Err() == nil && !errors.Is(err, errStopped) {
			p := v.server.problem(ctx, "stream", err)
			v.fail(p.Code, p.Detail, c.Session)
		}
	})
}

// unsubscribe ends a subscription between two frames and waits for that, so that nothing of it comes after what is sent next.
func (v *viewer) unsubscribe(session string) {
	if sub := v.subs[session]; sub != nil {
		sub.cancel()
		<-sub.done
		delete(v.subs, session)
	}
}

func (v *viewer) send(frame []byte) bool { return v.conn.Write(false, frame) == nil }

func (v *viewer) fail(code, message, session string) bool {
	return v.send(encodeFrame(ErrorFrame{Type: "error", Code: code, Message: message, Session: session}))
}

// watch sends the feed. Values in between are skipped, so a pace costs nothing but a little delay.
func (v *viewer) watch() {
	sub := v.server.host.Feed().Subscribe()
	defer sub.Close()
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-v.ctx.Done():
			return
		}
		frame, err := sub.Next(v.ctx)
		if err != nil {
			if v.ctx.Err() == nil {
				p := v.server.problem(v.ctx, "stream", err)
				v.fail(p.Code, p.Detail, "")
			}
			return
		}
		pace.Reset(feedPace)
		if !v.send(encodeFrame(FeedFrame{Type: "feed", Frame: frame})) {
			return
		}
	}
}

// follow sends one session until ctx ends or a frame can't be sent.
func (v *viewer) follow(ctx context.Context, id string, after *int64) error {
	h, err := v.server.host.Session(ctx, id)
	if err != nil {
		return err
	}
	defer h.Release()
	defer v.server.shelf.follow(h.Log())()
	f := &follower{
		ctx: ctx, id: id, log: h.Log(), shelf: &v.server.shelf, stats: v.server.stats,
		send: func(frames []byte) bool { return v.conn.WriteFrames(frames) == nil },
	}
	return f.run(after)
}
