// Package presets turns a preset, a file that says which services and tools an agent has, into a
// mounted scope of that agent.
//
// A preset is read (Roster), resolved into a Composition (its base, its rows, every setting checked)
// and mounted (Mount). Nothing is cached between these steps and nothing writes a preset back. A
// composition can be encoded, kept with a session, and decoded for its resume, so a session goes on
// with what it began with, whatever has become of the file.
//
// The rows that exist are the literal list in catalogue.go. This is the only package of the project
// that asks a scope for a service by key: every row adapter here takes what it needs from its scope and
// hands it on as plain constructor arguments.
package presets

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

// Keys are the services that rows find through their scope. A preset isolates them by name.
type keys struct {
	fs        scope.Key[fsys.Provider]
	terminals scope.Key[*term.Terminals]
}

// realm holds the one set of keys of the program: identities, never changed.
var realm = keys{
	fs:        scope.NewKey[fsys.Provider]("fs"),
	terminals: scope.NewKey[*term.Terminals]("terminals"),
}

// isolation is what a preset may isolate, by the names it uses.
func isolation() map[string]scope.Option {
	return map[string]scope.Option{
		"fs":        realm.fs.Isolate(),
		"terminals": realm.terminals.Isolate(),
	}
}

// Services is what the host offers to a mount. Prompt and Tools are required; a row that needs
// something which is nil fails with a sentence that says so.
type Services struct {
	Prompt *prompt.Registry
	Tools  *tools.Registry

	// Session says whose agent this is.
	Session Session

	// HostFS is the host's confined provider for the session's workspace.
	HostFS fsys.Provider
	// Locks are shared by all file providers of the process, so that edits of one file by several agents all land.
	Locks *fsys.Locks
	// Approvals asks the session's owner.
	Approvals *approval.Desk
	// Terminals makes the agent's shell holder. It must only allocate: a shell starts with its first use.
	Terminals func() *term.Terminals
	// Surroundings are what runtime context says besides the workspace, for example the sandbox's mode: label and value, in order.
	Surroundings func() [][2]string

	// MayMount is asked before anything happens. The host refuses here when the session is published and no longer blank. Nil: it may.
	MayMount func() error
	// Logger hears of what isn't an error of the mount. Nil: nobody does.
	Logger *slog.Logger
}

// Session is what rows may know of the session.
type Session struct {
	ID        string
	Workspace string // absolute; also the working directory
	// Model is the name of the session's model, asked each time a prompt is assembled. Nil: the variable has no value.
	Model func() string
	// Images says whether the session's model takes images. Nil: it does not.
	Images func() bool
}

// AgentScope makes the scope of one agent under the host's. Its own file system, which rows outside
// any realm see, is the host's confined provider; nil leaves it without one.
func AgentScope(parent *scope.Scope, id string, hostFS fsys.Provider) (*scope.Scope, error) {
	s, err := parent.Child(id, scope.Layer(), realm.fs.Isolate())
	if err != nil || hostFS == nil {
		return s, err
	}
	if err := scope.Provide(s, realm.fs, hostFS); err != nil {
		return nil, fmt.Errorf("agent %s: %w", id, joinClose(context.Background(), err, s))
	}
	return s, nil
}

// Problem is something wrong in a preset, with its place. Line and column begin at 1.
type Problem struct {
	File         string
	Line, Column int
	Text         string
	Cause        error // may be nil
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Cause }
