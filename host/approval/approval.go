// Package approval asks the owner for leave before a call runs, and passes a model's questions on.
//
// A desk serves one session. What is asked is an event of the session's log before anybody is told of it, and what was decided is one too:
// the pending ones, the grants and the policy are the fold of the log, so a reload, a second viewer and a restart see the same. Guarantees:
// the first valid decision wins and counts once; it is bound to the exact arguments by their hash; every ask ends, by a decision, the
// caller's cancel or its expiry; only Allowed lets a call run, and the zero Decision denies.
package approval

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// DefaultExpiry is how long an answer is waited for when nobody says otherwise: a night.
const DefaultExpiry = 12 * time.Hour

// settleTime bounds the commit that withdraws what nobody answered.
const settleTime = 5 * time.Second

// What is asked, and how an ask ends, as the log has them. Only Allowed lets a call run.
const (
	Approval    = session.KindApproval
	Question    = session.KindQuestion
	Allowed     = session.OutcomeAllowed
	Rejected    = session.OutcomeRejected
	Cancelled   = session.OutcomeCancelled
	Expired     = session.OutcomeExpired
	Unavailable = session.OutcomeUnavailable
	Once        = session.ScopeOnce
	ForSession  = session.ScopeSession
)

// Who decided.
const (
	ByOwner  = "owner"
	ByHost   = "host"
	ByPolicy = "policy"
	ByGrant  = "grant"
)

// Request is a call that needs leave, or a question.
type Request struct {
	Kind      string // Approval ("" too) or Question
	Tool      string
	CallID    string
	Arguments string          // exactly as the tool will get them
	Cwd       string          // the workspace; the shell may stand elsewhere
	Reason    string          // why it is asked, for the owner
	Detail    json.RawMessage // what a question shows; an approval's is made here
	Expire    time.Duration   // 0: DefaultExpiry
}

// Decision is how an ask ended. The zero value denies.
type Decision struct {
	Outcome string // Allowed ... ; "" denies too
	Scope   string
	By      string
	Reason  string          // the owner's, or why nobody decided
	Answer  json.RawMessage // of a question
}

// Allowed says whether the call may run, or the question was answered.
func (d Decision) Allowed() bool { return d.Outcome == Allowed }

// Detail is what an approval says of itself beside its arguments.
type Detail struct {
	// Covers are the commands that a session grant would cover. Empty for a tool that isn't a shell: there it is the same arguments.
	Covers [][]string `json:"covers,omitempty"`
	// Never says why it can't be allowed for the whole session, "" when it can.
	Never string `json:"never,omitempty"`
}

// ErrNotFound says that the session has no such approval or question.
var ErrNotFound = errors.New("there is no such approval")

// ErrChanged says that the decision was made for other arguments.
var ErrChanged = errors.New("the decision names the hash of other arguments")

// ErrOnce says that this can't be allowed for the whole session.
var ErrOnce = errors.New("this can only be allowed once")

// SettledError says that somebody, or the clock, was first.
type SettledError struct{ Outcome string }

func (e *SettledError) Error() string { return "it is settled already: " + e.Outcome }

// HashArguments is the lower-case hex SHA-256 of a call's arguments as they stand.
func HashArguments(arguments string) string {
	sum := sha256.Sum256([]byte(arguments))
	return hex.EncodeToString(sum[:])
}

// newID makes an id that says which session asks, so that nothing has to remember it.
func newID(sessionID string) string { return strings.ToLower(rand.Text()[:20]) + "~" + sessionID }

// SessionOf reads the session out of an id. The session may not exist.
func SessionOf(id string) (string, bool) {
	_, s, ok := strings.Cut(id, "~")
	return s, ok && s != ""
}

// Desk asks for one session. Its methods may be called from several goroutines.
type Desk struct {
	// log gives the session's log, nil before it has one.
	log func() *session.Log
	now func() time.Time

	stop context.Context // ended by Close; it stops nothing but waiting
	end  context.CancelCauseFunc

	mu      sync.Mutex
	waiting map[string]chan Decision // by id, capacity 1
}

// New makes a desk. log may be nil, or give nil: then nobody can be asked. now nil is time.Now.
func New(log func() *session.Log, now func() time.Time) *Desk {
	if log == nil {
		log = func() *session.Log { return nil }
	}
	if now == nil {
		now = time.Now
	}
	d := &Desk{log: log, now: now, waiting: map[string]chan Decision{}}
	d.stop, d.end = context.WithCancelCause(context.Background())
	return d
}

// errClosed is the cause of what a closed desk withdraws; its text is the reason in the log.
type errClosed struct{ reason string }

func (e errClosed) Error() string { return e.reason }

// Close withdraws what is pending, with the reason, and asks nobody from then on. It doesn't wait: each ask ends by itself.
func (d *Desk) Close(reason string) { d.end(errClosed{reason}) }

// Ask gets leave for r: by the session's policy, by a grant, or by asking. It returns when that is decided, on every path.
func (d *Desk) Ask(ctx context.Context, r Request) Decision {
	log := d.log()
	if log == nil || d.stop.Err() != nil {
		return Decision{Outcome: Unavailable, By: ByHost, Reason: "nobody can be asked now"}
	}
	question := r.Kind == Question
	expire := r.Expire
	if expire <= 0 {
		expire = DefaultExpiry
	}
	asked := session.ApprovalAsked{
		ID: newID(log.ID()), Kind: r.Kind, Tool: r.Tool, CallID: r.CallID, Arguments: r.Arguments, ArgsHash: HashArguments(r.Arguments),
		Cwd: r.Cwd, Reason: r.Reason, Detail: r.Detail, ExpiresAt: d.now().Add(expire).UnixMilli(),
	}
	var keys []string
	var given leave
	if !question {
		scope := grantableOf(r.Tool, r.Arguments)
		asked.Kind, asked.Detail = Approval, scope.detail()
		keys, given = scope.keys(), leaveOf(log.State().Grants)
	}

	// Registered before the event is appended: whoever sees it may decide at once.
	answer := make(chan Decision, 1)
	d.mu.Lock()
	d.waiting[asked.ID] = answer
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.waiting, asked.ID)
		d.mu.Unlock()
	}()

	var known Decision // without asking
	_, err := log.Update(ctx, func(s session.State) ([]session.Draft, error) {
		known = Decision{}
		if !question {
			if known = standing(s, given.covered(keys, s.Grants)); known.Outcome != "" {
				return nil, nil
			}
		}
		a := asked
		if s.TurnOpen {
			a.Turn, a.Step = s.Turns, s.Step
		}
		return []session.Draft{{Payload: a}}, nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return Decision{Outcome: Cancelled, By: ByHost, Reason: "cancelled before it was asked"}
	case err != nil:
		return Decision{Outcome: Unavailable, By: ByHost, Reason: fmt.Sprintf("the question could not be logged: %v", err)}
	case known.Outcome != "":
		return known
	}

	clock := time.NewTimer(expire)
	defer clock.Stop()
	end := Decision{By: ByHost}
	select {
	case decided := <-answer:
		return decided
	case <-ctx.Done():
		end.Outcome, end.Reason = Cancelled, "the call was cancelled while it waited"
	case <-d.stop.Done():
		end.Outcome, end.Reason = Cancelled, context.Cause(d.stop).Error()
	case <-clock.C:
		end.Outcome, end.Reason = Expired, "nobody answered within "+span(expire)
	}
	return d.withdraw(ctx, log, asked.ID, end, answer)
}

// span is a duration as people write it.
func span(d time.Duration) string {
	if s, ok := strings.CutSuffix(d.String(), "m0s"); ok {
		s, whole := strings.CutSuffix(s+"m", "h0m")
		if whole {
			return s + "h"
		}
		return s
	}
	return d.String()
}

// withdraw logs that nobody decided, unless somebody just did.
func (d *Desk) withdraw(ctx context.Context, log *session.Log, id string, end Decision, answer <-chan Decision) Decision {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := settle(ctx, log, id, "", end, func(session.ApprovalAsked) error { return nil })
	var settled *SettledError
	if !errors.As(err, &settled) || settled.Outcome != Allowed && settled.Outcome != Rejected {
		return end // logged, or withdrawn with its turn, or the log takes nothing any more
	}
	select {
	case decided := <-answer: // whoever committed first hands it over
		return decided
	case <-ctx.Done():
		return end
	}
}

// standing is what the session's policy and grants say without asking; zero when they say nothing.
func standing(s session.State, granted bool) Decision {
	switch s.Policy {
	case session.PolicyNever:
		return Decision{Outcome: Rejected, By: ByPolicy, Reason: "the session's policy is to deny without asking"}
	case session.PolicyFull:
		return Decision{Outcome: Allowed, By: ByPolicy}
	}
	if granted {
		return Decision{Outcome: Allowed, Scope: ForSession, By: ByGrant}
	}
	return Decision{}
}

// Decide settles a pending approval or question of the desk's session, in one commit that checks that it is still pending, of this kind and
// about these arguments, and hands the decision to the call that waits. ErrNotFound, ErrChanged, ErrOnce, *SettledError.
func (d *Desk) Decide(ctx context.Context, kind, id, argsHash string, decision Decision) error {
	log := d.log()
	if log == nil {
		return ErrNotFound
	}
	if err := Settle(ctx, log, kind, id, argsHash, decision); err != nil {
		return err
	}
	d.mu.Lock()
	answer := d.waiting[id]
	d.mu.Unlock()
	if answer != nil {
		answer <- decision // capacity 1, and only the one commit that succeeded gets here
	}
	return nil
}

// Settle is Decide for a log that nothing waits on.
func Settle(ctx context.Context, log *session.Log, kind, id, argsHash string, decision Decision) error {
	return settle(ctx, log, id, kind, decision, func(a session.ApprovalAsked) error {
		switch {
		case a.ArgsHash != argsHash:
			return ErrChanged
		case decision.Scope == ForSession && decision.Allowed():
			var d Detail // made by Ask; what can't be read can't be remembered either
			if err := json.Unmarshal(a.Detail, &d); err != nil || d.Never != "" {
				return fmt.Errorf("%w: %s", ErrOnce, d.Never)
			}
		}
		return nil
	})
}

func settle(ctx context.Context, log *session.Log, id, kind string, decision Decision, check func(session.ApprovalAsked) error) error {
	pending := false
	_, err := log.Update(ctx, func(s session.State) ([]session.Draft, error) {
		pending = false
		for _, a := range s.Approvals {
			if a.ID != id || (kind != "" && kind != kindOf(a)) {
				continue
			}
			pending = true
			if err := check(a); err != nil {
				return nil, err
			}
			return []session.Draft{{Payload: session.ApprovalDecided{
				ID: id, Outcome: decision.Outcome, Scope: decision.Scope, By: decision.By, Reason: decision.Reason, Answer: decision.Answer,
			}}}, nil
		}
		return nil, nil
	})
	if err != nil || pending {
		return err
	}
	return settledAs(ctx, log, kind, id)
}

func kindOf(a session.ApprovalAsked) string {
	if a.Kind == "" {
		return Approval
	}
	return a.Kind
}

// settledAs finds how something that isn't pending ended, from the log's end backwards.
func settledAs(ctx context.Context, log *session.Log, kind, id string) error {
	outcome := ""
	for before := int64(-1); ; {
		page, err := log.Before(ctx, before, 1000, 4<<20)
		if err != nil {
			return err
		}
		for i := len(page.Events) - 1; i >= 0; i-- {
			e := page.Events[i]
			if e.Type != (session.ApprovalDecided{}).EventType() && e.Type != (session.ApprovalAsked{}).EventType() {
				continue
			}
			p, _, err := session.DecodePayload(e)
			if err != nil {
				return err
			}
			switch p := p.(type) {
			case session.ApprovalDecided:
				if p.ID == id {
					outcome = p.Outcome
				}
			case session.ApprovalAsked:
				if p.ID != id {
					continue
				}
				if kind != "" && kind != kindOf(p) {
					return ErrNotFound
				}
				if outcome == "" { // its turn ended while the log took nothing
					outcome = Unavailable
				}
				return &SettledError{outcome}
			}
		}
		if !page.HasMore {
			return ErrNotFound
		}
		before = page.Events[0].Seq
	}
}
