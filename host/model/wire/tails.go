package wire

import (
	"context"
	"sync"
)

// Tails reads the last bytes of answers that are complete, beside what their callers go on to do: they say nothing any more, but a connection that wasn't
// read to its end can't serve the next call. It is safe for concurrent use. Close it before the transport.
type Tails struct {
	ctx    context.Context // ended by Close
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// NewTails makes one.
func NewTails() *Tails {
	ctx, cancel := context.WithCancel(context.Background())
	return &Tails{ctx: ctx, cancel: cancel}
}

// take drains and closes s; it is false after Close.
func (t *Tails) take(s *Stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.group.Go(func() {
		defer context.AfterFunc(t.ctx, func() { s.cancel(errGrace) })()
		s.drain(tailTime)
	})
	return true
}

// Wait waits until nothing is being read.
func (t *Tails) Wait() { t.group.Wait() }

// Close cuts off what is still being read and waits for its end.
func (t *Tails) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.group.Wait()
}
