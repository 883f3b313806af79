package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web/guard"
)

// EventPage is a run of a session's events in ascending order.
type EventPage struct {
	Events  []encodedEvent `json:"events"`
	LastSeq int64          `json:"lastSeq" doc:"Of the log; -1 when it is empty."`
	HasMore bool           `json:"hasMore" doc:"The log goes on in the direction that was asked for."`
}

const (
	pageEvents = 1000
	usualPage  = 200
	pageBytes  = 256 << 10
)

type eventsIn struct {
	SessionPath
	After  number `query:"after" doc:"Exclusive; -1 from the start."`
	Before number `query:"before" doc:"The last events below it."`
	Limit  number `query:"limit" minimum:"1" maximum:"1000" doc:"Of a page; 200 when absent."`
	Accept string `header:"Accept"`
	LastID string `header:"Last-Event-ID" doc:"Where a stream is to go on."`
}

type eventsOut struct {
	Body func(huma.Context)
}

func (a *api) eventRoutes() {
	s := a.server
	register(a, route{method: "GET", path: "/sessions/{id}/events", id: "session-events", tag: "events",
		rule:    guard.Rule{Access: guard.Owner, Stream: true},
		summary: "A page of events, or with Accept: text/event-stream all events from a cursor on", errors: []int{404}}, s.events)
	op := a.OpenAPI().Paths[apiRoot+"/sessions/{id}/events"].Get
	op.Responses["200"].Content = map[string]*huma.MediaType{
		"application/json":  {Schema: a.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[EventPage](), true, "EventPage")},
		"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString, Description: "One event each, with id: SEQ and its JSON as data."}},
	}
}

func (s *Server) events(ctx context.Context, in *eventsIn) (*eventsOut, error) {
	if in.After.set && in.Before.set {
		return nil, refuse(codeValidation, "Give after or before, not both.")
	}
	stream := strings.Contains(in.Accept, "text/event-stream")
	if stream && (in.Before.set || in.Limit.set) {
		return nil, refuse(codeValidation, "A stream begins after a cursor and has no end: it takes after, not before or limit.")
	}
	if stream && in.LastID != "" {
		seq, err := strconv.ParseInt(in.LastID, 10, 64)
		if err != nil {
			return nil, refuse(codeValidation, "Last-Event-ID must be the seq of an event.")
		}
		in.After = number{value: seq, set: true}
	}
	h, err := s.host.Session(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if stream {
		release, ok := s.streams.take()
		if !ok {
			h.Release()
			return nil, tooMany("streams")
		}
		if in.After.set { // or else a wrong cursor would be told in a stream that began well
			if _, err := h.Log().Read(ctx, in.After.value, 1, 1); err != nil {
				release()
				h.Release()
				return nil, err
			}
		}
		return &eventsOut{func(c huma.Context) {
			defer h.Release()
			defer release()
			defer s.stats.client(kindSSE)()
			r, w := humachi.Unwrap(c)
			s.stream(w, r, h.Log(), in.After)
		}}, nil
	}
	defer h.Release()
	page, err := readPage(ctx, h.Log(), in)
	if err != nil {
		return nil, err
	}
	out := EventPage{Events: make([]encodedEvent, len(page.Encoded)), LastSeq: page.LastSeq, HasMore: page.HasMore}
	for i, e := range page.Encoded {
		out.Events[i] = e
	}
	return &eventsOut{func(c huma.Context) {
		c.SetHeader("Content-Type", "application/json")
		_, _ = c.BodyWriter().Write(out.encode()) // the peer may be gone; there is nobody else to tell
	}}, nil
}

func readPage(ctx context.Context, log *session.Log, in *eventsIn) (session.Page, error) {
	limit := usualPage
	if in.Limit.set {
		limit = int(in.Limit.value)
	}
	switch {
	case in.After.set:
		return log.Read(ctx, in.After.value, limit, pageBytes)
	case in.Before.set:
		return log.Before(ctx, max(0, in.Before.value), limit, pageBytes)
	}
	return log.Before(ctx, -1, limit, pageBytes)
}

// encode puts the page around the events' own bytes.
func (p EventPage) encode() []byte {
	size := 64
	for _, e := range p.Events {
		size += len(e) + 1
	}
	b := append(make([]byte, 0, size), `{"events":[`...)
	for i, e := range p.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	b = append(b, `],"lastSeq":`...)
	b = strconv.AppendInt(b, p.LastSeq, 10)
	b = append(b, `,"hasMore":`...)
	return append(strconv.AppendBool(b, p.HasMore), '}')
}

// How an SSE stream is kept alive, and how long it may block.
const (
	sseBeat  = 15 * time.Second
	sseWrite = 10 * time.Second
)

// stream sends events from a cursor on until the client or the server ends it.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, log *session.Log, after number) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	cursor := after.value
	var page session.Page
	var err error
	if !after.set {
		page, err = log.Before(ctx, -1, usualPage, pageBytes)
		cursor = page.LastSeq
	}
	beat := time.NewTicker(sseBeat)
	defer beat.Stop()
	gone := guard.From(r.Context()).Gone
	var buf []byte
	flushed := false
	for {
		changed := log.Changed()
		if err == nil && len(page.Events) == 0 {
			page, err = log.Read(ctx, cursor, pageEvents, pageBytes)
		}
		if err != nil {
			s.endStream(w, ctx, err)
			return
		}
		buf = buf[:0]
		for i, e := range page.Events {
			buf = append(buf, "id: "...)
			buf = strconv.AppendInt(buf, e.Seq, 10)
			buf = append(buf, "\ndata: "...)
			buf = append(buf, page.Encoded[i]...)
			buf = append(buf, "\n\n"...)
			cursor = e.Seq
		}
		more := len(page.Events) > 0
		page = session.Page{}
		if more || !flushed {
			flushed = true
			_ = rc.SetWriteDeadline(time.Now().Add(sseWrite)) // without deadlines the kernel's own limits hold
			if _, err := w.Write(buf); err != nil || rc.Flush() != nil {
				return // the reader is gone, or too slow; it comes back with its cursor
			}
		}
		if more {
			continue
		}
		select {
		case <-changed:
		case <-gone:
			return
		case <-ctx.Done():
			return
		case <-beat.C:
			_ = rc.SetWriteDeadline(time.Now().Add(sseWrite))
			if _, err := w.Write([]byte(": still here\n\n")); err != nil || rc.Flush() != nil {
				return
			}
		}
	}
}

// endStream says why a stream ends, as an event of its own.
func (s *Server) endStream(w http.ResponseWriter, ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return
	}
	p := s.problem(ctx, "session-events", err)
	body, _ := json.Marshal(p) // a problem holds nothing that JSON can't
	_, _ = w.Write([]byte("event: error\ndata: " + string(body) + "\n\n"))
}
