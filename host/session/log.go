package session

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"slices"
	"sync"
)

// Bounds of the shared tail of a log, and of a page when the caller sets none.
const (
	tailEvents   = 256
	tailBytes    = 256 << 10
	pageEvents   = 200
	pageMaxBytes = 256 << 10
)

// Log is one session's log while somebody refers to it. Everybody appends with Update; readers pull by cursor.
type Log struct {
	journal *Journal
	header  Header
	live    Live

	foldMu sync.Mutex // one load at a time; never held with mu

	mu     sync.Mutex
	state  State // what is committed
	info   Info  // what is committed
	folded bool  // state is the fold of the whole log, not only the facts of its row
	gone   bool  // deleted, or never created
	// rowKnown says that info is what the row holds; a quarantine that isn't committed yet may differ.
	rowKnown bool
	changed  chan struct{}
	tail     []tailEvent // the last events, contiguous up to state.LastSeq
	tailLen  int         // bytes of encoding in tail
	refs     int         // guarded by journal.mu

	work     *work  // the committer's
	chunk    uint64 // the committer's: the chunk of operations that side was chosen for
	side     int    // the committer's: which applier has the log
	partials bool   // the committer's: the store may hold pieces of an unfinished message
}

type tailEvent struct {
	event   Event
	encoded []byte
}

// ID is the session's id.
func (l *Log) ID() string { return l.header.ID }

// Header is what is known before the first event.
func (l *Log) Header() Header { return l.header }

// Live is the session's provisional text and output.
func (l *Log) Live() *Live { return &l.live }

// State is the committed state. On a log from View that nobody has opened yet, only the facts of lists are set, and Damage.
func (l *Log) State() State {
	l.mu.Lock()
	s := l.state
	l.mu.Unlock()
	s.seal()
	return s
}

// Info is what lists show of the session, as committed.
func (l *Log) Info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// Update appends what f returns. f sees the committed state and what this batch has before it; it may run more than once and must be a pure
// function of the state: it may not block, lock, call out or call Update, and it may run beside those of other logs. An error of f refuses:
// nothing is appended and Update returns that error as it is. No drafts and no error append nothing. When Update returns events, they are
// durable and published.
//
// A context that ends before the committer took the update withdraws it; afterwards Update waits for the commit, so a context error always
// means that nothing was appended.
func (l *Log) Update(ctx context.Context, f func(State) ([]Draft, error)) ([]Event, error) {
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	op := &operation{log: l, update: f}
	if err := l.journal.submit(ctx, op); err != nil {
		return nil, err
	}
	return op.events, op.err
}

// Begin is an Update in two halves. It returns as soon as what f returned is written, so that it survives the death of this process; wait
// returns when it is durable and published, or has failed and is taken back. Until then the caller may do what has no effect but on itself. wait may
// be called by anybody, more than once or never. What fails before it is written is Begin's error, what fails afterwards wait's. A store that can't
// tell the two apart makes Begin wait for both.
func (l *Log) Begin(ctx context.Context, f func(State) ([]Draft, error)) (wait func() ([]Event, error), err error) {
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	op := &operation{log: l, update: f, written: make(chan struct{}), unref: true}
	if err := l.journal.enqueue(ctx, op); err != nil {
		return nil, err
	}
	select {
	case <-op.written:
	case <-op.done:
	case <-ctx.Done():
		if op.stage.CompareAndSwap(opQueued, opWithdrawn) {
			l.journal.Release(l)
			return nil, ctx.Err()
		}
		<-op.done
	}
	if !isClosed(op.written) && op.err != nil { // then it is done
		return nil, op.err
	}
	return func() ([]Event, error) {
		<-op.done
		return op.events, op.err
	}, nil
}

// Changed gives a channel that closes at the next commit or change of Live. Take it before reading.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

func (l *Log) wake() {
	l.mu.Lock()
	ch := l.changed
	l.changed = nil
	l.mu.Unlock()
	if ch != nil {
		close(ch)
	}
}

// Read gives the events after the cursor: at most limit (0: 200) and at most maxBytes of encoding (0: 256 KiB), but at least one if there is
// one. after is exclusive, -1 from the start. A cursor beyond the end is ErrCursorAhead.
func (l *Log) Read(ctx context.Context, after int64, limit, maxBytes int) (Page, error) {
	limit, maxBytes = pageBounds(limit, maxBytes)
	after = max(after, -1)
	l.mu.Lock()
	last, damage, gone := l.state.LastSeq, l.damageLocked(), l.gone
	if gone {
		l.mu.Unlock()
		return Page{}, ErrNotFound
	}
	if after > last {
		l.mu.Unlock()
		return Page{}, ErrCursorAhead
	}
	if after == last {
		l.mu.Unlock()
		if damage != nil {
			return Page{LastSeq: last}, damage
		}
		return Page{LastSeq: last}, nil
	}
	if len(l.tail) > 0 && l.tail[0].event.Seq <= after+1 {
		page := Page{LastSeq: last}
		size := 0
		for _, t := range l.tail[after+1-l.tail[0].event.Seq:] {
			if size += len(t.encoded); len(page.Events) == limit || (size > maxBytes && len(page.Events) > 0) {
				page.HasMore = true
				break
			}
			page.Events = append(page.Events, t.event)
			page.Encoded = append(page.Encoded, t.encoded)
		}
		l.mu.Unlock()
		return page, nil
	}
	l.mu.Unlock()
	raw, err := l.fetch(ctx, Range{After: after, Before: last + 1, Limit: limit, MaxBytes: maxBytes})
	if err != nil {
		return Page{}, l.readFailed(err)
	}
	page, err := l.page(raw, after+1, last)
	if len(page.Events) == 0 && err == nil {
		err = &DamageError{Session: l.header.ID, Seq: after + 1, Reason: "events are missing"}
	}
	if len(page.Events) > 0 {
		page.HasMore = page.Events[len(page.Events)-1].Seq < last
		return page, nil // what can be read; the rest fails when it is asked for
	}
	return page, l.readFailed(err)
}

// Before gives the last events below the cursor, ascending, with the bounds of Read. before below 0 gives the end of the log.
func (l *Log) Before(ctx context.Context, before int64, limit, maxBytes int) (Page, error) {
	limit, maxBytes = pageBounds(limit, maxBytes)
	l.mu.Lock()
	last, gone := l.state.LastSeq, l.gone
	if gone {
		l.mu.Unlock()
		return Page{}, ErrNotFound
	}
	if before < 0 {
		before = math.MaxInt64
	} else if before > last+1 {
		l.mu.Unlock()
		return Page{}, ErrCursorAhead
	}
	before = min(before, last+1)
	page := Page{LastSeq: last}
	if before == 0 {
		l.mu.Unlock()
		return page, nil
	}
	if n := len(l.tail); n > 0 && l.tail[0].event.Seq < before {
		end := int(before - l.tail[0].event.Seq)
		from, size := end, 0
		for from > 0 && end-from < limit {
			if size += len(l.tail[from-1].encoded); size > maxBytes && from < end {
				break
			}
			from--
		}
		if from > 0 || l.tail[0].event.Seq == 0 || end-from == limit || size > maxBytes {
			for _, t := range l.tail[from:end] {
				page.Events = append(page.Events, t.event)
				page.Encoded = append(page.Encoded, t.encoded)
			}
			page.HasMore = page.Events[0].Seq > 0
			l.mu.Unlock()
			return page, nil
		}
	}
	l.mu.Unlock()
	raw, err := l.fetch(ctx, Range{After: -1, Before: before, Limit: limit, MaxBytes: maxBytes, Last: true})
	if err == nil && len(raw) == 0 {
		err = &DamageError{Session: l.header.ID, Seq: before - 1, Reason: "events are missing"}
	}
	if err != nil {
		return Page{}, l.readFailed(err)
	}
	page, err = l.page(raw, before-int64(len(raw)), last)
	if err != nil {
		return Page{}, l.readFailed(err)
	}
	page.HasMore = len(page.Events) > 0 && page.Events[0].Seq > 0
	return page, nil
}

// fetch reads from the store. The store knows sessions by id, and a deleted id can be taken again; a log knows that it is gone before its id
// is free, so what is read while it isn't gone afterwards is its own.
func (l *Log) fetch(ctx context.Context, r Range) ([][]byte, error) {
	raw, err := l.journal.store.Read(ctx, l.header.ID, r)
	if l.isGone() {
		return nil, ErrNotFound
	}
	return raw, err
}

func (l *Log) isGone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// page decodes envelopes that must be the events first, first+1, ... It stops at the first that isn't and says why.
func (l *Log) page(raw [][]byte, first, last int64) (Page, error) {
	page := Page{LastSeq: last, Events: make([]Event, 0, len(raw)), Encoded: make([][]byte, 0, len(raw))}
	for i, b := range raw {
		seq := first + int64(i)
		e, err := parseUnchecked(b)
		if err == nil && !(i+1 < len(raw) && vouches(raw[i+1], b)) && !json.Valid(e.Data) {
			e, err = parseAny(b)
		}
		if err != nil {
			return page, &DamageError{Session: l.header.ID, Seq: seq, Reason: err.Error()}
		}
		if e.Seq != seq {
			return page, &DamageError{Session: l.header.ID, Seq: seq, Reason: "events are missing or out of order"}
		}
		page.Events = append(page.Events, e)
		page.Encoded = append(page.Encoded, b)
	}
	return page, nil
}

// vouches says whether next carries the hash of b: then b is what the committer wrote, byte for byte, and its data needs no other look. A hash
// costs a fifth of that.
func vouches(next, b []byte) bool {
	e, ok := parseCanonical(next)
	return ok && e.Prev == HashEvent(b)
}

// readFailed quarantines the session when err says that it is damaged.
func (l *Log) readFailed(err error) error {
	var damage *DamageError
	if errors.As(err, &damage) {
		l.journal.quarantine(l, damage)
	}
	return err
}

func (l *Log) damageLocked() error {
	if l.state.Damage == "" {
		return nil
	}
	return &DamageError{Session: l.header.ID, Seq: l.state.LastSeq + 1, Reason: l.state.Damage}
}

func pageBounds(limit, maxBytes int) (int, int) {
	if limit <= 0 {
		limit = pageEvents
	}
	if maxBytes <= 0 {
		maxBytes = pageMaxBytes
	}
	return limit, maxBytes
}

// Follow yields every event after the cursor and goes on with those to come, in order, each once, until ctx ends or the reader stops. The
// last pair of a failed one has the error; an ended context is one.
func (l *Log) Follow(ctx context.Context, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			changed := l.Changed()
			page, err := l.Read(ctx, after, 0, 0)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if len(page.Events) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(Event{}, ctx.Err())
				return
			}
		}
	}
}

// load folds the log if that hasn't been done. A damaged log loads as far as it can be read, and Update refuses it.
func (l *Log) load(ctx context.Context) error {
	l.mu.Lock()
	done := l.folded
	l.mu.Unlock()
	if done {
		return nil
	}
	l.foldMu.Lock()
	defer l.foldMu.Unlock()
	l.mu.Lock()
	done, facts := l.folded, l.state
	l.mu.Unlock()
	if done {
		return nil
	}
	state, tail, err := l.fold(ctx, facts.LastSeq)
	if err == nil && facts.Damage != "" {
		// What is damaged may lie behind the last event that the row knows.
		_, err = l.fetch(ctx, Range{After: facts.LastSeq, Before: math.MaxInt64, Limit: 1})
	}
	if err != nil {
		var damage *DamageError
		if !errors.As(err, &damage) {
			return err
		}
		state.Damage = damage.Reason
	} else if state.Last != facts.Last {
		state.Damage = "the last event isn't the one that the session's row names"
	} else if facts.Damage == DamagedRow {
		state.Damage = facts.Damage
	}
	if state.Damage != facts.Damage {
		// A log that can be read now was mended, or met a version that knows it.
		l.journal.quarantine(l, &DamageError{Session: l.header.ID, Seq: state.LastSeq + 1, Reason: state.Damage})
	}
	l.mu.Lock()
	l.state, l.folded = state, true
	if l.tail == nil && state.Damage == "" {
		l.tail = tail
		for _, t := range tail {
			l.tailLen += len(t.encoded)
		}
		l.trimLocked()
	}
	l.mu.Unlock()
	return nil
}

// foldPage is how much of a log is read at once while it is folded.
const foldPage = 1 << 20

func (l *Log) fold(ctx context.Context, last int64) (State, []tailEvent, error) {
	state := NewState(l.header)
	tail := make([]tailEvent, 0, min(tailEvents, last+1))
	for state.LastSeq < last {
		raw, err := l.fetch(ctx, Range{After: state.LastSeq, Before: last + 1, MaxBytes: foldPage})
		if err != nil {
			return state, nil, err
		}
		if len(raw) == 0 {
			return state, nil, &DamageError{Session: l.header.ID, Seq: state.LastSeq + 1, Reason: "the log ends before the event that the session's row names"}
		}
		state.History = slices.Grow(state.History, len(raw)/4) // about what a turn leaves of its events
		for _, b := range raw {
			next, e, err := Fold(state, b)
			if err != nil {
				return state, nil, err
			}
			state = next
			if e.Seq > last-tailEvents {
				tail = append(tail, tailEvent{e, b})
			}
		}
	}
	return state, tail, nil
}

// publishLocked makes committed events visible.
func (l *Log) publishLocked(w *work) {
	if w.info.Damage == "" {
		w.info.Damage = l.info.Damage // met by a reader meanwhile
	}
	l.info = w.info
	if len(w.events) > 0 {
		l.state = w.state
	}
	for i := range w.events {
		l.tail = append(l.tail, tailEvent{w.events[i], w.encoded[i].Data})
		l.tailLen += len(w.encoded[i].Data)
	}
	l.trimLocked()
}

func (l *Log) trimLocked() {
	from := 0
	for len(l.tail)-from > tailEvents || (l.tailLen > tailBytes && len(l.tail)-from > 1) {
		l.tailLen -= len(l.tail[from].encoded)
		from++
	}
	if from == 0 {
		return
	}
	if len(l.tail) < cap(l.tail) { // room is left: move the window, the array is replaced when it is full
		clear(l.tail[:from])
		l.tail = l.tail[from:]
		return
	}
	l.tail = append(make([]tailEvent, 0, max(16, 2*(len(l.tail)-from))), l.tail[from:]...)
}
