package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// applier runs operations on working states and collects what they change. The committer has two, for logs that have nothing to do with
// each other.
type applier struct {
	now     func() time.Time
	checked bool
	encoder *encoder
	works   []*work
	size    int
}

// workOf gives the batch's work on a log.
func (a *applier) workOf(l *Log) *work {
	if l.work == nil {
		w := &work{log: l, change: Change{ID: l.header.ID}}
		l.mu.Lock()
		w.state, w.info = l.state, l.info
		l.mu.Unlock()
		l.work = w
		a.works = append(a.works, w)
	}
	return l.work
}

// apply runs op on the working state. What it may not do is left in op.err.
func (a *applier) apply(op *operation) {
	switch {
	case op.creates != nil:
		a.applyCreates(op)
	case op.partials != nil:
		for _, l := range op.partials {
			if w := a.workOf(l); !w.clear && !w.change.Delete && !l.isGone() {
				w.change.Partials, w.saved = l.live.unsaved()
				w.ops = append(w.ops, op)
			}
		}
	case op.ready != nil:
		for _, change := range op.ready {
			a.works = append(a.works, &work{group: op, change: change, info: *change.Info, ops: []*operation{op}})
			for _, e := range change.Events {
				a.size += len(e.Data)
			}
		}
	default:
		w := a.workOf(op.log)
		w.ops = append(w.ops, op)
		switch {
		case w.change.Delete || op.log.isGone():
			op.err = ErrNotFound
		case op.change != nil:
			if op.err = op.change(a, w); op.err == nil {
				w.change.Info = &w.info
			}
		case w.info.Damage != "":
			op.err = &DamageError{Session: w.change.ID, Seq: w.state.LastSeq + 1, Reason: w.info.Damage}
		default:
			a.applyUpdate(w, op)
		}
	}
}

func (a *applier) applyCreates(op *operation) {
	first := len(a.works)
	for _, cr := range op.creates {
		w := a.workOf(cr.log)
		w.group, w.created, w.ops = op, true, append(w.ops, op)
		w.change.Create, w.change.Info = true, &w.info
		if cr.Pin != nil {
			w.change.Documents = append(w.change.Documents, Document{DocPin, cr.Pin})
		}
		if cr.Settings != nil {
			w.change.Documents = append(w.change.Documents, Document{DocSettings, cr.Settings})
		}
		err := a.seed(w, cr.Seed)
		if err == nil {
			err = a.append(w, cr.Drafts)
		}
		if err != nil {
			op.err = err
			for _, w := range a.works[first:] {
				w.log.work = nil
			}
			a.works = a.works[:first]
			return
		}
	}
}

func (a *applier) applyUpdate(w *work, op *operation) {
	drafts, err := a.call(op.update, w.state)
	if err == nil && a.checked {
		err = a.checkPure(op.update, w.state, drafts)
	}
	if err != nil {
		op.err = err
		return
	}
	from := len(w.events)
	if op.err = a.append(w, drafts); op.err == nil {
		op.events = w.events[from:len(w.events):len(w.events)]
	}
}

// call runs an update function. A panic of it is its caller's error and nobody else's.
func (a *applier) call(f func(State) ([]Draft, error), s State) (drafts []Draft, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("update function panicked: %v\n%s", r, debug.Stack())
		}
	}()
	s.seal()
	return f(s)
}

func (a *applier) checkPure(f func(State) ([]Draft, error), s State, first []Draft) error {
	second, err := a.call(f, s)
	if err != nil || len(second) != len(first) {
		return ErrImpure
	}
	for i := range first {
		one, errA := json.Marshal(first[i].Payload)
		two, errB := json.Marshal(second[i].Payload)
		if errA != nil || errB != nil {
			return errors.Join(errA, errB)
		}
		if first[i].Payload.EventType() != second[i].Payload.EventType() || !bytes.Equal(one, two) {
			return ErrImpure
		}
	}
	return nil
}

// append adds all drafts to the work, or none.
func (a *applier) append(w *work, drafts []Draft) error {
	if len(drafts) == 0 {
		return nil
	}
	before := *w
	now := a.now().UnixMilli()
	for _, d := range drafts {
		if err := a.appendOne(w, now, d); err != nil {
			ops := w.ops
			*w = before
			w.ops = ops
			return err
		}
	}
	a.touch(w)
	return nil
}

func (a *applier) appendOne(w *work, now int64, d Draft) error {
	if d.Payload == nil {
		return errors.New("append event: the draft has no payload")
	}
	e := Event{Seq: w.state.LastSeq + 1, Time: now, Type: d.Payload.EventType(), Prev: w.state.Last}
	if ig, ok := d.Payload.(ignorable); ok {
		e.Ignorable = ig.Ignorable()
	}
	encoded, err := a.encoder.encode(&e, d.Payload)
	if err != nil {
		return err
	}
	// The state is folded from the bytes, never from the value, so that it can't differ from what a reload folds.
	p, known, err := DecodePayload(e)
	if err != nil {
		return err
	}
	if !known && !e.Ignorable {
		return fmt.Errorf("append event: the type %q isn't in the vocabulary and isn't ignorable", e.Type)
	}
	return a.add(w, e, encoded, p)
}

// add folds one event into the work and puts it into the change.
func (a *applier) add(w *work, e Event, encoded []byte, p Payload) error {
	if p != nil {
		if err := w.state.apply(e, p); err != nil {
			return err
		}
	}
	w.state.advance(e, HashEvent(encoded))
	w.events = append(w.events, e)
	w.encoded = append(w.encoded, Encoded{Seq: e.Seq, Data: encoded})
	a.size += len(encoded)
	if text := searchedText(p); text != "" {
		w.change.Texts = append(w.change.Texts, Text{Seq: e.Seq, Text: FoldText(text)})
	}
	switch p := p.(type) {
	case AssistantMessage:
		w.clear = true
	case TurnEnd:
		w.clear, w.change.Ending = true, true
	case ToolResult:
		w.results = append(w.results, p.Message.Source.CallID)
	case Title:
		w.change.Texts = append(w.change.Texts, Text{Seq: TitleSeq, Text: FoldText(p.Title)})
	case RequestHeader:
		w.info.Model = ModelRef{Provider: p.Header.Config.Provider, Model: p.Header.Config.Model}
	}
	return nil
}

func (a *applier) touch(w *work) {
	w.info.LogFacts = w.state.Facts()
	w.change.Info, w.change.Events = &w.info, w.encoded
	if w.clear {
		w.change.Partials, w.saved = nil, nil // a checkpoint in the same batch has come too late
		w.change.DropPartial = w.log.partials
	}
}

// seed folds a log to begin with.
func (a *applier) seed(w *work, seed [][]byte) error {
	for _, encoded := range seed {
		_, e, err := Fold(w.state, encoded)
		if err != nil {
			return fmt.Errorf("copy log: %w", err)
		}
		p, _, err := DecodePayload(e)
		if err != nil {
			return err
		}
		if err := a.add(w, e, encoded, p); err != nil {
			return err
		}
	}
	if len(seed) > 0 {
		a.touch(w)
	}
	return nil
}
