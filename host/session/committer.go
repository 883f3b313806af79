package session

import (
	"maps"
	"runtime"
	"slices"
	"sync"
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
	change   func(*applier, *work) error
	creates  []creation
	partials []*Log
	ready    []Change
	unref    bool      // the committer gives back the reference, whoever waits
	since    time.Time // when it was queued; set when somebody observes

	stage   atomic.Int32
	written chan struct{} // closed when the update is written, if the store can tell; nil when nobody asks
	done    chan struct{}
	events  []Event
	err     error
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
	sides   [2]*applier
	chunk   uint64 // counts the chunks that were applied
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
	rounds := 0 // bounded too: where a test's clock stands still while somebody runs, the time alone never is over
	for last := time.Now(); time.Since(last) < patience && rounds < 1000; rounds++ {
		runtime.Gosched()
		now := queued()
		if now >= all {
			return
		}
		if now > came {
			came, last, rounds = now, time.Now(), 0
		}
	}
}

// together is how many operations are applied before the bounds of a commit are looked at.
const together = 64

// process commits ops, those of each log in order, all that fit at once.
func (c *committer) process(ops []*operation) {
	var batch []*operation
	for chunk := range slices.Chunk(ops, together) {
		taken := slices.DeleteFunc(chunk, func(op *operation) bool { return !op.stage.CompareAndSwap(opQueued, opTaken) })
		c.apply(taken)
		batch = append(batch, taken...)
		if len(batch) >= batchOperations || c.sides[0].size+c.sides[1].size > batchBytes {
			c.commit(batch)
			batch = nil
		}
	}
	if len(batch) > 0 {
		c.commit(batch)
	}
}

// worthTwo is from how many operations on a second processor is asked for help.
const worthTwo = 16

// apply runs ops on the working states. Those of one log stay in order on one side; logs know nothing of each other, so that both sides can
// run at once. An operation on several logs makes all wait in line.
func (c *committer) apply(ops []*operation) {
	alone := c.journal.opts.Checked || len(ops) < worthTwo || runtime.GOMAXPROCS(0) < 2
	for _, op := range ops {
		alone = alone || op.log == nil
	}
	if alone {
		for _, op := range ops {
			c.sides[0].apply(op)
		}
		return
	}
	c.chunk++
	var sides [2][]*operation
	logs := 0
	for _, op := range ops {
		if op.log.chunk != c.chunk {
			op.log.chunk, op.log.side = c.chunk, logs%2
			logs++
		}
		sides[op.log.side] = append(sides[op.log.side], op)
	}
	run := func(side int) {
		for _, op := range sides[side] {
			c.sides[side].apply(op)
		}
	}
	var other sync.WaitGroup
	other.Go(func() { run(1) })
	run(0)
	other.Wait()
}

// commit makes the batch durable, publishes it, tells the hook, and then lets the callers go on.
func (c *committer) commit(batch []*operation) {
	works := slices.Concat(c.sides[0].works, c.sides[1].works)
	for _, side := range c.sides {
		side.works, side.size = nil, 0
	}
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
