package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// offer is a message for a loop at rest: the commit that accepts it starts its turn as well, with the request. It is the sender's until the loop
// takes it, right before that commit.
type offer struct {
	message model.Message
	stage   atomic.Int32
	taken   chan func() error // capacity 1: waits for the commit; nil when the offer isn't taken
}

// The stages of an offer.
const (
	offered int32 = iota
	offerTaken
	offerWithdrawn
)

// offerPatience is how long a sender waits for a request to be made, which may ask anything of a prompt's sections. Then the message is queued.
const offerPatience = 100 * time.Millisecond

var errNotTaken = errors.New("the loop doesn't take the message now")

// Send accepts m, as Accept does, and sees to it that the loop runs it. Where the loop rests, one commit does both. alive is false when the agent is
// closing: then the message is durable and waits for another life.
func (a *Agent) Send(ctx context.Context, m model.Message, steer bool) (alive bool, err error) {
	if !steer {
		if err := a.offer(ctx, m); !errors.Is(err, errNotTaken) {
			return err == nil, err
		}
	}
	if err := Accept(ctx, a.log, m, steer); err != nil {
		return false, err
	}
	return a.Wake(), nil
}

func (a *Agent) offer(ctx context.Context, m model.Message) error {
	o := &offer{message: m, taken: make(chan func() error, 1)}
	select {
	case a.offers <- o:
	default:
		return errNotTaken
	}
	late := time.NewTimer(offerPatience)
	defer late.Stop()
	var err error
	select {
	case wait := <-o.taken:
		return o.outcome(wait)
	case <-late.C:
		err = errNotTaken
	case <-ctx.Done():
		err = ctx.Err()
	}
	if o.stage.CompareAndSwap(offered, offerWithdrawn) {
		return err
	}
	return o.outcome(<-o.taken)
}

func (o *offer) outcome(wait func() error) error {
	if wait == nil {
		return errNotTaken
	}
	return wait()
}

// take makes the offer the loop's, which owes it an answer from then on.
func (o *offer) take() bool { return o.stage.CompareAndSwap(offered, offerTaken) }

// answer tells the sender. The first one counts.
func (o *offer) answer(wait func() error) {
	if o == nil {
		return
	}
	select {
	case o.taken <- wait:
	default:
	}
}

// claim is what a step takes when all there is is the offer.
func (o *offer) claim() claim {
	return claim{messages: []model.Message{o.message}, splices: claimed(session.TargetNextTurn, 1), offer: o}
}

// fits says whether the offer can still be accepted and started at once.
func (o *offer) fits(st session.State) bool { return st.Queued() == 0 && !st.Knows(o.message.ID) }
