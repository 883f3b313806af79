package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/scope"
)

// Rest stands, in a tool order, for all the tools that the list doesn't name.
const Rest = "*"

// Registry holds the tools of every agent of one host. The zero value is ready.
type Registry struct {
	tools    scope.Table[Tool]
	limits   scope.Table[func(name string) bool]
	orders   scope.Table[[]string]
	sentries scope.Chain[Call, Result]
}

// Add registers t for the nearest layer of s, until s closes.
func (r *Registry) Add(s *scope.Scope, t Tool) error {
	if t.Name == "" || t.Run == nil {
		return fmt.Errorf("register tool %q: a tool needs a name and a Run", t.Name)
	}
	// One form of the schema from here on, so that what the log recorded compares equal to what is registered.
	var schema bytes.Buffer
	if err := json.Compact(&schema, t.Parameters); err != nil {
		return fmt.Errorf("register tool %q: its parameters are no JSON: %w", t.Name, err)
	}
	t.Parameters = schema.Bytes()
	return r.tools.Add(s, t.Name, t)
}

// Restrict hides from s and the scopes below its layer every tool for which allow is false. It is the only way to hide a tool.
func (r *Registry) Restrict(s *scope.Scope, label string, allow func(name string) bool) error {
	return r.limits.Add(s, label, allow)
}

// Order fixes the order in which an agent's tools are presented: the names in turn, Rest for all others by name. Without an order it is by name.
func (r *Registry) Order(s *scope.Scope, names []string) error {
	if err := CheckOrder(names); err != nil {
		return err
	}
	return r.orders.Add(s, "order", slices.Clone(names))
}

// CheckOrder says what is wrong with a tool order: it needs each name once and Rest exactly once.
func CheckOrder(names []string) error {
	rest := 0
	seen := map[string]bool{}
	for _, n := range names {
		switch {
		case n == Rest:
			rest++
		case n == "":
			return fmt.Errorf("tool order: an empty name")
		case seen[n]:
			return fmt.Errorf("tool order: %q stands there twice", n)
		}
		seen[n] = true
	}
	if rest != 1 {
		return fmt.Errorf("tool order: it needs exactly one %q for the other tools, and has %d", Rest, rest)
	}
	return nil
}

// Guard puts a listener around every call of the agents that see s: approvals, audits. It may answer instead of the tool.
func (r *Registry) Guard(s *scope.Scope, label string, fn Guard) error {
	return r.sentries.Use(s, label, func(ctx context.Context, call Call, next func(context.Context, Call) (Result, error)) (res Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = guardPanic{fmt.Sprintf("guard %s: panic: %v\n%s", label, p, debug.Stack())}
			}
		}()
		return fn(ctx, call, next)
	})
}

// guardPanic is a guard that failed inside; its text has the stack.
type guardPanic struct{ text string }

func (g guardPanic) Error() string { return g.text }

// Visible returns the tools that s sees, in the order the model is shown.
func (r *Registry) Visible(s *scope.Scope) []Tool {
	entries := r.tools.View(s)
	limits := r.limits.View(s)
	out := make([]Tool, 0, len(entries))
	for _, e := range entries {
		if !slices.ContainsFunc(limits, func(l scope.Entry[func(string) bool]) bool { return !l.Value(e.Name) }) {
			out = append(out, e.Value)
		}
	}
	if orders := r.orders.View(s); len(orders) > 0 {
		rank := ranks(orders[0].Value)
		slices.SortStableFunc(out, func(a, b Tool) int { return rank(a.Name) - rank(b.Name) })
	}
	return out
}

func ranks(order []string) func(string) int {
	at := make(map[string]int, len(order))
	for i, n := range order {
		at[n] = i
	}
	return func(name string) int {
		if i, ok := at[name]; ok {
			return i
		}
		return at[Rest]
	}
}

// Unknown lists the names in the order of s that no visible tool has.
func (r *Registry) Unknown(s *scope.Scope) []string {
	orders := r.orders.View(s)
	if len(orders) == 0 {
		return nil
	}
	tools := r.Visible(s)
	var out []string
	for _, n := range orders[0].Value {
		if n != Rest && !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == n }) {
			out = append(out, n)
		}
	}
	return out
}

func names(tools []Tool) string {
	out := make([]string, len(tools))
	for i, t := range tools {
		out[i] = t.Name
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
