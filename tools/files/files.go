// Package files is the editor's engine as four tools, view, create, str_replace and insert, for agents that are better served by one
// tool per operation. They share one engine, check arguments and word their refusals as the editor does; there is no undo.
package files

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/editor"
)

// The texts that the model reads about the tools.
//
//go:embed *.md schemas.json
var texts embed.FS

// names are the tools, each also the editor's command that it stands for. The editor's refusals speak of commands by these names.
func names() []string { return []string{"view", "create", "str_replace", "insert"} }

// Config is the row of a preset.
type Config struct {
	// MaxOutputChars limits the text of one result, in characters.
	MaxOutputChars int `yaml:"maxOutputChars"`
	// Profile is how results look.
	Profile editor.Profile `yaml:"profile"`
}

// DefaultConfig is a row that says nothing.
func DefaultConfig() Config {
	d := editor.DefaultConfig()
	return Config{MaxOutputChars: d.MaxOutputChars, Profile: d.Profile}
}

// Validate says what is wrong with c, all of it.
func (c Config) Validate() error { return c.editor().Validate() }

func (c Config) editor() editor.Config {
	e := editor.DefaultConfig()
	e.MaxOutputChars, e.Profile, e.Undo = c.MaxOutputChars, c.Profile, false
	return e
}

// New returns the four tools of one agent.
func New(c Config, opt editor.Options) ([]tools.Tool, error) {
	engine, err := editor.New(c.editor(), opt)
	if err != nil {
		return nil, err
	}
	raw, err := texts.ReadFile("schemas.json")
	if err != nil {
		return nil, err
	}
	var schemas map[string]json.RawMessage
	if err := json.Unmarshal(raw, &schemas); err != nil {
		return nil, fmt.Errorf("schemas of the file tools: %w", err)
	}
	var out []tools.Tool
	for _, name := range names() {
		about, err := texts.ReadFile(name + ".md")
		if err != nil {
			return nil, err
		}
		var schema bytes.Buffer
		if err := json.Compact(&schema, schemas[name]); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		out = append(out, tools.Tool{
			Name: name, Description: strings.TrimSpace(string(about)), Parameters: schema.Bytes(), Parallel: true,
			Run: func(ctx context.Context, call tools.Call) tools.Result { return run(ctx, engine, name, call) },
		})
	}
	return out, nil
}

// run makes of a call of the tool name a call of the editor.
func run(ctx context.Context, engine tools.Tool, name string, call tools.Call) tools.Result {
	var args map[string]json.RawMessage
	if err := json.Unmarshal(call.Arguments, &args); err != nil || args == nil {
		return tools.ErrorResult(name, string(editor.BadArgument), "The arguments are not a JSON object.")
	}
	args["command"] = json.RawMessage(`"` + name + `"`)
	with, err := json.Marshal(args)
	if err != nil {
		return tools.ErrorResult(name, string(editor.BadArgument), "The arguments are not JSON.")
	}
	call.Arguments = with
	result := engine.Run(ctx, call)
	if result.Error != nil {
		result.Error.Name = name
	}
	return result
}
