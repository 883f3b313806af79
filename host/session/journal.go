package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Options configure a Journal. The zero value works.
type Options struct {
	// Now stamps events; nil: time.Now. Several goroutines may call it at once.
	Now    func() time.Time
	Logger *slog.Logger
	// AfterCommit is told what was committed, after it was published and before the callers of Update go on. It runs on the committer's
	// goroutine and may not block or call Update.
	AfterCommit func([]Committed)
	// Observe is told of every commit that reached the store, failed ones too, under the rules of AfterCommit and after it.
	Observe func(CommitStats)
	// CheckpointEvery is the tick that makes unfinished messages durable; 0: 250 ms.
	CheckpointEvery time.Duration
	// Checked runs every update function twice and compares, and detects an Update called from inside one. For tests.
	Checked bool
}

// Committed is what one commit did to one session. Events is empty when only the row changed.
type Committed struct {
	ID      string
	Log     *Log
	Events  []Event
	Info    Info
	Created bool
	Deleted bool
}

// CommitStats are one commit in numbers.
type CommitStats struct {
	Sessions int
	Events   int
	Bytes    int           // of encoded events
	Queued   time.Duration // how long the oldest operation had waited when the store began
	Took     time.Duration // in the store
	Failed   bool          // for at least one session
}

// Journal is the committer of one store and the logs that are open over it. It owns seq, the working state of every log and the store's
// write side. Close it; it closes the store.
type Journal struct {
	store  Store
	opts   Options
	now    func() time.Time
	logger *slog.Logger

	mu      sync.Mutex
	started bool
	closed  bool
	epoch   int64
	logs    map[string]*entry
	queue   []*operation

	poke chan struct{} // capacity 1: there is work
	tick chan struct{} // capacity 1: there is live text to checkpoint
	quit chan struct{}
	wg   sync.WaitGroup

	dirtyMu sync.Mutex
	dirty   map[*Log]struct{}

	committer committer
}

// entry is a log in memory, or one that is being loaded or created.
type entry struct {
	log   *Log          // guarded by Journal.mu
	ready chan struct{} // closed when log or err is set
	err   error
}

// NewJournal allocates a journal over store. Start acquires.
func NewJournal(store Store, opts Options) *Journal {
	j := &Journal{
		store: store, opts: opts, now: opts.Now, logger: opts.Logger,
		logs: map[string]*entry{}, dirty: map[*Log]struct{}{},
		poke: make(chan struct{}, 1), tick: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	if j.now == nil {
		j.now = time.Now
	}
	if j.logger == nil {
		j.logger = slog.New(slog.DiscardHandler)
	}
	if j.opts.CheckpointEvery <= 0 {
		j.opts.CheckpointEvery = 250 * time.Millisecond
	}
	j.committer = committer{journal: j}
	for i := range j.committer.sides {
		j.committer.sides[i] = &applier{now: j.now, checked: opts.Checked, encoder: newEncoder()}
	}
	return j
}

// Start takes ownership of the store under a new epoch and starts the committer.
func (j *Journal) Start(ctx context.Context) error {
	epoch, err := j.store.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire the store: %w", err)
	}
	j.mu.Lock()
	if j.started || j.closed {
		j.mu.Unlock()
		return errors.New("start journal: it was started or closed before")
	}
	j.started, j.epoch = true, epoch
	j.mu.Unlock()
	j.wg.Go(j.committer.run)
	j.wg.Go(j.checkpoints)
	return nil
}

// Close lets what is queued commit, stops, and closes the store. Later calls fail with ErrClosed. When ctx ends first the rest is still
// committed, but Close doesn't wait for it and leaves the store open.
func (j *Journal) Close(ctx context.Context) error {
	j.mu.Lock()
	again, started := j.closed, j.started
	j.closed = true
	j.mu.Unlock()
	if !again {
		close(j.quit)
	}
	if started {
		done := make(chan struct{})
		var waiter sync.WaitGroup
		waiter.Go(func() { j.wg.Wait(); close(done) })
		select {
		case <-done:
			waiter.Wait()
		case <-ctx.Done():
			return fmt.Errorf("close journal: %w", ctx.Err())
		}
	}
	j.mu.Lock()
	logs := make([]*Log, 0, len(j.logs))
	for _, e := range j.logs {
		if e.log != nil {
			logs = append(logs, e.log)
		}
	}
	j.mu.Unlock()
	for _, l := range logs {
		l.wake()
	}
	return j.store.Close()
}

// LogID is random and belongs to the store for life. A cursor is valid only beside it.
func (j *Journal) LogID() string { return j.store.LogID() }

// Epoch is what Start acquired.
func (j *Journal) Epoch() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.epoch
}

// Queued counts the updates that wait for the next commit.
func (j *Journal) Queued() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue)
}

// Size is how many bytes the store takes on disk.
func (j *Journal) Size(ctx context.Context) (int64, error) { return j.store.Size(ctx) }

// Pin is the composition that a session was given, as bytes.
type Pin []byte

// Creation is a session to be made.
type Creation struct {
	Header   Header
	Pin      Pin
	Settings []byte // private, see Journal.Settings
	Model    ModelRef
	// Seed is a log to begin with, in canonical encoding from seq 0 on: a fork's copied part, an import. The chain is checked.
	Seed   [][]byte
	Drafts []Draft
}

// Create makes a session durable with its header, its pin and its first events in one commit. ErrExists when the id is taken. The caller
// releases the log.
func (j *Journal) Create(ctx context.Context, h Header, pin Pin, drafts ...Draft) (*Log, error) {
	logs, err := j.CreateAll(ctx, []Creation{{Header: h, Pin: pin, Drafts: drafts}})
	if err != nil {
		return nil, err
	}
	return logs[0], nil
}

// CreateAll makes all sessions durable in one commit, or none.
func (j *Journal) CreateAll(ctx context.Context, all []Creation) (logs []*Log, err error) {
	op := &operation{}
	var reserved []*entry
	defer func() {
		j.mu.Lock()
		for i, e := range reserved {
			if err != nil {
				e.err = err
				delete(j.logs, all[i].Header.ID)
			}
			close(e.ready)
		}
		j.mu.Unlock()
	}()
	for i := range all {
		h := all[i].Header
		if h.ID == "" {
			return nil, errors.New("create session: the id is empty")
		}
		if h.CreatedAt == 0 {
			h.CreatedAt = j.now().UnixMilli()
		}
		e, err := j.reserve(ctx, h.ID)
		if err != nil {
			return nil, err
		}
		reserved = append(reserved, e)
		_, err = j.store.Info(ctx, h.ID)
		if err == nil {
			return nil, ErrExists
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		state := NewState(h)
		log := j.newLog(h, state, Info{Header: h, LogFacts: state.Facts(), Labels: h.Labels, Model: all[i].Model}, true)
		j.mu.Lock()
		e.log = log
		j.mu.Unlock()
		op.creates = append(op.creates, creation{log: log, Creation: all[i]})
		logs = append(logs, log)
	}
	if err := j.submit(ctx, op); err != nil {
		return nil, err
	}
	if op.err != nil {
		return nil, op.err
	}
	return logs, nil
}

// reserve claims the id for a creation, waiting for one that may fail.
func (j *Journal) reserve(ctx context.Context, id string) (*entry, error) {
	for {
		j.mu.Lock()
		if j.closed {
			j.mu.Unlock()
			return nil, ErrClosed
		}
		e := j.logs[id]
		if e == nil {
			e = &entry{ready: make(chan struct{})}
			j.logs[id] = e
			j.mu.Unlock()
			return e, nil
		}
		j.mu.Unlock()
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if e.err == nil {
			return nil, ErrExists
		}
	}
}

// newLog makes a log with one reference.
func (j *Journal) newLog(h Header, s State, i Info, folded bool) *Log {
	l := &Log{journal: j, header: h, state: s, info: i, folded: folded, refs: 1}
	l.live.changed = l.wake
	l.live.dirty = func() { j.markDirty(l) }
	return l
}

// Open gives the session's log with its whole state folded; while anybody refers to it there is one Log for an id. A damaged session opens
// too: State().Damage says why it is read-only. The caller releases it.
func (j *Journal) Open(ctx context.Context, id string) (*Log, error) {
	l, err := j.View(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := l.load(ctx); err != nil {
		j.Release(l)
		return nil, err
	}
	return l, nil
}

// View gives the session's log for reading and following, without folding it: it costs one row whatever the length of the log. The first
// Update or Open folds it. The caller releases it.
func (j *Journal) View(ctx context.Context, id string) (*Log, error) {
	for {
		j.mu.Lock()
		if j.closed {
			j.mu.Unlock()
			return nil, ErrClosed
		}
		e := j.logs[id]
		if e == nil {
			e = &entry{ready: make(chan struct{})}
			j.logs[id] = e
			j.mu.Unlock()
			return j.loadEntry(ctx, id, e)
		}
		if e.log != nil && e.err == nil && isClosed(e.ready) {
			e.log.refs++
			j.mu.Unlock()
			return e.log, nil
		}
		j.mu.Unlock()
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (j *Journal) loadEntry(ctx context.Context, id string, e *entry) (*Log, error) {
	info, err := j.store.Info(ctx, id)
	j.mu.Lock()
	defer j.mu.Unlock()
	defer close(e.ready)
	if err != nil {
		e.err = err
		delete(j.logs, id)
		return nil, err
	}
	s := State{
		Header: info.Header, LastSeq: info.LastSeq, Last: info.LastHash, UpdatedAt: info.UpdatedAt, Title: info.Title, Preset: info.Preset,
		Usage: info.Usage, Turns: info.Turns, TurnOpen: info.TurnOpen, TurnSeq: info.TurnSeq, StepSeq: info.StepSeq, Blank: info.Blank, Damage: info.Damage, SeedEnd: -1,
	}
	e.log = j.newLog(info.Header, s, info, false)
	e.log.partials = true
	return e.log, nil
}

// Release gives back a log of Create, Open or View. The last one drops it from memory; Live goes with it.
func (j *Journal) Release(l *Log) {
	if l == nil {
		return
	}
	j.mu.Lock()
	l.refs--
	if l.refs > 0 {
		j.mu.Unlock()
		return
	}
	if e := j.logs[l.header.ID]; e != nil && e.log == l {
		delete(j.logs, l.header.ID)
	}
	j.mu.Unlock()
	j.dirtyMu.Lock()
	delete(j.dirty, l)
	j.dirtyMu.Unlock()
}

// submit queues op and waits for its commit.
func (j *Journal) submit(ctx context.Context, op *operation) error {
	if err := j.enqueue(ctx, op); err != nil {
		return err
	}
	return j.await(ctx, op)
}

// enqueue gives op to the committer. Who has no error awaits it, unless it is unref.
func (j *Journal) enqueue(ctx context.Context, op *operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if j.opts.Checked && j.committer.runsHere() {
		return ErrReentrant
	}
	op.done = make(chan struct{})
	if j.opts.Observe != nil {
		op.since = time.Now()
	}
	j.mu.Lock()
	if j.closed || !j.started {
		j.mu.Unlock()
		return ErrClosed
	}
	if op.log != nil {
		if op.log.refs <= 0 {
			j.mu.Unlock()
			return ErrClosed
		}
		op.log.refs++
	}
	j.queue = append(j.queue, op)
	j.mu.Unlock()
	select {
	case j.poke <- struct{}{}:
	default:
	}
	return nil
}

// await waits for op's commit, or withdraws op when ctx ends before the committer took it.
func (j *Journal) await(ctx context.Context, op *operation) (err error) {
	select {
	case <-op.done:
	case <-ctx.Done():
		if op.stage.CompareAndSwap(opQueued, opWithdrawn) {
			err = ctx.Err()
		} else {
			<-op.done
		}
	}
	j.Release(op.log)
	return err
}

func (j *Journal) markDirty(l *Log) {
	j.dirtyMu.Lock()
	first := len(j.dirty) == 0
	j.dirty[l] = struct{}{}
	j.dirtyMu.Unlock()
	if first {
		select {
		case j.tick <- struct{}{}:
		default:
		}
	}
}

// checkpoints makes unfinished messages durable, all that changed in one commit per tick. An idle journal has no tick.
func (j *Journal) checkpoints() {
	failing := false
	for {
		select {
		case <-j.quit:
			return
		case <-j.tick:
		}
		timer := time.NewTimer(j.opts.CheckpointEvery)
		select {
		case <-j.quit:
			timer.Stop()
			return
		case <-timer.C:
		}
		j.dirtyMu.Lock()
		dirty := j.dirty
		j.dirty = map[*Log]struct{}{}
		j.dirtyMu.Unlock()
		op := &operation{}
		for l := range dirty {
			op.partials = append(op.partials, l)
		}
		if len(op.partials) == 0 {
			continue
		}
		if err := j.submit(context.Background(), op); errors.Is(err, ErrClosed) {
			return
		}
		if op.err != nil && !failing {
			j.logger.Warn("partial messages aren't durable", "error", op.err)
		} else if op.err == nil && failing {
			j.logger.Info("partial messages are durable again")
		}
		failing = op.err != nil
		if failing {
			for l := range dirty {
				j.markDirty(l)
			}
		}
	}
}
