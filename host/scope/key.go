package scope

import (
	"context"
	"fmt"
	"slices"
)

// identity is what makes a key itself; its address is compared, its name is shown.
type identity struct{ name string }

// String is safe for the zero key.
func (id *identity) String() string {
	if id == nil {
		return "(no key)"
	}
	return id.name
}

// Key names a service of type T. Two keys are the same only if they are copies of one NewKey
// result. The zero Key names nothing.
type Key[T any] struct{ id *identity }

// NewKey makes a key. The name appears in errors and in the audit.
func NewKey[T any](name string) Key[T] { return Key[T]{id: &identity{name}} }

// String is the name the key was made with.
func (k Key[T]) String() string { return k.id.String() }

// Isolate gives a child scope a slot of its own for k: inside, the key means what is provided
// inside, and nothing until then; outside, it means what it meant before.
func (k Key[T]) Isolate() Option {
	return func(s *Scope) {
		if !slices.Contains(s.private, k.id) {
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

// reaches refuses what a bounded scope may not touch: a slot or a layer of target outside its bound.
func (s *Scope) reaches(target *Scope, what string) error {
	for n := target; n != s.bound && s.bound != nil; n = n.parent {
		if n == nil {
			return fmt.Errorf("%s: %s would leak into %s: %s is bounded", s.Path(), what, target.Path(), s.bound.Path())
		}
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
	e := &effect{kind: "service", name: k.id.name, inline: true, release: func(context.Context) error {
		realm.slotMu.Lock()
		defer realm.slotMu.Unlock()
		delete(realm.slots, k.id)
		return nil
	}}
	realm.slotMu.Lock()
	defer realm.slotMu.Unlock()
	if old, ok := realm.slots[k.id]; ok {
		return fmt.Errorf("%s: %s is already provided by %s", s.Path(), k, old.Owner.Path())
	}
	if err := s.push(e); err != nil {
		return err
	}
	if realm.slots == nil {
		realm.slots = make(map[*identity]Entry[any])
	}
	realm.slots[k.id] = Entry[any]{k.id.name, v, s}
	return nil
}

// Get returns what k means at s, and whether anything provides it.
func Get[T any](s *Scope, k Key[T]) (T, bool) {
	realm := s.realm(k.id)
	realm.slotMu.Lock()
	defer realm.slotMu.Unlock()
	v, ok := realm.slots[k.id].Value.(T)
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
		s.mu.Lock()
		i := len(s.stack) - 1
		for i >= 0 && (s.stack[i].child == nil || s.stack[i].name != name) {
			i--
		}
		if i < 0 {
			s.mu.Unlock()
			var none T
			return none, false
		}
		child := s.stack[i].child
		s.mu.Unlock()
		s = child
	}
	return Get(s, k)
}
