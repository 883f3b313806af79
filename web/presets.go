package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/web/guard"
)

// PresetSummary is one preset of the list.
type PresetSummary struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Order       int      `json:"order"`
	Origin      string   `json:"origin" enum:"shipped,configured,user"`
	Default     bool     `json:"default"`
	Hash        string   `json:"hash,omitempty" doc:"Of the composition; absent when the preset is broken."`
	Broken      string   `json:"broken,omitempty" doc:"Why it can't be mounted."`
	Warnings    []string `json:"warnings,omitempty"`
}

// PresetDetail is a preset with what its agent's model would be told.
type PresetDetail struct {
	PresetSummary
	Text string `json:"text" doc:"The file."`
	PresetCheck
}

// PresetCheck is the result of a dry mount.
type PresetCheck struct {
	Rows       []PresetRow    `json:"rows"`
	Prompt     string         `json:"prompt" doc:"The system prompt."`
	Contexts   []string       `json:"contexts,omitempty" doc:"Messages of the host before the first one of the user."`
	Tools      []model.Tool   `json:"tools"`
	PromptHash string         `json:"promptHash,omitempty" doc:"Of system prompt and tools, as a session records it."`
	Tokens     int            `json:"tokens,omitempty" doc:"Of both, roughly."`
	Problem    *PresetProblem `json:"problem,omitempty" doc:"Why it can't be mounted."`
}

// PresetRow is one row of a preset.
type PresetRow struct {
	ID      string         `json:"id"`
	Use     string         `json:"use,omitempty"`
	OS      []string       `json:"os,omitempty"`
	Isolate []string       `json:"isolate,omitempty"`
	With    map[string]any `json:"with,omitempty"`
	Rows    []*PresetRow   `json:"rows,omitempty"`
}

// PresetProblem is what is wrong in a preset, with its place. Line and column begin at 1.
type PresetProblem struct {
	Message string `json:"message"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
}

type PresetPath struct {
	ID string `path:"id"`
}

type presetOut struct {
	Body PresetDetail
}

type presetText struct {
	Text string `json:"text" doc:"The file, in YAML."`
}

func (a *api) presetRoutes() {
	s := a.server
	owner := guard.Rule{Access: guard.Owner}
	body := guard.Rule{Access: guard.Owner, Body: guard.JSON}
	roster := s.host.Roster()
	register(a, route{method: "GET", path: "/presets", id: "list-presets", tag: "presets", rule: owner, summary: "The presets, broken ones too"},
		func(context.Context, *struct{}) (*struct {
			Body struct {
				Presets []PresetSummary `json:"presets"`
			}
		}, error) {
			out := &struct {
				Body struct {
					Presets []PresetSummary `json:"presets"`
				}
			}{}
			list, err := roster.List()
			if err != nil {
				s.log.Warn("list presets", "error", err) // a root that can't be read; the others are listed
			}
			out.Body.Presets = make([]PresetSummary, 0, len(list))
			for _, e := range list {
				out.Body.Presets = append(out.Body.Presets, s.summary(e))
			}
			return out, nil
		})
	register(a, route{method: "GET", path: "/presets/{id}", id: "get-preset", tag: "presets", rule: owner, summary: "A preset and what its agent's model would be told", errors: []int{404}},
		func(_ context.Context, in *PresetPath) (*presetOut, error) { return s.preset(in.ID) })
	register(a, route{method: "POST", path: "/presets", id: "copy-preset", tag: "presets", rule: body, status: http.StatusCreated,
		summary: "Copy a preset under an id of your own", errors: []int{404, 409}},
		func(_ context.Context, in *struct {
			Body struct {
				ID   string `json:"id"`
				From string `json:"from"`
			}
		}) (*presetOut, error) {
			if err := roster.Copy(in.Body.ID, in.Body.From); err != nil {
				return nil, presetError(err)
			}
			return s.preset(in.Body.ID)
		})
	register(a, route{method: "PUT", path: "/presets/{id}", id: "write-preset", tag: "presets", rule: body,
		summary: "Write a preset of your own; one that can't be mounted is refused", errors: []int{409}},
		func(_ context.Context, in *struct {
			PresetPath
			Body presetText
		}) (*presetOut, error) {
			if err := roster.Write(in.ID, []byte(in.Body.Text)); err != nil {
				return nil, presetError(err)
			}
			return s.preset(in.ID)
		})
	register(a, route{method: "DELETE", path: "/presets/{id}", id: "delete-preset", tag: "presets", rule: owner, status: http.StatusNoContent,
		summary: "Delete a preset of your own", errors: []int{404, 409}},
		func(_ context.Context, in *PresetPath) (*struct{}, error) {
			return nil, presetError(roster.Delete(in.ID))
		})
	register(a, route{method: "POST", path: "/presets/check", id: "check-preset", tag: "presets", rule: body, summary: "Mount a text without a session, to see what it gives or why it can't be mounted"},
		func(_ context.Context, in *struct{ Body presetText }) (*struct{ Body PresetCheck }, error) {
			report, err := roster.CheckText([]byte(in.Body.Text))
			if err != nil {
				return &struct{ Body PresetCheck }{PresetCheck{Rows: []PresetRow{}, Tools: []model.Tool{}, Problem: presetProblem(err)}}, nil
			}
			return &struct{ Body PresetCheck }{checked(report)}, nil
		})
}

func (s *Server) summary(e presets.Entry) PresetSummary {
	return PresetSummary{ID: e.ID, Name: e.Name, Description: e.Description, Order: e.Order, Origin: string(e.Origin),
		Default: e.ID == s.cfg.DefaultPreset, Hash: e.Hash, Broken: e.Broken, Warnings: e.Warnings}
}

func (s *Server) preset(id string) (*presetOut, error) {
	roster := s.host.Roster()
	text, err := roster.Text(id)
	if errors.Is(err, presets.ErrNotFound) {
		return nil, &guard.Problem{Status: http.StatusNotFound, Code: host.CodePresetNotFound, Detail: sentence(err.Error())}
	}
	out := &presetOut{}
	out.Body.Text = string(text)
	list, listErr := roster.List()
	for _, e := range list {
		if e.ID == id {
			out.Body.PresetSummary = s.summary(e)
		}
	}
	if out.Body.ID == "" {
		return nil, errors.Join(err, listErr, errors.New("the preset is in no list"))
	}
	report, err := roster.Check(id)
	if err != nil {
		out.Body.PresetCheck = PresetCheck{Rows: []PresetRow{}, Tools: []model.Tool{}, Problem: presetProblem(err)}
		return out, nil
	}
	out.Body.PresetCheck = checked(report)
	return out, nil
}

func checked(r presets.Report) PresetCheck {
	c := PresetCheck{Rows: []PresetRow{}, Prompt: r.System, Contexts: r.Contexts, Tools: r.Tools, PromptHash: r.Hash, Tokens: r.Tokens}
	if c.Tools == nil {
		c.Tools = []model.Tool{}
	}
	for _, row := range r.Composition.Rows() {
		c.Rows = append(c.Rows, *shownRow(row))
	}
	return c
}

func shownRow(r presets.Row) *PresetRow {
	out := &PresetRow{ID: r.ID, Use: r.Use, OS: r.OS, Isolate: r.Isolate, With: r.With}
	for _, inner := range r.Rows {
		out.Rows = append(out.Rows, shownRow(inner))
	}
	return out
}

func presetProblem(err error) *PresetProblem {
	var p *presets.Problem
	if errors.As(err, &p) {
		return &PresetProblem{Message: p.Text, File: p.File, Line: p.Line, Column: p.Column}
	}
	return &PresetProblem{Message: err.Error()}
}

// presetError gives the authoring errors their codes.
func presetError(err error) error {
	var p *presets.Problem
	switch {
	case err == nil:
		return nil
	case errors.Is(err, presets.ErrNotFound):
		return &guard.Problem{Status: http.StatusNotFound, Code: host.CodePresetNotFound, Detail: sentence(err.Error())}
	case errors.Is(err, presets.ErrReadOnly):
		return refuse("preset-shipped", sentence(err.Error()))
	case errors.Is(err, presets.ErrTaken):
		return refuse("preset-exists", sentence(err.Error()))
	case errors.Is(err, presets.ErrInvalidID):
		return refuse(host.CodeIDInvalid, sentence(err.Error()))
	case errors.As(err, &p):
		return &host.Error{Code: host.CodePresetBroken, Message: sentence(p.Error()), Fields: map[string]any{"line": p.Line, "column": p.Column}}
	}
	return err
}
