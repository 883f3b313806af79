// Package bash is the model-facing tool over an agent's persistent shell: it checks the call, turns what the terminal gave into the text the
// model reads, and says in words what became of the shell.
package bash

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/tools"
)

// Name is what the model calls the tool.
const Name = "bash"

//go:embed bash.md
var description string

//go:embed schema.json
var schema []byte

// Description is the neutral model-facing text; a row may replace it as a whole.
func Description() string { return strings.TrimRight(description, "\n") }

// New makes the tool over an agent's shell, which it sets up; the shell itself starts with the first call.
func New(c Config, shell *term.Terminals) (tools.Tool, error) {
	if err := c.Validate(); err != nil {
		return tools.Tool{}, err
	}
	if err := shell.Configure(c.shell()); err != nil {
		return tools.Tool{}, err
	}
	t := &tool{config: c, shell: shell}
	return tools.Tool{Name: Name, Description: c.Description, Parameters: json.RawMessage(schema), Run: t.run}, nil
}

type tool struct {
	config Config
	shell  *term.Terminals
}

func (t *tool) run(ctx context.Context, call tools.Call) tools.Result {
	return tools.ErrorResult(Name, "UNSUPPORTED", term.ErrUnsupported.Error())
}
