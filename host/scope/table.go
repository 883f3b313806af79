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
type Table[V any] struct{ files files[V] }

// Entry is one named value and the scope that added it.
type Entry[V any] struct {
	Name  string
	Value V
	Owner *Scope
}

// Add files v under the nearest layer of s until s closes. A name that the layer has already is an
// error that names the first owner.
func (t *Table[V]) Add(s *Scope, name string, v V) error {
	return t.files.add(s, "entry", &Entry[V]{name, v, s}, func(list []*Entry[V]) (int, error) {
		i, taken := find(list, name)
		if taken {
			return 0, fmt.Errorf("%s: %q is already added by %s", s.Path(), name, list[i].Owner.Path())
		}
		return i, nil
	})
}

// View returns what s sees, sorted by name. Of entries with one name the nearest layer's is seen.
// The slice is the caller's.
func (t *Table[V]) View(s *Scope) []Entry[V] {
	var seen []*Entry[V]
	for i, list := range t.files.seenBy(s) {
		if i == 0 {
			seen = slices.Clone(list)
			continue
		}
		for _, e := range list {
			if i, ok := find(seen, e.Name); !ok {
				seen = slices.Insert(seen, i, e)
			}
		}
	}
	out := make([]Entry[V], len(seen))
	for i, e := range seen {
		out[i] = *e
	}
	return out
}

func find[V any](list []*Entry[V], name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(e *Entry[V], n string) int { return cmp.Compare(e.Name, n) })
}

// files keeps a list per layer. A list is never changed in place, so readers may hold on to it.
type files[V any] struct {
	mu    sync.RWMutex // taken before the mu of a scope
	lists map[*Scope][]*Entry[V]
}

// add files e under its owner's nearest layer, at the place that place chooses, until the owner closes.
func (f *files[V]) add(s *Scope, kind string, e *Entry[V], place func([]*Entry[V]) (int, error)) error {
	layer := s.layer
	if err := s.reaches(layer, kind+" "+e.Name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.lists[layer]
	i, err := place(list)
	if err != nil {
		return err
	}
	if err := s.push(&effect{kind: kind, name: e.Name, inline: true, release: func(context.Context) error {
		f.remove(layer, e)
		return nil
	}}); err != nil {
		return err
	}
	if f.lists == nil {
		f.lists = make(map[*Scope][]*Entry[V])
	}
	f.lists[layer] = slices.Insert(slices.Clone(list), i, e)
	return nil
}

func (f *files[V]) remove(layer *Scope, e *Entry[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(f.lists[layer]), func(o *Entry[V]) bool { return o == e })
	if f.lists[layer] = list; len(list) == 0 {
		delete(f.lists, layer)
	}
}

// seenBy returns the lists that s sees, the nearest layer's first, all of one moment.
func (f *files[V]) seenBy(s *Scope) [][]*Entry[V] {
	var lists [][]*Entry[V]
	f.mu.RLock()
	defer f.mu.RUnlock()
	for {
		if list := f.lists[s.layer]; len(list) > 0 {
			lists = append(lists, list)
		}
		if s = s.layer.parent; s == nil {
			return lists
		}
	}
}
