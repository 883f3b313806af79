package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/tools/bash"
)

// mount makes an agent's scope and mounts its preset there. Nothing is published yet: no log, no loop. A failure leaves nothing.
func (h *Host) mount(ctx context.Context, id, workspace string, c *presets.Composition, own settings, shellLost bool) (l *live, err error) {
	if n := h.liveCount.Add(1); h.cfg.MaxLive > 0 && n > int64(h.cfg.MaxLive) {
		h.liveCount.Add(-1)
		return nil, refuse(CodeLimit, "The host runs %d agents, its limit; archive or delete some, or raise limits.sessions.", h.cfg.MaxLive).with("limit", "sessions")
	}
	defer func() {
		if err != nil {
			h.liveCount.Add(-1)
		}
	}()
	hostFS, closeFS, err := h.openFS(workspace)
	if err != nil {
		return nil, refuse(CodeWorkspaceInvalid, "The workspace %s can't be opened: %v.", workspace, err)
	}
	name, err := session.FileName(id)
	if err != nil {
		return nil, errors.Join(err, closeFS())
	}
	s, err := presets.AgentScope(h.root, "session "+name, hostFS)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open agent scope: %w", err), closeFS())
	}
	l = &live{scope: s, gone: make(chan struct{})}
	log := func() *session.Log { return l.log }
	if h.cfg.Standalone || h.cfg.Unattended {
		log = nil // nobody is there to ask
	}
	l.desk = approval.New(log, h.cfg.Now)
	l.settings.Store(&own)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.Own("host file system", func(context.Context) (func(context.Context) error, error) {
		return func(context.Context) error { return closeFS() }, nil
	}); err != nil {
		return nil, errors.Join(err, closeFS())
	}
	mounted, err := presets.Mount(ctx, s, c, h.services(l, id, workspace, hostFS, shellLost))
	if err != nil {
		return nil, refuse(CodePresetBroken, "The preset %q can't be mounted: %v", c.ID, err).with("preset", c.ID)
	}
	h.names.keep(refOf(c), c.Name)
	l.mounted.Store(mounted)
	l.hostFS = hostFS
	return l, nil
}

// openFS opens the host's confined file provider; a standalone host has none.
func (h *Host) openFS(workspace string) (fsys.Provider, func() error, error) {
	if h.cfg.Standalone {
		return nil, func() error { return nil }, nil
	}
	r, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: workspace, Mode: fsys.WorkspaceWrite, Locks: h.locks})
	if err != nil {
		return nil, nil, err
	}
	return r, r.Close, nil
}

// services is what a mounted preset may use of the host.
func (h *Host) services(l *live, id, workspace string, hostFS fsys.Provider, shellLost bool) presets.Services {
	route := func() (model.Route, bool) {
		r, err := h.cfg.Router.Resolve(l.settings.Load().Model)
		return r, err == nil
	}
	return presets.Services{
		Prompt: h.prompts, Tools: h.tools, HostFS: hostFS, Locks: h.locks, Logger: h.cfg.Logger,
		Session: presets.Session{
			ID: id, Workspace: workspace,
			Model: func() string {
				if r, ok := route(); ok {
					return r.Model
				}
				return l.settings.Load().Model.Model
			},
			Images: func() bool { r, _ := route(); return r.Images },
		},
		Approvals:    l.desk,
		Surroundings: func() [][2]string { return surroundings(hostFS) },
		Terminals: func() *term.Terminals {
			return term.New(term.Options{
				Proc: h.cfg.Proc, Dir: workspace, Session: id, Resumed: shellLost,
				Taken: func(by string, typed []byte) { h.shellTaken(l, by, len(typed)) },
			})
		},
	}
}

// surroundings is what a confined agent is told of its confinement.
func surroundings(hostFS fsys.Provider) [][2]string {
	if hostFS == nil {
		return nil
	}
	mode, confined := hostFS.Sandbox()
	if !confined {
		return nil
	}
	return [][2]string{{"File access", string(mode)}}
}

// shellTaken logs that a person used an agent's keyboard.
func (h *Host) shellTaken(l *live, by string, bytes int) {
	if l.log == nil {
		return
	}
	_, err := l.log.Update(context.WithoutCancel(l.scope.Context()), func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.ShellTaken{By: by, Bytes: int64(bytes)}}}, nil
	})
	if err != nil {
		h.cfg.Logger.Error("log use of the keyboard", "session", l.log.ID(), "error", err)
	}
}

// publish gives a mounted agent its log, starts its loop and makes it the session's live agent. The caller holds the entry.
func (h *Host) publish(e *entry, l *live, log *session.Log) error {
	l.log = log
	l.agent = agent.New(agent.Config{
		Scope: l.scope, View: func() *scope.Scope { return l.mounted.Load().Scope },
		Log: log, Prompt: h.prompts, Tools: h.tools,
		Route: func() (model.Route, model.Selection, error) {
			sel := l.settings.Load().Model
			route, err := h.cfg.Router.Resolve(sel)
			return route, sel, err
		},
		Attachments: h.attachments(e.id), Secrets: func() []string { return h.secrets(l) },
		Limits: func() agent.Limits { return l.mounted.Load().Limits() }, KeepRecorded: h.cfg.KeepRecorded, Violation: h.cfg.Violation, Logger: h.cfg.Logger,
	})
	if err := l.agent.Start(); err != nil {
		h.journal.Release(log)
		return fmt.Errorf("start agent: %w", err)
	}
	e.setLive(l, h.cfg.Now())
	if h.Draining() { // it began after this agent was planned, and Drain may have looked before the agent was here
		l.agent.Park()
	}
	h.feed.dirty(e.id)
	l.agent.Wake()
	return nil
}

// resume makes a stored session live again, with the composition it was given. The caller holds the entry.
func (h *Host) resume(ctx context.Context, e *entry) (l *live, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	log, err := h.journal.Open(ctx, e.id)
	if err != nil {
		return nil, h.notFound(e.id, err)
	}
	published := false
	defer func() {
		if !published {
			h.journal.Release(log)
		}
	}()
	if h.cfg.Standalone {
		if _, err := h.journal.Mend(ctx, log); err != nil && log.State().Damage == "" {
			return nil, fmt.Errorf("recover session %s: %w", e.id, err)
		}
	}
	st := log.State()
	if st.Damage != "" {
		return nil, refuse(CodeSessionDamaged, "The session %s is damaged and read-only: %s.", e.id, st.Damage)
	}
	if _, err := os.Stat(st.Header.Cwd); err != nil {
		return nil, refuse(CodeWorkspaceInvalid, "The workspace %s of this session is gone: %v. Bring it back, or export the session and import it with another workspace.", st.Header.Cwd, err)
	}
	own, err := h.loadSettings(ctx, e.id)
	if err != nil {
		return nil, err
	}
	c, err := h.given(ctx, e.id)
	if err != nil {
		return nil, err
	}
	if l, err = h.mount(ctx, e.id, st.Header.Cwd, c, own, usedShell(st, st.LastSeq)); err != nil {
		return nil, err
	}
	published = true
	if err := h.publish(e, l, log); err != nil {
		return nil, errors.Join(err, h.discard(ctx, l))
	}
	return l, nil
}

// given is the composition that a stored session runs on; it says when the preset is another one by now.
func (h *Host) given(ctx context.Context, id string) (*presets.Composition, error) {
	c, err := h.recorded(ctx, id)
	if err == nil && !h.cfg.Standalone {
		h.reportDrift(id, c)
	}
	return c, err
}

func (h *Host) recorded(ctx context.Context, id string) (*presets.Composition, error) {
	if h.cfg.Standalone {
		return h.resolvePreset(h.cfg.DefaultPreset)
	}
	pin, err := h.journal.Pin(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := presets.Decode(pin)
	if err != nil {
		return nil, refuse(CodePresetBroken, "The preset recorded with session %s can't be read: %v", id, err)
	}
	return c, nil
}

func (h *Host) loadSettings(ctx context.Context, id string) (settings, error) {
	var own settings
	raw, err := h.journal.Settings(ctx, id)
	if err != nil || len(raw) == 0 {
		return own, err
	}
	if err := json.Unmarshal(raw, &own); err != nil {
		return own, fmt.Errorf("decode settings of session %s: %w", id, err)
	}
	return own, nil
}

// usedShell says whether the session ran a persistent shell, whose state is gone, up to an event.
func usedShell(st session.State, until int64) bool {
	for _, entry := range st.History {
		if entry.Seq > until {
			break
		}
		for _, call := range entry.Message.ToolCalls() {
			if call.Name == bash.Name {
				return true
			}
		}
	}
	return false
}

// reportDrift says when a preset's file has changed since the session was made; the session goes on with what it was given.
func (h *Host) reportDrift(id string, c *presets.Composition) {
	now, err := h.cfg.Roster.Resolve(c.ID)
	switch {
	case err != nil:
		h.cfg.Logger.Warn("the session's preset is gone or broken by now; the recorded one is used", "session", id, "preset", c.ID, "error", err)
	case now.Hash != c.Hash:
		h.cfg.Logger.Warn("the session's preset has changed since; the recorded one is used", "session", id, "preset", c.ID)
	}
}

func (h *Host) resolvePreset(id string) (*presets.Composition, error) {
	c, err := h.cfg.Roster.Resolve(id)
	switch {
	case errors.Is(err, presets.ErrNotFound):
		known := h.presetIDs()
		return c, refuse(CodePresetNotFound, "There is no preset %q; there are %s.", id, strings.Join(known, ", ")).with("known", known)
	case err != nil:
		return c, refuse(CodePresetBroken, "The preset %q is broken: %v", id, err).with("preset", id)
	}
	return c, nil
}

func (h *Host) presetIDs() []string {
	entries, err := h.cfg.Roster.List()
	if err != nil {
		h.cfg.Logger.Warn("list presets", "error", err)
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	return ids
}
