// Package todo is the tool with which an agent keeps a visible list of its work. The list is a fact of the session's log; nothing else
// remembers it.
package todo

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/tools"
)

// Name is what the model calls the tool.
const Name = "todo_write"

// Bounds of a list.
const (
	maxItems = 100
	maxChars = 500 // bytes of one item's content
)

//go:embed todo.md
var about string

//go:embed schema.json
var schema []byte

// New returns the tool. It has no state.
func New() (tools.Tool, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, schema); err != nil {
		return tools.Tool{}, fmt.Errorf("schema of %s: %w", Name, err)
	}
	return tools.Tool{Name: Name, Description: strings.TrimSpace(about), Parameters: compact.Bytes(), Run: run}, nil
}

func run(_ context.Context, call tools.Call) tools.Result {
	var args struct {
		Items *[]session.TodoItem `json:"items"`
	}
	refuse := func(format string, a ...any) tools.Result {
		return tools.ErrorResult(Name, "BAD_ARGUMENT", fmt.Sprintf(format, a...)+" The list is unchanged.")
	}
	if err := tools.DecodeArguments(call.Arguments, &args); err != nil {
		return refuse("%v.", err)
	}
	if args.Items == nil {
		return refuse("`items` is required.")
	}
	items := *args.Items
	if len(items) > maxItems {
		return refuse("The list has %d items; at most %d are kept.", len(items), maxItems)
	}
	done, ids := 0, map[string]bool{}
	for i, item := range items {
		switch item.Status {
		case "pending", "in_progress":
		case "completed":
			done++
		default:
			return refuse("Item %d has the status %q; it must be pending, in_progress or completed.", i+1, item.Status)
		}
		switch {
		case strings.TrimSpace(item.Content) == "":
			return refuse("Item %d has no content.", i+1)
		case len(item.Content) > maxChars:
			return refuse("Item %d is too long: %d bytes, at most %d.", i+1, len(item.Content), maxChars)
		case item.ID != "" && ids[item.ID]:
			return refuse("Two items have the id %q.", item.ID)
		}
		ids[item.ID] = true
	}
	result := tools.TextResult(fmt.Sprintf("The list is kept: %d of %d done.", done, len(items)))
	result.Events = []session.Payload{session.TodoWrite{Items: items}}
	return result
}
