package web

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/web/guard"
	"github.com/dsh-web/dsh-web/web/socket"
)

const (
	terminalPiece = 32 << 10
	terminalLook  = time.Second // how often a terminal that isn't there is looked for
	offsetBytes   = 8
	// writerAgent is who writes while a call of the agent runs.
	writerAgent = "agent"
)

// terminalRoute adds the terminal stream. Output is binary: eight bytes of offset, big-endian, then what the terminal gave, raw. Everything
// else is text. Offsets count from the start of the agent's terminal; what is no longer kept is said to be skipped.
func (a *api) terminalRoute() {
	s := a.server
	const path = apiRoot + "/sessions/{id}/terminal"
	a.router.Method("GET", path, s.guard.Handler(guard.Rule{Route: path, Access: guard.Upgrade, Stream: true, API: true}, http.HandlerFunc(s.openTerminal)))
	id := &huma.Param{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
	offset := &huma.Param{Name: "offset", In: "query", Schema: &huma.Schema{Type: huma.TypeInteger}, Description: "Where the client's copy ends."}
	a.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "terminal", Method: "GET", Path: path, Tags: []string{"sessions"}, Summary: "The agent's own terminal, a websocket",
		Description: "Binary messages from the server: 8 bytes of big-endian offset, then raw output. Text: {\"type\":\"skipped\",\"bytes\"}, {\"type\":\"exit\"}, " +
			"{\"type\":\"writer\",\"by\"}. From the client: {\"type\":\"take\"}, {\"type\":\"release\"}, {\"type\":\"resize\",\"rows\",\"cols\"}, and binary input while it holds the keyboard.",
		Parameters: []*huma.Param{id, offset},
		Security:   []map[string][]string{{"bearer": {}}},
		Responses:  map[string]*huma.Response{"101": {Description: "Switching Protocols"}, "401": {Description: "Unauthorized"}, "404": {Description: "Not Found"}, "429": {Description: "Too Many Requests"}},
	})
}

// terminalViewer is one open terminal stream.
type terminalViewer struct {
	server  *Server
	session *host.Session
	conn    *socket.Conn
	ctx     context.Context
	by      string
	// keyboard belongs to the reader.
	keyboard *term.Keyboard
}

func (s *Server) openTerminal(w http.ResponseWriter, r *http.Request) {
	h, err := s.host.Session(r.Context(), chi.URLParam(r, "id"))
	if err != nil {
		guard.WriteProblem(w, *s.problem(r.Context(), "terminal", err))
		return
	}
	var offset int64
	if text := r.URL.Query().Get("offset"); text != "" {
		if json.Unmarshal([]byte(text), &offset) != nil || offset < 0 {
			h.Release()
			guard.WriteProblem(w, *s.problem(r.Context(), "terminal", refuse(codeValidation, "The offset must be a count of bytes.")))
			return
		}
	}
	release, ok := s.sockets.take()
	if !ok {
		h.Release()
		guard.WriteProblem(w, *s.problem(r.Context(), "terminal", tooMany("sockets")))
		return
	}
	conn, err := socket.Accept(w, r, s.patience)
	if err != nil {
		release()
		h.Release()
		return // Accept has answered
	}
	who := guard.From(r.Context())
	s.sockets.run(release, func() {
		defer h.Release()
		s.serveTerminal(conn, h, who, offset)
	})
}

func (s *Server) serveTerminal(conn *socket.Conn, h *host.Session, who guard.Who, offset int64) {
	defer s.stats.client(kindTerminal)()
	ctx, cancel := context.WithCancel(context.Background()) // the socket's own life
	defer cancel()
	v := &terminalViewer{server: s, session: h, conn: conn, ctx: ctx, by: who.ID}
	if v.by == "" {
		v.by = "owner"
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { s.keep(ctx, conn, &tasks, who.Gone) })
	tasks.Go(func() { v.show(offset) })
	v.read()
	v.release()
	cancel()
	conn.Abort()
	tasks.Wait()
}

// read takes input and commands until the connection ends.
func (v *terminalViewer) read() {
	for {
		isInput, data, err := v.conn.Read(v.ctx)
		if err != nil {
			return
		}
		if isInput {
			v.input(data)
			continue
		}
		var c struct {
			Type string `json:"type"`
			Rows int    `json:"rows"`
			Cols int    `json:"cols"`
		}
		if guard.CheckJSON(data) != nil || json.Unmarshal(data, &c) != nil {
			_ = v.conn.Close(socket.Policy, "not a command") // it ends here either way
			return
		}
		switch c.Type {
		case "take":
			v.take()
		case "release":
			v.release()
		case "resize":
			if v.holds() && c.Rows > 0 && c.Rows <= 1000 && c.Cols > 0 && c.Cols <= 1000 {
				_ = v.keyboard.Resize(c.Rows, c.Cols) // the shell may just have ended; that is shown
			}
		}
	}
}

// holds says whether this viewer has the keyboard, and gives back one that was taken away.
func (v *terminalViewer) holds() bool {
	if v.keyboard == nil {
		return false
	}
	select {
	case <-v.keyboard.Lost():
		v.release()
		return false
	default:
		return true
	}
}

func (v *terminalViewer) input(data []byte) {
	if v.holds() {
		_, _ = v.keyboard.Write(data) // a shell that doesn't take it ends, or doesn't: both are shown
	}
}

func (v *terminalViewer) take() {
	if v.holds() {
		return
	}
	t, ok := v.session.Terminal()
	if !ok {
		v.tell(map[string]any{"type": "writer", "by": ""})
		return
	}
	k, err := t.Take(v.ctx, v.by)
	if err != nil {
		// A call runs, or another person has it: the viewer's wish is over, and then it learns who it is.
		v.tell(map[string]any{"type": "writer", "by": writerAgent})
		v.tell(map[string]any{"type": "writer", "by": writerOf(t.State())})
		return
	}
	v.keyboard = k
}

func (v *terminalViewer) release() {
	if v.keyboard == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), 10*time.Second)
	defer cancel()
	if err := v.keyboard.Release(ctx); err != nil {
		v.server.log.Warn("give the keyboard back", "session", v.session.ID(), "error", err)
	}
	v.keyboard = nil
}

func (v *terminalViewer) tell(m map[string]any) bool {
	return v.conn.Write(false, encodeFrame(m)) == nil
}

func writerOf(st term.State) string {
	if st.Running {
		return writerAgent
	}
	return st.Writer
}

// show sends output and what becomes of the shell until ctx ends.
func (v *terminalViewer) show(offset int64) {
	var at *term.Terminals
	unwatch := func() {}
	defer func() { unwatch() }()
	look := time.NewTicker(terminalLook)
	defer look.Stop()
	pace := time.NewTimer(0)
	defer pace.Stop()
	buf := make([]byte, offsetBytes+terminalPiece)
	var last term.State
	ended := false // a shell's end is to be told
	looked := false
	writer := ""
	if !v.tell(map[string]any{"type": "writer", "by": ""}) {
		return
	}
	for {
		select {
		case <-pace.C:
		case <-v.ctx.Done():
			return
		}
		t, _ := v.session.Terminal()
		if t != at { // the agent came, went, or is another one
			unwatch()
			unwatch = func() {}
			if at != nil {
				offset = 0
				if (ended || last.PID != 0) && !v.tell(map[string]any{"type": "exit"}) {
					return
				}
			}
			if at, last, ended = t, (term.State{}), false; t != nil {
				unwatch = t.Watch()
				offset = min(offset, t.End())
				if !looked {
					last = t.State() // what ended before this viewer came is not told
				}
			}
		}
		looked = true
		var changed <-chan struct{}
		if t != nil {
			changed = t.Changed()
			st := t.State()
			if now := writerOf(st); now != writer {
				if writer = now; !v.tell(map[string]any{"type": "writer", "by": now}) {
					return
				}
			}
			ended = ended || shellsEnded(st) > shellsEnded(last)
			last = st
			n, start := t.ReadAt(offset, buf[offsetBytes:])
			if ended && (n == 0 || st.PID != 0) { // after its last output, unless the next shell's comes already
				if ended = false; !v.tell(map[string]any{"type": "exit"}) {
					return
				}
			}
			if start > offset && !v.tell(map[string]any{"type": "skipped", "bytes": start - offset}) {
				return
			}
			offset = start
			if n > 0 {
				binary.BigEndian.PutUint64(buf, uint64(start))
				if v.conn.Write(true, buf[:offsetBytes+n]) != nil {
					return
				}
				offset += int64(n)
				pace.Reset(paceAfter(n))
				continue
			}
		}
		select {
		case <-changed:
		case <-look.C:
		case <-v.ctx.Done():
			return
		}
		pace.Reset(0)
	}
}

// shellsEnded counts the shells that are gone, so that one that lived between two looks counts as well.
func shellsEnded(st term.State) int {
	if st.PID != 0 {
		return st.Generation - 1
	}
	return st.Generation
}

// paceAfter lets small pieces gather, and a full one be followed at once.
func paceAfter(n int) time.Duration {
	if n == terminalPiece {
		return 0
	}
	return livePace
}
