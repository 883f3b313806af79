package rpc

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

const (
	statusRunning = "running"
	statusIdle    = "idle"

	pageEvents = 256
	pageBytes  = 256 << 10
	// livePace is the least time between two rounds of live text.
	livePace = 8 * time.Millisecond
)

// follower tells the client what happens in one session: events, status, and live text when it was asked for. One goroutine, no queue.
type follower struct {
	*conversation
	out    *output
	logger *slog.Logger

	buf    []byte
	cursor int64
	queued int  // messages that wait, as of the cursor
	open   bool // a turn is, as of the cursor
	status string

	// settled is the last turn and step whose message has been told; live text up to it is of the past.
	settledTurn, settledStep int
	told                     map[int]int // block of live text: bytes told
	lastLive                 time.Time
}

// newFollower begins after the last event there is.
func newFollower(c *conversation, out *output, logger *slog.Logger) *follower {
	st := c.log.State()
	f := &follower{
		conversation: c, out: out, logger: logger, cursor: st.LastSeq, queued: st.Queued(), open: st.TurnOpen, status: statusIdle, told: map[int]int{},
	}
	return f
}

// run tells everything until the log has ended, the client is gone, or ctx ends.
func (f *follower) run(ctx context.Context) {
	nap := time.NewTimer(time.Hour)
	defer nap.Stop()
	f.restate()
	for {
		changed := f.log.Changed()
		ended := isClosed(f.ending) // before the read: what is in the log by then is told
		view := f.log.Live().View() // before the events: what is gone from it has its event in this read or an earlier one
		more, err := f.events(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, session.ErrClosed) {
				f.logger.Error("follow", "session", f.id, "error", err)
			}
			return
		}
		var wait time.Duration
		switch {
		case more:
		case ended:
			f.open, f.queued = false, 0 // what is still queued waits for another day
			f.restate()
		case f.deltas:
			wait = f.live(view)
		}
		if !f.flush() || ended && !more {
			return
		}
		if more {
			continue
		}
		if wait > 0 {
			nap.Reset(wait)
		}
		select {
		case <-changed:
		case <-nap.C:
		case <-f.ending:
		case <-f.out.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (f *follower) flush() bool {
	if len(f.buf) == 0 {
		return true
	}
	ok := f.out.write(f.buf)
	if f.buf = f.buf[:0]; cap(f.buf) > 4*pageBytes {
		f.buf = nil
	}
	return ok
}

// events adds one page. more says that there may be another one.
func (f *follower) events(ctx context.Context) (more bool, err error) {
	page, err := f.log.Read(ctx, f.cursor, pageEvents, pageBytes)
	if err != nil {
		return false, err
	}
	for i, e := range page.Events {
		fold, err := f.fold(ctx, e)
		if err != nil {
			return false, err
		}
		f.buf = appendNotification(f.buf, "session.event", f.quoted, func(b []byte) []byte {
			return append(append(b, `,"event":`...), page.Encoded[i]...)
		})
		fold()
		f.restate()
		f.cursor = e.Seq
	}
	return page.HasMore, nil
}

// fold reads what an event changes. The change counts after the event is told. It waits for the answer to the prompt that the event is of.
func (f *follower) fold(ctx context.Context, e session.Event) (apply func(), err error) {
	switch e.Type { // the others change nothing
	case (session.InboxSpliced{}).EventType(), (session.TurnStart{}).EventType(), (session.TurnEnd{}).EventType(), (session.AssistantMessage{}).EventType():
	default:
		return func() {}, nil
	}
	payload, _, err := session.DecodePayload(e)
	if err != nil {
		return nil, err
	}
	switch p := payload.(type) {
	case session.InboxSpliced:
		for _, m := range p.Inserted {
			receipt := f.receipt(m.ID)
			if receipt == nil {
				continue
			}
			f.flush() // what comes before it needn't wait
			select {
			case <-receipt:
			case <-f.out.gone:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return func() { f.queued += len(p.Inserted) - p.RemovedCount }, nil
	case session.TurnStart:
		return func() { f.open = true }, nil
	case session.AssistantMessage:
		return func() { f.settledTurn, f.settledStep = p.Turn, p.Step }, nil
	case session.TurnEnd: // it settles all its steps
		return func() { f.settledTurn, f.settledStep, f.open = p.Turn, math.MaxInt, false }, nil
	}
	return func() {}, nil
}

// restate tells the status when it has changed.
func (f *follower) restate() {
	now := statusIdle
	if f.open || f.queued > 0 {
		now = statusRunning
	}
	if now == f.status {
		return
	}
	f.status = now
	f.buf = appendNotification(f.buf, "session.status", f.quoted, func(b []byte) []byte {
		return append(append(append(b, `,"status":"`...), now...), '"')
	})
}

// live adds what is new of the text in progress, or says how long that has to wait.
func (f *follower) live(view session.LiveView) (wait time.Duration) {
	seen := false
	for _, b := range view.Blocks {
		past := b.Turn < f.settledTurn || b.Turn == f.settledTurn && b.Step <= f.settledStep
		if past || b.Len <= f.told[b.ID] {
			continue
		}
		if !seen {
			now := time.Now()
			if wait = livePace - now.Sub(f.lastLive); wait > 0 {
				return wait
			}
			seen, f.lastLive = true, now
		}
		f.delta(b)
	}
	if len(view.Blocks) == 0 {
		clear(f.told)
	}
	return 0
}

// delta adds a block's new text. Offsets count bytes of UTF-8.
func (f *follower) delta(b session.BlockView) {
	offset := f.told[b.ID]
	text, ok := f.log.Live().BlockText(b.ID, offset)
	if !ok {
		return // withdrawn meanwhile
	}
	f.told[b.ID] = offset + len(text)
	f.buf = appendNotification(f.buf, "session.delta", f.quoted, func(out []byte) []byte {
		num := func(name string, n int) {
			out = strconv.AppendInt(append(append(append(out, `,"`...), name...), `":`...), int64(n), 10)
		}
		num("turn", b.Turn)
		num("step", b.Step)
		num("attempt", b.Attempt)
		num("block", b.ID)
		num("offset", offset)
		out = append(append(append(out, `,"kind":"`...), b.Kind...), '"')
		if b.Kind == model.DeltaTool {
			out = append(append(out, `,"name":`...), encode(b.Name)...)
			out = append(append(out, `,"callId":`...), encode(b.CallID)...)
		}
		return append(append(out, `,"text":`...), encode(text)...)
	})
}
