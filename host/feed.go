package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/dsh-web/dsh-web/host/session"
)

// Feed tells subscribers what changed in the host: the latest value of each session, never a history. Order: none between sessions. Loss:
// none of the latest values; values in between are skipped. Blocking: a slow subscriber costs the host one map entry per changed session.
type Feed struct {
	host *Host
	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// Subscription is one reader of the feed. Its methods are for one goroutine.
type Subscription struct {
	feed    *Feed
	changed map[string]struct{} // guarded by feed.mu
	wake    chan struct{}       // one token
	full    bool                // the first state is still to be sent
}

// Frame is what changed since the frame before; the first one is the whole state.
type Frame struct {
	Sessions []Info   `json:"sessions"`
	Removed  []string `json:"removed"`
	// Approvals are the pending approvals and questions of the sessions in this frame.
	Approvals []Approval `json:"approvals"`
	Status    FeedStatus `json:"status"`
}

// Approval is a pending approval or question and the session that waits for it.
type Approval struct {
	Session string `json:"session"`
	session.ApprovalAsked
}

// FeedStatus is the state of the host as a whole.
type FeedStatus struct {
	Draining bool `json:"draining"`
	Live     int  `json:"live"`
}

// feedPage bounds the first frame; older sessions are found by listing.
const feedPage = 1000

// Subscribe starts a subscription; the caller closes it.
func (f *Feed) Subscribe() *Subscription {
	s := &Subscription{feed: f, changed: map[string]struct{}{}, wake: make(chan struct{}, 1), full: true}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subs[s] = struct{}{}
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	delete(s.feed.subs, s)
}

// dirty marks sessions as changed for every subscriber. It never blocks.
func (f *Feed) dirty(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		for _, id := range ids {
			s.changed[id] = struct{}{}
		}
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// committed is the journal's hook.
func (f *Feed) committed(all []session.Committed) {
	f.mu.Lock()
	idle := len(f.subs) == 0
	f.mu.Unlock()
	if idle {
		return
	}
	ids := make([]string, len(all))
	for i, c := range all {
		ids[i] = c.ID
	}
	f.dirty(ids...)
}

// Next gives the first full frame, then waits for changes.
func (s *Subscription) Next(ctx context.Context) (Frame, error) {
	if s.full {
		s.full = false
		return s.first(ctx)
	}
	select {
	case <-s.wake:
	case <-ctx.Done():
		return Frame{}, ctx.Err()
	}
	s.feed.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.changed))
	clear(s.changed)
	s.feed.mu.Unlock()
	return s.feed.frame(ctx, ids)
}

func (s *Subscription) first(ctx context.Context) (Frame, error) {
	f := s.feed.empty()
	q := session.Query{Limit: feedPage}
	page, err := s.feed.host.journal.List(ctx, q)
	if err != nil {
		return Frame{}, err
	}
	known := map[string]bool{}
	for _, in := range page.Sessions {
		known[in.ID] = true
		s.feed.add(ctx, &f, in)
	}
	// What waits is part of the state however long ago its session was touched.
	err = s.feed.host.waiting(ctx, func(in session.Info) error {
		if !known[in.ID] {
			s.feed.add(ctx, &f, in)
		}
		return nil
	})
	return f, err
}

func (f *Feed) frame(ctx context.Context, ids []string) (Frame, error) {
	out := f.empty()
	for _, id := range ids {
		in, err := f.host.journal.Info(ctx, id)
		switch {
		case errors.Is(err, session.ErrNotFound):
			out.Removed = append(out.Removed, id)
		case err != nil:
			return Frame{}, err
		default:
			f.add(ctx, &out, in)
		}
	}
	return out, nil
}

func (f *Feed) empty() Frame {
	return Frame{
		Sessions: []Info{}, Removed: []string{}, Approvals: []Approval{},
		Status: FeedStatus{Draining: f.host.Draining(), Live: int(f.host.liveCount.Load())},
	}
}

func (f *Feed) add(ctx context.Context, out *Frame, in session.Info) {
	out.Sessions = append(out.Sessions, f.host.info(in))
	pending, err := f.host.pendingOf(ctx, in)
	if err != nil {
		f.host.cfg.Logger.Warn("read what is pending", "session", in.ID, "error", err) // a damaged one; its row says so
	}
	out.Approvals = append(out.Approvals, pending...)
}
