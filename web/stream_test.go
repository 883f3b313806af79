package web_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/web"
	"github.com/dsh-web/dsh-web/web/socket"
)

func TestSubscriptions(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{script.Text("hello")})})
	r.create(map[string]any{"id": "one"})
	r.say("one", "hi")
	want := r.log("one")
	t.Run("from the start", func(t *testing.T) {
		v := r.view()
		v.subscribe("one", -1)
		got := v.until("caughtUp", isType("caughtUp"))
		if eventTypes(eventsOf(got)) != eventTypes(want) || got[len(got)-1].Seq != want[len(want)-1].Seq {
			t.Errorf("got %s", eventTypes(eventsOf(got)))
		}
	})
	t.Run("from the middle", func(t *testing.T) {
		v := r.view()
		v.subscribe("one", 5)
		got := eventsOf(v.until("caughtUp", isType("caughtUp")))
		if len(got) != len(want)-6 || got[0].Seq != 6 {
			t.Errorf("got %s", eventTypes(got))
		}
	})
	t.Run("the tail", func(t *testing.T) {
		v := r.view()
		v.send(`{"type":"subscribe","session":"one"}`)
		if got := eventsOf(v.until("caughtUp", isType("caughtUp"))); len(got) != len(want) {
			t.Errorf("got %d of %d events", len(got), len(want))
		}
	})
	t.Run("beyond the end", func(t *testing.T) {
		v := r.view()
		v.subscribe("one", 1_000)
		if f := v.next(); f.Type != "error" || f.Code != "cursor-ahead" || f.Session != "one" {
			t.Errorf("got %+v", f)
		}
		v.subscribe("one", -1)
		v.until("caughtUp", isType("caughtUp"))
	})
	t.Run("unknown session", func(t *testing.T) {
		v := r.view()
		for _, id := range []string{"nobody", "", "../one", strings.Repeat("x", 300)} {
			v.send(`{"type":"subscribe","session":%q}`, id)
			if f := v.next(); f.Type != "error" || f.Code != "session-not-found" {
				t.Errorf("%q: %+v", id, f)
			}
		}
		v.subscribe("one", -1) // the socket stays
		v.until("caughtUp", isType("caughtUp"))
	})
	t.Run("again", func(t *testing.T) {
		v := r.view()
		for range 20 {
			v.subscribe("one", -1)
		}
		n := 0
		for n < 20 {
			if f := v.nextAny(); f.Type == "caughtUp" {
				n++
			} else if f.Type == "error" {
				t.Fatalf("%+v", f)
			}
			if n > 0 && v.last["one"] == want[len(want)-1].Seq {
				break
			}
		}
	})
	t.Run("unsubscribe", func(t *testing.T) {
		v := r.view()
		v.subscribe("one", -1)
		v.until("caughtUp", isType("caughtUp"))
		v.send(`{"type":"unsubscribe","session":"one"}`)
		v.send(`{"type":"subscribe","session":"nobody"}`) // its answer says that the unsubscribe is done
		v.next()
		r.say("one", "more")
		v.send(`{"type":"subscribe","session":"nobody"}`)
		if f := v.next(); f.Type != "error" {
			t.Errorf("after unsubscribe: %+v", f)
		}
	})
	t.Run("bad commands", func(t *testing.T) {
		v := r.view()
		for text, code := range map[string]string{
			`{`: "bad-json", `[]`: "bad-json", `1`: "bad-json", `{"type":"shout"}`: "validation", `{}`: "validation",
			`{"type":"watch","extra":1}`: "bad-json", `{"type":"watch","Session":"x"}`: "bad-json", `{"type":1}`: "bad-json",
			`{"type":"watch","type":"watch"}`: "bad-json",
		} {
			v.send("%s", text)
			if f := v.next(); f.Type != "error" || f.Code != code {
				t.Errorf("%s: %+v", text, f)
			}
		}
	})
}

// nextAny reads a frame without holding events to an order, for a viewer that subscribes again and again.
func (v *viewer) nextAny() frame {
	v.t.Helper()
	known := v.last
	v.last = map[string]int64{}
	f := v.next()
	if f.Type == "event" {
		known[f.Session] = f.Event.Seq
	}
	v.last = known
	return f
}

func TestLiveText(t *testing.T) {
	gate, begun := make(chan struct{}), make(chan struct{}, 8)
	r := newRig(t, options{source: script.ByHistory(script.Turn{
		script.Text("Hello "), script.Do(func() { begun <- struct{}{} }), script.Wait(gate), script.Text("wörld"),
	})})
	r.create(map[string]any{"id": "one"})
	early := r.view()
	early.subscribe("one", -1)
	early.until("caughtUp", isType("caughtUp"))
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
	<-begun
	early.until("first delta", func(f frame) bool { return f.Type == "delta" && strings.HasPrefix("Hello ", f.Text) })

	late := r.view()
	late.subscribe("one", -1)
	got := late.until("catch-up delta", isType("delta"))
	if f := got[len(got)-1]; f.Offset != 0 || f.Text != "Hello " {
		t.Errorf("a late viewer's first delta: %+v", f)
	}
	close(gate)
	for name, v := range map[string]*viewer{"early": early, "late": late} {
		v.until("turn/end", isEvent("turn/end"))
		if len(v.blocks) != 1 {
			t.Errorf("%s: %d blocks", name, len(v.blocks))
		}
		for _, text := range v.blocks {
			if !strings.HasPrefix("Hello wörld", text) {
				t.Errorf("%s saw %q", name, text)
			}
		}
	}
	if early.last["one"] != late.last["one"] {
		t.Errorf("one ends at %d, the other at %d", early.last["one"], late.last["one"])
	}
}

func TestRetryDropsLiveText(t *testing.T) {
	r := newRig(t, options{source: script.Sequence(
		script.Turn{script.Text("half an ans"), script.Pause(50 * time.Millisecond), script.Cut()},
		script.Turn{script.Text("whole"), script.Pause(50 * time.Millisecond)})})
	r.create(map[string]any{"id": "one"})
	v := r.view()
	v.subscribe("one", -1)
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
	v.until("first text", isType("delta"))
	v.until("withdrawal", isType("drop"))
	v.until("turn/end", isEvent("turn/end"))
	for _, text := range v.blocks {
		if !strings.HasPrefix("whole", text) {
			t.Errorf("left over %q", text)
		}
	}
}

func TestLiveOutput(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(
		script.Turn{script.CallJSON("c1", "bash", map[string]string{"command": `printf 'eins\n'; read -t 20 x < go; printf 'zwei\n'`})},
		script.Turn{script.Text("done")})})
	r.create(map[string]any{"id": "one"})
	mkfifo(t, r.ws+"/go")
	v := r.view()
	v.subscribe("one", -1)
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
	got := v.until("output", isType("output"))
	if f := got[len(got)-1]; f.CallID != "c1" || f.Offset != 0 || !strings.Contains(f.Text, "eins") {
		t.Errorf("got %+v", f)
	}
	feed(t, r.ws+"/go", "x\n")
	v.until("turn/end", isEvent("turn/end"))
}

func TestReconnectDuringAStream(t *testing.T) {
	const pieces = 200
	var turn script.Turn
	for i := range pieces {
		turn = append(turn, script.Text(fmt.Sprintf("piece %d. ", i)), script.Pause(2*time.Millisecond))
	}
	r := newRig(t, options{source: script.ByHistory(turn)})
	r.create(map[string]any{"id": "one"})
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
	cursor := int64(-1)
	var seen []int64
	for {
		v := r.view()
		v.subscribe("one", cursor)
		deltas := 0
		for range 6 {
			f := v.next()
			if f.Type == "event" {
				seen = append(seen, f.Event.Seq)
				cursor = f.Event.Seq
			}
			if f.Type == "delta" {
				if deltas == 0 && f.Offset != 0 {
					t.Fatalf("the first delta after a reconnect begins at %d", f.Offset)
				}
				deltas++
			}
			if f.Type == "event" && f.Event.Type == "turn/end" {
				want := r.log("one")
				if len(seen) != len(want) || !slices.IsSorted(seen) || seen[0] != 0 {
					t.Fatalf("saw %v of %d events", seen, len(want))
				}
				return
			}
			if f.Type == "caughtUp" && deltas > 0 {
				break
			}
		}
		v.close()
	}
}

func TestFeed(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{script.Text("hello")})})
	r.create(map[string]any{"id": "one"})
	v := r.view()
	v.send(`{"type":"watch"}`)
	if f := v.next(); f.Type != "feed" || len(f.Sessions) != 1 || f.Sessions[0].ID != "one" {
		t.Fatalf("first frame %s", v.raw)
	}
	v.send(`{"type":"watch"}`) // a second one changes nothing
	r.create(map[string]any{"id": "two"})
	v.until("the new session", func(f frame) bool { return len(f.Sessions) > 0 && f.Sessions[0].ID == "two" })
	r.say("two", "hi")
	r.want(204, "DELETE", "/sessions/two", nil, nil)
	v.until("its end", func(f frame) bool { return slices.Contains(f.Removed, "two") })
}

func TestTickets(t *testing.T) {
	r := newRig(t, options{})
	url := "ws://" + r.addr + "/api/v1/stream"
	var ticket struct {
		Ticket    string
		ExpiresAt int64
	}
	r.want(200, "POST", "/auth/ticket", map[string]any{}, &ticket)
	conn, _, err := socket.Dial(t.Context(), url, nil, socket.Options{}, "dsh-web.v1", "ticket."+ticket.Ticket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Abort()
	if conn.Protocol() != "dsh-web.v1" {
		t.Errorf("protocol %q", conn.Protocol())
	}
	for _, protocols := range [][]string{{"dsh-web.v1", "ticket." + ticket.Ticket}, {"dsh-web.v1", "ticket.wrong"}, {"dsh-web.v1"}} {
		if _, res, err := socket.Dial(t.Context(), url, nil, socket.Options{}, protocols...); err == nil || res == nil || res.StatusCode != 401 {
			t.Errorf("%v: %v %v", protocols, res, err)
		}
	}
	for name, value := range map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"} {
		header := http.Header{name: {value}, "Authorization": {"Bearer " + r.token}}
		if _, res, err := socket.Dial(t.Context(), url, header, socket.Options{}); err == nil || res == nil || res.StatusCode != 403 {
			t.Errorf("%s: %v %v", name, res, err)
		}
	}
}

func TestRevokedTokenEndsItsSockets(t *testing.T) {
	r := newRig(t, options{})
	code, _ := r.keys.NewCode()
	var login struct{ Token, ID string }
	r.send("POST", "/api/v1/auth/exchange", map[string]any{"code": code}, nil).into(t, &login)
	owner := r.token
	r.token = login.Token
	v := r.view()
	r.token = owner
	begun := time.Now()
	r.want(204, "DELETE", "/auth/tokens/"+login.ID, nil, nil)
	_, err := v.read()
	if got := socket.Closed(err); got != socket.Unauthorized {
		t.Errorf("close code %d (%v)", got, err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("closed after %v", took)
	}
}

func TestCommandFlood(t *testing.T) {
	r := newRig(t, options{})
	v := r.view()
	v.check = false
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 10_000 {
			if v.conn.Write(false, []byte(`{"type":"watch"}`)) != nil {
				return
			}
		}
	}()
	for {
		_, err := v.read()
		if err != nil {
			if got := socket.Closed(err); got != socket.Busy && got != 0 {
				t.Errorf("close code %d (%v)", got, err)
			}
			break
		}
	}
	v.close()
	<-sent
}

func TestSocketLimit(t *testing.T) {
	r := newRig(t, options{web: func(c *web.Config) { c.Limits.Sockets = 3 }})
	var open []*viewer
	for range 3 {
		open = append(open, r.view())
	}
	header := http.Header{"Authorization": {"Bearer " + r.token}}
	_, res, err := socket.Dial(t.Context(), "ws://"+r.addr+"/api/v1/stream", header, socket.Options{})
	if err == nil || res == nil || res.StatusCode != 429 {
		t.Fatalf("a fourth socket: %v %v", res, err)
	}
	open[0].close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		conn, _, err := socket.Dial(ctx, "ws://"+r.addr+"/api/v1/stream", header, socket.Options{})
		if err == nil {
			conn.Abort()
			return
		}
		if ctx.Err() != nil {
			t.Fatal("the place of a closed socket isn't given back")
		}
	}
}

func TestCloseEndsStreams(t *testing.T) {
	r := newRig(t, options{})
	r.create(map[string]any{"id": "one"})
	v := r.view()
	v.subscribe("one", -1)
	v.until("caughtUp", isType("caughtUp"))
	ended := make(chan error, 1)
	go func() { _, err := v.read(); ended <- err }()
	r.stop()
	if got := socket.Closed(<-ended); got != socket.GoingAway {
		t.Errorf("close code %d", got)
	}
}
