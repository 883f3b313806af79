package guard

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// Limits of connections that Conns takes when a field is 0.
const (
	DefaultConnections = 4096
	DefaultHeads       = 256
)

// Conns bounds the connections of a server, over all its listeners. Use Listener around each listener and State as the server's
// ConnState hook. Over the limit of connections the newest is closed; over the limit of unfinished request heads the oldest of those is.
type Conns struct {
	max   int
	heads int

	mu   sync.Mutex
	open int
	// waiting holds the connections that owe the rest of a request head, oldest first.
	waiting *list.List
}

// NewConns makes the bounds; 0 takes the default.
func NewConns(connections, heads int) *Conns {
	if connections == 0 {
		connections = DefaultConnections
	}
	if heads == 0 {
		heads = DefaultHeads
	}
	return &Conns{max: connections, heads: heads, waiting: list.New()}
}

// Open counts the open connections.
func (c *Conns) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Listener counts what ln accepts. It may be closed twice.
func (c *Conns) Listener(ln net.Listener) net.Listener {
	return &listener{Listener: ln, conns: c, close: sync.OnceValue(ln.Close)}
}

type listener struct {
	net.Listener
	conns *Conns
	close func() error
}

// Close stops listening.
func (l *listener) Close() error { return l.close() }

// Accept waits for a connection that is within the limits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := l.conns.admit(nc); ok {
			return c, nil
		}
		_ = nc.Close() // over the limit
	}
}

// conn is a counted connection. Its fields are guarded by Conns.mu.
type conn struct {
	net.Conn
	conns *Conns
	owes  *list.Element // in waiting
	idle  bool          // between two requests
	gone  bool
}

func (c *Conns) admit(nc net.Conn) (*conn, bool) {
	k := &conn{Conn: nc, conns: c}
	c.mu.Lock()
	if c.open >= c.max {
		c.mu.Unlock()
		return nil, false
	}
	c.open++
	late := c.owesLocked(k)
	c.mu.Unlock()
	if late != nil {
		_ = late.Close() // it had its chance
	}
	return k, true
}

// owesLocked notes that k owes a head and names who has to go for that, if anybody.
func (c *Conns) owesLocked(k *conn) *conn {
	k.owes = c.waiting.PushBack(k)
	if c.waiting.Len() <= c.heads {
		return nil
	}
	oldest := c.waiting.Front().Value.(*conn)
	c.paidLocked(oldest)
	return oldest
}

func (c *Conns) paidLocked(k *conn) {
	if k.owes != nil {
		c.waiting.Remove(k.owes)
		k.owes = nil
	}
}

// State follows the life of a connection; it is a ConnState hook.
func (c *Conns) State(nc net.Conn, state http.ConnState) {
	k, ok := nc.(*conn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.idle = state == http.StateIdle
	if state != http.StateNew {
		c.paidLocked(k)
	}
}

// Read notes when an idle connection begins another head.
func (k *conn) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	if n > 0 {
		k.conns.mu.Lock()
		var late *conn
		if k.idle {
			k.idle = false
			late = k.conns.owesLocked(k)
		}
		k.conns.mu.Unlock()
		if late != nil {
			_ = late.Close() // it had its chance
		}
	}
	return n, err
}

// Close gives the place back.
func (k *conn) Close() error {
	k.conns.mu.Lock()
	if !k.gone {
		k.gone = true
		k.conns.open--
		k.conns.paidLocked(k)
	}
	k.conns.mu.Unlock()
	return k.Conn.Close()
}

// CloseWrite ends the sending half, so that the server can let a refused sender read its answer before the connection is reset.
func (k *conn) CloseWrite() error {
	if half, ok := k.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
