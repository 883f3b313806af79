package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// imageTypes are the media types that models take; the file name's ending keeps it.
var imageTypes = map[string]string{"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}

var attachmentID = regexp.MustCompile(`^[0-9a-f]{64}\.(png|jpg|gif|webp)$`)

// attachmentLimit is the size of one attachment in bytes.
const attachmentLimit = 25 << 20

// attachments keeps one session's images as files named by their hash, so that keeping one twice costs nothing.
type attachments struct{ dir string }

func (h *Host) attachments(id string) agent.Attachments {
	name, err := session.FileName(id)
	if h.cfg.Attachments == "" || err != nil {
		return nil
	}
	return attachments{filepath.Join(h.cfg.Attachments, name)}
}

// Keep stores an image and gives its id.
func (a attachments) Keep(_ context.Context, mime string, data []byte) (string, error) {
	ending, ok := imageTypes[mime]
	switch {
	case !ok:
		return "", refuse(CodeValidation, "The media type %q is not an image that models take: png, jpeg, gif, webp.", mime)
	case len(data) == 0 || len(data) > attachmentLimit:
		return "", refuse(CodeValidation, "An attachment has 1 byte to 25 MiB; this one has %d bytes.", len(data))
	}
	sum := sha256.Sum256(data)
	id := hex.EncodeToString(sum[:]) + "." + ending
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return "", fmt.Errorf("keep attachment: %w", err)
	}
	path := filepath.Join(a.dir, id)
	if _, err := os.Stat(path); err == nil {
		return id, nil
	}
	tmp, err := os.CreateTemp(a.dir, ".new-*")
	if err != nil {
		return "", fmt.Errorf("keep attachment: %w", err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err == nil {
		err = errors.Join(syncFolder(a.dir), syncFolder(filepath.Dir(a.dir))) // a durable message may name it from here on
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("keep attachment: %w", err), os.Remove(tmp.Name()))
	}
	return id, nil
}

// syncFolder makes the names in a folder durable, where the platform can.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Load reads an image back.
func (a attachments) Load(_ context.Context, id string) (data []byte, mime string, err error) {
	if !attachmentID.MatchString(id) {
		return nil, "", agent.ErrNoAttachment
	}
	data, err = os.ReadFile(filepath.Join(a.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", agent.ErrNoAttachment
	}
	if err != nil {
		return nil, "", fmt.Errorf("read attachment: %w", err)
	}
	for m, ending := range imageTypes {
		if filepath.Ext(id) == "."+ending {
			mime = m
		}
	}
	return data, mime, nil
}

// Attach stores an image for a session's messages.
func (s *Session) Attach(ctx context.Context, mime string, data []byte) (id string, err error) {
	store := s.host.attachments(s.ID())
	if store == nil {
		return "", refuse(CodeValidation, "This host keeps no attachments.")
	}
	// A delete waits, or was first.
	unlock, err := s.entry.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := s.host.journal.Info(ctx, s.ID()); err != nil {
		return "", s.host.notFound(s.ID(), err)
	}
	return store.Keep(ctx, mime, data)
}

// Attachment reads an image of the session.
func (s *Session) Attachment(ctx context.Context, id string) (data []byte, mime string, err error) {
	store := s.host.attachments(s.ID())
	if store == nil {
		return nil, "", refuse(CodeAttachmentNotFound, "There is no attachment %q.", id)
	}
	data, mime, err = store.Load(ctx, id)
	if errors.Is(err, agent.ErrNoAttachment) {
		err = refuse(CodeAttachmentNotFound, "There is no attachment %q.", id)
	}
	return data, mime, err
}

// checkImages refuses content with an image that the session doesn't have: it would fail every turn from then on.
func (h *Host) checkImages(id string, content []model.Block) error {
	for _, b := range content {
		if b.Type != model.BlockImage {
			continue
		}
		name, err := session.FileName(id)
		if err == nil && h.cfg.Attachments != "" && attachmentID.MatchString(b.AttachmentID) {
			if _, err := os.Stat(filepath.Join(h.cfg.Attachments, name, b.AttachmentID)); err == nil {
				continue
			}
		}
		return refuse(CodeAttachmentNotFound, "The session has no attachment %q; upload the image first.", b.AttachmentID)
	}
	return nil
}

func (h *Host) dropAttachments(id string) error {
	name, err := session.FileName(id)
	if h.cfg.Attachments == "" || err != nil {
		return nil
	}
	return os.RemoveAll(filepath.Join(h.cfg.Attachments, name))
}

// sweepAttachments removes the images of sessions that are gone: a crash between the two deletes leaves them.
func (h *Host) sweepAttachments(ctx context.Context) error {
	folders, err := os.ReadDir(h.cfg.Attachments)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.cfg.Logger.Error("sweep attachments", "error", err)
	}
	for _, f := range folders {
		id := f.Name() // as it stands only when nothing in it was escaped
		if name, err := session.FileName(id); err != nil || name != id || !f.IsDir() {
			continue
		}
		if err := h.sweepOne(ctx, id); err != nil && ctx.Err() == nil {
			h.cfg.Logger.Error("sweep attachments", "session", id, "error", err)
		}
	}
	return nil
}

// sweepOne holds the session's entry, since a fork's images are there before its log.
func (h *Host) sweepOne(ctx context.Context, id string) error {
	_, leave, err := h.locked(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := h.journal.Info(ctx, id); !errors.Is(err, session.ErrNotFound) {
		return err
	}
	return h.dropAttachments(id)
}

// secrets lists what a live session's tools may not show, longest first: the host's keys, and the session's own.
func (h *Host) secrets(l *live) []string {
	var all []string
	if h.cfg.Credentials != nil {
		all = h.cfg.Credentials.Values(h.keyNames()...)
	}
	if own := l.settings.Load().Model.APIKey; len(own) >= minSecret {
		all = append(all, own)
		slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	}
	return all
}

// minSecret is the length below which a session's own key isn't redacted: a short one would black out ordinary text.
const minSecret = 8

func (h *Host) keyNames() []string {
	var names []string
	for _, p := range h.cfg.Router.Configured() {
		if p.TakesKey() {
			names = append(names, p.KeyName())
		}
	}
	slices.Sort(names)
	return names
}
