package session

import (
	"context"
	"fmt"

	"github.com/dsh-web/dsh-web/host/model"
)

// Fork makes a session that begins as a copy of parent's log up to and with event atSeq, which must be a turn/end (atSeq below 0: the last
// one); otherwise ErrNotAtTurnEnd. The parent is untouched. The copy keeps its bytes, times and hashes; session/end-seed follows, then the
// removal of what was queued, then c.Drafts. The header of c gets ParentSession and SeedLength. The caller releases the log.
func (j *Journal) Fork(ctx context.Context, parent string, atSeq int64, c Creation) (*Log, error) {
	seed, state, err := j.forkSeed(ctx, parent, atSeq)
	if err != nil {
		return nil, err
	}
	c.Header.ParentSession, c.Header.SeedLength = parent, int64(len(seed))
	c.Seed = seed
	drafts := []Draft{{Payload: EndSeed{}}}
	for _, q := range []struct {
		target string
		length int
	}{{TargetNextTurn, len(state.NextTurn)}, {TargetNextStep, len(state.NextStep)}} {
		if q.length > 0 {
			drafts = append(drafts, Draft{Payload: InboxSpliced{Target: q.target, RemovedCount: q.length, Inserted: []model.Message{}, Outcome: "cancelled"}})
		}
	}
	c.Drafts = append(drafts, c.Drafts...)
	logs, err := j.CreateAll(ctx, []Creation{c})
	if err != nil {
		return nil, err
	}
	return logs[0], nil
}

// forkSeed reads the part to copy. It never makes the parent live.
func (j *Journal) forkSeed(ctx context.Context, parent string, atSeq int64) (seed [][]byte, at State, err error) {
	l, err := j.View(ctx, parent) // held, so that all pages are of one session
	if err != nil {
		return nil, State{}, err
	}
	defer j.Release(l)
	info := l.Info()
	if atSeq > info.LastSeq {
		return nil, State{}, ErrCursorAhead
	}
	last := info.LastSeq
	if atSeq >= 0 {
		last = atSeq
	}
	state := NewState(info.Header)
	var all [][]byte
	for state.LastSeq < last {
		raw, err := l.fetch(ctx, Range{After: state.LastSeq, Before: last + 1, MaxBytes: foldPage})
		if err != nil {
			return nil, State{}, err
		}
		if len(raw) == 0 {
			return nil, State{}, &DamageError{Session: parent, Seq: state.LastSeq + 1, Reason: "events are missing"}
		}
		for _, b := range raw {
			next, e, err := Fold(state, b)
			if err != nil {
				return nil, State{}, fmt.Errorf("fork session %s: %w", parent, err)
			}
			state = next
			all = append(all, b)
			if e.Type == (TurnEnd{}).EventType() && (atSeq < 0 || e.Seq == atSeq) {
				seed, at = all[:len(all):len(all)], state
			}
		}
	}
	if len(seed) == 0 {
		return nil, State{}, ErrNotAtTurnEnd
	}
	return seed, at, nil
}
