package editor

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools"
)

// The texts that the model reads about the tool.
var (
	//go:embed editor.md
	aboutText string
	//go:embed undo.md
	undoText string
	//go:embed notes.md
	notesText string
	//go:embed schema.json
	schemaText string
)

// Options are what the host gives the tool.
type Options struct {
	Files fsys.Provider
	// Workspace is where a relative path was probably meant to begin; empty when there is none.
	Workspace string
	// Images says whether the model takes images at this moment; nil means it doesn't.
	Images func() bool
}

// New returns the tool for one agent, with an empty history.
func New(cfg Config, opt Options) (tools.Tool, error) {
	if err := cfg.Validate(); err != nil {
		return tools.Tool{}, err
	}
	e := NewEngine(EngineConfig{
		Files:          opt.Files,
		Workspace:      opt.Workspace,
		Profile:        cfg.Profile,
		MaxOutputChars: cfg.MaxOutputChars,
		Images:         opt.Images,
	})
	schema, err := Schema(cfg)
	if err != nil {
		return tools.Tool{}, err
	}
	t := tool{name: cfg.Name, engine: e, commands: commands(cfg)}
	return tools.Tool{Name: cfg.Name, Description: Description(cfg), Parameters: schema, Parallel: true, Run: t.run}, nil
}

func commands(cfg Config) []string {
	c := []string{"view", "create", "str_replace", "insert"}
	if cfg.Undo {
		c = append(c, "undo_edit")
	}
	return c
}

// Description is what the model reads about the tool.
func Description(cfg Config) string {
	switch {
	case cfg.Description != "":
		return cfg.Description
	case cfg.Undo:
		return strings.TrimSpace(aboutText + undoText + notesText)
	default:
		return strings.TrimSpace(aboutText + notesText)
	}
}

// Schema is the JSON Schema of the tool's arguments, compact, with its keys in a fixed order.
func Schema(cfg Config) (json.RawMessage, error) {
	text := schemaText
	if !cfg.Undo {
		text = strings.Replace(text, `, "undo_edit"`, "", 1)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return nil, fmt.Errorf("compact schema: %w", err)
	}
	return b.Bytes(), nil
}

// tool is one agent's editor behind the tool interface.
type tool struct {
	name     string
	commands []string
	engine   *Engine
}

func (t *tool) run(ctx context.Context, call tools.Call) tools.Result {
	out, err := t.do(ctx, call.Arguments)
	if err != nil {
		code, text := Failed, "The call failed."
		if r := (*Refusal)(nil); errors.As(err, &r) {
			code, text = r.Code, t.engine.clamp(r.Text)
		}
		return tools.ErrorResult(t.name, string(code), text)
	}
	result := tools.TextResult(out.Text)
	if out.Image != nil {
		result = tools.ImageResult(out.Image.MediaType, out.Image.Data)
	}
	result.Meta = out.Meta
	switch {
	case out.Settle == nil:
	case call.After != nil:
		call.After(out.Settle)
	default:
		out.Settle()
	}
	return result
}

// do checks the arguments, the command first, and calls the engine.
func (t *tool) do(ctx context.Context, raw json.RawMessage) (Outcome, error) {
	a, err := parseArguments(raw)
	if err != nil {
		return Outcome{}, err
	}
	command, ok, err := a.text("command")
	switch {
	case err != nil:
		return Outcome{}, err
	case !ok:
		return Outcome{}, refuse(BadArgument, "`command` is required. Use one of: %s.", strings.Join(t.commands, ", "))
	case !slices.Contains(t.commands, command):
		return Outcome{}, refuse(UnknownCommand, "`%s` is not recognised as a command. Use one of: %s.", command, strings.Join(t.commands, ", "))
	}
	path, err := a.required("path", command)
	if err != nil {
		return Outcome{}, err
	}
	switch command {
	case "view":
		r, err := a.lines()
		if err != nil {
			return Outcome{}, err
		}
		return t.engine.View(ctx, path, r)
	case "create":
		text, err := a.required("file_text", command)
		if err != nil {
			return Outcome{}, err
		}
		return t.engine.Create(ctx, path, text)
	case "str_replace":
		old, err := a.required("old_str", command)
		if err != nil {
			return Outcome{}, err
		}
		text, _, err := a.text("new_str")
		if err != nil {
			return Outcome{}, err
		}
		return t.engine.Replace(ctx, path, old, text)
	case "insert":
		after, err := a.requiredInteger("insert_line", command)
		if err != nil {
			return Outcome{}, err
		}
		text, err := a.required("new_str", command)
		if err != nil {
			return Outcome{}, err
		}
		return t.engine.Insert(ctx, path, after, text)
	default:
		return t.engine.Undo(ctx, path)
	}
}
