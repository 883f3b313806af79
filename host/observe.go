package host

import (
	"slices"
	"sync"

	"github.com/dsh-web/dsh-web/host/session"
)

// observers are told of every commit. The list is replaced when it changes, so it is read without the lock held.
type observers struct {
	mu   sync.Mutex
	list []*func([]session.Committed)
}

// Observe has f told of every commit from now on, after it was published and before those who asked for it go on. f runs on the committer's
// goroutine: it may not block, and what it costs everybody waits for. Undo ends that; a call in progress may still end after it.
func (h *Host) Observe(f func([]session.Committed)) (undo func()) {
	o := &h.observers
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(slices.Clip(o.list), &f)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.list = slices.DeleteFunc(slices.Clone(o.list), func(g *func([]session.Committed)) bool { return g == &f })
	}
}

// committed is the journal's hook.
func (h *Host) committed(all []session.Committed) {
	h.feed.committed(all)
	h.observers.mu.Lock()
	list := h.observers.list
	h.observers.mu.Unlock()
	for _, f := range list {
		(*f)(all)
	}
}

// Processes counts the living processes of all agents.
func (h *Host) Processes() (int, error) {
	if h.cfg.Proc == nil {
		return 0, nil
	}
	return h.cfg.Proc.Count()
}
