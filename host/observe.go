package host

import (
	"slices"
	"sync"

	"github.com/dsh-web/dsh-web/host/session"
)

// Observer is told of commits, on the committer's goroutine: its functions may not block, and what they cost everybody waits for. Nil ones
// aren't called.
type Observer struct {
	// Committed hears what was committed, after it was published and before those who asked for it go on.
	Committed func([]session.Committed)
	// Commit hears, after that, what a commit cost; of failed ones too.
	Commit func(session.CommitStats)
}

// observers are told of every commit. The list is replaced when it changes, so it is read without the lock held.
type observers struct {
	mu   sync.Mutex
	list []*Observer
}

func (o *observers) now() []*Observer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list
}

// Observe has o told of every commit from now on. Undo ends that; a call in progress may still end after it.
func (h *Host) Observe(o Observer) (undo func()) {
	all, added := &h.observers, &o
	all.mu.Lock()
	defer all.mu.Unlock()
	all.list = append(slices.Clip(all.list), added)
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.list = slices.DeleteFunc(slices.Clone(all.list), func(p *Observer) bool { return p == added })
	}
}

// committed is the journal's hook.
func (h *Host) committed(all []session.Committed) {
	h.feed.committed(all)
	for _, o := range h.observers.now() {
		if o.Committed != nil {
			o.Committed(all)
		}
	}
}

// commit is the journal's hook for costs.
func (h *Host) commit(s session.CommitStats) {
	for _, o := range h.observers.now() {
		if o.Commit != nil {
			o.Commit(s)
		}
	}
}

// Processes counts the living processes of all agents.
func (h *Host) Processes() (int, error) {
	if h.cfg.Proc == nil {
		return 0, nil
	}
	return h.cfg.Proc.Count()
}
