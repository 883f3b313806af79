package web_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/web/socket"
)

// screen is a client of the terminal stream: all output so far, and who writes.
type screen struct {
	t       testing.TB
	conn    *socket.Conn
	start   int64 // offset of text[0]
	text    []byte
	writer  string
	exits   int
	skipped int64 // bytes since start that were not kept
	anew    bool  // the next agent's output may follow, from 0
}

func (r *rig) terminal(id, query string) *screen {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	conn, res, err := socket.Dial(ctx, "ws"+strings.TrimPrefix(r.base, "http")+"/api/v1/sessions/"+id+"/terminal"+query,
		http.Header{"Authorization": {"Bearer " + r.token}}, socket.Options{ReadLimit: 1 << 20}, "dsh-web.v1")
	if err != nil {
		r.t.Fatalf("open terminal: %v (%v)", err, res)
	}
	r.t.Cleanup(conn.Abort)
	return &screen{t: r.t, conn: conn, start: -1, writer: "?"}
}

// until reads until done says so.
func (s *screen) until(what string, done func() bool) {
	s.t.Helper()
	for !done() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		isOutput, data, err := s.conn.Read(ctx)
		cancel()
		if err != nil {
			s.t.Fatalf("waiting for %s: %v; so far %q, writer %q", what, err, s.text, s.writer)
		}
		if isOutput {
			at := int64(binary.BigEndian.Uint64(data))
			if s.anew && at == 0 && len(s.text) > 0 {
				s.start, s.text, s.skipped, s.anew = 0, nil, 0, false
			}
			if s.start < 0 {
				s.start = at
			}
			if want := s.start + int64(len(s.text)) + s.skipped; at != want {
				s.t.Fatalf("output at %d, want %d", at, want)
			}
			s.text = append(s.text, data[8:]...)
			continue
		}
		var f struct {
			Type, By string
			Bytes    int64
		}
		if err := json.Unmarshal(data, &f); err != nil {
			s.t.Fatalf("frame %s: %v", data, err)
		}
		switch f.Type {
		case "writer":
			s.writer = f.By
		case "exit":
			s.exits++
		case "skipped":
			if s.start >= 0 {
				s.skipped += f.Bytes
			}
		default:
			s.t.Fatalf("frame %s", data)
		}
	}
}

func (s *screen) shows(text string) func() bool {
	return func() bool { return bytes.Contains(s.text, []byte(text)) }
}

func (s *screen) command(text string) {
	s.t.Helper()
	if err := s.conn.Write(false, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) typed(text string) {
	s.t.Helper()
	if err := s.conn.Write(true, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(
		script.Turn{script.CallJSON("c1", "bash", map[string]string{"command": "echo made-by-agent; MARK=kept"})}, script.Turn{script.Text("done")},
		script.Turn{script.CallJSON("c2", "bash", map[string]string{"command": "echo $MARK-$TYPED"})}, script.Turn{script.Text("done")})})
	r.create(map[string]any{"id": "one"})
	a := r.terminal("one", "")
	a.until("the first frame", func() bool { return a.writer == "" })
	var info host.Info
	r.want(200, "GET", "/sessions/one", nil, &info)
	r.say("one", "hi")
	a.until("output", a.shows("made-by-agent"))

	late := r.terminal("one", "?offset=0")
	late.until("the same output", late.shows("made-by-agent"))
	a.typed("echo not-mine\n") // nobody has given it the keyboard
	a.command(`{"type":"take"}`)
	a.until("the keyboard", func() bool { return a.writer == "owner" })
	late.until("the other one has it", func() bool { return late.writer == "owner" })
	late.command(`{"type":"take"}`)
	late.until("a refusal", func() bool { return late.writer == "agent" })
	late.until("who has it", func() bool { return late.writer == "owner" })
	late.typed("echo not-yours\n")
	a.command(`{"type":"resize","rows":20,"cols":70}`)
	a.typed("TYPED=by-hand; stty size\n")
	a.until("its size", a.shows("20 70"))
	a.command(`{"type":"release"}`)
	a.until("the keyboard given back", func() bool { return a.writer == "" })
	r.say("one", "again")
	a.until("one shell", a.shows("kept-by-hand"))
	if bytes.Contains(a.text, []byte("not-mine")) || bytes.Contains(a.text, []byte("not-yours")) {
		t.Errorf("input of somebody without the keyboard arrived: %q", a.text)
	}
	resumed := r.terminal("one", "?offset=5")
	resumed.until("the rest", resumed.shows("kept-by-hand"))
	if resumed.start != 5 {
		t.Errorf("resumed at %d", resumed.start)
	}
	t.Run("a closed holder gives the keyboard back", func(t *testing.T) {
		b := r.terminal("one", "")
		b.command(`{"type":"take"}`)
		b.until("the keyboard", func() bool { return b.writer == "owner" })
		a.until("taken", func() bool { return a.writer == "owner" }) // who holds it for a moment only is not told
		b.conn.Abort()
		a.until("given back", func() bool { return a.writer == "" })
	})
	t.Run("exit", func(t *testing.T) {
		a.command(`{"type":"take"}`)
		a.until("the keyboard", func() bool { return a.writer == "owner" })
		a.typed("exit\n")
		a.until("the end of the shell", func() bool { return a.exits > 0 })
	})
	r.refusedUpgrade(404, "/sessions/nobody/terminal")
	r.refusedUpgrade(422, "/sessions/one/terminal?offset=x")
}

// TestTerminalTellsTheEnd: the end of a shell is told to a viewer that saw nothing but output while it lived, and to one that came before it.
func TestTerminalTellsTheEnd(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(
		script.Turn{script.CallJSON("c1", "bash", map[string]string{"command": "until [ -e enough ]; do echo more; done; exit 3"})}, script.Turn{script.Text("done")},
		script.Turn{script.CallJSON("c2", "bash", map[string]string{"command": "exit 4"})}, script.Turn{script.Text("done")})})
	r.create(map[string]any{"id": "one"})
	before := r.terminal("one", "")
	before.until("the first frame", func() bool { return before.writer == "" })
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
	before.until("output", before.shows("more"))
	during := r.terminal("one", "?offset=0")
	during.until("more output", func() bool { return len(during.text) > 16<<10 })
	r.must(os.WriteFile(filepath.Join(r.ws, "enough"), nil, 0o600))
	during.until("the end of the shell", func() bool { return during.exits == 1 })
	before.until("the end of the shell", func() bool { return before.exits == 1 })
	r.idle("one")
	r.say("one", "again")
	during.until("the end of the next shell", func() bool { return during.exits == 2 })
	before.until("the end of the next shell", func() bool { return before.exits == 2 })

	after := r.terminal("one", "?offset=0")
	after.command(`{"type":"take"}`) // a third shell
	after.until("the keyboard", func() bool { return after.writer == "owner" })
	if after.exits != 0 {
		t.Errorf("%d ends of shells from before", after.exits)
	}
}

// TestTerminalOfAnotherAgent: a viewer that held the keyboard of an agent that went can take that of the next one.
func TestTerminalOfAnotherAgent(t *testing.T) {
	r := newRig(t, options{})
	r.create(map[string]any{"id": "one"})
	a := r.terminal("one", "")
	a.command(`{"type":"take"}`)
	a.until("the keyboard", func() bool { return a.writer == "owner" })
	a.anew = true
	s, err := r.host.Session(t.Context(), "one")
	r.must(err)
	defer s.Release()
	r.must(s.Close(t.Context())) // the agent goes
	a.until("the end of the shell", func() bool { return a.exits == 1 })
	r.say("one", "hi")
	a.until("nobody has it", func() bool { return a.writer == "" })
	a.command(`{"type":"take"}`)
	a.until("the next keyboard", func() bool { return a.writer == "owner" })
	a.command(`{"type":"release"}`)
	a.until("the keyboard given back", func() bool { return a.writer == "" })
}

func (r *rig) refusedUpgrade(status int, path string) {
	r.t.Helper()
	_, res, err := socket.Dial(r.t.Context(), "ws"+strings.TrimPrefix(r.base, "http")+"/api/v1"+path, http.Header{"Authorization": {"Bearer " + r.token}}, socket.Options{})
	if err == nil || res == nil || res.StatusCode != status {
		r.t.Errorf("%s: %v %v, want %d", path, res, err, status)
	}
}
