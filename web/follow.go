package web

import (
	"context"
	"errors"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web/socket"
)

const (
	// livePace is the least time between two rounds of live frames of one subscription.
	livePace = 8 * time.Millisecond
	// liveNap is how often a round that waits for its pace looks for durable events. Waiting for every token instead would cost a wake-up each.
	liveNap = 2 * time.Millisecond
)

// errStopped says that a frame could not be sent: the socket is over.
var errStopped = errors.New("the stream is over")

// follower sends one session's log and live text to one viewer. One goroutine, no queue.
type follower struct {
	ctx   context.Context
	id    string
	log   *session.Log
	shelf *shelf
	send  func(frames []byte) bool
	stats *metrics

	buf    []byte // one frame's content
	out    []byte // frames to be sent
	cursor int64
	caught bool
	// settled is the last turn and step whose message has been sent; live text up to it is of the past.
	settledTurn, settledStep int
	blocks                   map[int]*sentBlock
	outputs                  map[string]int64 // offset after what was sent
	lastLive                 time.Time
}

// sentBlock is what the viewer knows of a block.
type sentBlock struct {
	turn, step int
	sent       int // bytes
	name       string
	seen       bool // in the round at work
}

// run sends until ctx ends.
func (f *follower) run(after *int64) error {
	f.blocks, f.outputs = map[int]*sentBlock{}, map[string]int64{}
	if after == nil {
		page, err := f.log.Before(f.ctx, -1, 200, pageBytes)
		if err != nil {
			return err
		}
		if f.cursor = page.LastSeq; len(page.Events) > 0 {
			if err := f.events(newFramed(f.id, page.Events[0].Seq-1, page)); err != nil {
				return err
			}
		}
	} else {
		f.cursor = max(*after, -1)
	}
	nap := time.NewTimer(time.Hour)
	defer nap.Stop()
	for {
		changed := f.log.Changed()
		view := f.log.Live().View() // before the events: what is gone from it has its event in this read or an earlier one
		if err := f.catchUp(); err != nil {
			return err
		}
		wait, err := f.live(view)
		if err != nil {
			return err
		}
		if wait > 0 {
			changed = nil
			nap.Reset(min(wait, liveNap))
		}
		select {
		case <-changed:
		case <-nap.C:
		case <-f.ctx.Done():
			return nil
		}
	}
}

// catchUp sends events until there are none. The end is always the log's word: a shelf that is empty says nothing.
func (f *follower) catchUp() error {
	for size := runBytes; ; size = min(2*size, pageBytes) {
		run := f.shelf.at(f.log, f.cursor)
		if run == nil {
			page, err := f.log.Read(f.ctx, f.cursor, pageEvents, size)
			if err != nil {
				return err
			}
			if len(page.Events) == 0 {
				break
			}
			run = newFramed(f.id, f.cursor, page)
			f.shelf.put(f.log, run)
		}
		if err := f.events(run); err != nil {
			return err
		}
	}
	if f.caught {
		return nil
	}
	f.caught = true
	f.buf = appendCaughtUp(f.buf[:0], f.id, f.cursor)
	f.frame()
	return f.flush()
}

// events sends a run.
func (f *follower) events(run *framed) error {
	for _, p := range run.pieces {
		if err := f.write(p.frames); err != nil {
			return err
		}
		f.cursor = p.last
	}
	if run.turn != 0 {
		f.settledTurn, f.settledStep = run.turn, run.step
	}
	return nil
}

// frame adds buf to what the next flush sends.
func (f *follower) frame() {
	f.out = append(socket.AppendHeader(f.out, false, len(f.buf)), f.buf...)
}

// keepBuffer is what a follower may keep of its buffers while it waits.
const keepBuffer = 2 << 10

// flush sends the frames so far.
func (f *follower) flush() error {
	if len(f.out) == 0 {
		return nil
	}
	err := f.write(f.out)
	f.out = f.out[:0]
	if cap(f.out) > keepBuffer {
		f.out = nil
	}
	if cap(f.buf) > keepBuffer {
		f.buf = nil
	}
	return err
}

// write sends whole frames. It stops between writes, never inside one: an unfinished one would end the socket for every subscription.
func (f *follower) write(frames []byte) error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if !f.send(frames) {
		return errStopped
	}
	return nil
}

func (f *follower) past(turn, step int) bool {
	return turn < f.settledTurn || turn == f.settledTurn && step <= f.settledStep
}

// live sends what is new of the live text and output, or says how long that has to wait.
func (f *follower) live(view session.LiveView) (wait time.Duration, err error) {
	if !f.pending(view) {
		return 0, nil
	}
	now := time.Now()
	if wait = livePace - now.Sub(f.lastLive); wait > 0 {
		return wait, nil
	}
	f.lastLive = now
	f.withdraw()
	for _, b := range view.Blocks {
		if !f.past(b.Turn, b.Step) {
			f.block(b)
		}
	}
	for _, o := range view.Outputs {
		f.output(o)
	}
	return 0, f.flush()
}

// pending says whether view has anything that the viewer doesn't know, and forgets what settled.
func (f *follower) pending(view session.LiveView) bool {
	for id, b := range f.blocks {
		b.seen = false
		if f.past(b.turn, b.step) {
			delete(f.blocks, id) // its message is there
		}
	}
	news := false
	for _, b := range view.Blocks {
		known := f.blocks[b.ID]
		if known != nil {
			known.seen = true
		}
		news = news || !f.past(b.Turn, b.Step) && (known == nil || known.sent < b.Len || known.name != b.Name)
	}
	for _, b := range f.blocks {
		news = news || !b.seen
	}
	if len(view.Outputs) == 0 {
		clear(f.outputs)
	}
	for _, o := range view.Outputs {
		news = news || o.End > f.outputs[o.CallID]
	}
	return news
}

// withdraw drops the blocks that are gone without a message.
func (f *follower) withdraw() {
	for id, b := range f.blocks {
		if b.seen {
			continue
		}
		delete(f.blocks, id)
		f.buf = appendDrop(f.buf[:0], id)
		f.frame()
	}
}

func (f *follower) block(b session.BlockView) {
	known := f.blocks[b.ID]
	if known == nil || known.name != b.Name {
		if known == nil {
			known = &sentBlock{turn: b.Turn, step: b.Step}
			f.blocks[b.ID] = known
		}
		known.name = b.Name
		f.buf = appendBlock(f.buf[:0], f.id, b)
		f.frame()
		// A block that is announced again begins again, as for a late viewer.
		known.sent = 0
	}
	if known.sent >= b.Len {
		return
	}
	text, ok := f.log.Live().BlockText(b.ID, known.sent)
	if !ok || text == "" {
		return // gone; the next round knows why
	}
	f.buf = appendDelta(f.buf[:0], b.ID, known.sent, text)
	known.sent += len(text)
	f.stats.delta(len(text))
	f.frame()
}

func (f *follower) output(o session.OutputView) {
	at := f.outputs[o.CallID]
	if at >= o.End {
		return
	}
	text, start, ok := f.log.Live().OutputText(o.CallID, at)
	if !ok {
		delete(f.outputs, o.CallID)
		return
	}
	if start > at { // the head is gone; begin with a whole character
		cut := begin(text)
		text, start = text[cut:], start+int64(cut)
	}
	if text = whole(text); text == "" {
		return
	}
	f.buf = appendOutput(f.buf[:0], f.id, o.CallID, start, text, start-at)
	f.outputs[o.CallID] = start + int64(len(text))
	f.frame()
}
