package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/export"
	"github.com/dsh-web/dsh-web/presets"
)

// Fork makes a session that begins as a copy of this one's log up to and with the turn end at atSeq (nil: the last one), on the same preset
// or another one. The parent is untouched; what waits in its queue isn't copied.
func (s *Session) Fork(ctx context.Context, atSeq *int64, preset string) (Info, error) {
	h := s.host
	own, err := h.loadSettings(ctx, s.ID())
	if err != nil {
		return Info{}, err
	}
	c, err := s.forkPreset(ctx, preset)
	if err != nil {
		return Info{}, err
	}
	in := s.log.Info()
	p := plan{
		Spec: Spec{
			ID: uuid.Must(uuid.NewV7()).String(), Workspace: in.Cwd, Model: own.Model, Labels: in.Labels, Group: in.Group, Attempt: in.Attempt,
		},
		composition: c,
	}
	at := int64(-1)
	if atSeq != nil {
		at = *atSeq
	}
	log, err := h.journal.Open(ctx, s.ID())
	if err != nil {
		return Info{}, h.notFound(s.ID(), err)
	}
	st := log.State()
	h.journal.Release(log)
	until := st.LastSeq
	if at >= 0 {
		until = at
	} else if st.TurnOpen {
		until = st.TurnSeq
	}
	lost := usedShell(st, until)

	e := h.entry(p.ID)
	defer h.leave(e)
	unlock, err := e.lock(ctx)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	if err := h.open(); err != nil {
		return Info{}, err
	}
	made, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	if err := h.copyAttachments(s.ID(), p.ID); err != nil {
		return Info{}, errors.Join(err, h.dropAttachments(p.ID))
	}
	l, err := h.make(made, e, p, lost, func(cr session.Creation) (*session.Log, error) {
		if preset != "" {
			cr.Drafts = append(cr.Drafts, session.Draft{Payload: session.PresetSelected{AgentPreset: refOf(c)}})
		}
		return h.journal.Fork(made, s.ID(), at, cr)
	})
	if err != nil {
		err = errors.Join(err, h.dropAttachments(p.ID))
	}
	switch {
	case errors.Is(err, session.ErrNotAtTurnEnd), errors.Is(err, session.ErrCursorAhead):
		return Info{}, refuse(CodeForkPoint, "A fork begins where a turn has ended; give the seq of a turn/end event, or leave atSeq out for the last one.")
	case err != nil:
		return Info{}, err
	}
	return h.info(l.log.Info()), nil
}

// forkPreset is the named preset, or the composition that the parent was given.
func (s *Session) forkPreset(ctx context.Context, preset string) (*presets.Composition, error) {
	if preset != "" {
		return s.host.resolvePreset(preset)
	}
	pin, err := s.host.journal.Pin(ctx, s.ID())
	if err != nil {
		return nil, err
	}
	c, err := presets.Decode(pin)
	if err != nil {
		return nil, refuse(CodePresetBroken, "The preset recorded with session %s can't be read: %v", s.ID(), err)
	}
	return c, nil
}

// copyAttachments gives a fork its own links to its parent's images.
func (h *Host) copyAttachments(from, to string) error {
	if h.cfg.Attachments == "" {
		return nil
	}
	from, err := session.FileName(from)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(filepath.Join(h.cfg.Attachments, from))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy attachments: %w", err)
	}
	dir := filepath.Join(h.cfg.Attachments, to)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("copy attachments: %w", err)
	}
	for _, f := range files {
		if attachmentID.MatchString(f.Name()) {
			err := os.Link(filepath.Join(h.cfg.Attachments, from, f.Name()), filepath.Join(dir, f.Name()))
			if err != nil && !errors.Is(err, os.ErrNotExist) { // the parent may be deleted just now, which the fork of its log will say
				return fmt.Errorf("copy attachments: %w", err)
			}
		}
	}
	return nil
}

// Import makes a session of an exported log. It runs on the default preset, since a log doesn't hold its composition, and isn't live until it
// is sent a message. The workspace is the log's unless one is given.
func (h *Host) Import(ctx context.Context, r io.Reader, workspaceDir string) (Info, error) {
	if err := h.open(); err != nil {
		return Info{}, err
	}
	if workspaceDir != "" {
		dir, err := workspace(workspaceDir)
		if err != nil {
			return Info{}, err
		}
		workspaceDir = dir
	}
	c, err := h.resolvePreset(h.cfg.DefaultPreset)
	if err != nil {
		return Info{}, err
	}
	log, err := export.Import(ctx, r, h.journal, export.ImportOptions{
		ID: uuid.Must(uuid.NewV7()).String(), Cwd: workspaceDir, Preset: refOf(c), Pin: c.Encode(),
	})
	if errors.Is(err, export.ErrImport) {
		return Info{}, refuse(CodeValidation, "%v.", err)
	}
	if err != nil {
		return Info{}, err
	}
	defer h.journal.Release(log)
	h.names.keep(refOf(c), c.Name)
	return h.info(log.Info()), nil
}

// Annotation is what a trainer says of a session. Nil fields keep what was said before.
type Annotation struct {
	Reward *float64          `json:"reward,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Note   *string           `json:"note,omitempty"`
}

// Annotate stores a trainer's word; it is exported with the session.
func (s *Session) Annotate(ctx context.Context, a Annotation) (Annotation, error) {
	if err := s.host.writable(); err != nil {
		return Annotation{}, err
	}
	unlock, err := s.entry.lock(ctx)
	if err != nil {
		return Annotation{}, err
	}
	defer unlock()
	var now Annotation
	raw, err := s.host.journal.Annotations(ctx, s.ID())
	if err != nil {
		return Annotation{}, err
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &now); err != nil {
			return Annotation{}, fmt.Errorf("decode annotations of session %s: %w", s.ID(), err)
		}
	}
	if a.Reward != nil {
		now.Reward = a.Reward
	}
	if a.Labels != nil {
		now.Labels = a.Labels
	}
	if a.Note != nil {
		now.Note = a.Note
	}
	if raw, err = json.Marshal(now); err != nil {
		return Annotation{}, fmt.Errorf("encode annotations: %w", err)
	}
	return now, s.host.journal.SetAnnotations(ctx, s.ID(), raw)
}
