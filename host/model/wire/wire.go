// Package wire holds what adapters of different wires share: the reader of server-sent events, the idle clocks, the classification of
// failures, the guarded transport, and the function that makes a history sendable.
package wire

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Clocks bound the silence of a server. Zero takes the default, negative turns a clock off.
type Clocks struct {
	// Bytes is the longest wait for any byte, the response's headers included. Default 300 s.
	Bytes time.Duration
	// Payload is the longest wait for a payload; comments and pings don't count. Default 300 s.
	Payload time.Duration
	// Grace is how long to read on after the finish reason for usage and late pieces. Default 3 s.
	Grace time.Duration
}

func (c Clocks) withDefaults() Clocks {
	if c.Bytes == 0 {
		c.Bytes = 300 * time.Second
	}
	if c.Payload == 0 {
		c.Payload = 300 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 3 * time.Second
	}
	return c
}

// Reasons for which a watch ends a call.
var (
	errBytesClock   = errors.New("the server sent nothing")
	errPayloadClock = errors.New("the server sent no payload")
	errGrace        = errors.New("the server held the connection open after the answer")
)

// watch ends a call's context when a clock runs out. Feeding it costs one reading of the clock: the timer looks when it fires whether it
// was fed meanwhile, and sleeps on.
type watch struct {
	clocks Clocks
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	bytes    time.Time // the last byte
	payload  time.Time // the last payload
	finished time.Time // the finish reason, zero before it
	timer    *time.Timer
	stopped  bool
}

func newWatch(c Clocks, cancel context.CancelCauseFunc) *watch {
	now := time.Now()
	w := &watch{clocks: c, cancel: cancel, bytes: now, payload: now}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(time.Hour, w.fire)
	w.armLocked(now)
	return w
}

func (w *watch) armLocked(now time.Time) {
	if next, _ := w.dueLocked(); !next.IsZero() && !w.stopped {
		w.timer.Reset(max(next.Sub(now), 0))
	}
}

// dueLocked says when the first clock runs out as things stand, and with which reason.
func (w *watch) dueLocked() (due time.Time, why error) {
	earlier := func(from time.Time, d time.Duration, reason error) {
		if t := from.Add(d); d > 0 && (due.IsZero() || t.Before(due)) {
			due, why = t, reason
		}
	}
	if !w.finished.IsZero() {
		earlier(w.finished, w.clocks.Grace, errGrace)
		return due, why
	}
	earlier(w.bytes, w.clocks.Bytes, errBytesClock)
	earlier(w.payload, w.clocks.Payload, errPayloadClock)
	return due, why
}

func (w *watch) fire() {
	now := time.Now()
	w.mu.Lock()
	due, why := w.dueLocked()
	ran := !w.stopped && !due.IsZero() && !now.Before(due)
	if ran {
		w.stopped = true
	} else {
		w.armLocked(now)
	}
	w.mu.Unlock()
	if ran {
		w.cancel(why)
	}
}

func (w *watch) sawBytes(now time.Time)   { w.mu.Lock(); w.bytes = now; w.mu.Unlock() }
func (w *watch) sawPayload(now time.Time) { w.mu.Lock(); w.payload = now; w.mu.Unlock() }

func (w *watch) sawFinish(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished.IsZero() {
		w.finished = now
		w.armLocked(now)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}
