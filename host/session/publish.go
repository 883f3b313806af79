package session

import (
	"errors"
	"fmt"
	"runtime"
)

// write commits all works at once. When that fails, each log by itself (and creations that belong together as one), so that one session's
// trouble stays its own. It gives the works that aren't durable.
func (c *committer) write(works []*work) map[*work]error {
	count, err := c.writeAll(works)
	if err == nil {
		return nil
	}
	failed := map[*work]error{}
	groups := [][]*work{works}
	if count > 1 && !errors.Is(err, ErrStaleEpoch) {
		groups = separate(works)
	}
	for _, g := range groups {
		if len(groups) > 1 {
			_, err = c.writeAll(g)
		}
		if err != nil {
			for _, w := range g {
				failed[w] = fmt.Errorf("commit: %w", err)
			}
		}
	}
	return failed
}

func (c *committer) writeAll(works []*work) (count int, err error) {
	changes := make([]Change, 0, len(works))
	for _, w := range works {
		if w.changes() {
			changes = append(changes, w.change)
		}
	}
	if len(changes) == 0 {
		return 0, nil
	}
	if tell := told(works); tell != nil {
		if s, ok := c.journal.store.(StagedStore); ok {
			return len(changes), s.CommitStaged(c.journal.epoch, changes, tell)
		}
	}
	return len(changes), c.journal.store.Commit(c.journal.epoch, changes)
}

// told tells the callers who asked that their updates are written; nil when nobody did.
func told(works []*work) func() {
	var asked []*operation
	for _, w := range works {
		for _, op := range w.ops {
			if op.written != nil && op.err == nil {
				asked = append(asked, op)
			}
		}
	}
	if asked == nil {
		return nil
	}
	return func() {
		for _, op := range asked {
			if !isClosed(op.written) { // a commit that failed for another session's sake is tried again
				close(op.written)
			}
		}
	}
}

// separate puts works that stand and fall together into one group each.
func separate(works []*work) [][]*work {
	var groups [][]*work
	place := map[*operation]int{}
	for _, w := range works {
		if !w.created {
			groups = append(groups, []*work{w})
			continue
		}
		at, ok := place[w.group]
		if !ok {
			at = len(groups)
			place[w.group] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], w)
	}
	return groups
}

// fail throws the working state away and tells everybody who saw it.
func (w *work) fail(err error) {
	for _, op := range w.ops {
		op.events, op.err = nil, err
	}
	if w.log == nil {
		return
	}
	w.log.mu.Lock()
	w.log.state.seal()
	w.log.mu.Unlock()
}

// publish makes a durable work visible.
func (c *committer) publish(w *work) Committed {
	done := Committed{ID: w.change.ID, Log: w.log, Events: w.events, Info: w.info, Created: w.created, Deleted: w.change.Delete}
	l := w.log
	if l == nil {
		for _, e := range w.change.Events {
			if event, err := ParseEvent(e.Data); err == nil {
				done.Events = append(done.Events, event)
			}
		}
		return done
	}
	if len(w.change.Partials) > 0 {
		l.partials = true
	}
	if w.change.DropPartial {
		l.partials = false
	}
	l.mu.Lock()
	l.publishLocked(w)
	l.rowKnown = l.rowKnown || w.change.Info != nil
	l.gone = l.gone || w.change.Delete
	l.mu.Unlock()
	if w.change.Delete {
		c.journal.forget(l)
	}
	l.live.settle(w.clear, w.results)
	l.wake()
	if w.saved != nil {
		w.saved()
	}
	return done
}

// forget takes a deleted log out of the table, so that its id is free.
func (j *Journal) forget(l *Log) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.logs[l.header.ID]; e != nil && e.log == l {
		delete(j.logs, l.header.ID)
	}
}

// runsHere says whether the caller is the committer's goroutine. It is slow and for checked mode only.
func (c *committer) runsHere() bool { return c.goid.Load() == goroutineID() }

func goroutineID() uint64 {
	var buf [64]byte
	var id uint64
	// The first line is "goroutine N [running]:".
	if _, err := fmt.Sscanf(string(buf[:runtime.Stack(buf[:], false)]), "goroutine %d ", &id); err != nil {
		return 0
	}
	return id
}
