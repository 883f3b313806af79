// Package bash is the model-facing tool over an agent's persistent shell: it checks the call, turns what the terminal gave into the text the
// model reads, and says in words what became of the shell.
package bash

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"strings"
	"time"

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
	t := &tool{config: c, shell: shell, notices: parseNotices(noticesText)}
	return tools.Tool{Name: Name, Description: c.Description, Parameters: json.RawMessage(schema), Run: t.run}, nil
}

type tool struct {
	config  Config
	shell   *term.Terminals
	notices notices
}

// arguments are what the model sends; unknown keys, also of another case, are ignored.
type arguments struct {
	Command string `json:"command"`
	Restart bool   `json:"restart"`
}

func (t *tool) run(ctx context.Context, call tools.Call) tools.Result {
	var args arguments
	if err := tools.DecodeArguments(call.Arguments, &args); err != nil {
		return tools.ErrorResult(Name, CodeBadArguments, err.Error())
	}
	if strings.TrimSpace(args.Command) == "" {
		if !args.Restart {
			return tools.ErrorResult(Name, CodeBadArguments, t.notices.text("blank"))
		}
		args.Command = ""
	}
	s := newScreen(t.config.MaxOutputChars, t.config.Clip == ClipHeadTail)
	out, err := t.shell.Run(ctx, term.Request{
		Command: args.Command,
		Restart: args.Restart,
		Timeout: time.Duration(t.config.Timeout),
		Output: func(p []byte) {
			s.write(p)
			_, _ = call.Output.Write(p) // live output never fails
		},
	})
	if err != nil {
		return t.failed(ctx, err)
	}
	return t.result(out, s, args.Command == "")
}

// failed is the result of a call that ran nothing.
func (t *tool) failed(ctx context.Context, err error) tools.Result {
	switch {
	case errors.Is(err, term.ErrNUL):
		return tools.ErrorResult(Name, CodeBadArguments, t.notices.text("nul"))
	case errors.Is(err, term.ErrClosed):
		return tools.ErrorResult(Name, CodeClosed, t.notices.text("closed"))
	case ctx.Err() != nil:
		return tools.ErrorResult(Name, CodeCancelled, t.notices.text("queue"))
	}
	return tools.ErrorResult(Name, CodeFailed, t.notices.text("failed", "reason", err))
}
