package session

import (
	"context"
	"maps"
)

// Read gives a page of a session that needn't be open; see Log.Read.
func (j *Journal) Read(ctx context.Context, id string, after int64, limit, maxBytes int) (Page, error) {
	l, err := j.View(ctx, id)
	if err != nil {
		return Page{}, err
	}
	defer j.Release(l)
	return l.Read(ctx, after, limit, maxBytes)
}

// Before gives a page of a session that needn't be open; see Log.Before.
func (j *Journal) Before(ctx context.Context, id string, before int64, limit, maxBytes int) (Page, error) {
	l, err := j.View(ctx, id)
	if err != nil {
		return Page{}, err
	}
	defer j.Release(l)
	return l.Before(ctx, before, limit, maxBytes)
}

// Info is what lists show of one session; ErrNotFound.
func (j *Journal) Info(ctx context.Context, id string) (Info, error) {
	l, err := j.View(ctx, id)
	if err != nil {
		return Info{}, err
	}
	defer j.Release(l)
	return l.Info(), nil
}

// List gives a page of sessions, newest first.
func (j *Journal) List(ctx context.Context, q Query) (List, error) { return j.store.List(ctx, q) }

// Pin is the composition that the session was given.
func (j *Journal) Pin(ctx context.Context, id string) (Pin, error) {
	return j.store.Document(ctx, id, DocPin)
}

// Settings are the session's private settings; nil when there are none. They are outside the log and never exported.
func (j *Journal) Settings(ctx context.Context, id string) ([]byte, error) {
	return j.store.Document(ctx, id, DocSettings)
}

// Annotations are a trainer's rewards, labels and notes; nil when there are none.
func (j *Journal) Annotations(ctx context.Context, id string) ([]byte, error) {
	return j.store.Document(ctx, id, DocAnnotations)
}

// SetSettings replaces the private settings and the model that lists show.
func (j *Journal) SetSettings(ctx context.Context, id string, settings []byte, m ModelRef) error {
	return j.change(ctx, id, func(_ *applier, w *work) error {
		w.info.Model = m
		w.change.Documents = append(w.change.Documents, Document{DocSettings, settings})
		return nil
	})
}

// SelectPreset gives a blank session another preset: the event and the composition in one commit, so that they can't differ. ErrBegun when a
// turn has started.
func (j *Journal) SelectPreset(ctx context.Context, id string, preset PresetRef, pin Pin) error {
	l, err := j.Open(ctx, id)
	if err != nil {
		return err
	}
	defer j.Release(l)
	return j.change(ctx, id, func(a *applier, w *work) error {
		switch {
		case w.info.Damage != "":
			return &DamageError{Session: id, Seq: w.state.LastSeq + 1, Reason: w.info.Damage}
		case !w.state.Blank:
			return ErrBegun
		}
		if err := a.append(w, []Draft{{Payload: PresetSelected{AgentPreset: preset}}}); err != nil {
			return err
		}
		w.change.Documents = append(w.change.Documents, Document{DocPin, pin})
		return nil
	})
}

// SetAnnotations replaces the annotations.
func (j *Journal) SetAnnotations(ctx context.Context, id string, annotations []byte) error {
	return j.change(ctx, id, func(_ *applier, w *work) error {
		w.change.Documents = append(w.change.Documents, Document{DocAnnotations, annotations})
		return nil
	})
}

// SetArchived archives a session, or takes it back.
func (j *Journal) SetArchived(ctx context.Context, id string, archived bool) error {
	return j.change(ctx, id, func(_ *applier, w *work) error { w.info.Archived = archived; return nil })
}

// SetLabels replaces the labels.
func (j *Journal) SetLabels(ctx context.Context, id string, labels map[string]string) error {
	labels = maps.Clone(labels)
	return j.change(ctx, id, func(_ *applier, w *work) error { w.info.Labels = labels; return nil })
}

// Delete removes the session with all that belongs to it. Whoever still holds its log gets ErrNotFound.
func (j *Journal) Delete(ctx context.Context, id string) error {
	return j.change(ctx, id, func(_ *applier, w *work) error { w.change.Delete = true; return nil })
}

// change commits f on the row of a session. f runs on the committer's goroutine, under the rules of update functions.
func (j *Journal) change(ctx context.Context, id string, f func(*applier, *work) error) error {
	l, err := j.View(ctx, id)
	if err != nil {
		return err
	}
	defer j.Release(l)
	op := &operation{log: l, change: f}
	if err := j.submit(ctx, op); err != nil {
		return err
	}
	return op.err
}

// quarantine records in the session's row why it is read-only, or with an empty reason that it isn't any more. It doesn't wait, since readers call it; a row that can't be written now is
// written when the damage is met again.
func (j *Journal) quarantine(l *Log, damage *DamageError) {
	l.mu.Lock()
	known := l.info.Damage == damage.Reason || l.info.Damage != "" && damage.Reason != ""
	if !known {
		l.rowKnown = false
		l.state.Damage, l.info.Damage = damage.Reason, damage.Reason
	}
	l.mu.Unlock()
	if known {
		return
	}
	j.logger.Warn("session quarantined", "session", damage.Session, "seq", damage.Seq, "reason", damage.Reason)
	op := &operation{log: l, change: func(_ *applier, w *work) error { w.info.Damage = damage.Reason; return nil }, done: make(chan struct{})}
	j.mu.Lock()
	if j.closed || !j.started {
		j.mu.Unlock()
		return
	}
	op.unref = true
	l.refs++
	j.queue = append(j.queue, op)
	j.mu.Unlock()
	select {
	case j.poke <- struct{}{}:
	default:
	}
}
