// Package socket is websocket connections, and the only package that imports the websocket library: changing the library changes
// this package and its test.
//
// Order: messages of one connection arrive in the order in which Write returned for them. Loss: none while Write returns nil; after an
// error the connection is over and the reader has to ask again from its last cursor. Blocking: Write blocks while the peer's buffers
// are full, at most Options.WriteTimeout plus Options.WriteGrace; Read blocks until a message, an error or the end of its context, and
// the end of its context closes the connection. Nothing is queued here.
package socket

//lint:file-ignore SA1019 the library is frozen and marked so; changing to its successor means changing this package alone

import (
	"bufio"
	"context"
	endian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"nhooyr.io/websocket"
)

// Code is the status of a close frame. 4000 to 4999 are ours.
type Code int

// The codes that this program sends.
const (
	Normal       Code = 1000
	GoingAway    Code = 1001
	Protocol     Code = 1002
	Policy       Code = 1008
	TooBig       Code = 1009
	Unauthorized Code = 4401
	TooSlow      Code = 4409
	Busy         Code = 4429
)

// ErrTooSlow is a write that took longer than the limit.
var ErrTooSlow = errors.New("the peer reads too slowly")

// errTooBig is a message over the read limit.
var errTooBig = errors.New("message over the read limit")

// Options bound one connection. Zero values take the defaults beside them.
type Options struct {
	Protocol     string        // the subprotocol to answer when the client offers it
	ReadLimit    int64         // bytes of one message, 64 KiB
	ReadTimeout  time.Duration // from a message's first frame to its last, 10 s
	WriteTimeout time.Duration // a write that takes longer closes with TooSlow, 10 s
	WriteGrace   time.Duration // how much longer a late write is given, so that the close frame can follow it, 5 s
	CloseTimeout time.Duration // for the peer's answer to a close frame, 1 s
}

func (o Options) withDefaults() Options {
	o.ReadLimit = orElse(o.ReadLimit, 64<<10)
	o.ReadTimeout = orElse(o.ReadTimeout, 10*time.Second)
	o.WriteTimeout = orElse(o.WriteTimeout, 10*time.Second)
	o.WriteGrace = orElse(o.WriteGrace, 5*time.Second)
	o.CloseTimeout = orElse(o.CloseTimeout, time.Second)
	return o
}

func orElse[T ~int64](v, other T) T {
	if v == 0 {
		return other
	}
	return v
}

// Conn is one websocket. Read has one caller at a time; the other methods may be called from any goroutine. Close it, or lose a goroutine.
type Conn struct {
	ws   *websocket.Conn
	net  net.Conn // nil for a dialled connection
	opts Options
	// turn holds one token, the right to write messages; scratch belongs to its holder. Accepted connections only.
	turn    chan struct{}
	scratch []byte
}

// Accept answers an upgrade request. It checks the protocol only: Host, Origin and authority are the caller's, before. On an error it has
// answered the request.
func Accept(w http.ResponseWriter, r *http.Request, opts Options) (*Conn, error) {
	opts = opts.withDefaults()
	h := &hijacker{ResponseWriter: w}
	var protocols []string
	if opts.Protocol != "" {
		protocols = []string{opts.Protocol}
	}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols:       protocols,
		InsecureSkipVerify: true, // the guard has judged the origin, more strictly
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, fmt.Errorf("accept websocket: %w", err)
	}
	ws.SetReadLimit(opts.ReadLimit)
	return &Conn{ws: ws, net: h.conn, opts: opts, turn: make(chan struct{}, 1)}, nil
}

// hijacker hands the connection to the library and remembers it, so that it can be cut without a handshake.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack takes the connection from the server, through whatever wraps the writer.
func (h *hijacker) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	conn, rw, err = http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

// Dial opens a client connection, for tests and command-line tools.
func Dial(ctx context.Context, url string, header http.Header, opts Options, protocols ...string) (*Conn, *http.Response, error) {
	ws, answer, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPHeader: header, Subprotocols: protocols, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, answer, fmt.Errorf("dial websocket: %w", err)
	}
	opts = opts.withDefaults()
	ws.SetReadLimit(opts.ReadLimit)
	return &Conn{ws: ws, opts: opts}, answer, nil
}

// Protocol is the subprotocol both ends agreed on, "" for none.
func (c *Conn) Protocol() string { return c.ws.Subprotocol() }

// Read waits for the next message. After an error the connection is over. A closed peer is an error for which Closed tells the code.
func (c *Conn) Read(ctx context.Context) (binary bool, data []byte, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kind, r, err := c.ws.Reader(ctx)
	if err != nil {
		return false, nil, fmt.Errorf("read websocket: %w", err)
	}
	late := time.AfterFunc(c.opts.ReadTimeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	data, err = io.ReadAll(&limited{r: r, left: c.opts.ReadLimit})
	if errors.Is(err, errTooBig) {
		late.Stop()
		_ = c.Close(TooBig, "message too big") // takes in the rest, or else a reset would overtake the close frame
	}
	if err != nil {
		return false, nil, fmt.Errorf("read websocket: %w", err)
	}
	return kind == websocket.MessageBinary, data, nil
}

// limited turns reading past the limit into errTooBig; the library's own error has no type.
type limited struct {
	r    io.Reader
	left int64
}

// Read reads at most what is left.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.left -= int64(n)
	if l.left < 0 || (l.left == 0 && err != nil && !errors.Is(err, io.EOF)) {
		return n, errTooBig
	}
	return n, err
}

// Write sends one message. ErrTooSlow says that the peer took longer than the limit; the connection is then closed with TooSlow when the
// write still ended within the grace, and cut otherwise.
func (c *Conn) Write(binary bool, data []byte) error {
	if c.net == nil {
		return c.writeMasked(binary, data)
	}
	begun := time.Now()
	c.turn <- struct{}{} // whoever has it gives it back within the limits
	c.scratch = append(AppendHeader(c.scratch[:0], binary, len(data)), data...)
	err := c.writeNow(begun, c.scratch)
	if cap(c.scratch) > keepScratch {
		c.scratch = nil
	}
	<-c.turn
	return c.late(begun, err)
}

// keepScratch is what a silent connection may keep for its next message.
const keepScratch = 2 << 10

// WriteFrames sends whole messages, each made by AppendHeader and its bytes, in one go and under one limit of time. Accepted connections only:
// what a client sends is masked.
func (c *Conn) WriteFrames(frames []byte) error {
	begun := time.Now()
	c.turn <- struct{}{}
	err := c.writeNow(begun, frames)
	<-c.turn
	return c.late(begun, err)
}

// AppendHeader begins a message of size bytes for WriteFrames.
func AppendHeader(b []byte, binary bool, size int) []byte {
	const final, text, bin = 0x80, 1, 2
	if binary {
		b = append(b, final|bin)
	} else {
		b = append(b, final|text)
	}
	switch {
	case size < 126:
		return append(b, byte(size))
	case size < 1<<16:
		return append(b, 126, byte(size>>8), byte(size))
	}
	return endian.BigEndian.AppendUint64(append(b, 127), uint64(size))
}

// writeNow hands whole frames to the connection in one call. The library writes its control frames in one call each and nothing else, so the
// two never mix: the connection takes one call at a time. Going around the library saves two hand-overs to its goroutine for each message.
func (c *Conn) writeNow(begun time.Time, frames []byte) error {
	_ = c.net.SetWriteDeadline(begun.Add(c.opts.WriteTimeout + c.opts.WriteGrace)) // a connection that is gone fails at the write
	if _, err := c.net.Write(frames); err != nil {
		c.cut() // a message may be half sent; the reader ends the rest
		return fmt.Errorf("write websocket: %w", err)
	}
	_ = c.net.SetWriteDeadline(time.Time{}) // or else a later pong would be late
	return nil
}

// late judges a write by its time.
func (c *Conn) late(begun time.Time, err error) error {
	if time.Since(begun) <= c.opts.WriteTimeout {
		return err
	}
	if err == nil {
		_ = c.Close(TooSlow, "reads too slowly") // the peer is told or gone; both end it
	}
	return ErrTooSlow
}

// writeMasked is a client's write, by the library.
func (c *Conn) writeMasked(binary bool, data []byte) error {
	// The library closes the connection when the context of a write ends, so this one is nobody's but the clock's.
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.WriteTimeout+c.opts.WriteGrace)
	defer cancel()
	kind := websocket.MessageText
	if binary {
		kind = websocket.MessageBinary
	}
	begun := time.Now()
	err := c.ws.Write(ctx, kind, data)
	if err != nil {
		err = fmt.Errorf("write websocket: %w", err)
	}
	return c.late(begun, err)
}

// Ping sends a ping and waits for its pong; somebody must be reading. The connection is cut when ctx ends first.
func (c *Conn) Ping(ctx context.Context) error {
	if err := c.ws.Ping(ctx); err != nil {
		c.Abort()
		return fmt.Errorf("ping websocket: %w", err)
	}
	return nil
}

// Close sends a close frame, waits for the peer's within CloseTimeout, ends the connection and waits for its goroutine. The second call
// waits for the first. An error says only that the peer did not answer.
func (c *Conn) Close(code Code, reason string) error {
	if len(reason) > 100 { // a control frame holds 125 bytes
		reason = reason[:100]
	}
	cut := time.AfterFunc(c.opts.CloseTimeout, c.cut)
	defer cut.Stop()
	return c.ws.Close(websocket.StatusCode(code), reason)
}

// Abort ends the connection without a close frame and waits for its goroutine.
func (c *Conn) Abort() {
	c.cut()
	_ = c.ws.CloseNow() // it was cut: nothing is left to report
}

func (c *Conn) cut() {
	if c.net != nil {
		_ = c.net.Close() // closing twice is the only failure
	}
}

// Closed is the code of the peer's close frame in an error of Read, or 0.
func Closed(err error) Code {
	if s := websocket.CloseStatus(err); s > 0 {
		return Code(s)
	}
	return 0
}
