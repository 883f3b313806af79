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

	e, leave, err := h.locked(ctx, p.ID)
	if err != nil {
		return Info{}, err
	}
	defer leave()
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

// ImportSpec says what an imported session is to be.
type ImportSpec struct {
	Workspace string // "" for the log's own
	Preset    string // "" for the one that the log ran on
}

// Import makes a session of an exported log, which isn't live until it is sent a message. A log doesn't hold its composition, only a preset's
// id and hash: without a preset in spec this host must have that very one. A log that names none gets the default preset.
func (h *Host) Import(ctx context.Context, r io.Reader, spec ImportSpec) (Info, error) {
	if err := h.open(); err != nil {
		return Info{}, err
	}
	if spec.Workspace != "" {
		dir, err := workspace(spec.Workspace)
		if err != nil {
			return Info{}, err
		}
		spec.Workspace = dir
	}
	var chosen *presets.Composition
	if spec.Preset != "" { // before a long log is read
		c, err := h.resolvePreset(spec.Preset)
		if err != nil {
			return Info{}, err
		}
		chosen = c
	}
	log, err := export.Import(ctx, r, h.journal, export.ImportOptions{
		ID: uuid.Must(uuid.NewV7()).String(), Cwd: spec.Workspace, Preset: func(was session.PresetRef) (session.PresetRef, session.Pin, error) {
			if chosen == nil {
				c, err := h.recordedPreset(was)
				if err != nil {
					return session.PresetRef{}, nil, err
				}
				chosen = c
			}
			return refOf(chosen), chosen.Encode(), nil
		},
	})
	if errors.Is(err, export.ErrImport) {
		return Info{}, refuse(CodeValidation, "%v.", err)
	}
	if err != nil {
		return Info{}, err
	}
	defer h.journal.Release(log)
	h.names.keep(refOf(chosen), chosen.Name)
	return h.info(log.Info()), nil
}

// recordedPreset is the preset that a log ran on, as it was then. Another one may do more than its owner ever allowed, so there is no second
// choice.
func (h *Host) recordedPreset(was session.PresetRef) (*presets.Composition, error) {
	if was == (session.PresetRef{}) {
		return h.resolvePreset(h.cfg.DefaultPreset)
	}
	c, err := h.resolvePreset(was.ID)
	var refusal *Error
	switch {
	case errors.As(err, &refusal):
		known := h.presetIDs()
		return nil, refuse(refusal.Code, "%s The log ran on it; name the preset to import it on: ?preset=ID, or dsh-web import --preset ID.", refusal.Message).
			with("preset", was.ID).with("known", known)
	case err != nil:
		return nil, err
	case c.Hash != was.Hash:
		return nil, refuse(CodePresetChanged, "The log ran on the preset %q, which is another one here by now (its hash was %.12s and is %.12s). Name the preset to import it on, this one or another: "+
			"?preset=ID, or dsh-web import --preset ID.", was.ID, was.Hash, c.Hash).with("preset", was.ID).with("known", h.presetIDs())
	}
	return c, nil
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
