package web

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web/guard"
)

// NewSession is what a new session is asked to be.
type NewSession struct {
	ID        string            `json:"id,omitempty" doc:"Letters, digits, dots, underscores and dashes, 1 to 128; made by the host when absent. Repeating a request with its id is safe."`
	Preset    string            `json:"preset,omitempty"`
	Workspace string            `json:"workspace" doc:"The absolute path of a directory."`
	Model     *model.Selection  `json:"model,omitempty" doc:"The host's default when absent."`
	Title     string            `json:"title,omitempty" maxLength:"1000"`
	Labels    map[string]string `json:"labels,omitempty"`
	Group     string            `json:"group,omitempty" maxLength:"200"`
	Attempt   int               `json:"attempt,omitempty"`
	Message   *Content          `json:"message,omitempty" doc:"The first message."`
}

func (n NewSession) spec() host.Spec {
	s := host.Spec{ID: n.ID, Preset: n.Preset, Workspace: n.Workspace, Title: n.Title, Labels: n.Labels, Group: n.Group, Attempt: n.Attempt}
	if n.Model != nil {
		s.Model = *n.Model
	}
	if n.Message != nil {
		s.Message = *n.Message
	}
	return s
}

// SessionPath names a session.
type SessionPath struct {
	ID string `path:"id" doc:"The session's id."`
}

func (p SessionPath) session() string { return p.ID }

// withSession makes the handler of a route below /sessions/{id}: handle has the session until it returns.
func withSession[P interface {
	*I
	session() string
}, I, O any](s *Server, handle func(context.Context, *host.Session, P) (*O, error)) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		h, err := s.host.Session(ctx, P(in).session())
		if err != nil {
			return nil, err
		}
		defer h.Release()
		return handle(ctx, h, in)
	}
}

type sessionOut struct {
	Body host.Info
}

type createOut struct {
	Status   int
	Location string `header:"Location"`
	Body     host.Info
}

type batchOut struct {
	Body struct {
		Group    string      `json:"group"`
		Sessions []host.Info `json:"sessions"`
	}
}

type listIn struct {
	Cursor   string `query:"cursor" doc:"nextCursor of the page before."`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
	Q        string `query:"q" doc:"Text in titles and messages, whatever its case."`
	Preset   string `query:"preset"`
	Group    string `query:"group"`
	Archived flag   `query:"archived"`
	Status   string `query:"status" enum:"running,idle,damaged"`
}

type listOut struct {
	Body host.List
}

// SessionPatch changes what is given.
type SessionPatch struct {
	Title          *string            `json:"title,omitempty" minLength:"1" maxLength:"1000"`
	Archived       *bool              `json:"archived,omitempty"`
	Labels         *map[string]string `json:"labels,omitempty" doc:"Replaces all labels."`
	Preset         *string            `json:"preset,omitempty" doc:"Only while the session is blank."`
	Model          *model.Selection   `json:"model,omitempty"`
	ApprovalPolicy *string            `json:"approvalPolicy,omitempty" enum:"ask,never,full" doc:"ask; never: deny without asking; full: allow without asking. Only where the preset asks."`
	FullAccess     bool               `json:"acknowledgeFullAccess,omitempty" doc:"Must be true with the policy full: every call runs."`
	SandboxMode    *string            `json:"sandboxMode,omitempty" enum:"read-only,workspace-write,danger-full-access"`
}

func (a *api) sessionRoutes() {
	s := a.server
	owner := guard.Rule{Access: guard.Owner}
	body := guard.Rule{Access: guard.Owner, Body: guard.JSON}
	register(a, route{method: "POST", path: "/sessions", id: "create-session", tag: "sessions", rule: body, status: http.StatusCreated, also: http.StatusOK,
		summary: "Create a session", errors: []int{409, 429, 503}},
		func(ctx context.Context, in *struct{ Body NewSession }) (*createOut, error) {
			info, created, err := s.host.Create(ctx, in.Body.spec())
			if err != nil {
				return nil, err
			}
			out := &createOut{Status: http.StatusCreated, Location: s.sessionPath(info.ID), Body: info}
			if !created {
				out.Status = http.StatusOK
			}
			return out, nil
		})
	register(a, route{method: "POST", path: "/sessions/batch", id: "create-sessions", tag: "sessions", rule: body, status: http.StatusCreated,
		summary: "Create sessions of one specification, all or none", errors: []int{409, 429, 503}},
		func(ctx context.Context, in *struct {
			Body struct {
				Spec  NewSession `json:"spec"`
				Count int        `json:"count" minimum:"1" maximum:"256"`
			}
		}) (*batchOut, error) {
			infos, err := s.host.CreateBatch(ctx, in.Body.Spec.spec(), in.Body.Count)
			if err != nil {
				return nil, err
			}
			out := &batchOut{}
			out.Body.Sessions = infos
			if len(infos) > 0 {
				out.Body.Group = infos[0].Group
			}
			return out, nil
		})
	register(a, route{method: "GET", path: "/sessions", id: "list-sessions", tag: "sessions", rule: owner, summary: "List and search sessions, newest first"},
		func(ctx context.Context, in *listIn) (*listOut, error) {
			list, err := s.host.List(ctx, session.Query{Cursor: in.Cursor, Limit: in.Limit, Text: in.Q, Preset: in.Preset, Group: in.Group,
				Archived: in.Archived.pointer(), Status: in.Status})
			return &listOut{list}, err
		})
	register(a, route{method: "GET", path: "/sessions/{id}", id: "get-session", tag: "sessions", rule: owner, summary: "A session", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *SessionPath) (*sessionOut, error) {
			info, err := h.Info(ctx)
			return &sessionOut{info}, err
		}))
	register(a, route{method: "PATCH", path: "/sessions/{id}", id: "patch-session", tag: "sessions", rule: body, summary: "Change a session", errors: []int{404, 409}},
		withSession(s, func(ctx context.Context, h *host.Session, in *struct {
			SessionPath
			Body SessionPatch
		}) (*sessionOut, error) {
			info, err := s.patch(ctx, h, in.Body)
			return &sessionOut{info}, err
		}))
	register(a, route{method: "DELETE", path: "/sessions/{id}", id: "delete-session", tag: "sessions", rule: owner, status: http.StatusNoContent,
		summary: "Delete a session and its files", errors: []int{404, 409}},
		func(ctx context.Context, in *struct {
			SessionPath
			Force bool `query:"force" doc:"End it first if it runs."`
		}) (*struct{}, error) {
			return nil, s.host.Delete(ctx, in.ID, in.Force)
		})
	register(a, route{method: "GET", path: "/sessions/{id}/prompt", id: "session-prompt", tag: "sessions", rule: owner, summary: "Exactly what the next request carries", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *SessionPath) (*struct{ Body host.PromptView }, error) {
			view, err := h.Prompt(ctx)
			if view.Tools == nil {
				view.Tools = []model.Tool{}
			}
			return &struct{ Body host.PromptView }{view}, err
		}))
	register(a, route{method: "GET", path: "/sessions/{id}/proof", id: "session-proof", tag: "sessions", rule: owner, summary: "The chain of request hashes", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *SessionPath) (*struct{ Body host.Proof }, error) {
			proof, err := h.Proof(ctx)
			return &struct{ Body host.Proof }{proof}, err
		}))
	register(a, route{method: "GET", path: "/sessions/{id}/scope", id: "session-scope", tag: "sessions", rule: owner, summary: "What the agent owns: the audit tree", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *SessionPath) (*struct{ Body any }, error) {
			tree, err := h.Scope()
			return &struct{ Body any }{tree}, err
		}))
}

func (s *Server) sessionPath(id string) string {
	return s.base + apiRoot + "/sessions/" + url.PathEscape(id)
}

func (s *Server) patch(ctx context.Context, h *host.Session, p SessionPatch) (host.Info, error) {
	if p.SandboxMode != nil {
		return host.Info{}, refuse(host.CodeNotConfined, "This session's preset isn't confined: it has no sandbox mode to change.")
	}
	patch := host.Patch{Title: p.Title, Archived: p.Archived, Preset: p.Preset, Model: p.Model, ApprovalPolicy: p.ApprovalPolicy, FullAccess: p.FullAccess}
	if p.Labels != nil {
		if patch.Labels = *p.Labels; patch.Labels == nil {
			patch.Labels = map[string]string{}
		}
	}
	return h.Patch(ctx, patch)
}
