package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web/guard"
)

// NewMessage is a message to a session.
type NewMessage struct {
	ID        string  `json:"id,omitempty" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" doc:"Repeating a request with its id is safe."`
	Content   Content `json:"content"`
	Placement string  `json:"placement,omitempty" enum:"queue,steer" doc:"queue: a turn of its own; steer: into the running turn at its next step."`
}

// Sent answers a message: with wait, also how it ended.
type Sent struct {
	MessageID     string           `json:"messageId"`
	Status        string           `json:"status,omitempty" doc:"With wait: idle, or running when the time was over first."`
	TurnEnd       *session.TurnEnd `json:"turnEnd,omitempty"`
	FinalResponse *string          `json:"finalResponse,omitempty" doc:"The text of the last answer in the turn that turnEnd ends; absent when that turn has none."`
	Pending       int              `json:"pendingApprovals,omitempty" doc:"With the status running: how many approvals and questions wait for the owner."`
	LastSeq       *int64           `json:"lastSeq,omitempty"`
}

type sendIn struct {
	SessionPath
	Wait    string `query:"wait" enum:"idle" doc:"Answer when nothing runs any more."`
	Timeout string `query:"timeout" default:"60s" doc:"A Go duration, at most 1h."`
	Body    NewMessage
}

type sendOut struct {
	Status int
	Body   Sent
}

const maxWait = time.Hour

func (a *api) messageRoutes() {
	s := a.server
	owner := guard.Rule{Access: guard.Owner}
	body := guard.Rule{Access: guard.Owner, Body: guard.JSON}
	waits := guard.Rule{Access: guard.Owner, Body: guard.JSON, Stream: true}
	register(a, route{method: "POST", path: "/sessions/{id}/messages", id: "send-message", tag: "messages", rule: waits, status: http.StatusAccepted, also: http.StatusOK,
		summary: "Send a message", errors: []int{404, 409, 429, 503}}, s.send)
	type MessagePath struct {
		SessionPath
		Message string `path:"messageId"`
	}
	type changed struct {
		Body struct {
			MessageID string `json:"messageId"`
		}
	}
	register(a, route{method: "PATCH", path: "/sessions/{id}/messages/{messageId}", id: "edit-message", tag: "messages", rule: body,
		summary: "Change a message that is still queued", errors: []int{404, 409}},
		withSession(s, func(ctx context.Context, h *host.Session, in *struct {
			MessagePath
			Body struct {
				Content   *Content `json:"content,omitempty"`
				Placement *string  `json:"placement,omitempty" enum:"queue,steer"`
			}
		}) (*changed, error) {
			var edit host.Edit
			if in.Body.Content != nil {
				edit.Content = *in.Body.Content
			}
			if in.Body.Placement != nil {
				steer := *in.Body.Placement == "steer"
				edit.Steer = &steer
			}
			out := &changed{}
			out.Body.MessageID = in.Message
			return out, h.EditQueued(ctx, in.Message, edit)
		}))
	register(a, route{method: "DELETE", path: "/sessions/{id}/messages/{messageId}", id: "remove-message", tag: "messages", rule: owner, status: http.StatusNoContent,
		summary: "Take a message out of the queue", errors: []int{404, 409}},
		withSession(s, func(ctx context.Context, h *host.Session, in *MessagePath) (*struct{}, error) {
			return nil, h.RemoveQueued(ctx, in.Message)
		}))
	register(a, route{method: "POST", path: "/sessions/{id}/cancel", id: "cancel", tag: "messages", rule: body, status: http.StatusAccepted,
		summary: "Stop the running turn", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *struct {
			SessionPath
			Body *struct {
				KeepQueue bool `json:"keepQueue,omitempty" doc:"Leave the messages that wait."`
			}
		}) (*struct{ Body struct{} }, error) {
			return &struct{ Body struct{} }{}, h.Cancel(ctx, in.Body != nil && in.Body.KeepQueue)
		}))
}

func (s *Server) send(ctx context.Context, in *sendIn) (*sendOut, error) {
	limit, err := time.ParseDuration(in.Timeout)
	if err != nil || limit < 0 || limit > maxWait {
		return nil, refuse(codeValidation, "The timeout must be a Go duration of at most 1h, for example 90s.")
	}
	if in.Wait != "" {
		release, ok := s.streams.take()
		if !ok {
			return nil, tooMany("streams")
		}
		defer release()
	}
	h, err := s.host.Session(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	id, err := h.Send(ctx, host.Message{ID: in.Body.ID, Content: in.Body.Content, Steer: in.Body.Placement == "steer"})
	if err != nil {
		return nil, err
	}
	out := &sendOut{Status: http.StatusAccepted, Body: Sent{MessageID: id}}
	if in.Wait == "" {
		return out, nil
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	st, err := h.WaitIdle(wait)
	out.Status, out.Body.Status, out.Body.LastSeq = http.StatusOK, host.StatusIdle, &st.LastSeq
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		out.Body.Status, out.Body.Pending = host.StatusRunning, len(st.Approvals)
		return out, nil
	case err != nil:
		return nil, err
	}
	out.Body.TurnEnd, out.Body.FinalResponse = st.LastEnd, finalResponse(st)
	return out, nil
}

// finalResponse is the last answer of the turn that ended last, nil when it has none: what an earlier turn said answers nothing.
func finalResponse(st session.State) *string {
	for i := len(st.History) - 1; i >= 0 && st.LastEnd != nil; i-- {
		if e := st.History[i]; e.Message.Role == model.RoleAssistant && e.Turn == st.LastEnd.Turn {
			text := e.Message.Text()
			return &text
		}
	}
	return nil
}

func tooMany(limit string) error {
	return &host.Error{Code: host.CodeLimit, Message: "Too many at a time: " + limit + ".", Fields: map[string]any{"limit": limit}}
}
