// Package ask is the tool with which an agent asks its user a question. The question is a fact of the session's log and waits there for its
// answer, as an approval does.
package ask

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/tools"
)

// Name is what the model calls the tool.
const Name = "ask_user"

// Bounds of a question.
const (
	maxQuestion = 4000 // bytes
	maxOptions  = 10
	maxOption   = 200 // bytes
)

//go:embed ask.md
var about string

//go:embed schema.json
var schema []byte

//go:embed notices.md
var notices string

// Question is what a viewer shows: the detail of a pending question.
type Question struct {
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"`
}

// New returns the tool over the session's desk. expire is how long an answer is waited for; 0 is the desk's default.
func New(desk *approval.Desk, expire time.Duration) (tools.Tool, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, schema); err != nil {
		return tools.Tool{}, fmt.Errorf("schema of %s: %w", Name, err)
	}
	return tools.Tool{
		Name: Name, Description: strings.TrimSpace(about), Parameters: compact.Bytes(),
		Run: func(ctx context.Context, call tools.Call) tools.Result { return run(ctx, desk, expire, call) },
	}, nil
}

func run(ctx context.Context, desk *approval.Desk, expire time.Duration, call tools.Call) tools.Result {
	var q Question
	if err := tools.DecodeArguments(call.Arguments, &q); err != nil {
		return refuse("%v.", err)
	}
	switch {
	case strings.TrimSpace(q.Question) == "":
		return refuse("`question` is required.")
	case len(q.Question) > maxQuestion:
		return refuse("The question has %d bytes; at most %d can be asked.", len(q.Question), maxQuestion)
	case len(q.Options) > maxOptions:
		return refuse("There are %d options; at most %d can be offered.", len(q.Options), maxOptions)
	}
	seen := map[string]bool{}
	for i, o := range q.Options {
		switch {
		case strings.TrimSpace(o) == "":
			return refuse("Option %d is empty.", i+1)
		case len(o) > maxOption:
			return refuse("Option %d has %d bytes; at most %d can be offered.", i+1, len(o), maxOption)
		case seen[o]:
			return refuse("Option %d is there twice.", i+1)
		}
		seen[o] = true
	}
	detail, err := json.Marshal(q)
	if err != nil {
		return refuse("%v.", err)
	}
	d := desk.Ask(ctx, approval.Request{
		Kind: approval.Question, Tool: Name, CallID: call.ID, Arguments: string(call.Arguments), Reason: "The agent asks.", Detail: detail, Expire: expire,
	})
	if !d.Allowed() {
		return unanswered(d)
	}
	var answer string
	if err := json.Unmarshal(d.Answer, &answer); err != nil {
		return tools.ErrorResult(Name, tools.CodeFailed, "The answer can't be read.")
	}
	return tools.TextResult(answer)
}

func refuse(format string, a ...any) tools.Result {
	return tools.ErrorResult(Name, tools.CodeBadArguments, fmt.Sprintf(format, a...)+" Nothing was asked.")
}

func unanswered(d approval.Decision) tools.Result {
	section, code := "unavailable", tools.CodeUnavailable
	switch d.Outcome {
	case approval.Rejected:
		section, code = "declined", tools.CodeDenied
		if d.Reason != "" {
			section = "declined because"
		}
	case approval.Cancelled:
		section, code = "cancelled", tools.CodeCancelled
	case approval.Expired:
		section, code = "expired", tools.CodeExpired
	}
	_, text, _ := strings.Cut(notices, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return tools.ErrorResult(Name, code, strings.ReplaceAll(strings.TrimSpace(text), "{{reason}}", d.Reason))
}
