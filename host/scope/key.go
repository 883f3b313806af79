package scope

import (
	"context"
	"fmt"
	"slices"
)

// identity is what makes a key itself; its address is compared, its name is shown.
type identity struct{ name string }

// slot is a filled place for one key, in the scope that isolates the key or in the root.
type slot struct {
	value any
	owner *Scope
}

// Key names a service of type T. Two keys are the same only if they are copies of one NewKey
// result. The zero Key names nothing.
type Key[T any] struct{ id *identity }

// NewKey makes a key. The name appears in errors and in the audit.
func NewKey[T any](name string) Key[T] { return Key[T]{id: &identity{name}} }

// String is the name the key was made with.
func (k Key[T]) String() string {
	if k.id == nil {
		return "(no key)"
	}
	return k.id.name
}

// Isolate gives a child scope a slot of its own for k: inside, the key means what is provided
// inside, and nothing until then; outside, it means what it meant before.
func (k Key[T]) Isolate() Option {
	return func(s *Scope) {
		if k.id != nil && !slices.Contains(s.private, k.id) {
			s.private = append(s.private, k.id)
		}
	}
}

// realm is the scope whose slot a key means at s: the nearest that isolates it, else the root.
func (s *Scope) realm(id *identity) *Scope {
	for s.parent != nil && !slices.Contains(s.private, id) {
		s = s.parent
	}
	return s
}

// within reports whether s is top or lies below it.
func (s *Scope) within(top *Scope) bool {
	for ; s != nil; s = s.parent {
		if s == top {
			return true
		}
	}
	return false
}

// reaches refuses what a bounded scope may not touch: a slot or a layer of target outside its bound.
func (s *Scope) reaches(target *Scope, what string) error {
	if s.bound != nil && !target.within(s.bound) {
		return fmt.Errorf("%s: %s would leak into %s: %s is bounded", s.Path(), what, target.Path(), s.bound.Path())
	}
	return nil
}

// Provide fills the slot that k means at s until s closes. It fails when the slot is taken, naming
// the first owner, and when s is bounded and the slot lies outside.
func Provide[T any](s *Scope, k Key[T], v T) error {
	if k.id == nil {
		return fmt.Errorf("%s: provide: the key was not made by NewKey", s.Path())
	}
	realm := s.realm(k.id)
	if err := s.reaches(realm, "service "+k.id.name); err != nil {
		return err
	}
	return s.own(&effect{kind: "service", name: k.id.name, memory: true}, func(context.Context) (func(context.Context) error, error) {
		realm.mu.Lock()
		defer realm.mu.Unlock()
		if old, ok := realm.slots[k.id]; ok {
			return nil, fmt.Errorf("already provided by %s", old.owner.Path())
		}
		if realm.slots == nil {
			realm.slots = make(map[*identity]slot)
		}
		realm.slots[k.id] = slot{v, s}
		return func(context.Context) error {
			realm.mu.Lock()
			defer realm.mu.Unlock()
			delete(realm.slots, k.id)
			return nil
		}, nil
	})
}

// Get returns what k means at s, and whether anything provides it.
func Get[T any](s *Scope, k Key[T]) (T, bool) {
	realm := s.realm(k.id)
	realm.mu.Lock()
	defer realm.mu.Unlock()
	v, ok := realm.slots[k.id].value.(T)
	return v, ok
}

// Require is Get for a service that must be there.
func Require[T any](s *Scope, k Key[T]) (T, error) {
	v, ok := Get(s, k)
	if !ok {
		return v, fmt.Errorf("%s: nothing provides %s in %s", s.Path(), k, s.realm(k.id).Path())
	}
	return v, nil
}

// Below returns what k means at the scope that path leads to from s. It is the one way to look
// into a realm from outside, for tests and for what is shown to people.
func Below[T any](s *Scope, k Key[T], path ...string) (T, bool) {
	for _, name := range path {
		if s = s.childNamed(name); s == nil {
			var none T
			return none, false
		}
	}
	return Get(s, k)
}

func (s *Scope) childNamed(name string) *Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.last; e != nil; e = e.prev {
		if e.child != nil && e.name == name {
			return e.child
		}
	}
	return nil
}
