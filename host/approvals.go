package host

import (
	"context"
	"errors"

	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/presets"
)

// withdrawnByDrain is why a draining host takes back what it asked: an agent that is to park can't wait for a person.
const withdrawnByDrain = "the host is shutting down"

// Pending lists what waits for the owner: approvals or questions (approval.Approval, approval.Question) of one session, or of all, live or
// not, when sessionID is "".
func (h *Host) Pending(ctx context.Context, kind, sessionID string) ([]Approval, error) {
	out := []Approval{}
	add := func(in session.Info) error {
		all, err := h.pendingOf(ctx, in)
		for _, a := range all {
			if a.Kind == kind {
				out = append(out, a)
			}
		}
		return err
	}
	if sessionID != "" {
		in, err := h.journal.Info(ctx, sessionID)
		if err != nil {
			return nil, h.notFound(sessionID, err)
		}
		return out, add(in)
	}
	err := h.waiting(ctx, add)
	return out, err
}

// waiting visits every session in which something is pending. Only a running turn asks.
func (h *Host) waiting(ctx context.Context, visit func(session.Info) error) error {
	q := session.Query{Status: StatusRunning, Limit: feedPage}
	for {
		page, err := h.journal.List(ctx, q)
		if err != nil {
			return err
		}
		for _, in := range page.Sessions {
			if in.Pending == 0 {
				continue
			}
			if err := visit(in); err != nil {
				return err
			}
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return nil
		}
	}
}

// pendingOf reads what is pending in one session; none when it is gone meanwhile.
func (h *Host) pendingOf(ctx context.Context, in session.Info) ([]Approval, error) {
	if in.Pending == 0 {
		return nil, nil
	}
	log, err := h.journal.Open(ctx, in.ID)
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer h.journal.Release(log)
	var out []Approval
	for _, a := range log.State().Approvals {
		if a.Kind == "" {
			a.Kind = approval.Approval
		}
		out = append(out, Approval{Session: in.ID, ApprovalAsked: a})
	}
	return out, nil
}

// Decide settles an approval or a question, of whichever session, and lets the call that waits go on. The first decision wins; it counts only
// for the arguments whose hash it names.
func (h *Host) Decide(ctx context.Context, kind, id, argsHash string, d approval.Decision) error {
	if err := h.writable(); err != nil {
		return err
	}
	d.By = approval.ByOwner
	unknown := refuse(CodeApprovalNotFound, "There is no such approval or question.")
	sessionID, ok := approval.SessionOf(id)
	if !ok {
		return unknown
	}
	s, err := h.Session(ctx, sessionID)
	if err != nil {
		var refusal *Error
		if errors.As(err, &refusal) && refusal.Code == CodeSessionNotFound {
			return unknown
		}
		return err
	}
	defer s.Release()
	if l := s.entry.now(); l != nil {
		err = l.desk.Decide(ctx, kind, id, argsHash, d)
	} else {
		err = h.decideCold(ctx, s, kind, id, argsHash)
	}
	var settled *approval.SettledError
	switch {
	case errors.Is(err, approval.ErrNotFound):
		return unknown
	case errors.Is(err, approval.ErrChanged):
		return refuse(CodeApprovalChanged, "The decision names the hash of other arguments; look at what is asked again, then decide.")
	case errors.Is(err, approval.ErrOnce):
		return refuse(CodeValidation, "%v; allow it once.", err).with("field", "scope")
	case errors.As(err, &settled):
		return refuse(CodeApprovalSettled, "It is settled already: %s.", settled.Outcome).with("outcome", settled.Outcome)
	}
	return err
}

// decideCold withdraws what no call waits for any more.
func (h *Host) decideCold(ctx context.Context, s *Session, kind, id, argsHash string) error {
	log, err := h.journal.Open(ctx, s.ID())
	if err != nil {
		return err
	}
	defer h.journal.Release(log)
	gone := approval.Decision{Outcome: approval.Unavailable, By: approval.ByHost, Reason: "the call that waited is gone"}
	if err := approval.Settle(ctx, log, kind, id, argsHash, gone); err != nil {
		return err
	}
	return &approval.SettledError{Outcome: gone.Outcome}
}

// Leave is what a session's calls may do without asking.
type Leave struct {
	// Policy is "" when the session's preset asks about nothing.
	Policy string           `json:"policy,omitempty" enum:"ask,never,full" doc:"Absent when the session's preset asks about nothing."`
	Grants []approval.Grant `json:"grants" doc:"What was allowed for the whole session, in the order given."`
}

// Leave gives the session's policy and grants. A session whose preset asks about nothing has neither, and its log isn't read.
func (s *Session) Leave(ctx context.Context) (Leave, error) {
	asks, err := s.asks(ctx)
	if err != nil || !asks {
		return Leave{Grants: []approval.Grant{}}, err
	}
	log, err := s.host.journal.Open(ctx, s.ID())
	if err != nil {
		return Leave{}, s.host.notFound(s.ID(), err)
	}
	defer s.host.journal.Release(log)
	st := log.State()
	return Leave{Policy: approval.PolicyOf(st), Grants: approval.Grants(st)}, nil
}

// Revoke takes a grant back. Calls that it let through go on.
func (s *Session) Revoke(ctx context.Context, grant string) error {
	return s.queued(ctx, func(log *session.Log) error {
		err := approval.Revoke(ctx, log, grant)
		if errors.Is(err, approval.ErrNoGrant) {
			return refuse(CodeGrantNotFound, "The session has no such grant.")
		}
		return err
	})
}

// asks says whether the session's preset asks before anything runs.
func (s *Session) asks(ctx context.Context) (bool, error) {
	if l := s.entry.now(); l != nil {
		return l.mounted.Load().Composition.Asks(), nil
	}
	c, err := s.host.recorded(ctx, s.ID())
	if err != nil {
		return false, err
	}
	return c.Asks(), nil
}

// checkPolicy refuses a policy that can't be set. The preset is the one the session will have.
func (s *Session) checkPolicy(ctx context.Context, p Patch) (err error) {
	var asks bool
	if p.Preset != nil {
		var c *presets.Composition
		if c, err = s.host.resolvePreset(*p.Preset); err == nil {
			asks = c.Asks()
		}
	} else {
		asks, err = s.asks(ctx)
	}
	switch {
	case err != nil:
		return err
	case !asks:
		return refuse(CodeNotConfined, "This session's preset asks about nothing, so there is no policy to change; use a preset with the row approvals.")
	case *p.ApprovalPolicy == session.PolicyFull && !p.FullAccess:
		return refuse(CodeValidation, "The policy full runs every call without asking; send acknowledgeFullAccess: true with it.").with("field", "acknowledgeFullAccess")
	}
	return nil
}

func (s *Session) setPolicy(ctx context.Context, policy string) error {
	return s.queued(ctx, func(log *session.Log) error { return approval.SetPolicy(ctx, log, policy) })
}
