package presets

import (
	"context"

	"github.com/dsh-web/dsh-web/tools/todo"
)

// todoRow is the list of the agent's work.
func todoRow() kind {
	return kindOf("tool-todo", func() struct{} { return struct{}{} }, func(struct{}) ready {
		return ready{mount: func(_ context.Context, at site) error {
			tool, err := todo.New()
			if err != nil {
				return err
			}
			return at.Tools.Add(at.scope, tool)
		}}
	})
}
