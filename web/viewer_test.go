package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web"
	"github.com/dsh-web/dsh-web/web/socket"
)

// frame is any frame of the stream.
type frame struct {
	Type     string
	Session  string
	Event    session.Event
	Seq      int64
	Block    int
	Turn     int
	Step     int
	Attempt  int
	Kind     string
	Name     string
	Offset   int64
	Text     string
	CallID   string `json:"callId"`
	Skipped  int64
	LogID    string `json:"logId"`
	Code     string
	Message  string
	Sessions []struct {
		ID     string
		Status string
	} `json:"sessions"`
	Removed []string
}

// viewer is a client of the event stream. It checks every frame against the document, and the rules that hold for all streams.
type viewer struct {
	t     testing.TB
	r     *rig
	conn  *socket.Conn
	check bool
	hello frame
	raw   []byte // of the last frame
	// last is the seq of the last event by session; blocks the text so far of each block.
	last   map[string]int64
	blocks map[int]string
}

func (r *rig) view() *viewer {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	header := http.Header{}
	if r.token != "" {
		header.Set("Authorization", "Bearer "+r.token)
	}
	conn, res, err := socket.Dial(ctx, "ws"+strings.TrimPrefix(r.base, "http")+"/api/v1/stream", header, socket.Options{ReadLimit: 64 << 20}, "dsh-web.v1")
	if err != nil {
		r.t.Fatalf("open stream: %v (%v)", err, res)
	}
	v := &viewer{t: r.t, r: r, conn: conn, check: true, last: map[string]int64{}, blocks: map[int]string{}}
	r.t.Cleanup(v.close)
	v.hello = v.next()
	if v.hello.Type != "hello" || v.hello.LogID == "" || conn.Protocol() != "dsh-web.v1" {
		r.t.Fatalf("first frame %+v, protocol %q", v.hello, conn.Protocol())
	}
	return v
}

func (v *viewer) close() { v.conn.Abort() }

func (v *viewer) send(format string, args ...any) {
	v.t.Helper()
	if err := v.conn.Write(false, fmt.Appendf(nil, format, args...)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *viewer) subscribe(id string, after int64) {
	v.t.Helper()
	v.send(`{"type":"subscribe","session":%q,"after":%d}`, id, after)
	v.last[id] = after
	clear(v.blocks)
}

// read gives the next frame, or the error that ended the stream.
func (v *viewer) read() (frame, error) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, data, err := v.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	v.raw = data
	if v.check {
		doc := web.Document(v.r.server)
		validate(v.t, doc, "stream frame", doc.Components.Schemas.Map()["StreamFrame"], data)
	}
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		// A feed's session is a list.
		v.t.Fatalf("frame %.300s: %v", data, err)
	}
	switch f.Type {
	case "event":
		if last, known := v.last[f.Session]; known && f.Event.Seq != last+1 {
			v.t.Fatalf("session %s: event %d after %d", f.Session, f.Event.Seq, last)
		}
		v.last[f.Session] = f.Event.Seq
	case "block":
		v.blocks[f.Block] = ""
	case "delta":
		text, known := v.blocks[f.Block]
		if !known || int64(len(text)) != f.Offset {
			v.t.Fatalf("delta of block %d at %d, after %d bytes (known: %v)", f.Block, f.Offset, len(text), known)
		}
		v.blocks[f.Block] += f.Text
	case "drop":
		if _, known := v.blocks[f.Block]; !known {
			v.t.Fatalf("drop of unknown block %d", f.Block)
		}
		delete(v.blocks, f.Block)
	}
	return f, nil
}

func (v *viewer) next() frame {
	v.t.Helper()
	f, err := v.read()
	if err != nil {
		v.t.Fatalf("read stream: %v", err)
	}
	return f
}

// until reads to the first frame that fits and gives all that were read.
func (v *viewer) until(what string, fits func(frame) bool) []frame {
	v.t.Helper()
	var got []frame
	for {
		f := v.next()
		got = append(got, f)
		if fits(f) {
			return got
		}
		if f.Type == "error" {
			v.t.Fatalf("waiting for %s: %s %s", what, f.Code, f.Message)
		}
	}
}

func isEvent(typ string) func(frame) bool {
	return func(f frame) bool { return f.Type == "event" && f.Event.Type == typ }
}

func isType(types ...string) func(frame) bool {
	return func(f frame) bool { return slices.Contains(types, f.Type) }
}

func eventsOf(frames []frame) []session.Event {
	var out []session.Event
	for _, f := range frames {
		if f.Type == "event" {
			out = append(out, f.Event)
		}
	}
	return out
}
