package scope

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
)

// Chain is a waterfall: each listener gets the input and decides whether, and with what, the next
// one runs. Listeners are filed like table entries. The zero value is ready.
//
// The order is fixed: those added with First, then with Use, then with Last; among these, outer
// layers before inner ones; within a layer, in the order of registration.
type Chain[In, Out any] struct{ files files[listener[In, Out]] }

type listener[In, Out any] struct {
	place int
	fn    func(context.Context, In, func(context.Context, In) (Out, error)) (Out, error)
}

// Use adds a listener until s closes. A listener that doesn't call next ends the chain.
func (c *Chain[In, Out]) Use(s *Scope, label string, fn func(ctx context.Context, in In, next func(context.Context, In) (Out, error)) (Out, error)) error {
	return c.add(s, label, listener[In, Out]{0, fn})
}

// First is Use for a listener that runs before all that were added with Use or Last.
func (c *Chain[In, Out]) First(s *Scope, label string, fn func(ctx context.Context, in In, next func(context.Context, In) (Out, error)) (Out, error)) error {
	return c.add(s, label, listener[In, Out]{-1, fn})
}

// Last is Use for a listener that runs after all that were added with First or Use.
func (c *Chain[In, Out]) Last(s *Scope, label string, fn func(ctx context.Context, in In, next func(context.Context, In) (Out, error)) (Out, error)) error {
	return c.add(s, label, listener[In, Out]{1, fn})
}

func (c *Chain[In, Out]) add(s *Scope, label string, l listener[In, Out]) error {
	atEnd := func(list []*Entry[listener[In, Out]]) (int, error) { return len(list), nil }
	return c.files.add(s, "listener", &Entry[listener[In, Out]]{label, l, s}, atEnd)
}

// Run passes in through the listeners that s sees and at the end to final. The set of listeners is
// the one at the moment of the call. A panic becomes an error that names the listener.
func (c *Chain[In, Out]) Run(ctx context.Context, s *Scope, in In, final func(context.Context, In) (Out, error)) (Out, error) {
	lists := c.files.seenBy(s)
	slices.Reverse(lists)
	seen := slices.Concat(lists...)
	slices.SortStableFunc(seen, func(a, b *Entry[listener[In, Out]]) int { return cmp.Compare(a.Value.place, b.Value.place) })
	return run(ctx, seen, in, final)
}

func run[In, Out any](ctx context.Context, rest []*Entry[listener[In, Out]], in In, final func(context.Context, In) (Out, error)) (out Out, err error) {
	if len(rest) == 0 {
		return final(ctx, in)
	}
	l := rest[0]
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: listener %s, or what it called: panic: %v\n%s", l.Owner.Path(), l.Name, p, debug.Stack())
		}
	}()
	return l.Value.fn(ctx, in, func(ctx context.Context, in In) (Out, error) { return run(ctx, rest[1:], in, final) })
}
