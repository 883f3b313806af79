package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/presets"
)

// entry is one session's place in the host. Whoever holds own may create, resume, switch, evict, close or delete it; nobody else changes
// live. The entry leaves the map when nobody refers to it and it isn't live.
type entry struct {
	id  string
	own chan struct{} // one slot

	mu      sync.Mutex
	live    *live
	holders int // those who rely on live staying; counted up only by the holder of own
	used    time.Time

	refs int // guarded by Host.mu
}

// live is a session with a running agent.
type live struct {
	scope   *scope.Scope
	hostFS  fsys.Provider
	desk    *approval.Desk
	log     *session.Log
	agent   *agent.Agent
	gone    chan struct{} // closed when it isn't the session's live agent any more
	mounted atomic.Pointer[presets.Mounted]
	// settings changes only under the entry's own.
	settings atomic.Pointer[settings]
}

// entry gives the place of a session; leave gives it back.
func (h *Host) entry(id string) *entry {
	now := h.cfg.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.entries[id]
	if e == nil {
		e = &entry{id: id, own: make(chan struct{}, 1), used: now}
		h.entries[id] = e
	}
	e.refs++
	return e
}

func (h *Host) leave(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.refs--
	if e.refs > 0 {
		return
	}
	e.mu.Lock()
	gone := e.live == nil
	e.mu.Unlock()
	if gone && h.entries[e.id] == e {
		delete(h.entries, e.id)
	}
}

// lock takes the entry for a change. The returned function gives it back.
func (e *entry) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case e.own <- struct{}{}:
		return func() { <-e.own }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// locked gives the place of a session, taken for a change. leave gives both back.
func (h *Host) locked(ctx context.Context, id string) (e *entry, leave func(), err error) {
	e = h.entry(id)
	unlock, err := e.lock(ctx)
	if err != nil {
		h.leave(e)
		return nil, nil, err
	}
	return e, func() {
		unlock()
		h.leave(e)
	}, nil
}

// now is the live agent, or nil.
func (e *entry) now() *live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live
}

func (e *entry) setLive(l *live, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.live, e.used = l, now
}

// hold makes the session live if it isn't and keeps it so until release. The resume outlives the caller's context: the next one needs it too.
func (h *Host) hold(ctx context.Context, e *entry) (*live, func(), error) {
	unlock, err := e.lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if err := h.open(); err != nil {
		return nil, nil, err
	}
	l := e.now()
	if l == nil {
		if l, err = h.resume(context.WithoutCancel(ctx), e); err != nil {
			return nil, nil, err
		}
	}
	e.count(1, h.cfg.Now())
	return l, func() { e.count(-1, h.cfg.Now()) }, nil
}

// count adds to the holders.
func (e *entry) count(n int, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holders += n
	e.used = now
}

// shut closes the live agent of e, if there is one. The caller holds own.
func (h *Host) shut(ctx context.Context, e *entry, by string) error {
	l := e.now()
	if l == nil {
		return nil
	}
	err := h.closeLive(ctx, l, by)
	e.setLive(nil, h.cfg.Now())
	close(l.gone)
	h.feed.dirty(e.id)
	return err
}

// closeLive ends an agent: its turn first, with a logged reason, then everything its scope owns.
func (h *Host) closeLive(ctx context.Context, l *live, by string) error {
	l.agent.Stop(by)
	err := l.scope.Close(ctx)
	h.journal.Release(l.log)
	h.liveCount.Add(-1)
	return err
}

// evict closes the agents that nobody used for a while. It skips whatever is busy.
func (h *Host) evict(ctx context.Context) error {
	h.mu.Lock()
	all := make([]*entry, 0, len(h.entries))
	for _, e := range h.entries {
		e.refs++
		all = append(all, e)
	}
	h.mu.Unlock()
	var errs []error
	for _, e := range all {
		if err := h.evictOne(ctx, e); err != nil {
			errs = append(errs, err)
		}
		h.leave(e)
	}
	return errors.Join(errs...)
}

func (h *Host) evictOne(ctx context.Context, e *entry) error {
	select {
	case e.own <- struct{}{}:
		defer func() { <-e.own }()
	default:
		return nil // somebody is changing it
	}
	l, idle, ok := h.unused(e)
	if !ok {
		return nil
	}
	limit := h.cfg.EvictIdle
	if t := l.mounted.Load().Terminals(); t != nil && t.Used() {
		limit = h.cfg.EvictUsedShell
	}
	if !l.log.Info().Archived && (limit <= 0 || idle < limit) { // what was filed away while it ran goes as soon as it doesn't
		return nil
	}
	return h.putAway(ctx, e, l, idle)
}

// putAway logs that an idle agent goes, and closes it. The caller holds own.
func (h *Host) putAway(ctx context.Context, e *entry, l *live, idle time.Duration) error {
	_, err := l.log.Update(ctx, func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.AgentEvicted{IdleMs: idle.Milliseconds()}}}, nil
	})
	return errors.Join(err, h.shut(ctx, e, agent.ByDisposed))
}

// archive files a session away. Its agent and its shell, when nobody is using them, go with it; whatever is sent later brings a new one.
func (h *Host) archive(ctx context.Context, e *entry, archived bool) error {
	if err := h.journal.SetArchived(ctx, e.id, archived); err != nil || !archived {
		return err
	}
	l, idle, ok := h.unused(e)
	if !ok {
		return nil
	}
	return h.putAway(ctx, e, l, idle)
}

// unused gives the live agent of e when nothing runs or waits in it, and for how long. The caller holds own.
func (h *Host) unused(e *entry) (l *live, idle time.Duration, ok bool) {
	e.mu.Lock()
	l, busy, used := e.live, e.holders > 0, e.used
	e.mu.Unlock()
	if l == nil || busy || !l.agent.Idle() {
		return nil, 0, false
	}
	st := l.log.State()
	if len(st.Approvals) > 0 {
		return nil, 0, false
	}
	if t := l.mounted.Load().Terminals(); t != nil && t.State().Writer != "" { // a person is typing
		return nil, 0, false
	}
	if at := time.UnixMilli(st.UpdatedAt); at.After(used) {
		used = at // a turn ends long after the message that began it
	}
	return l, h.cfg.Now().Sub(used), true
}
