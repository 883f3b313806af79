package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// turn is one turn in progress. Only the loop touches it.
type turn struct {
	*Agent
	number int // 0 until its first commit
	step   int // 0 before the first
	// open says that step's start is committed and its end is not.
	open bool
	// offer is what the turn begins with unless something is queued.
	offer *offer
	// pending are drafts that join the next commit: the last tool result and the end of its step.
	pending []session.Draft
}

// failure ends a turn with its reason.
type failure struct{ reason session.Reason }

func (f failure) Error() string { return f.reason.Message }

// storeRetry is the pause between tries to log a turn's end on a store that refuses, for example while the disk is full.
const storeRetry = time.Second

// runTurn runs one turn to its logged end, and answers the offer, if there is one. It is false when none may start now.
func (a *Agent) runTurn(ctx context.Context, o *offer) bool {
	defer o.answer(nil)
	turnCtx, cancel, ok := a.begin(ctx)
	if !ok {
		return false
	}
	defer a.end(cancel)
	if limit := a.limits().Time; limit > 0 {
		var stop context.CancelFunc
		turnCtx, stop = context.WithTimeoutCause(turnCtx, limit, errTurnTime)
		defer stop()
	}
	t := &turn{Agent: a, offer: o}
	reason, err := t.run(turnCtx)
	defer a.log.Live().Clear()
	if t.number == 0 {
		if err == nil || turnCtx.Err() != nil {
			return true
		}
		if lost(err) || !due(a.log.State()) { // what was offered is its sender's again
			return false
		}
		// Nothing was claimed and the store refuses: wait for it rather than spin.
		a.cfg.Logger.Error("start turn", "session", a.log.ID(), "error", err)
		return pause(ctx, storeRetry) == nil
	}
	for {
		err := t.finish(ctx, reason)
		switch {
		case err == nil:
			return true
		case lost(err):
			a.cfg.Logger.Error("turn given up", "session", a.log.ID(), "turn", t.number, "error", err)
			return false
		}
		a.cfg.Logger.Error("end turn", "session", a.log.ID(), "turn", t.number, "error", err)
		if pause(ctx, storeRetry) != nil {
			return false // closing; recovery at the next start closes the turn
		}
	}
}

// lost says that a log will never take another event: it was deleted or closed, or it is damaged and read-only.
func lost(err error) bool {
	var damage *session.DamageError
	return errors.As(err, &damage) || errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrClosed) ||
		errors.Is(err, session.ErrReadOnly) || errors.Is(err, session.ErrStaleEpoch)
}

// run goes step by step until the turn has a reason to end. A panic is a reason. An error means that nothing was claimed.
func (t *turn) run(ctx context.Context) (reason session.Reason, err error) {
	defer func() {
		if p := recover(); p != nil {
			reason = t.inside(p)
		}
	}()
	for {
		more, err := t.runStep(ctx)
		var f failure
		switch {
		case errors.As(err, &f):
			return f.reason, nil
		case err != nil && ctx.Err() != nil:
			return t.endOf(ctx), err
		case err != nil && t.number == 0:
			return session.Reason{}, err
		case err != nil:
			return session.Reason{Kind: session.EndError, Code: "STORE", Message: "The session log could not be written: " + err.Error()}, nil
		case t.number == 0:
			return session.Reason{}, nil // the queue emptied under us
		case !more:
			return session.Reason{Kind: session.EndCompleted}, nil
		case ctx.Err() != nil:
			return t.endOf(ctx), nil
		case t.isParked():
			return aborted(ByShutdown), nil
		case t.limits().Steps > 0 && t.step >= t.limits().Steps:
			return session.Reason{Kind: session.EndMaxSteps, Code: "MAX_STEPS", Message: fmt.Sprintf("The turn reached its limit of %d steps.", t.limits().Steps)}, nil
		}
	}
}

// inside reports a panic, on its stack, and makes a turn's end of it.
func (t *turn) inside(p any) session.Reason {
	t.cfg.Logger.Error("turn", "session", t.log.ID(), "panic", p, "stack", string(debug.Stack()))
	return session.Reason{Kind: session.EndError, Code: "INTERNAL", Message: "The agent failed inside; the host's log has the details."}
}

// runStep asks the model once and runs the calls it asks for. more is true when the model wants to see their results.
func (t *turn) runStep(ctx context.Context) (more bool, err error) {
	req, err := t.checkpoint(ctx)
	if err != nil || req == nil {
		return false, err
	}
	defer func() { _ = req.durable() }() // a panic passes by the others who wait
	res, err := t.ask(ctx, req)
	if err != nil {
		return false, err
	}
	calls := t.answer(req, res)
	switch {
	case res.Stop == model.StopMaxTokens:
		t.refuse(calls, "NOT_RUN", "Not run: the answer reached its token limit.")
		return false, failure{session.Reason{Kind: session.EndMaxTokens, Code: "MAX_TOKENS", Message: "The model reached its output limit."}}
	case len(calls) == 0:
		return false, nil
	}
	if err := t.runCalls(ctx, req, calls); err != nil {
		return false, err
	}
	t.closeStep()
	return true, nil
}

// later keeps drafts for the next commit.
func (t *turn) later(payloads ...session.Payload) {
	for _, p := range payloads {
		t.pending = append(t.pending, session.Draft{Payload: p})
	}
}

func (t *turn) closeStep() {
	t.later(session.StepEnd{Turn: t.number, Step: t.step})
	t.open = false
}

// flush commits what is pending together with more. What failed to commit stays pending.
func (t *turn) flush(ctx context.Context, more ...session.Payload) error {
	t.later(more...)
	if len(t.pending) == 0 {
		return nil
	}
	drafts := t.pending
	if err := t.commit(ctx, func(session.State) ([]session.Draft, error) { return drafts, nil }); err != nil {
		return err
	}
	t.pending = nil
	return nil
}

// commit appends for the loop. It isn't cancelled with the turn: an append whose outcome is unknown could be made twice.
func (t *turn) commit(ctx context.Context, update func(session.State) ([]session.Draft, error)) error {
	_, err := t.log.Update(context.WithoutCancel(ctx), update)
	return err
}

// finish logs the turn's end with everything pending.
func (t *turn) finish(ctx context.Context, reason session.Reason) error {
	if t.open {
		t.closeStep()
	}
	end := session.Draft{Payload: session.TurnEnd{Turn: t.number, Reason: reason}}
	drafts := append(t.pending[:len(t.pending):len(t.pending)], end)
	return t.commit(ctx, func(session.State) ([]session.Draft, error) { return drafts, nil })
}

// pause waits; it returns early, with the reason, when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
