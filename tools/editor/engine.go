package editor

import (
	"context"
	"hash/maphash"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/fsys"
)

// EngineConfig is what an Engine works with.
type EngineConfig struct {
	Files fsys.Provider
	// Workspace is where a relative path was probably meant to begin; empty when there is none.
	Workspace string
	Profile   Profile
	// MaxOutputChars limits the text of one outcome, in characters.
	MaxOutputChars int
	// Images says whether the model takes images at this moment; nil means it doesn't.
	Images func() bool
}

// Engine views and edits files for one agent, and remembers its edits so that they can be undone. Its methods may be called from any
// goroutine. Their errors are *Refusal.
type Engine struct {
	files     fsys.Provider
	workspace string
	profile   Profile
	limit     int
	images    func() bool
	seed      maphash.Seed
	history   history
}

// NewEngine returns an Engine without history.
func NewEngine(cfg EngineConfig) *Engine {
	if cfg.Images == nil {
		cfg.Images = func() bool { return false }
	}
	return &Engine{
		files:     cfg.Files,
		workspace: cfg.Workspace,
		profile:   cfg.Profile,
		limit:     max(cfg.MaxOutputChars, MinOutputChars),
		images:    cfg.Images,
		seed:      maphash.MakeSeed(),
	}
}

// Outcome is what an operation gave: a text or an image for the model, and facts for a UI.
type Outcome struct {
	Text  string
	Image *Image
	Meta  Meta
	// Settle, when it isn't nil, is what is left to do for an edit that stands, once its outcome was handed on; see fsys.Splice. It must be
	// called once.
	Settle func()
}

// Image is an image file.
type Image struct {
	MediaType string
	Data      []byte
}

// Meta tells a UI what was shown or changed.
type Meta struct {
	Command string `json:"command"`
	// Path is the canonical path, or the path as given where nothing was resolved.
	Path string `json:"path"`
	// FirstLine and LastLine are what was shown, or the lines that an edit left new; 1-based, inclusive, 0 for none.
	FirstLine int `json:"firstLine,omitempty"`
	LastLine  int `json:"lastLine,omitempty"`
	// Diff is a unified diff with three lines of context.
	Diff string `json:"diff,omitempty"`
	// DiffOmitted says that the change is too large for a diff.
	DiffOmitted bool `json:"diffOmitted,omitempty"`
	Added       int  `json:"added,omitempty"`   // lines
	Removed     int  `json:"removed,omitempty"` // lines
	Created     bool `json:"created,omitempty"`
	Deleted     bool `json:"deleted,omitempty"`
	Truncated   bool `json:"truncated,omitempty"` // the text shows less than was asked for
}

// checkPath refuses what isn't an absolute path.
func (e *Engine) checkPath(ctx context.Context, p string) error {
	if strings.ContainsRune(p, 0) {
		return refuse(BadArgument, "`path` contains a NUL character.")
	}
	if strings.HasPrefix(p, "/") {
		return nil
	}
	suggestion := path.Clean("/" + p)
	if e.workspace != "" {
		joined := path.Join(e.workspace, p)
		if _, err := e.files.Stat(ctx, joined); err == nil {
			suggestion = joined
		}
	}
	return refuse(NotAbsolute, "`%s` is not an absolute path: `path` must start with `/`. Perhaps you mean `%s`.", p, suggestion)
}

// clamp cuts s to the limit, as the last resort for a path or a name that is longer than any text should be.
func (e *Engine) clamp(s string) string {
	if utf8.RuneCountInString(s) <= e.limit {
		return s
	}
	return string([]rune(s)[:e.limit])
}
