package socket_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/web/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs handle for each upgrade on a real listener and gives its ws:// address.
func serve(t testing.TB, opts socket.Options, handle func(*socket.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := socket.Accept(w, r, opts)
		if err != nil {
			return
		}
		defer c.Abort()
		handle(c)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return "ws://" + ln.Addr().String() + "/"
}

func dial(t testing.TB, url string, protocols ...string) *socket.Conn {
	t.Helper()
	c, answer, err := socket.Dial(t.Context(), url, nil, socket.Options{ReadLimit: 8 << 20}, protocols...)
	if err != nil {
		t.Fatalf("dial: %v (%v)", err, answer)
	}
	t.Cleanup(c.Abort)
	return c
}

// raw does the opening handshake by hand, so that a test can write frames that no library would.
func raw(t testing.TB, url string) net.Conn {
	t.Helper()
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "ws://"), "/")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+addr+"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 0, 512)
	one := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if _, err := c.Read(one); err != nil {
			t.Fatalf("handshake: %v after %q", err, head)
		}
		head = append(head, one[0])
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
		t.Fatalf("handshake answered %q", head)
	}
	return c
}

// frame encodes a masked client frame with a zero key.
func frame(fin bool, opcode byte, payload []byte) []byte {
	b := []byte{opcode, 0}
	if fin {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b[1] = 0x80 | byte(n)
	case n < 1<<16:
		b[1] = 0x80 | 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 0x80 | 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// closeCode reads frames until a close frame and gives its code; 0 when the connection just ended.
func closeCode(t testing.TB, c net.Conn) socket.Code {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		var head [2]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return 0
		}
		n := int64(head[1] & 0x7f)
		switch n {
		case 126:
			var l [2]byte
			_, _ = io.ReadFull(c, l[:])
			n = int64(binary.BigEndian.Uint16(l[:]))
		case 127:
			var l [8]byte
			_, _ = io.ReadFull(c, l[:])
			n = int64(binary.BigEndian.Uint64(l[:]))
		}
		p := make([]byte, n)
		if _, err := io.ReadFull(c, p); err != nil {
			return 0
		}
		if head[0]&0x0f == 8 {
			if len(p) < 2 {
				return 0
			}
			return socket.Code(binary.BigEndian.Uint16(p))
		}
	}
}

func TestMessagesBothWays(t *testing.T) {
	url := serve(t, socket.Options{Protocol: "dsh-web.v1"}, func(c *socket.Conn) {
		for {
			bin, data, err := c.Read(t.Context())
			if err != nil {
				return
			}
			if c.Write(bin, data) != nil {
				return
			}
		}
	})
	c := dial(t, url, "dsh-web.v1", "ticket.abc")
	if got := c.Protocol(); got != "dsh-web.v1" {
		t.Errorf("protocol %q", got)
	}
	for _, m := range []struct {
		bin  bool
		data string
	}{{false, "hello"}, {true, "\x00\xff"}, {false, ""}, {true, strings.Repeat("x", 64<<10)}} {
		if err := c.Write(m.bin, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
		bin, data, err := c.Read(t.Context())
		if err != nil || bin != m.bin || string(data) != m.data {
			t.Fatalf("got %v, %d bytes, %v", bin, len(data), err)
		}
	}
}

func TestCloseCodeReachesThePeer(t *testing.T) {
	url := serve(t, socket.Options{}, func(c *socket.Conn) { _ = c.Close(socket.Unauthorized, "token revoked") })
	c := dial(t, url)
	_, _, err := c.Read(t.Context())
	if got := socket.Closed(err); got != socket.Unauthorized {
		t.Fatalf("close code %d (%v)", got, err)
	}
}

func TestFragmentsJoin(t *testing.T) {
	got := make(chan string, 1)
	url := serve(t, socket.Options{}, func(c *socket.Conn) {
		_, data, _ := c.Read(t.Context())
		got <- string(data)
	})
	c := raw(t, url)
	for _, f := range [][]byte{frame(false, 1, []byte("a")), frame(true, 9, []byte("ping")), frame(false, 0, []byte("b")), frame(true, 0, []byte("c"))} {
		if _, err := c.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	if s := <-got; s != "abc" {
		t.Fatalf("joined to %q", s)
	}
}

func TestHostileFrames(t *testing.T) {
	read := func(c *socket.Conn) { _, _, _ = c.Read(context.Background()) }
	t.Run("2 MiB frame", func(t *testing.T) {
		c := raw(t, serve(t, socket.Options{}, read))
		go func() { _, _ = c.Write(frame(true, 1, make([]byte, 2<<20))) }()
		if got := closeCode(t, c); got != socket.TooBig {
			t.Fatalf("close code %d", got)
		}
	})
	t.Run("endless fragments", func(t *testing.T) {
		c := raw(t, serve(t, socket.Options{ReadTimeout: 50 * time.Millisecond}, read))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f := frame(false, 1, nil)
			for {
				if _, err := c.Write(f); err != nil {
					return
				}
				f = frame(false, 0, nil)
			}
		}()
		closeCode(t, c)
		_ = c.Close()
		<-ended
	})
	t.Run("unmasked frame", func(t *testing.T) {
		c := raw(t, serve(t, socket.Options{}, read))
		if _, err := c.Write([]byte{0x81, 1, 'x'}); err != nil {
			t.Fatal(err)
		}
		closeCode(t, c) // ends without hanging
	})
}

// TestPongsStandBetweenMessages has a peer ping while long messages are written: every message and every pong arrives whole.
func TestPongsStandBetweenMessages(t *testing.T) {
	const messages, pings = 60, 200
	url := serve(t, socket.Options{}, func(c *socket.Conn) {
		reading := make(chan struct{})
		go func() { defer close(reading); _, _, _ = c.Read(context.Background()) }() // answers pings
		long := bytes.Repeat([]byte("x"), 300_000)
		for i := range messages {
			var err error
			switch i % 3 {
			case 0:
				err = c.Write(true, long)
			case 1:
				err = c.WriteFrames(append(socket.AppendHeader(nil, true, len(long)), long...))
			case 2: // several in one go
				two := append(socket.AppendHeader(nil, true, 3), "one"...)
				err = c.WriteFrames(append(socket.AppendHeader(two, true, 200), long[:200]...))
			}
			if err != nil {
				t.Error(err)
			}
		}
		<-reading
	})
	c := raw(t, url)
	var pinging sync.WaitGroup
	defer pinging.Wait()
	pinging.Go(func() {
		for i := range pings {
			if _, err := c.Write(frame(true, 9, []byte{byte(i)})); err != nil {
				return
			}
		}
	})
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, pongs := 0, 0
	for got < messages/3*4 || pongs < pings {
		var head [10]byte
		if _, err := io.ReadFull(c, head[:2]); err != nil {
			t.Fatalf("after %d messages and %d pongs: %v", got, pongs, err)
		}
		n := int(head[1])
		switch n {
		case 126:
			_, _ = io.ReadFull(c, head[2:4])
			n = int(binary.BigEndian.Uint16(head[2:]))
		case 127:
			_, _ = io.ReadFull(c, head[2:10])
			n = int(binary.BigEndian.Uint64(head[2:]))
		}
		payload := make([]byte, min(n, 1<<20))
		if _, err := io.ReadFull(c, payload); err != nil {
			t.Fatal(err)
		}
		switch {
		case head[0] == 0x8a && n == 1 && payload[0] == byte(pongs):
			pongs++
		case head[0] == 0x82 && (n == 300_000 || n == 200) && len(bytes.Trim(payload, "x")) == 0, head[0] == 0x82 && string(payload) == "one":
			got++
		default:
			t.Fatalf("frame %x of %d bytes", head, n)
		}
	}
	_ = c.Close()
}

func TestSlowReader(t *testing.T) {
	ended := make(chan error, 1)
	url := serve(t, socket.Options{WriteTimeout: 50 * time.Millisecond, WriteGrace: 50 * time.Millisecond}, func(c *socket.Conn) {
		big := make([]byte, 1<<20)
		for {
			if err := c.Write(true, big); err != nil {
				ended <- err
				return
			}
		}
	})
	_ = raw(t, url) // never reads
	if err := <-ended; !errors.Is(err, socket.ErrTooSlow) {
		t.Fatalf("got %v", err)
	}
}

func TestPing(t *testing.T) {
	got := make(chan error, 2)
	url := serve(t, socket.Options{}, func(c *socket.Conn) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		reader := make(chan struct{})
		go func() { defer close(reader); _, _, _ = c.Read(ctx) }()
		got <- c.Ping(ctx)
		short, stop := context.WithTimeout(ctx, 30*time.Millisecond)
		defer stop()
		got <- c.Ping(short)
		<-reader
	})
	c := dial(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _, _ = c.Read(ctx) // answers pings until the test cuts it
	}()
	if err := <-got; err != nil {
		t.Fatalf("live peer: %v", err)
	}
	<-got // the second may pass or not: the peer is still alive
	cancel()
	<-answered
}

func TestDeadPeer(t *testing.T) {
	got := make(chan error, 1)
	url := serve(t, socket.Options{}, func(c *socket.Conn) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		reader := make(chan struct{})
		go func() { defer close(reader); _, _, _ = c.Read(context.Background()) }()
		got <- c.Ping(ctx)
		<-reader // Ping has cut the connection
	})
	_ = raw(t, url) // answers nothing
	if err := <-got; err == nil {
		t.Fatal("a silent peer passed for alive")
	}
}

func TestRefusesWhatIsNoUpgrade(t *testing.T) {
	url := serve(t, socket.Options{}, func(*socket.Conn) { t.Error("accepted") })
	answer, err := http.Get("http" + strings.TrimPrefix(url, "ws"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusUpgradeRequired {
		t.Fatalf("status %d", answer.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}
