package web

import (
	"context"
	"encoding/json"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/web/guard"
)

// ApprovalPath names an approval or a question.
type ApprovalPath struct {
	ID string `path:"id" doc:"The approval's or question's id."`
}

type pendingIn struct {
	Status  string `query:"status" enum:"pending" doc:"Only what is pending can be listed; how the others ended is in the sessions' events."`
	Session string `query:"session" doc:"Of one session; of all, live or not, when absent."`
}

type approvalsOut struct {
	Body struct {
		Approvals []host.Approval `json:"approvals"`
	}
}

type questionsOut struct {
	Body struct {
		Questions []host.Approval `json:"questions"`
	}
}

// ApprovalDecision decides an approval.
type ApprovalDecision struct {
	Decision string `json:"decision" enum:"allow,deny"`
	Scope    string `json:"scope,omitempty" enum:"once,session" doc:"session: the same is allowed until the grant is revoked. Once when absent."`
	ArgsHash string `json:"argsHash" minLength:"1" maxLength:"64" doc:"Of what was looked at: the decision counts for these arguments only."`
	Reason   string `json:"reason,omitempty" maxLength:"2000" doc:"Of a denial; the agent reads it."`
}

// QuestionAnswer answers a question.
type QuestionAnswer struct {
	Answer   *string `json:"answer,omitempty" minLength:"1" maxLength:"20000" doc:"One of the options or other words; the agent reads it."`
	Decline  bool    `json:"decline,omitempty" doc:"Don't answer. Instead of an answer."`
	ArgsHash string  `json:"argsHash" minLength:"1" maxLength:"64" doc:"Of what was looked at."`
	Reason   string  `json:"reason,omitempty" maxLength:"2000" doc:"Of declining; the agent reads it."`
}

type settledOut struct {
	Body struct {
		ID      string `json:"id"`
		Outcome string `json:"outcome" enum:"allowed,rejected"`
	}
}

func (a *api) approvalRoutes() {
	s := a.server
	owner := guard.Rule{Access: guard.Owner}
	body := guard.Rule{Access: guard.Owner, Body: guard.JSON}
	register(a, route{method: "GET", path: "/approvals", id: "list-approvals", tag: "approvals", rule: owner, summary: "Calls that wait for leave", errors: []int{404}},
		func(ctx context.Context, in *pendingIn) (out *approvalsOut, err error) {
			out = &approvalsOut{}
			out.Body.Approvals, err = s.host.Pending(ctx, approval.Approval, in.Session)
			return out, err
		})
	register(a, route{method: "POST", path: "/approvals/{id}/decision", id: "decide-approval", tag: "approvals", rule: body,
		summary: "Allow or deny a call that waits; the first decision wins", errors: []int{404, 409}},
		func(ctx context.Context, in *struct {
			ApprovalPath
			Body ApprovalDecision
		}) (*settledOut, error) {
			d := approval.Decision{Outcome: approval.Rejected, Reason: in.Body.Reason}
			if in.Body.Decision == "allow" {
				d = approval.Decision{Outcome: approval.Allowed, Scope: in.Body.Scope}
				if d.Scope == "" {
					d.Scope = approval.Once
				}
			}
			return s.settle(ctx, approval.Approval, in.ID, in.Body.ArgsHash, d)
		})
	register(a, route{method: "GET", path: "/questions", id: "list-questions", tag: "approvals", rule: owner, summary: "Questions that wait for an answer", errors: []int{404}},
		func(ctx context.Context, in *pendingIn) (out *questionsOut, err error) {
			out = &questionsOut{}
			out.Body.Questions, err = s.host.Pending(ctx, approval.Question, in.Session)
			return out, err
		})
	register(a, route{method: "POST", path: "/questions/{id}/answer", id: "answer-question", tag: "approvals", rule: body,
		summary: "Answer a question, or decline to; the first one wins", errors: []int{404, 409}},
		func(ctx context.Context, in *struct {
			ApprovalPath
			Body QuestionAnswer
		}) (*settledOut, error) {
			if (in.Body.Answer != nil) == in.Body.Decline {
				return nil, refuse(codeValidation, "Give an answer, or decline.")
			}
			d := approval.Decision{Outcome: approval.Rejected, Reason: in.Body.Reason}
			if in.Body.Answer != nil {
				text, err := json.Marshal(*in.Body.Answer)
				if err != nil {
					return nil, err
				}
				d = approval.Decision{Outcome: approval.Allowed, Answer: text}
			}
			return s.settle(ctx, approval.Question, in.ID, in.Body.ArgsHash, d)
		})
	register(a, route{method: "GET", path: "/sessions/{id}/grants", id: "list-grants", tag: "approvals", rule: owner,
		summary: "What a session's calls may do without asking", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *SessionPath) (*struct{ Body host.Leave }, error) {
			leave, err := h.Leave(ctx)
			return &struct{ Body host.Leave }{leave}, err
		}))
	register(a, route{method: "DELETE", path: "/sessions/{id}/grants/{grantId}", id: "revoke-grant", tag: "approvals", rule: owner, status: 204,
		summary: "Take back what was allowed for the whole session", errors: []int{404, 409}},
		withSession(s, func(ctx context.Context, h *host.Session, in *struct {
			SessionPath
			Grant string `path:"grantId"`
		}) (*struct{}, error) {
			return nil, h.Revoke(ctx, in.Grant)
		}))
}

func (s *Server) settle(ctx context.Context, kind, id, argsHash string, d approval.Decision) (*settledOut, error) {
	if err := s.host.Decide(ctx, kind, id, argsHash, d); err != nil {
		return nil, err
	}
	out := &settledOut{}
	out.Body.ID, out.Body.Outcome = id, d.Outcome
	return out, nil
}
