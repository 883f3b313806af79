package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// Refusals of the inbox.
var (
	// ErrFull says that the queue has no room.
	ErrFull = errors.New("the queue holds 1,000 messages already; wait for some to run, or remove some")
	// ErrStarted says that a message left the queue and can't be changed any more.
	ErrStarted = errors.New("the message is no longer queued")
	// ErrUnknownMessage says that the session never had the message.
	ErrUnknownMessage = errors.New("the session has no such message")
)

const inboxLimit = 1000

// Accept queues m on log: for its own turn, or with steer for the next step of the running one. It is durable when Accept returns. A message
// whose id the session knows changes nothing: the first one counts. It works on a log whose agent isn't live; a live one's loop must be woken.
func Accept(ctx context.Context, log *session.Log, m model.Message, steer bool) error {
	_, err := log.Update(ctx, func(st session.State) ([]session.Draft, error) {
		switch {
		case st.Knows(m.ID):
			return nil, nil
		case st.Queued() >= inboxLimit:
			return nil, ErrFull
		}
		at, target := len(st.NextTurn), session.TargetNextTurn
		if steer {
			at, target = len(st.NextStep), session.TargetNextStep
		}
		return enqueue(m, target, at, st.Title == ""), nil
	})
	return err
}

// Queue is what a new session's log holds of its first message.
func Queue(m model.Message, titled bool) []session.Draft {
	return enqueue(m, session.TargetNextTurn, 0, titled)
}

// enqueue puts m into a queue. The first message of a session without a title gives it one.
func enqueue(m model.Message, target string, at int, titled bool) []session.Draft {
	drafts := []session.Draft{{Payload: session.InboxSpliced{Target: target, Start: at, Inserted: []model.Message{m}}}}
	if title := titleOf(m); titled && title != "" {
		drafts = append(drafts, session.Draft{Payload: session.Title{Title: title}})
	}
	return drafts
}

// titleOf is the first line of a message, at most 80 characters.
func titleOf(m model.Message) string {
	line, _, _ := strings.Cut(strings.TrimSpace(m.Text()), "\n")
	line = strings.TrimSpace(line)
	if r := []rune(line); len(r) > 80 {
		line = strings.TrimSpace(string(r[:79])) + "…"
	}
	return line
}

// Edit changes a queued message: its content when not nil, and its place when steer is not nil and differs.
func Edit(ctx context.Context, log *session.Log, id string, content []model.Block, steer *bool) error {
	_, err := log.Update(ctx, func(st session.State) ([]session.Draft, error) {
		target, at, m, err := queued(st, id)
		if err != nil {
			return nil, err
		}
		if content != nil {
			m.Content = content
		}
		to := target
		if steer != nil {
			to = session.TargetNextTurn
			if *steer {
				to = session.TargetNextStep
			}
		}
		if to == target {
			return []session.Draft{{Payload: session.InboxSpliced{Target: target, Start: at, RemovedCount: 1, Inserted: []model.Message{m}, Outcome: "edited"}}}, nil
		}
		end := len(st.NextTurn)
		if to == session.TargetNextStep {
			end = len(st.NextStep)
		}
		return []session.Draft{
			{Payload: session.InboxSpliced{Target: target, Start: at, RemovedCount: 1, Inserted: []model.Message{}, Outcome: "promoted"}},
			{Payload: session.InboxSpliced{Target: to, Start: end, Inserted: []model.Message{m}}},
		}, nil
	})
	return err
}

// Remove takes a queued message out of the queue.
func Remove(ctx context.Context, log *session.Log, id string) error {
	return takeOut(ctx, log, id, "removed")
}

// Withdraw is Remove, logged as cancelled.
func Withdraw(ctx context.Context, log *session.Log, id string) error {
	return takeOut(ctx, log, id, "cancelled")
}

func takeOut(ctx context.Context, log *session.Log, id, outcome string) error {
	_, err := log.Update(ctx, func(st session.State) ([]session.Draft, error) {
		target, at, _, err := queued(st, id)
		if err != nil {
			return nil, err
		}
		return []session.Draft{{Payload: session.InboxSpliced{Target: target, Start: at, RemovedCount: 1, Inserted: []model.Message{}, Outcome: outcome}}}, nil
	})
	return err
}

func queued(st session.State, id string) (target string, at int, m model.Message, err error) {
	same := func(m model.Message) bool { return m.ID == id }
	if i := slices.IndexFunc(st.NextTurn, same); i >= 0 {
		return session.TargetNextTurn, i, st.NextTurn[i], nil
	}
	if i := slices.IndexFunc(st.NextStep, same); i >= 0 {
		return session.TargetNextStep, i, st.NextStep[i], nil
	}
	if st.Knows(id) {
		return "", 0, model.Message{}, ErrStarted
	}
	return "", 0, model.Message{}, ErrUnknownMessage
}

// Cancel ends the turn in progress, as the user, and empties the queue unless keepQueue. It returns when the queue's change is durable; the
// turn's end follows in the log. Cancelling what doesn't run is fine. A cancel that comes before a turn is ready still counts.
func (a *Agent) Cancel(ctx context.Context, keepQueue bool) error {
	// The queue first: a loop that is about to claim finds nothing, one that has claimed is cancelled below.
	var err error
	if !keepQueue {
		err = ClearQueue(ctx, a.log)
	}
	a.mu.Lock()
	cancel := a.turn
	a.mu.Unlock()
	if cancel != nil {
		cancel(abort{ByUser})
	}
	return err
}

// CancelTurnOf ends the turn in progress, as the user, if it began with the given message. One that is still queued is withdrawn first.
func (a *Agent) CancelTurnOf(id string) {
	a.mu.Lock()
	cancel := a.turn
	if a.begins != id {
		cancel = nil
	}
	a.mu.Unlock()
	if cancel != nil {
		cancel(abort{ByUser})
	}
}

// ClearQueue removes every queued message, logged as cancelled.
func ClearQueue(ctx context.Context, log *session.Log) error {
	_, err := log.Update(ctx, func(st session.State) ([]session.Draft, error) {
		var drafts []session.Draft
		for _, q := range []struct {
			target string
			count  int
		}{{session.TargetNextTurn, len(st.NextTurn)}, {session.TargetNextStep, len(st.NextStep)}} {
			if q.count > 0 {
				drafts = append(drafts, session.Draft{Payload: session.InboxSpliced{
					Target: q.target, RemovedCount: q.count, Inserted: []model.Message{}, Outcome: "cancelled",
				}})
			}
		}
		return drafts, nil
	})
	return err
}
