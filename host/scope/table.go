package scope

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// Table holds named values, each filed under the nearest layer of the scope that added it. The zero
// value is ready. Readers get snapshots in a fixed order; they never wait for a callback.
type Table[V any] struct {
	mu     sync.RWMutex
	layers map[*Scope][]Entry[V] // sorted by name; a slice is never changed in place
}

// Entry is one named value and the scope that added it.
type Entry[V any] struct {
	Name  string
	Value V
	Owner *Scope
}

// Add files v under the nearest layer of s until s closes. A name that the layer has already is an
// error that names the first owner.
func (t *Table[V]) Add(s *Scope, name string, v V) error {
	layer := s.layer
	if err := s.reaches(layer, "entry "+name); err != nil {
		return err
	}
	return s.own(&effect{kind: "entry", name: name, memory: true}, func(context.Context) (func(context.Context) error, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		old := t.layers[layer]
		i, taken := find(old, name)
		if taken {
			return nil, fmt.Errorf("already added by %s", old[i].Owner.Path())
		}
		if t.layers == nil {
			t.layers = make(map[*Scope][]Entry[V])
		}
		t.layers[layer] = slices.Insert(slices.Clone(old), i, Entry[V]{name, v, s})
		return func(context.Context) error {
			t.remove(layer, name)
			return nil
		}, nil
	})
}

func (t *Table[V]) remove(layer *Scope, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.layers[layer]
	i, ok := find(old, name)
	switch {
	case !ok:
	case len(old) == 1:
		delete(t.layers, layer)
	default:
		t.layers[layer] = slices.Delete(slices.Clone(old), i, i+1)
	}
}

func find[V any](es []Entry[V], name string) (int, bool) {
	return slices.BinarySearchFunc(es, name, func(e Entry[V], n string) int { return cmp.Compare(e.Name, n) })
}

// View returns what s sees, sorted by name. Of entries with one name the nearest layer's is seen.
// The slice is the caller's.
func (t *Table[V]) View(s *Scope) []Entry[V] {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var seen []Entry[V]
	for l := s.layer; l != nil; l = l.outer() {
		for _, e := range t.layers[l] {
			if i, ok := find(seen, e.Name); !ok {
				seen = slices.Insert(seen, i, e)
			}
		}
	}
	return seen
}

// outer is the next layer outside the layer s.
func (s *Scope) outer() *Scope {
	if s.parent == nil {
		return nil
	}
	return s.parent.layer
}
