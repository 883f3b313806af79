package fsys

import (
	"context"
	"sync"
)

// Locks is one slot per file that is being changed, and the memory that changes are made in. Providers that may meet in one file share one
// Locks. The zero value is ready.
type Locks struct {
	buffers sync.Pool // of *[]byte

	mu    sync.Mutex // a leaf; guards what follows
	slots map[fileID]*slot
}

// buffer lends memory of at least size bytes, without contents; release takes it back.
func (l *Locks) buffer(size int) (buf []byte, release func()) {
	kept, ok := l.buffers.Get().(*[]byte)
	if !ok {
		kept = new([]byte)
	}
	if cap(*kept) < size {
		*kept = make([]byte, 0, size+size/8) // files grow
	}
	return (*kept)[:0], func() { l.buffers.Put(kept) }
}

// slot is held by whoever has sent into held.
type slot struct {
	held  chan struct{} // capacity 1
	users int           // holder and waiters; guarded by Locks.mu
}

// fileID names a file in the process: device and inode where the system has them, else the path.
type fileID struct {
	dev, ino uint64
	path     string
}

// acquire waits for the slot of id; the returned function gives it back.
func (l *Locks) acquire(ctx context.Context, id fileID) (release func(), err error) {
	l.mu.Lock()
	s := l.slots[id]
	if s == nil {
		s = &slot{held: make(chan struct{}, 1)}
		if l.slots == nil {
			l.slots = make(map[fileID]*slot)
		}
		l.slots[id] = s
	}
	s.users++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(l.slots, id)
		}
	}
	select {
	case s.held <- struct{}{}:
		return func() { <-s.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
