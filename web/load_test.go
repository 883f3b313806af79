package web_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web"
	"github.com/dsh-web/dsh-web/web/socket"
)

// soak says whether the long variants run.
func soak() bool { return os.Getenv("DSH_SOAK") != "" }

// write appends batches of events to a session's log, count events in all, at about rate a second.
func (r *rig) write(id string, count, rate int) {
	log, err := r.host.Journal().Open(context.Background(), id)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer r.host.Journal().Release(log)
	const batch = 20
	tick := time.NewTicker(time.Second * batch / time.Duration(rate))
	defer tick.Stop()
	for n := 0; n < count; n += batch {
		_, err := log.Update(context.Background(), func(session.State) ([]session.Draft, error) {
			drafts := make([]session.Draft, batch)
			for i := range drafts {
				drafts[i] = session.Draft{Payload: session.Title{Title: fmt.Sprint("title ", n+i)}}
			}
			return drafts, nil
		})
		if err != nil {
			r.t.Error(err)
			return
		}
		<-tick.C
	}
}

func TestViewersThatReconnect(t *testing.T) {
	count := 1_000
	if soak() {
		count = 60_000
	}
	r := newRig(t, options{})
	r.create(map[string]any{"id": "one"})
	var all sync.WaitGroup
	all.Go(func() { r.write("one", count, 2_000) })
	for range 8 {
		all.Go(func() {
			next := int64(0)
			for next < int64(count) {
				v, err := r.open()
				if err != nil {
					t.Error(err)
					return
				}
				_ = v.Write(false, fmt.Appendf(nil, `{"type":"subscribe","session":"one","after":%d}`, next-1))
				until, begun := time.Now().Add(50*time.Millisecond), next
				for next < int64(count) && (time.Now().Before(until) || next < begun+100) { // on a busy machine too, each comes forward
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					_, data, err := v.Read(ctx)
					cancel()
					if err != nil {
						t.Errorf("after %d events: %v", next, err)
						v.Abort()
						return
					}
					// Parsed by hand: decoding every frame would measure the decoder.
					rest, isEvent := strings.CutPrefix(string(data), `{"type":"event","session":"one","event":{"seq":`)
					if !isEvent {
						continue
					}
					text, _, _ := strings.Cut(rest, ",")
					if seq, err := strconv.ParseInt(text, 10, 64); err != nil || seq != next {
						t.Errorf("event %q, want %d", text, next)
						v.Abort()
						return
					}
					next++
				}
				v.Abort()
			}
		})
	}
	all.Wait()
}

// open dials the stream from any goroutine.
func (r *rig) open() (*socket.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, _, err := socket.Dial(ctx, "ws"+strings.TrimPrefix(r.base, "http")+"/api/v1/stream",
		http.Header{"Authorization": {"Bearer " + r.token}}, socket.Options{ReadLimit: 64 << 20}, "dsh-web.v1")
	return c, err
}

func TestStalledViewerHurtsNobody(t *testing.T) {
	const healthy, count = 3, 600 // the long run is TestOneStalledViewerAmongTwenty
	r := newRig(t, options{})
	web.Hurry(r.server, 2*time.Second, time.Second)
	r.create(map[string]any{"id": "one"})
	stalled := r.stall("one")
	var all sync.WaitGroup
	for range healthy {
		v, err := r.open()
		r.must(err)
		defer v.Abort()
		r.must(v.Write(false, []byte(`{"type":"subscribe","session":"one","after":-1}`)))
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			for n := 0; n < count; {
				_, data, err := v.Read(ctx)
				if err != nil {
					t.Errorf("a healthy viewer after %d events: %v", n, err)
					return
				}
				if bytes.HasPrefix(data, []byte(`{"type":"event"`)) {
					n++
				}
			}
		})
	}
	log, err := r.host.Journal().Open(t.Context(), "one")
	r.must(err)
	defer r.host.Journal().Release(log)
	big := strings.Repeat("x", 12_000) // more in all than the kernel keeps for one connection
	for n := 0; n < count; n += 50 {
		_, err := log.Update(t.Context(), func(session.State) ([]session.Draft, error) {
			drafts := make([]session.Draft, 50)
			for i := range drafts {
				drafts[i] = session.Draft{Payload: session.Title{Title: big}}
			}
			return drafts, nil
		})
		r.must(err)
	}
	all.Wait()
	// After what the kernel holds for it, the stalled one's connection ends.
	_ = stalled.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.Copy(io.Discard, slowly{stalled, time.Now().Add(3500 * time.Millisecond)}); err != nil && isTimeout(err) {
		t.Errorf("the stalled viewer is still served, %d bytes", n)
	}
}

// slowly begins to read at a time.
type slowly struct {
	io.Reader
	at time.Time
}

// Read waits for the time first.
func (s slowly) Read(p []byte) (int, error) {
	<-time.After(time.Until(s.at))
	return s.Reader.Read(p)
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}

// stall opens a stream, subscribes, and reads no more.
func (r *rig) stall(id string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	r.must(err)
	r.t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "GET /api/v1/stream HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", r.addr, r.token)
	r.must(err)
	line, err := bufio.NewReaderSize(io.LimitReader(c, 16), 16).ReadString(' ')
	if err != nil || line != "HTTP/1.1 " {
		r.t.Fatalf("handshake %q %v", line, err)
	}
	text := fmt.Sprintf(`{"type":"subscribe","session":%q,"after":-1}`, id)
	_, err = c.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...))
	r.must(err)
	return c
}

func TestSlowConnections(t *testing.T) {
	count := 400
	if soak() {
		count = 5_000
	}
	r := newRig(t, options{web: func(c *web.Config) { c.Limits.Heads = 64 }})
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range count {
		c, err := net.Dial("tcp", r.addr)
		r.must(err)
		open = append(open, c)
		_, _ = io.WriteString(c, "GET /api/v1/host HTTP/1.1\r\nX-Slow: ")
		if i%100 == 0 {
			r.want(200, "GET", "/host", nil, nil)
		}
	}
	r.want(200, "GET", "/host", nil, nil)
	for i, c := range open[:count-64] {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Fatalf("slow connection %d of %d is still open: %v", i, count, err)
		}
	}
}
