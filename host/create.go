package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/presets"
)

// Spec is what a new session is asked to be.
type Spec struct {
	ID        string // "" lets the host make one
	Preset    string // "" is the default
	Workspace string
	Model     model.Selection
	Title     string
	Labels    map[string]string
	Group     string
	Attempt   int
	Message   []model.Block // the first message, if any
}

// settings are a session's private settings: outside the log, never exported.
type settings struct {
	Model model.Selection `json:"model"`
	// Spec is the hash of the specification, so that a repeated create can be told from a conflicting one.
	Spec string `json:"spec"`
}

// openTimeout bounds the making of an agent, which goes on when its HTTP request ends.
const openTimeout = 30 * time.Second

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// batchLimit is how many sessions one batch makes at most.
const batchLimit = 256

// Create makes a session and its agent. A repeated id with the same specification gives the session there is, and created is false.
func (h *Host) Create(ctx context.Context, spec Spec) (info Info, created bool, err error) {
	if spec.ID == "" {
		spec.ID = uuid.Must(uuid.NewV7()).String()
	}
	plan, err := h.identify(spec)
	if err != nil {
		return Info{}, false, err
	}
	e, leave, err := h.locked(ctx, spec.ID)
	if err != nil {
		return Info{}, false, err
	}
	defer leave()
	if in, err := h.journal.Info(ctx, spec.ID); err == nil {
		info, err := h.repeated(ctx, in, plan)
		return info, false, err
	} else if !errors.Is(err, session.ErrNotFound) {
		return Info{}, false, err
	}
	if err := h.check(&plan); err != nil {
		return Info{}, false, err
	}
	made, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	l, err := h.make(made, e, plan, false, func(c session.Creation) (*session.Log, error) {
		logs, err := h.journal.CreateAll(made, []session.Creation{c})
		if err != nil {
			return nil, err
		}
		return logs[0], nil
	})
	if err != nil {
		return Info{}, false, err
	}
	return h.info(l.log.Info()), true, nil
}

// CreateBatch makes count sessions of one specification, all or none, in one group.
func (h *Host) CreateBatch(ctx context.Context, spec Spec, count int) (infos []Info, err error) {
	switch {
	case count < 1 || count > batchLimit:
		return nil, refuse(CodeValidation, "A batch makes 1 to %d sessions.", batchLimit)
	case spec.ID != "":
		return nil, refuse(CodeIDInvalid, "A batch makes its own ids; leave id out.")
	}
	if spec.Group == "" {
		spec.Group = uuid.Must(uuid.NewV7()).String()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	var born []*live
	var creations []session.Creation
	var entries []*entry
	defer func() {
		for _, e := range entries {
			<-e.own
			h.leave(e)
		}
		if err != nil {
			for _, l := range born {
				err = errors.Join(err, h.discard(ctx, l))
			}
		}
	}()
	first := spec.Attempt
	for i := range count {
		spec.ID, spec.Attempt = uuid.Must(uuid.NewV7()).String(), first+i
		p, err := h.identify(spec)
		if err != nil {
			return nil, err
		}
		if err := h.check(&p); err != nil {
			return nil, err
		}
		e := h.entry(spec.ID)
		e.own <- struct{}{} // nobody else knows the id
		entries = append(entries, e)
		l, c, err := h.conceive(ctx, p, false)
		if err != nil {
			return nil, err
		}
		born, creations = append(born, l), append(creations, c)
	}
	logs, err := h.journal.CreateAll(ctx, creations)
	if err != nil {
		return nil, err
	}
	for i, l := range born {
		if err := h.publish(entries[i], l, logs[i]); err != nil {
			h.cfg.Logger.Error("start agent", "session", entries[i].id, "error", err) // the session is there; a message resumes it
			if err := h.discard(ctx, l); err != nil {
				h.cfg.Logger.Error("close agent", "session", entries[i].id, "error", err)
			}
		}
		infos = append(infos, h.info(logs[i].Info()))
	}
	born = nil
	return infos, nil
}

// plan is a specification with its defaults filled in, and once it is checked the composition.
type plan struct {
	Spec
	composition *presets.Composition
	digest      string
}

// identify says what a specification asks for, whether or not that can be had now: a repeated one is answered by what it made.
func (h *Host) identify(spec Spec) (plan, error) {
	p := plan{Spec: spec}
	if err := h.open(); err != nil {
		return p, err
	}
	if !h.validID(spec.ID) {
		if h.cfg.Standalone {
			return p, refuse(CodeIDInvalid, "A session id has 1 to 1,024 bytes.")
		}
		return p, refuse(CodeIDInvalid, "A session id has 1 to 128 letters, digits, dots, underscores and dashes, and begins with a letter or digit.")
	}
	if p.Preset == "" {
		p.Preset = h.cfg.DefaultPreset
	}
	if p.Workspace != "" {
		p.Workspace = filepath.Clean(p.Workspace)
	}
	p.Model = p.Model.Or(h.cfg.DefaultModel)
	canonical, err := json.Marshal(p.Spec)
	if err != nil {
		return p, fmt.Errorf("encode specification: %w", err)
	}
	sum := sha256.Sum256(canonical)
	p.digest = hex.EncodeToString(sum[:])
	return p, nil
}

// check refuses what can't be made, and resolves the preset.
func (h *Host) check(p *plan) (err error) {
	if p.Workspace, err = workspace(p.Workspace); err != nil {
		return err
	}
	for _, b := range p.Message {
		if b.Type == model.BlockImage {
			return refuse(CodeAttachmentNotFound, "A new session has no attachments yet: create it, upload the image, then send the message.")
		}
	}
	if len(p.Title) > 1000 {
		return refuse(CodeValidation, "A title has at most 1,000 bytes.")
	}
	if err := h.checkModel(p.Model); err != nil {
		return err
	}
	p.composition, err = h.resolvePreset(p.Preset)
	return err
}

func (h *Host) validID(id string) bool {
	if h.cfg.Standalone {
		_, err := session.FileName(id)
		return err == nil
	}
	return idPattern.MatchString(id)
}

// workspace checks the folder an agent works in.
func workspace(dir string) (string, error) {
	if dir == "" {
		return "", refuse(CodeWorkspaceInvalid, "A session needs a workspace: give the absolute path of a directory.")
	}
	if !filepath.IsAbs(dir) {
		return "", refuse(CodeWorkspaceInvalid, "The workspace %q is not an absolute path.", dir)
	}
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", refuse(CodeWorkspaceInvalid, "The workspace %s does not exist; create it first.", dir)
	case err != nil:
		return "", refuse(CodeWorkspaceInvalid, "The workspace %s can't be read: %v.", dir, err)
	case !info.IsDir():
		return "", refuse(CodeWorkspaceInvalid, "The workspace %s is not a directory.", dir)
	}
	return dir, nil
}

// repeated answers a create whose id exists.
func (h *Host) repeated(ctx context.Context, in session.Info, p plan) (Info, error) {
	raw, err := h.journal.Settings(ctx, in.ID)
	if err != nil {
		return Info{}, err
	}
	var s settings
	if err := json.Unmarshal(raw, &s); err != nil || s.Spec != p.digest {
		return Info{}, refuse(CodeSessionConflict, "A session %q exists with another specification; choose another id.", in.ID)
	}
	return h.info(in), nil
}

// conceive mounts a new session's agent and says what is to be committed for it. Until that is done discard undoes everything.
func (h *Host) conceive(ctx context.Context, p plan, shellLost bool) (*live, session.Creation, error) {
	own := settings{Model: p.Model, Spec: p.digest}
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, session.Creation{}, fmt.Errorf("encode settings: %w", err)
	}
	l, err := h.mount(ctx, p.ID, p.Workspace, p.composition, own, shellLost)
	if err != nil {
		return nil, session.Creation{}, err
	}
	version := 1
	if h.cfg.Standalone {
		version = 0 // what readers of plain logs expect
	}
	return l, session.Creation{
		Header: session.Header{
			ID: p.ID, Version: version, CreatedAt: h.cfg.Now().UnixMilli(), Cwd: p.Workspace, Labels: p.Labels, Group: p.Group, Attempt: p.Attempt,
			AgentPreset: refOf(p.composition),
		},
		Pin: p.composition.Encode(), Settings: raw, Model: h.modelRef(p.Model), Drafts: firstDrafts(p.Spec),
	}, nil
}

// discard closes a mounted agent that was never published.
func (h *Host) discard(ctx context.Context, l *live) error {
	h.liveCount.Add(-1)
	return l.scope.Close(context.WithoutCancel(ctx))
}

// make mounts the agent, then makes the session durable in one commit, then publishes it. The caller holds the entry.
func (h *Host) make(ctx context.Context, e *entry, p plan, shellLost bool, commit func(session.Creation) (*session.Log, error)) (*live, error) {
	l, c, err := h.conceive(ctx, p, shellLost)
	if err != nil {
		return nil, err
	}
	log, err := commit(c)
	if err != nil {
		return nil, errors.Join(err, h.discard(ctx, l))
	}
	if err := h.publish(e, l, log); err != nil {
		return nil, errors.Join(err, h.discard(ctx, l), h.journal.Delete(ctx, p.ID))
	}
	return l, nil
}

func firstDrafts(spec Spec) []session.Draft {
	var drafts []session.Draft
	if spec.Title != "" {
		drafts = append(drafts, session.Draft{Payload: session.Title{Title: spec.Title}})
	}
	if len(spec.Message) > 0 {
		m := userMessage("", spec.Message)
		drafts = slices.Concat(drafts, agent.Queue(m, spec.Title == ""))
	}
	return drafts
}

func userMessage(id string, content []model.Block) model.Message {
	if id == "" {
		id = agent.NewID("msg_")
	}
	return model.Message{ID: id, Role: model.RoleUser, Content: content, Source: model.Source{Kind: model.SourceUser}}
}

func (h *Host) modelRef(sel model.Selection) session.ModelRef {
	route, err := h.cfg.Router.Resolve(sel)
	if err != nil {
		return session.ModelRef{Provider: sel.Provider, Model: sel.Model}
	}
	return session.ModelRef{Provider: route.Provider, Model: route.Model}
}

// Delete removes a session with everything that belongs to it. A running one needs force.
func (h *Host) Delete(ctx context.Context, id string, force bool) error {
	if err := h.writable(); err != nil {
		return err
	}
	e, leave, err := h.locked(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := h.journal.Info(ctx, id); err != nil {
		return h.notFound(id, err)
	}
	if l := e.now(); l != nil && running(l.log.State()) && !force {
		return refuse(CodeSessionRunning, "The session %s is running; cancel it first, or delete it with force.", id)
	}
	done, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	closeErr := h.shut(done, e, agent.ByDisposed)
	if err := h.journal.Delete(done, id); err != nil {
		return errors.Join(closeErr, h.notFound(id, err))
	}
	return errors.Join(closeErr, h.dropAttachments(id))
}

func (h *Host) notFound(id string, err error) error {
	if errors.Is(err, session.ErrNotFound) {
		return refuse(CodeSessionNotFound, "There is no session %q.", id)
	}
	return err
}
