package rpc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
)

// maxSafe is the largest integer that every JSON reader keeps exactly.
const maxSafe = 1<<53 - 1

// settings are what an initialize asked for; they count for sessions opened after it.
type settings struct {
	cwd       string
	selection model.Selection
	deltas    bool
}

// text reads a text parameter. required refuses a missing or empty one.
func (r request) text(name string, required bool) (string, error) {
	raw, ok := r.params[name]
	if !ok || string(raw) == "null" {
		if required {
			return "", &paramError{name, "it is required"}
		}
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", &paramError{name, "it must be text"}
	}
	if required && s == "" {
		return "", &paramError{name, "it is empty"}
	}
	return s, nil
}

// count reads a positive integer; 0 when there is none.
func (r request) count(name string) (int, error) {
	raw, ok := r.params[name]
	if !ok || string(raw) == "null" {
		return 0, nil
	}
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 1 || n > maxSafe || n != math.Trunc(n) {
		return 0, &paramError{name, "it must be a positive integer"}
	}
	return int(n), nil
}

func (r request) flag(name string) (bool, error) {
	raw, ok := r.params[name]
	if !ok || string(raw) == "null" {
		return false, nil
	}
	var b bool
	if json.Unmarshal(raw, &b) != nil {
		return false, &paramError{name, "it must be true or false"}
	}
	return b, nil
}

// settings reads the parameters of initialize.
func (r request) settings(h *host.Host, cwd string) (*settings, error) {
	var s settings
	var err error
	if s.selection.Provider, err = r.text("provider", true); err != nil {
		return nil, err
	}
	if s.selection.Model, err = r.text("model", true); err != nil {
		return nil, err
	}
	if s.selection.MaxTokens, err = r.count("maxTokens"); err != nil {
		return nil, err
	}
	if s.selection.ReasoningEffort, err = r.text("reasoningEffort", false); err != nil {
		return nil, err
	}
	if s.deltas, err = r.flag("deltas"); err != nil {
		return nil, err
	}
	if s.cwd, err = r.text("cwd", false); err != nil {
		return nil, err
	}
	if s.cwd == "" {
		s.cwd = cwd
	}
	if !filepath.IsAbs(s.cwd) {
		return nil, &paramError{"cwd", fmt.Sprintf("%q is not an absolute path", s.cwd)}
	}
	if info, err := os.Stat(s.cwd); err != nil {
		return nil, &paramError{"cwd", err.Error()}
	} else if !info.IsDir() {
		return nil, &paramError{"cwd", s.cwd + " is not a directory"}
	}
	if _, err := h.Router().Resolve(s.selection); err != nil {
		return nil, &paramError{"provider", err.Error()}
	}
	return &s, nil
}

// block is one piece of a prompt as it travels.
type block struct {
	Type         string  `json:"type"`
	Text         *string `json:"text"`
	Data         string  `json:"data"` // image: base64
	MimeType     string  `json:"mimeType"`
	Mime         string  `json:"mime"`
	AttachmentID string  `json:"attachmentId"`
}

// blocks reads the content of a prompt without keeping anything of it yet.
func (r request) blocks() ([]block, error) {
	const name = "contentBlocks"
	raw, ok := r.params[name]
	if !ok {
		return nil, &paramError{name, "it is required"}
	}
	var all []block
	if json.Unmarshal(raw, &all) != nil || len(all) == 0 {
		return nil, &paramError{name, "it must be a list of blocks with at least one"}
	}
	for i, b := range all {
		switch {
		case b.Type == "text" && b.Text != nil:
		case b.Type == "image" && (b.Data != "" && b.mime() != "" || b.AttachmentID != ""):
		case b.Type == "text":
			return nil, &paramError{name, fmt.Sprintf("block %d has no text", i)}
		case b.Type == "image":
			return nil, &paramError{name, fmt.Sprintf("block %d needs data (base64) with mimeType, or an attachmentId", i)}
		default:
			return nil, &paramError{name, fmt.Sprintf("block %d: the type %q is neither text nor image", i, b.Type)}
		}
	}
	return all, nil
}

func (b block) mime() string {
	if b.MimeType != "" {
		return b.MimeType
	}
	return b.Mime
}

// keep turns blocks into a message's content; image bytes become attachments of the session.
func keep(ctx context.Context, s *host.Session, all []block) ([]model.Block, error) {
	content := make([]model.Block, 0, len(all))
	for i, b := range all {
		if b.Type == "text" {
			content = append(content, model.Text(*b.Text))
			continue
		}
		out := model.Block{Type: model.BlockImage, AttachmentID: b.AttachmentID, Mime: b.mime()}
		if b.AttachmentID == "" {
			data, err := base64.StdEncoding.DecodeString(b.Data)
			if err != nil {
				return nil, &paramError{"contentBlocks", fmt.Sprintf("block %d: the data is not base64", i)}
			}
			if out.AttachmentID, err = s.Attach(ctx, out.Mime, data); err != nil {
				return nil, err
			}
		} else if _, mime, err := s.Attachment(ctx, b.AttachmentID); err != nil {
			return nil, err
		} else {
			out.Mime = mime
		}
		content = append(content, out)
	}
	return content, nil
}
