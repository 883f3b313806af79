// Package prompt puts together what a model is told before the conversation: the system text, the
// runtime contexts and the tool schemas.
//
// Sections, contexts, variables, suppressors and listeners are registered by scopes and filed under
// their nearest layer; an agent sees its own and its host's, and of one name the nearer. A section
// may be complete: then it is the whole system text. That is a promise, not a convention. Whatever
// else is registered, listens, fails or panics in the process, the text of an agent with a complete
// section is that section, rendered with the variables as they were registered; and with a suppressor
// in force there is no runtime context.
//
// Order bands: -100 host identity, -98 web orientation, 0 persona, 100 to 199 tool guidance.
package prompt

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
)

// Orders of the sections that every part of the program agrees on. Tool guidance uses Guidance up to
// Guidance+99.
const (
	Identity    = -100
	Orientation = -98
	Persona     = 0
	Guidance    = 100
)

// Text gives the text of a section or a context, or the value of a variable, each time a prompt is
// assembled. It is called without locks; it should be quick.
type Text func(ctx context.Context) (string, error)

// Fixed is a text that is always the same.
func Fixed(s string) Text { return func(context.Context) (string, error) { return s, nil } }

// Section is a piece of the system text. Sections are sorted by order, then by name, with a blank line
// between them. Newlines around a section's text don't count, except that a complete section is kept
// byte for byte. One without text vanishes.
type Section struct {
	Name  string
	Order int
	Text  Text
	// Complete makes the section the whole system text. Two that an agent sees are an error.
	Complete bool
	// Literal text is not searched for {{variables}}: text from files and people.
	Literal bool
}

// Context is a piece of runtime context: what the host tells the model beside the conversation, never
// part of the system text.
type Context struct {
	Name    string
	Order   int
	Text    Text
	Literal bool
}

// Draft is a prompt on its way through the listeners. Everything in it is the listener's to change,
// except Tools and Complete: what is done to those is not looked at.
type Draft struct {
	Sections  []Piece
	Contexts  []Piece
	Variables map[string]string // those with a value
	Tools     []model.Tool      // a copy; which tools an agent has is the tool registry's business
	Complete  bool              // the system text is settled: changes of sections and variables won't show in it
}

// Piece is the text of a section or context before its variables are filled in.
type Piece struct {
	Name    string
	Order   int
	Text    string
	Literal bool
}

// Listener changes a draft before it passes it to next, or what came back from next, or both.
type Listener func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error)

// Assembly is a finished prompt.
type Assembly struct {
	System   string
	Contexts []string // in order; none empty
	Tools    []model.Tool
}

// Hash is Hash of the assembly's system text and tools.
func (a Assembly) Hash() string { return Hash(a.System, a.Tools) }

// Registry holds the contributions of one host. The zero value is ready. Every registration ends with
// the scope it is made for.
type Registry struct {
	// Logger hears of failures that a complete prompt doesn't care about. Nil: nobody does.
	Logger *slog.Logger

	sections    scope.Table[Section]
	contexts    scope.Table[Context]
	variables   scope.Table[Text]
	suppressors scope.Table[struct{}]
	listeners   scope.Chain[Draft, Draft]
}

// AddSection registers a section. A name that the layer already has is an error.
func (r *Registry) AddSection(s *scope.Scope, sec Section) error {
	if sec.Name == "" || sec.Text == nil {
		return fmt.Errorf("register section %q: it needs a name and a text", sec.Name)
	}
	return r.sections.Add(s, sec.Name, sec)
}

// AddContext registers a runtime context. A name that the layer already has is an error.
func (r *Registry) AddContext(s *scope.Scope, c Context) error {
	if c.Name == "" || c.Text == nil {
		return fmt.Errorf("register context %q: it needs a name and a text", c.Name)
	}
	return r.contexts.Add(s, c.Name, c)
}

// validName is [a-z][a-z0-9_]*.
func validName(name string) bool {
	for i, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || i > 0 && (c == '_' || '0' <= c && c <= '9')) {
			return false
		}
	}
	return name != ""
}

// AddVariable registers {{name}} for the texts of sections and contexts. An error of value counts only
// where the variable is used.
func (r *Registry) AddVariable(s *scope.Scope, name string, value Text) error {
	if !validName(name) || value == nil {
		return fmt.Errorf("register variable %q: it needs a value, and a name of lower-case letters, digits and _ that begins with a letter", name)
	}
	return r.variables.Add(s, name, value)
}

// AddSuppressor keeps every runtime context from the agents that see s. The texts are not even asked for.
func (r *Registry) AddSuppressor(s *scope.Scope, name string) error {
	return r.suppressors.Add(s, name, struct{}{})
}

// Listen adds a listener to the waterfall.
func (r *Registry) Listen(s *scope.Scope, label string, fn Listener) error {
	return r.listeners.Use(s, label, r.guard(label, fn))
}

// ListenFirst is Listen for one that sees the draft before all others.
func (r *Registry) ListenFirst(s *scope.Scope, label string, fn Listener) error {
	return r.listeners.First(s, label, r.guard(label, fn))
}

// ListenLast is Listen for one that sees the draft after all others.
func (r *Registry) ListenLast(s *scope.Scope, label string, fn Listener) error {
	return r.listeners.Last(s, label, r.guard(label, fn))
}

// guard keeps a listener from deciding what is settled, and makes it harmless to complete prompts: one
// that fails there is skipped.
func (r *Registry) guard(label string, fn Listener) Listener {
	return func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
		complete := d.Complete
		var before Draft
		var passed *Draft // what came back from next
		if complete {
			before = d.clone()
		}
		out, err := contain("listener "+label, func() (Draft, error) {
			return fn(ctx, d, func(ctx context.Context, d Draft) (Draft, error) {
				d.Complete = complete
				got, err := next(ctx, d)
				if err == nil && complete {
					kept := got.clone()
					passed = &kept
				}
				return got, err
			})
		})
		if err == nil || !complete {
			return out, err
		}
		r.drop("listener", label, err)
		if passed != nil {
			return *passed, nil
		}
		return next(ctx, before)
	}
}

func (r *Registry) drop(kind, name string, err error) {
	if r.Logger != nil {
		r.Logger.Warn("a complete prompt goes on without a contribution that failed", "kind", kind, "name", name, "error", err)
	}
}
