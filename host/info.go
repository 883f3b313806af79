package host

import (
	"context"
	"errors"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// The statuses of a session.
const (
	StatusRunning = session.StatusRunning
	StatusIdle    = session.StatusIdle
	StatusDamaged = session.StatusDamaged
)

// Info is a session as clients see it.
type Info struct {
	ID               string            `json:"id"`
	Title            string            `json:"title"`
	Preset           PresetInfo        `json:"preset"`
	Workspace        string            `json:"workspace"`
	Model            session.ModelRef  `json:"model"`
	Status           string            `json:"status"`
	Damage           string            `json:"damage,omitempty"`
	Live             bool              `json:"live"`
	Blank            bool              `json:"blank"`
	Archived         bool              `json:"archived"`
	Labels           map[string]string `json:"labels"`
	Group            string            `json:"group,omitempty"`
	Attempt          int               `json:"attempt,omitempty"`
	CreatedAt        int64             `json:"createdAt"` // epoch milliseconds
	UpdatedAt        int64             `json:"updatedAt"`
	LastSeq          int64             `json:"lastSeq"` // -1 before the first event
	Usage            model.Usage       `json:"usage"`
	PendingApprovals int               `json:"pendingApprovals"`
	// Queued counts the messages that wait; Queue lists them where one session is asked for.
	Queued int      `json:"queued"`
	Queue  []Queued `json:"queue,omitempty"`
	Parent string   `json:"parent,omitempty"`
}

// PresetInfo is the preset a session runs on.
type PresetInfo struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// Queued is a message that waits.
type Queued struct {
	ID        string        `json:"id"`
	Content   []model.Block `json:"content"`
	Placement string        `json:"placement"` // queue, steer
}

// info adds to a row what only the running host knows.
func (h *Host) info(in session.Info) Info {
	out := Info{
		ID: in.ID, Title: in.Title, Workspace: in.Cwd, Model: in.Model, Status: in.Status(), Damage: in.Damage,
		Preset: PresetInfo{ID: in.Preset.ID, Name: h.presetName(in.Preset), Hash: in.Preset.Hash},
		Blank:  in.Blank, Archived: in.Archived, Labels: in.Labels, Group: in.Group, Attempt: in.Attempt,
		CreatedAt: in.CreatedAt, UpdatedAt: in.UpdatedAt, LastSeq: in.LastSeq, Usage: in.Usage,
		PendingApprovals: in.Pending, Queued: in.Queue, Parent: in.ParentSession,
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	h.mu.Lock()
	e := h.entries[in.ID]
	h.mu.Unlock()
	if e != nil && e.now() != nil {
		out.Live = true
		if in.Queue > 0 && out.Status == StatusIdle && !h.Draining() {
			out.Status = StatusRunning // a turn is due
		}
	}
	return out
}

// Info is the session as clients see it, with its queue.
func (s *Session) Info(ctx context.Context) (Info, error) {
	out := s.host.info(s.log.Info())
	if out.Queued == 0 {
		return out, nil
	}
	log, err := s.host.journal.Open(ctx, s.ID())
	if err != nil {
		return out, s.host.notFound(s.ID(), err)
	}
	defer s.host.journal.Release(log)
	st := log.State()
	for _, m := range st.NextStep {
		out.Queue = append(out.Queue, Queued{ID: m.ID, Content: m.Content, Placement: "steer"})
	}
	for _, m := range st.NextTurn {
		out.Queue = append(out.Queue, Queued{ID: m.ID, Content: m.Content, Placement: "queue"})
	}
	return out, nil
}

// List is one page of sessions, newest first.
type List struct {
	Sessions   []Info `json:"sessions"`
	NextCursor string `json:"nextCursor,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
}

// List gives one page of sessions.
func (h *Host) List(ctx context.Context, q session.Query) (List, error) {
	page, err := h.journal.List(ctx, q)
	if err != nil {
		return List{}, err
	}
	out := List{Sessions: make([]Info, 0, len(page.Sessions)), NextCursor: page.NextCursor, Truncated: page.Truncated}
	for _, in := range page.Sessions {
		out.Sessions = append(out.Sessions, h.info(in))
	}
	return out, nil
}

// Report describes the host.
type Report struct {
	Started time.Time
	Live    int
	// Demo says that no model has a key: the script answers.
	Demo     bool
	Draining bool
}

// Report is the state of the host as a whole.
func (h *Host) Report() Report {
	route, err := h.cfg.Router.Resolve(model.Selection{}.Or(h.cfg.DefaultModel))
	return Report{Started: h.started, Live: int(h.liveCount.Load()), Demo: err == nil && route.Demo, Draining: h.Draining()}
}

// Ready says why the host can't serve, or nil.
func (h *Host) Ready() error {
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	switch {
	case closed:
		return errors.New("the host is closed")
	case h.Draining():
		return errors.New("the host is draining")
	case h.started.IsZero():
		return errors.New("the host is starting")
	}
	return nil
}
