package scope

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Chain is a waterfall: each listener gets the input and decides whether, and with what, the next
// one runs. Listeners are filed like table entries. The zero value is ready.
//
// The order is fixed: those added with First, then with Use, then with Last; among these, outer
// layers before inner ones; within a layer, in the order of registration.
type Chain[In, Out any] struct {
	mu     sync.RWMutex
	count  uint64
	layers map[*Scope][]listener[In, Out]
}

type listener[In, Out any] struct {
	place int
	id    uint64
	label string
	owner *Scope
	fn    func(context.Context, In, func(context.Context, In) (Out, error)) (Out, error)
}

// Use adds a listener until s closes. A listener that doesn't call next ends the chain.
func (c *Chain[In, Out]) Use(s *Scope, label string, fn func(ctx context.Context, in In, next func(context.Context, In) (Out, error)) (Out, error)) error {
	return c.add(s, listener[In, Out]{place: 0, label: label, fn: fn})
}

// First is Use for a listener that runs before all that were added with Use or Last.
func (c *Chain[In, Out]) First(s *Scope, label string, fn func(ctx context.Context, in In, next func(context.Context, In) (Out, error)) (Out, error)) error {
	return c.add(s, listener[In, Out]{place: -1, label: label, fn: fn})
}

// Last is Use for a listener that runs after all that were added with First or Use.
func (c *Chain[In, Out]) Last(s *Scope, label string, fn func(ctx context.Context, in In, next func(context.Context, In) (Out, error)) (Out, error)) error {
	return c.add(s, listener[In, Out]{place: 1, label: label, fn: fn})
}

func (c *Chain[In, Out]) add(s *Scope, l listener[In, Out]) error {
	layer := s.layer
	if err := s.reaches(layer, "listener "+l.label); err != nil {
		return err
	}
	return s.own(&effect{kind: "listener", name: l.label, memory: true}, func(context.Context) (func(context.Context) error, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.count++
		l.id, l.owner = c.count, s
		if c.layers == nil {
			c.layers = make(map[*Scope][]listener[In, Out])
		}
		c.layers[layer] = append(c.layers[layer], l)
		return func(context.Context) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			rest := slices.DeleteFunc(c.layers[layer], func(o listener[In, Out]) bool { return o.id == l.id })
			if c.layers[layer] = rest; len(rest) == 0 {
				delete(c.layers, layer)
			}
			return nil
		}, nil
	})
}

// Run passes in through the listeners that s sees and at the end to final. The set of listeners is
// the one at the moment of the call. A panic becomes an error that names the listener.
func (c *Chain[In, Out]) Run(ctx context.Context, s *Scope, in In, final func(context.Context, In) (Out, error)) (Out, error) {
	var seen []listener[In, Out]
	c.mu.RLock()
	for l := s.layer; l != nil; l = l.outer() {
		seen = append(slices.Clone(c.layers[l]), seen...)
	}
	c.mu.RUnlock()
	slices.SortStableFunc(seen, func(a, b listener[In, Out]) int { return cmp.Compare(a.place, b.place) })
	return step(ctx, seen, in, final)
}

func step[In, Out any](ctx context.Context, rest []listener[In, Out], in In, final func(context.Context, In) (Out, error)) (out Out, err error) {
	err = contain(func() (err error) {
		if len(rest) == 0 {
			out, err = final(ctx, in)
			return err
		}
		out, err = rest[0].fn(ctx, in, func(ctx context.Context, in In) (Out, error) {
			return step(ctx, rest[1:], in, final)
		})
		return err
	})
	return out, err
}
