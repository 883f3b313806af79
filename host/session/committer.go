package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Bounds of one commit. What is queued beyond them commits next.
const (
	batchOperations = 2048
	batchBytes      = 8 << 20
)

// The stages of an operation: the committer takes it, or the caller withdraws it, never both.
const (
	opQueued int32 = iota
	opTaken
	opWithdrawn
)

// operation is one caller's wish: an update of a log, a change of a row, creations, a checkpoint of live text, or ready changes.
type operation struct {
	log      *Log
	update   func(State) ([]Draft, error)
	change   func(*work) error
	creates  []creation
	partials []*Log
	ready    []Change
	unref    bool      // nobody waits: the committer gives back the reference
	since    time.Time // when it was queued; set when somebody observes

	stage  atomic.Int32
	done   chan struct{}
	events []Event
	err    error
}

type creation struct {
	log *Log
	Creation
}

// work is what the batch has for one log so far: thrown away when the commit fails.
type work struct {
	log     *Log
	group   *operation // the creation or ready operation it stands and falls with
	state   State
	info    Info
	change  Change
	events  []Event
	encoded []Encoded
	ops     []*operation
	created bool
	clear   bool // an event ends the live text
	results []string
	saved   func()
}

// committer is the one goroutine that writes. Everything in it belongs to that goroutine.
type committer struct {
	journal *Journal
	encoder *encoder
	works   []*work
	size    int
	goid    atomic.Uint64
}

func (c *committer) run() {
	j := c.journal
	if j.opts.Checked {
		c.goid.Store(goroutineID())
	}
	for {
		stopping := false
		select {
		case <-j.poke:
		case <-j.quit:
			stopping = true
		}
		for {
			j.mu.Lock()
			ops := j.queue
			j.queue = nil
			j.mu.Unlock()
			if len(ops) == 0 {
				break
			}
			c.process(ops)
			c.yield(len(ops))
		}
		if stopping {
			return
		}
	}
}

// yield lets those who were just answered run, so that what they queue next shares the commit of those who queued meanwhile: without it 50
// callers fall into two halves that wait for each other's commit. It gives the processor away as long as somebody comes back every some
// microseconds, at most 32 after many were answered, and never sleeps; one caller alone isn't delayed.
func (c *committer) yield(answered int) {
	queued := func() int {
		c.journal.mu.Lock()
		defer c.journal.mu.Unlock()
		return len(c.journal.queue)
	}
	came := queued()
	all := came + answered
	if all == 1 {
		return
	}
	patience := time.Duration(min(answered, 32)) * time.Microsecond
	for last := time.Now(); time.Since(last) < patience; {
		runtime.Gosched()
		now := queued()
		if now >= all {
			return
		}
		if now > came {
			came, last = now, time.Now()
		}
	}
}

// process commits ops in order, all that fit at once.
func (c *committer) process(ops []*operation) {
	var batch []*operation
	for _, op := range ops {
		if !op.stage.CompareAndSwap(opQueued, opTaken) {
			continue
		}
		c.apply(op)
		batch = append(batch, op)
		if len(batch) == batchOperations || c.size > batchBytes {
			c.commit(batch)
			batch = nil
		}
	}
	if len(batch) > 0 {
		c.commit(batch)
	}
}

// workOf gives the batch's work on a log.
func (c *committer) workOf(l *Log) *work {
	if l.work == nil {
		w := &work{log: l, change: Change{ID: l.header.ID}}
		l.mu.Lock()
		w.state, w.info = l.state, l.info
		l.mu.Unlock()
		l.work = w
		c.works = append(c.works, w)
	}
	return l.work
}

// apply runs op on the working state. What it may not do is left in op.err.
func (c *committer) apply(op *operation) {
	switch {
	case op.creates != nil:
		c.applyCreates(op)
	case op.partials != nil:
		for _, l := range op.partials {
			if w := c.workOf(l); !w.clear && !w.change.Delete && !l.isGone() {
				w.change.Partials, w.saved = l.live.unsaved()
				w.ops = append(w.ops, op)
			}
		}
	case op.ready != nil:
		for _, change := range op.ready {
			c.works = append(c.works, &work{group: op, change: change, info: *change.Info, ops: []*operation{op}})
			for _, e := range change.Events {
				c.size += len(e.Data)
			}
		}
	default:
		w := c.workOf(op.log)
		w.ops = append(w.ops, op)
		switch {
		case w.change.Delete || op.log.isGone():
			op.err = ErrNotFound
		case op.change != nil:
			if op.err = op.change(w); op.err == nil {
				w.change.Info = &w.info
			}
		case w.info.Damage != "":
			op.err = &DamageError{Session: w.change.ID, Seq: w.state.LastSeq + 1, Reason: w.info.Damage}
		default:
			c.applyUpdate(w, op)
		}
	}
}

func (c *committer) applyCreates(op *operation) {
	first := len(c.works)
	for _, cr := range op.creates {
		w := c.workOf(cr.log)
		w.group, w.created, w.ops = op, true, append(w.ops, op)
		w.change.Create, w.change.Info = true, &w.info
		if cr.Pin != nil {
			w.change.Documents = append(w.change.Documents, Document{DocPin, cr.Pin})
		}
		if cr.Settings != nil {
			w.change.Documents = append(w.change.Documents, Document{DocSettings, cr.Settings})
		}
		err := c.seed(w, cr.Seed)
		if err == nil {
			err = c.append(w, cr.Drafts)
		}
		if err != nil {
			op.err = err
			for _, w := range c.works[first:] {
				w.log.work = nil
			}
			c.works = c.works[:first]
			return
		}
	}
}

func (c *committer) applyUpdate(w *work, op *operation) {
	drafts, err := c.call(op.update, w.state)
	if err == nil && c.journal.opts.Checked {
		err = c.checkPure(op.update, w.state, drafts)
	}
	if err != nil {
		op.err = err
		return
	}
	from := len(w.events)
	if op.err = c.append(w, drafts); op.err == nil {
		op.events = w.events[from:len(w.events):len(w.events)]
	}
}

// call runs an update function. A panic of it is its caller's error and nobody else's.
func (c *committer) call(f func(State) ([]Draft, error), s State) (drafts []Draft, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("update function panicked: %v\n%s", r, debug.Stack())
		}
	}()
	s.seal()
	return f(s)
}

func (c *committer) checkPure(f func(State) ([]Draft, error), s State, first []Draft) error {
	second, err := c.call(f, s)
	if err != nil || len(second) != len(first) {
		return ErrImpure
	}
	for i := range first {
		a, errA := json.Marshal(first[i].Payload)
		b, errB := json.Marshal(second[i].Payload)
		if errA != nil || errB != nil {
			return errors.Join(errA, errB)
		}
		if first[i].Payload.EventType() != second[i].Payload.EventType() || !bytes.Equal(a, b) {
			return ErrImpure
		}
	}
	return nil
}

// append adds all drafts to the work, or none.
func (c *committer) append(w *work, drafts []Draft) error {
	if len(drafts) == 0 {
		return nil
	}
	before := *w
	now := c.journal.now().UnixMilli()
	for _, d := range drafts {
		if err := c.appendOne(w, now, d); err != nil {
			ops := w.ops
			*w = before
			w.ops = ops
			return err
		}
	}
	c.touch(w)
	return nil
}

func (c *committer) appendOne(w *work, now int64, d Draft) error {
	if d.Payload == nil {
		return errors.New("append event: the draft has no payload")
	}
	e := Event{Seq: w.state.LastSeq + 1, Time: now, Type: d.Payload.EventType(), Prev: w.state.Last}
	if ig, ok := d.Payload.(ignorable); ok {
		e.Ignorable = ig.Ignorable()
	}
	encoded, err := c.encoder.encode(&e, d.Payload)
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
	return c.add(w, e, encoded, p)
}

// add folds one event into the work and puts it into the change.
func (c *committer) add(w *work, e Event, encoded []byte, p Payload) error {
	if p != nil {
		if err := w.state.apply(e, p); err != nil {
			return err
		}
	}
	w.state.advance(e, HashEvent(encoded))
	w.events = append(w.events, e)
	w.encoded = append(w.encoded, Encoded{Seq: e.Seq, Data: encoded})
	c.size += len(encoded)
	if text := searchedText(p); text != "" {
		w.change.Texts = append(w.change.Texts, Text{Seq: e.Seq, Text: FoldText(text)})
	}
	switch p := p.(type) {
	case AssistantMessage, TurnEnd:
		w.clear = true
	case ToolResult:
		w.results = append(w.results, p.Message.Source.CallID)
	case Title:
		w.change.Texts = append(w.change.Texts, Text{Seq: TitleSeq, Text: FoldText(p.Title)})
	case RequestHeader:
		w.info.Model = ModelRef{Provider: p.Header.Config.Provider, Model: p.Header.Config.Model}
	}
	return nil
}

func (c *committer) touch(w *work) {
	w.info.LogFacts = w.state.Facts()
	w.change.Info, w.change.Events = &w.info, w.encoded
	if w.clear && w.log.partials {
		w.change.DropPartial = true
	}
}

// seed folds a log to begin with.
func (c *committer) seed(w *work, seed [][]byte) error {
	for _, encoded := range seed {
		_, e, err := Fold(w.state, encoded)
		if err != nil {
			return fmt.Errorf("copy log: %w", err)
		}
		p, _, err := DecodePayload(e)
		if err != nil {
			return err
		}
		if err := c.add(w, e, encoded, p); err != nil {
			return err
		}
	}
	if len(seed) > 0 {
		c.touch(w)
	}
	return nil
}

// commit makes the batch durable, publishes it, tells the hook, and then lets the callers go on.
func (c *committer) commit(batch []*operation) {
	works := c.works
	c.works, c.size = nil, 0
	for _, w := range works {
		if w.log != nil {
			w.log.work = nil
		}
	}
	for _, w := range works {
		w.change.FactsOnly = w.factsOnly()
	}
	start := time.Now()
	failed := c.write(works)
	took := time.Since(start)
	done := make([]Committed, 0, len(works))
	for _, w := range works {
		if err := failed[w]; err != nil {
			w.fail(err)
			continue
		}
		if w.changes() {
			done = append(done, c.publish(w))
		}
	}
	if hook := c.journal.opts.AfterCommit; hook != nil && len(done) > 0 {
		hook(done)
	}
	if observe := c.journal.opts.Observe; observe != nil {
		if s := stats(batch, works, start); s.Sessions > 0 {
			s.Took, s.Failed = took, len(failed) > 0
			observe(s)
		}
	}
	for _, op := range batch {
		if op.unref {
			c.journal.Release(op.log)
		}
		close(op.done)
	}
}

// stats counts what a batch brings to the store.
func stats(batch []*operation, works []*work, start time.Time) CommitStats {
	var s CommitStats
	for _, w := range works {
		if !w.changes() {
			continue
		}
		s.Sessions++
		s.Events += len(w.change.Events)
		for _, e := range w.change.Events {
			s.Bytes += len(e.Data)
		}
	}
	for _, op := range batch {
		if !op.since.IsZero() {
			s.Queued = max(s.Queued, start.Sub(op.since))
		}
	}
	return s
}

// factsOnly compares the row with the one that was published last.
func (w *work) factsOnly() bool {
	if w.log == nil || w.change.Info == nil || w.created {
		return false
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	was, is := &w.log.info, &w.info
	return was.Title == is.Title && was.Preset == is.Preset && was.Model == is.Model && was.Archived == is.Archived && was.Damage == is.Damage &&
		maps.Equal(was.Labels, is.Labels) && w.log.rowKnown
}

func (w *work) changes() bool {
	return w.change.Create || w.change.Info != nil || len(w.change.Partials) > 0 || w.change.Delete
}
