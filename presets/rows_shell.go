package presets

import (
	"context"
	"errors"

	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/tools/bash"
)

// terminalsRow provides the holder of one persistent shell. The shell starts with its first use and
// dies, with all it started, when the row closes.
func terminalsRow() kind {
	return kindOf("terminals", func() struct{} { return struct{}{} }, func(struct{}) ready {
		return ready{mount: func(_ context.Context, at site) error {
			if at.Terminals == nil {
				return errors.New("this host has no persistent shells")
			}
			var t *term.Terminals
			if err := at.scope.Own("shell", func(context.Context) (func(context.Context) error, error) {
				t = at.Terminals()
				return t.Close, nil
			}); err != nil {
				return err
			}
			if err := scope.Provide(at.scope, realm.terminals, t); err != nil {
				return err
			}
			at.mounted.terminals = t
			return nil
		}}
	})
}

// bashRow is the tool bash over the shell that its scope sees.
func bashRow() kind {
	return kindOf("tool-bash", bash.DefaultConfig, func(c bash.Config) ready {
		return ready{needs: []need{needs(realm.terminals)}, mount: func(_ context.Context, at site) error {
			shell, err := scope.Require(at.scope, realm.terminals)
			if err != nil {
				return err
			}
			tool, err := bash.New(c, shell)
			if err != nil {
				return err
			}
			return at.Tools.Add(at.scope, tool)
		}}
	})
}
