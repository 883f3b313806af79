package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

// PromptView is what a session's next request carries.
type PromptView struct {
	System string       `json:"system"`
	Tools  []model.Tool `json:"tools"`
	Hash   string       `json:"hash"`
}

// Prompt is exactly what the session's next request will carry: what its log fixed, or before the first request what would be put together
// now. It makes nothing live.
func (s *Session) Prompt(ctx context.Context) (PromptView, error) {
	h := s.host
	log, err := h.journal.Open(ctx, s.ID())
	if err != nil {
		return PromptView{}, h.notFound(s.ID(), err)
	}
	defer h.journal.Release(log)
	if r := log.State().Request; r != nil {
		return PromptView{System: r.Header.System, Tools: slices.Clone(r.Header.Tools), Hash: prompt.Hash(r.Header.System, r.Header.Tools)}, nil
	}
	if l := s.entry.now(); l != nil {
		return h.assemble(ctx, l.mounted.Load().Scope)
	}
	return h.dryPrompt(ctx, log)
}

// dryPrompt mounts what the session was given, only to see its prompt.
func (h *Host) dryPrompt(ctx context.Context, log *session.Log) (view PromptView, err error) {
	own, err := h.loadSettings(ctx, log.ID())
	if err != nil {
		return PromptView{}, err
	}
	c, err := h.given(ctx, log.ID())
	if err != nil {
		return PromptView{}, err
	}
	l, err := h.mount(ctx, log.ID(), log.Header().Cwd, c, own, false)
	if err != nil {
		return PromptView{}, err
	}
	defer func() { err = errors.Join(err, h.discard(ctx, l)) }()
	return h.assemble(ctx, l.mounted.Load().Scope)
}

func (h *Host) assemble(ctx context.Context, view *scope.Scope) (PromptView, error) {
	a, err := h.prompts.Assemble(ctx, view, func() []model.Tool { return tools.Schemas(h.tools.Visible(view)) })
	if err != nil {
		return PromptView{}, fmt.Errorf("assemble prompt: %w", err)
	}
	return PromptView{System: a.System, Tools: a.Tools, Hash: a.Hash()}, nil
}

// Proof is the chain of a session's requests. Contiguous says that each extends the one before, byte for byte.
type Proof struct {
	Requests   []session.RequestSent `json:"requests"`
	Contiguous bool                  `json:"contiguous"`
}

// Proof reads the chain from the log.
func (s *Session) Proof(ctx context.Context) (Proof, error) {
	p := Proof{Requests: []session.RequestSent{}, Contiguous: true}
	after := int64(-1)
	for {
		page, err := s.log.Read(ctx, after, 1000, 1<<20)
		if err != nil {
			return p, err
		}
		for _, e := range page.Events {
			if e.Type != (session.RequestSent{}).EventType() {
				continue
			}
			var sent session.RequestSent
			if err := json.Unmarshal(e.Data, &sent); err != nil {
				return p, fmt.Errorf("decode event %d: %w", e.Seq, err)
			}
			p.Requests = append(p.Requests, sent)
			p.Contiguous = p.Contiguous && sent.Contiguous
		}
		if !page.HasMore {
			return p, nil
		}
		after = page.Events[len(page.Events)-1].Seq
	}
}

// Scope is the audit tree of a live agent.
func (s *Session) Scope() (scope.Node, error) {
	l := s.entry.now()
	if l == nil {
		return scope.Node{}, refuse(CodeSessionNotFound, "The session %s is not live; it owns nothing now. Send it a message first.", s.ID())
	}
	return l.scope.Audit(), nil
}
