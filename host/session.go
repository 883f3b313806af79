package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/presets"
)

// Session is a handle on one session, live or not. Having one keeps nothing running. Release gives it back.
type Session struct {
	host  *Host
	entry *entry
	log   *session.Log
}

// Session finds a session. It costs one row of the store, whatever the length of the log.
func (h *Host) Session(ctx context.Context, id string) (*Session, error) {
	if !h.validID(id) {
		return nil, h.notFound(id, session.ErrNotFound)
	}
	log, err := h.journal.View(ctx, id)
	if err != nil {
		return nil, h.notFound(id, err)
	}
	return &Session{host: h, entry: h.entry(id), log: log}, nil
}

// Release gives the handle back.
func (s *Session) Release() {
	s.host.journal.Release(s.log)
	s.host.leave(s.entry)
}

// ID is the session's id.
func (s *Session) ID() string { return s.entry.id }

// Log is the session's log, for reading and following. Its state may be unfolded; see Journal.View.
func (s *Session) Log() *session.Log { return s.log }

// Message is a message to a session. A known ID changes nothing: the first one counts.
type Message struct {
	ID      string
	Content []model.Block
	// Steer sends it into the running turn, at its next step.
	Steer bool
}

// Send queues a message, durably, and makes the session live to run it.
func (s *Session) Send(ctx context.Context, m Message) (messageID string, err error) {
	if err := s.host.checkImages(s.ID(), m.Content); err != nil {
		return "", err
	}
	l, release, err := s.host.hold(ctx, s.entry)
	if err != nil {
		return "", err
	}
	defer release()
	msg := userMessage(m.ID, m.Content)
	known := l.log.State().Knows(msg.ID)
	alive, err := l.agent.Send(ctx, msg, m.Steer)
	switch {
	case errors.Is(err, agent.ErrFull):
		return "", refuse(CodeLimit, "%v.", err).with("limit", "queue")
	case err != nil:
		return "", err
	}
	if !known {
		s.unarchive(ctx)
	}
	if alive {
		return msg.ID, nil
	}
	// Somebody closed the agent meanwhile. The message is durable; another life runs it, at once if one may begin.
	if err := s.Wake(ctx); err != nil {
		s.host.cfg.Logger.Warn("a message waits for the session's next life", "session", s.ID(), "message", msg.ID, "error", err)
	}
	return msg.ID, nil
}

// unarchive brings back a session that was filed away, since it works again. A failure doesn't take back the message that did it.
func (s *Session) unarchive(ctx context.Context) {
	if !s.log.Info().Archived {
		return
	}
	if err := s.host.journal.SetArchived(ctx, s.ID(), false); err != nil {
		s.host.cfg.Logger.Warn("a session that works stays archived", "session", s.ID(), "error", err)
	}
}

// Edit changes a queued message: its content when not nil, and whether it steers when Steer is not nil.
type Edit struct {
	Content []model.Block
	Steer   *bool
}

// EditQueued changes a message that is still queued.
func (s *Session) EditQueued(ctx context.Context, id string, e Edit) error {
	if err := s.host.checkImages(s.ID(), e.Content); err != nil {
		return err
	}
	return s.queued(ctx, func(log *session.Log) error { return agent.Edit(ctx, log, id, e.Content, e.Steer) })
}

// RemoveQueued takes a message out of the queue.
func (s *Session) RemoveQueued(ctx context.Context, id string) error {
	return s.queued(ctx, func(log *session.Log) error { return agent.Remove(ctx, log, id) })
}

func (s *Session) queued(ctx context.Context, change func(*session.Log) error) error {
	if err := s.host.writable(); err != nil {
		return err
	}
	log, err := s.host.journal.Open(ctx, s.ID())
	if err != nil {
		return s.host.notFound(s.ID(), err)
	}
	defer s.host.journal.Release(log)
	err = change(log)
	switch {
	case errors.Is(err, agent.ErrStarted):
		return refuse(CodeMessageStarted, "The message is no longer queued.")
	case errors.Is(err, agent.ErrUnknownMessage):
		return refuse(CodeMessageNotFound, "The session has no such message.")
	}
	return err
}

// Cancel ends the turn in progress and, unless keepQueue, empties the queue. It is fine when nothing runs.
func (s *Session) Cancel(ctx context.Context, keepQueue bool) error {
	if l := s.entry.now(); l != nil {
		return l.agent.Cancel(ctx, keepQueue)
	}
	if keepQueue {
		return nil
	}
	return s.queued(ctx, func(log *session.Log) error { return agent.ClearQueue(ctx, log) })
}

// CancelMessage takes one message out of the queue, or ends the turn that began with it. It is fine when the message has had its turn.
func (s *Session) CancelMessage(ctx context.Context, id string) error {
	err := s.queued(ctx, func(log *session.Log) error { return agent.Withdraw(ctx, log, id) })
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != CodeMessageStarted {
		return err
	}
	if l := s.entry.now(); l != nil { // looked for afterwards: an agent may have come for this message
		l.agent.CancelTurnOf(id)
	}
	return nil
}

// WaitIdle waits until no turn runs and none is due, and gives the state then. When ctx ends first it gives the state at that time and the
// context's error.
func (s *Session) WaitIdle(ctx context.Context) (session.State, error) {
	log, err := s.host.journal.Open(ctx, s.ID())
	if err != nil {
		return session.State{}, s.host.notFound(s.ID(), err)
	}
	defer s.host.journal.Release(log)
	for {
		changed, draining := log.Changed(), s.host.draining
		l, st := s.entry.now(), log.State()
		if s.host.Draining() {
			if !st.TurnOpen {
				return st, nil
			}
			draining = nil
		}
		if l == nil || !running(st) {
			return st, nil
		}
		select {
		case <-changed:
		case <-l.gone:
		case <-draining:
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}

// running says whether a live session with this state has something to do.
func running(st session.State) bool {
	return st.Damage == "" && (st.TurnOpen || st.Queued() > 0)
}

// Wake makes the session live, so that messages still queued from an earlier life run. Send does so by itself.
func (s *Session) Wake(ctx context.Context) error {
	_, release, err := s.host.hold(ctx, s.entry)
	if err != nil {
		return err
	}
	release()
	return nil
}

// Close ends the agent, its turn first, and leaves the log as it is. The next message makes the session live again.
func (s *Session) Close(ctx context.Context) error {
	unlock, err := s.entry.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	by := agent.ByDisposed
	if s.host.Draining() {
		by = agent.ByShutdown
	}
	return s.host.shut(ctx, s.entry, by)
}

// Terminal is the agent's own shell, if the session is live and its preset has one. It starts no shell.
func (s *Session) Terminal() (*term.Terminals, bool) {
	l := s.entry.now()
	if l == nil {
		return nil, false
	}
	t := l.mounted.Load().Terminals()
	return t, t != nil
}

// Patch changes what isn't nil.
type Patch struct {
	Title    *string
	Archived *bool
	Labels   map[string]string
	Preset   *string // only while the session is blank
	Model    *model.Selection
	// ApprovalPolicy is one of session.PolicyAsk, PolicyNever, PolicyFull; the last one only with FullAccess.
	ApprovalPolicy *string
	FullAccess     bool
}

// Patch applies p and gives the session after it. Everything is checked before anything is changed.
func (s *Session) Patch(ctx context.Context, p Patch) (Info, error) {
	h := s.host
	if err := h.writable(); err != nil {
		return Info{}, err
	}
	if p.Title != nil && (len(*p.Title) > 1000 || *p.Title == "") {
		return Info{}, refuse(CodeValidation, "A title has 1 to 1,000 bytes.")
	}
	if p.Model != nil {
		if err := h.checkModel(*p.Model); err != nil {
			return Info{}, err
		}
	}
	unlock, err := s.entry.lock(ctx)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	if p.ApprovalPolicy != nil {
		if err := s.checkPolicy(ctx, p); err != nil {
			return Info{}, err
		}
	}
	if p.Preset != nil {
		if err := h.switchPreset(ctx, s, *p.Preset); err != nil {
			return Info{}, err
		}
	}
	if p.Model != nil {
		if err := h.selectModel(ctx, s, *p.Model); err != nil {
			return Info{}, err
		}
	}
	if p.ApprovalPolicy != nil {
		if err := s.setPolicy(ctx, *p.ApprovalPolicy); err != nil {
			return Info{}, err
		}
	}
	if p.Title != nil {
		if _, err := s.log.Update(ctx, func(session.State) ([]session.Draft, error) {
			return []session.Draft{{Payload: session.Title{Title: *p.Title}}}, nil
		}); err != nil {
			return Info{}, err
		}
	}
	if p.Labels != nil {
		if err := h.journal.SetLabels(ctx, s.ID(), p.Labels); err != nil {
			return Info{}, err
		}
	}
	if p.Archived != nil {
		if err := h.archive(ctx, s.entry, *p.Archived); err != nil {
			return Info{}, err
		}
	}
	return s.Info(ctx)
}

func (h *Host) checkModel(sel model.Selection) error {
	if _, err := h.cfg.Router.Resolve(sel); err != nil {
		return refuse(CodeValidation, "%v.", err).with("field", "model")
	}
	return nil
}

func (h *Host) selectModel(ctx context.Context, s *Session, sel model.Selection) error {
	own, err := h.loadSettings(ctx, s.ID())
	if err != nil {
		return err
	}
	own.Model = sel
	raw, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	if err := h.journal.SetSettings(ctx, s.ID(), raw, h.modelRef(sel)); err != nil {
		return err
	}
	if l := s.entry.now(); l != nil {
		l.settings.Store(&own)
	}
	return nil
}

// switchPreset gives a blank session another preset: the new one is mounted beside the old, the log decides, then they swap. No turn begins
// meanwhile, since it would carry the old one's prompt. The caller holds the entry.
func (h *Host) switchPreset(ctx context.Context, s *Session, id string) error {
	c, err := h.resolvePreset(id)
	if err != nil {
		return err
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	log, err := h.journal.Open(ctx, s.ID())
	if err != nil {
		return h.notFound(s.ID(), err)
	}
	defer h.journal.Release(log)
	locked := refuse(CodePresetLocked, "The session has begun; its preset can't change any more. Create a new session, or fork this one into another preset.")
	if !log.State().Blank {
		return locked
	}
	l := s.entry.now()
	var mounted *presets.Mounted
	if l != nil {
		release, ok := l.agent.Hold()
		if !ok {
			return locked
		}
		defer release()
		if mounted, err = presets.Mount(work, l.scope, c, h.services(l, s.ID(), log.Header().Cwd, l.hostFS, false)); err != nil {
			return refuse(CodePresetBroken, "The preset %q can't be mounted: %v", c.ID, err).with("preset", c.ID)
		}
	}
	err = h.journal.SelectPreset(work, s.ID(), refOf(c), c.Encode())
	switch {
	case errors.Is(err, session.ErrBegun):
		err = locked
	case err == nil:
		h.names.keep(refOf(c), c.Name)
	}
	if mounted == nil {
		return err
	}
	if err != nil {
		return errors.Join(err, mounted.Close(work))
	}
	if err := l.mounted.Swap(mounted).Close(work); err != nil { // the switch stands all the same
		h.cfg.Logger.Error("close the preset before", "session", s.ID(), "error", err)
	}
	return nil
}
