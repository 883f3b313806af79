package prompt

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
)

// Assemble puts together the prompt of the agent that sees s. It registers and remembers nothing;
// two calls differ only where a text, a variable or a listener does.
func (r *Registry) Assemble(ctx context.Context, s *scope.Scope, collectTools func() []model.Tool) (Assembly, error) {
	// Variables, each asked once. One without a value matters only where it is used.
	registered := values{known: map[string]string{}, failed: map[string]error{}}
	for _, v := range r.variables.View(s) {
		value, err := contain(v.Name, func() (string, error) { return v.Value(ctx) })
		if err != nil {
			registered.failed[v.Name] = err
		} else {
			registered.known[v.Name] = value
		}
	}
	// What the layers give, nearer ones shadowing.
	sections, contexts := r.sections.View(s), r.contexts.View(s)
	suppressed := len(r.suppressors.View(s)) > 0
	var schemas []model.Tool
	if collectTools != nil {
		schemas = cloneTools(collectTools())
	}
	slices.SortStableFunc(sections, func(a, b scope.Entry[Section]) int { return cmp.Compare(a.Value.Order, b.Value.Order) })
	slices.SortStableFunc(contexts, func(a, b scope.Entry[Context]) int { return cmp.Compare(a.Value.Order, b.Value.Order) })

	var complete *Piece
	for _, e := range sections {
		if !e.Value.Complete {
			continue
		}
		if complete != nil {
			return Assembly{}, fmt.Errorf("two sections claim to be the complete system prompt: %s", namesOfComplete(sections))
		}
		complete = &Piece{Name: e.Name, Order: e.Value.Order, Literal: e.Value.Literal}
	}

	draft := Draft{Variables: maps.Clone(registered.known), Complete: complete != nil}
	for _, e := range sections {
		text, err := contain(e.Name, func() (string, error) { return e.Value.Text(ctx) })
		if err != nil && complete != nil && !e.Value.Complete {
			r.drop("section", e.Name, err)
			continue
		}
		if err != nil {
			return Assembly{}, fmt.Errorf("section %s of %s: %w", e.Name, e.Owner.Path(), err)
		}
		if e.Value.Complete {
			complete.Text = text
		}
		draft.Sections = append(draft.Sections, Piece{e.Name, e.Value.Order, text, e.Value.Literal})
	}
	for _, e := range contexts {
		if suppressed {
			break
		}
		text, err := contain(e.Name, func() (string, error) { return e.Value.Text(ctx) })
		if err != nil {
			return Assembly{}, fmt.Errorf("context %s of %s: %w", e.Name, e.Owner.Path(), err)
		}
		draft.Contexts = append(draft.Contexts, Piece{e.Name, e.Value.Order, text, e.Value.Literal})
	}
	draft.Tools = cloneTools(schemas)

	draft, err := r.listeners.Run(ctx, s, draft, func(_ context.Context, d Draft) (Draft, error) { return d, nil })
	if err != nil {
		return Assembly{}, fmt.Errorf("assemble prompt: %w", err)
	}

	// What the listeners made of it is looked at only where nothing is settled.
	changed := values{known: draft.Variables, failed: registered.failed}
	out := Assembly{Tools: schemas}
	if complete != nil {
		out.System, err = registered.render(*complete)
	} else {
		var texts []string
		texts, err = changed.renderAll(draft.Sections)
		out.System = strings.Join(texts, "\n\n")
	}
	if err != nil {
		return Assembly{}, fmt.Errorf("section %w", err)
	}
	if !suppressed {
		if out.Contexts, err = changed.renderAll(draft.Contexts); err != nil {
			return Assembly{}, fmt.Errorf("context %w", err)
		}
	}
	return out, nil
}

func namesOfComplete(sections []scope.Entry[Section]) string {
	var names []string
	for _, e := range sections {
		if e.Value.Complete {
			names = append(names, fmt.Sprintf("%s of %s", e.Name, e.Owner.Path()))
		}
	}
	return strings.Join(names, " and ")
}

// values are the variables at one moment.
type values struct {
	known  map[string]string
	failed map[string]error
}

// renderAll fills in the pieces in their order. Those that come out empty are left out.
func (v values) renderAll(pieces []Piece) ([]string, error) {
	pieces = slices.Clone(pieces)
	slices.SortStableFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	var out []string
	for _, p := range pieces {
		text, err := v.render(p)
		if err != nil {
			return nil, err
		}
		if text = strings.Trim(text, "\r\n"); strings.TrimSpace(text) != "" {
			out = append(out, text)
		}
	}
	return out, nil
}

// render fills in {{name}} from left to right. What is filled in is not looked at again. A {{ that no
// }} follows is text.
func (v values) render(p Piece) (string, error) {
	if p.Literal {
		return p.Text, nil
	}
	var out strings.Builder
	rest := p.Text
	for {
		before, after, found := strings.Cut(rest, "{{")
		name, tail, closed := strings.Cut(after, "}}")
		if !found || !closed {
			out.WriteString(rest)
			return out.String(), nil
		}
		out.WriteString(before)
		value, ok := v.known[name]
		switch {
		case !validName(name):
			return "", fmt.Errorf("%s: {{%s}} is not a variable: a name is lower-case letters, digits and _", p.Name, name)
		case ok:
			out.WriteString(value)
		case v.failed[name] != nil:
			return "", fmt.Errorf("%s: variable %s has no value: %w", p.Name, name, v.failed[name])
		default:
			return "", fmt.Errorf("%s: there is no variable %s", p.Name, name)
		}
		rest = tail
	}
}

// contain turns a panic of what others contributed into an error.
func contain[T any](name string, f func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", name, p, debug.Stack())
		}
	}()
	return f()
}

func (d Draft) clone() Draft {
	d.Sections, d.Contexts = slices.Clone(d.Sections), slices.Clone(d.Contexts)
	d.Variables, d.Tools = maps.Clone(d.Variables), cloneTools(d.Tools)
	return d
}

func cloneTools(tools []model.Tool) []model.Tool {
	out := slices.Clone(tools)
	for i := range out {
		out[i].Parameters = bytes.Clone(out[i].Parameters)
	}
	return out
}
