package web

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
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
	send  func([]byte) bool
	stats *metrics

	buf    []byte
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
		f.cursor = page.LastSeq
		if err := f.events(page); err != nil {
			return err
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

// catchUp sends events until there are none.
func (f *follower) catchUp() error {
	for {
		page, err := f.log.Read(f.ctx, f.cursor, pageEvents, pageBytes)
		if err != nil {
			return err
		}
		if err := f.events(page); err != nil {
			return err
		}
		if len(page.Events) == 0 || !page.HasMore {
			break
		}
	}
	if f.caught {
		return nil
	}
	f.caught = true
	f.buf = appendCaughtUp(f.buf[:0], f.id, f.cursor)
	return f.frame()
}

func (f *follower) events(page session.Page) error {
	for i := range page.Events {
		f.buf = appendEvent(f.buf[:0], f.id, page.Encoded[i])
		if err := f.frame(); err != nil {
			return err
		}
		f.cursor = page.Events[i].Seq
	}
	for i := len(page.Events) - 1; i >= 0; i-- { // only the last one counts
		e := page.Events[i]
		if e.Type != (session.AssistantMessage{}).EventType() && e.Type != (session.TurnEnd{}).EventType() {
			continue
		}
		var at struct {
			Turn int `json:"turn"`
			Step int `json:"step"`
		}
		if json.Unmarshal(e.Data, &at) == nil {
			if at.Step == 0 { // the end of a turn settles all its steps
				at.Step = math.MaxInt
			}
			f.settledTurn, f.settledStep = at.Turn, at.Step
		}
		break
	}
	return nil
}

// frame sends buf. It stops between frames, never inside one: an unfinished write would end the socket for every subscription.
func (f *follower) frame() error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if !f.send(f.buf) {
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
	if err := f.withdraw(view); err != nil {
		return 0, err
	}
	for _, b := range view.Blocks {
		if !f.past(b.Turn, b.Step) {
			if err := f.block(b); err != nil {
				return 0, err
			}
		}
	}
	for _, o := range view.Outputs {
		if err := f.output(o); err != nil {
			return 0, err
		}
	}
	return 0, nil
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
func (f *follower) withdraw(session.LiveView) error {
	for id, b := range f.blocks {
		if b.seen {
			continue
		}
		delete(f.blocks, id)
		f.buf = appendDrop(f.buf[:0], id)
		if err := f.frame(); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) block(b session.BlockView) error {
	known := f.blocks[b.ID]
	if known == nil || known.name != b.Name {
		if known == nil {
			known = &sentBlock{turn: b.Turn, step: b.Step}
			f.blocks[b.ID] = known
		}
		known.name = b.Name
		f.buf = appendBlock(f.buf[:0], f.id, b)
		if err := f.frame(); err != nil {
			return err
		}
		// A block that is announced again begins again, as for a late viewer.
		known.sent = 0
	}
	if known.sent >= b.Len {
		return nil
	}
	text, ok := f.log.Live().BlockText(b.ID, known.sent)
	if !ok || text == "" {
		return nil // gone; the next round knows why
	}
	f.buf = appendDelta(f.buf[:0], b.ID, known.sent, text)
	known.sent += len(text)
	f.stats.delta(len(text))
	return f.frame()
}

func (f *follower) output(o session.OutputView) error {
	at := f.outputs[o.CallID]
	if at >= o.End {
		return nil
	}
	text, start, ok := f.log.Live().OutputText(o.CallID, at)
	if !ok {
		delete(f.outputs, o.CallID)
		return nil
	}
	if start > at { // the head is gone; begin with a whole character
		cut := begin(text)
		text, start = text[cut:], start+int64(cut)
	}
	if text = whole(text); text == "" {
		return nil
	}
	f.buf = appendOutput(f.buf[:0], f.id, o.CallID, start, text, start-at)
	f.outputs[o.CallID] = start + int64(len(text))
	return f.frame()
}
