// Package scope is the container of one host process: it says who owns what, who can see
// it, and in what order it goes away.
//
// Constructors with plain arguments are enough where the set of services is known when the
// program is written, and every package outside presets uses them. They are not enough for
// an agent: which services it has is data, a preset chosen when the agent is created, and
// several agents with different presets live side by side. A scope tree is what a preset is
// mounted into.
//
// Three relations are kept apart, each with a pointer of its own:
//
//	lifetime    when does this go away?                    Child
//	visibility  which agents see this tool or section?     Layer
//	identity    which provider does this key mean here?    Key.Isolate
//
// Everything a scope holds is an effect with a label, one owner and its own undo: provided
// services, acquired resources, goroutines, table entries, chain listeners, child scopes.
// Close undoes them in the reverse order of their registration, so a consumer goes before
// what it consumes; the rollback of a half-finished mount is the same Close.
//
// All methods may be called from any goroutine. No callback runs while a lock is held.
package scope

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// grace is how long Close still waits for each effect once the closer's context has ended, so
// that what stops promptly is not reported as stuck.
const grace = 50 * time.Millisecond

var (
	errClosed = errors.New("scope closed") // also the cause of a closed scope's context
	errStuck  = errors.New("did not stop")
)

// Scope is a node of the tree. Make the root with New and every other one with Child.
type Scope struct {
	name    string
	parent  *Scope  // nil for the root
	inner   *effect // s on its parent's stack
	layer   *Scope  // nearest scope that is a layer, itself included
	bound   *Scope  // nearest bounded scope, itself included, or nil
	private []*identity
	ctx     context.Context // the scope's own life, handed to what it owns
	cancel  context.CancelCauseFunc
	failed  chan struct{}
	closed  chan struct{}

	slotMu sync.Mutex // taken before mu, also before the mu of a scope below
	slots  map[*identity]Entry[any]

	mu       sync.Mutex
	stack    []*effect // oldest first
	failure  error
	closing  bool
	closeErr error // final once closed is closed
}

// effect is one thing that a scope owns.
type effect struct {
	kind, name string
	child      *Scope
	inline     bool                        // release keeps to its context by itself
	pending    chan struct{}               // if not nil: closed when it has been acquired, or not
	release    func(context.Context) error // guarded by the owner's mutex while pending
}

// Option shapes a child scope: Layer, Bounded, or the Isolate method of a Key.
type Option func(*Scope)

// Layer makes the child a layer of its own: table entries and listeners of scopes below it are
// filed under it and are invisible outside it. The root is a layer.
func Layer() Option { return func(s *Scope) { s.layer = s } }

// Bounded keeps the child and everything below it from reaching out: it can fill no slot and
// file no entry that is owned outside it. The attempt fails at the call, whenever it is made.
func Bounded() Option { return func(s *Scope) { s.bound = s } }

// New returns a root. Its owner must Close it.
func New(name string) *Scope {
	s := &Scope{name: name, failed: make(chan struct{}), closed: make(chan struct{})}
	s.layer = s
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Child adds a scope that ends with s at the latest. Siblings may share a name; Below then
// finds the newest.
func (s *Scope) Child(name string, opts ...Option) (*Scope, error) {
	if name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%s: %q can't be a scope's name", s.Path(), name)
	}
	c := &Scope{name: name, parent: s, layer: s.layer, bound: s.bound, failed: make(chan struct{}), closed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	for _, opt := range opts {
		opt(c)
	}
	c.inner = &effect{kind: "scope", name: name, child: c, inline: true, release: c.Close}
	if err := s.push(c.inner); err != nil {
		c.cancel(errClosed)
		return nil, err
	}
	return c, nil
}

// Path is the names from the root down to s, joined by slashes.
func (s *Scope) Path() string {
	if s.parent == nil {
		return s.name
	}
	return s.parent.Path() + "/" + s.name
}

// Context ends when s, or a scope above it, begins to close.
func (s *Scope) Context() context.Context { return s.ctx }

// Own acquires something and keeps its release for Close. The place in the order of undoing is
// taken before acquire runs. When Close comes meanwhile, what was acquired is released by it, or
// by Own itself when the closer's time is up, and Own returns an error. A nil release is fine.
func (s *Scope) Own(label string, acquire func(ctx context.Context) (release func(ctx context.Context) error, err error)) error {
	e := &effect{kind: "effect", name: label, pending: make(chan struct{})}
	if err := s.push(e); err != nil {
		return err
	}
	var release func(context.Context) error
	err := contain(func() (err error) {
		release, err = acquire(s.ctx)
		return err
	})
	s.mu.Lock()
	e.release = release
	left := !slices.Contains(s.stack, e) // by a closer whose time was up
	if err != nil {
		s.unlink(e)
	}
	close(e.pending)
	closing := s.closing
	s.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %s: %w", s.Path(), label, err)
	case left && release != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), grace)
		defer cancel()
		err = contain(func() error { return release(ctx) })
	case !closing:
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %s: %w while it was acquired", s.Path(), label, errClosed), err)
}

// Go runs a goroutine that Close cancels and waits for. An error or a panic is reported with Fail.
// The goroutine must not close s: it would wait for itself.
func (s *Scope) Go(label string, run func(ctx context.Context) error) error {
	done := make(chan struct{})
	var result error // written before done is closed
	e := &effect{kind: "goroutine", name: label, inline: true, release: func(ctx context.Context) error {
		if !ends(ctx, done) {
			return errStuck
		}
		return result
	}}
	if err := s.push(e); err != nil {
		return err
	}
	go func() {
		defer close(done)
		err := contain(func() error { return run(s.ctx) })
		if s.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, errClosed)) {
			err = nil
		}
		s.mu.Lock()
		closing := s.closing
		if !closing {
			s.unlink(e)
		}
		s.mu.Unlock()
		if result = err; err != nil && !closing {
			s.Fail(fmt.Errorf("%s: %s: %w", s.Path(), label, err))
		}
	}()
	return nil
}

// Fail records why s can't go on; the first error wins. Scopes above s learn of it too, except the
// root, which belongs to everybody. Fail closes nothing: that is up to whoever watches Failed.
func (s *Scope) Fail(err error) {
	if err == nil {
		return
	}
	for n := s; n == s || n != nil && n.parent != nil; n = n.parent {
		n.mu.Lock()
		first := n.failure == nil && !n.closing
		if first {
			n.failure = err
			close(n.failed)
		}
		n.mu.Unlock()
		if !first {
			return
		}
	}
}

// Failed is closed by the first Fail.
func (s *Scope) Failed() <-chan struct{} { return s.failed }

// Err is the first error given to Fail, or nil.
func (s *Scope) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Close cancels the scope's context, then undoes every effect, newest first. It goes on after
// errors and returns them joined. What has not stopped when ctx ends is named in the error and
// left behind. Every later or concurrent Close waits for the first one and returns its result.
func (s *Scope) Close(ctx context.Context) error {
	s.mu.Lock()
	again := s.closing
	s.closing = true
	s.mu.Unlock()
	if again {
		if !ends(ctx, s.closed) {
			return fmt.Errorf("%s: still closing: %w", s.Path(), ctx.Err())
		}
		return s.closeErr
	}
	s.cancel(errClosed)
	var errs []error
	for e := s.pop(ctx); e != nil; e = s.pop(ctx) {
		if err := e.undo(ctx); err != nil && e.child == nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", s.Path(), e.name, err))
		} else if err != nil {
			errs = append(errs, err) // it carries the child's path
		}
	}
	if p := s.parent; p != nil {
		p.mu.Lock()
		p.unlink(s.inner)
		p.mu.Unlock()
	}
	s.closeErr = errors.Join(errs...)
	close(s.closed)
	return s.closeErr
}

// pop takes the newest effect off the stack of a closing scope, or returns nil when there is
// none. One that is still being acquired it waits for, and leaves to Own when ctx ends first.
func (s *Scope) pop(ctx context.Context) *effect {
	for {
		s.mu.Lock()
		n := len(s.stack)
		if n == 0 {
			s.mu.Unlock()
			return nil
		}
		e := s.stack[n-1]
		s.mu.Unlock()
		settled := e.pending == nil || ends(ctx, e.pending)
		s.mu.Lock()
		found := s.unlink(e) // not found when its acquire failed
		left := !settled && e.release == nil
		s.mu.Unlock()
		if found && left {
			return &effect{name: e.name, inline: true, release: func(context.Context) error { return errStuck }}
		}
		if found {
			return e
		}
	}
}

// undo runs the release. One that may block gets a goroutine, so that it can be left behind.
func (e *effect) undo(ctx context.Context) error {
	if e.release == nil {
		return nil
	}
	if e.inline {
		return e.release(ctx)
	}
	if ctx.Done() == nil { // nobody would leave it behind
		return contain(func() error { return e.release(ctx) })
	}
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = contain(func() error { return e.release(ctx) })
	}()
	if !ends(ctx, done) {
		return errStuck
	}
	return err
}

// ends waits for c until ctx ends, and the grace longer, and reports whether it was closed.
func ends(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// contain turns a panic into an error that carries the stack.
func contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// push adds the newest effect, unless s has begun to close.
func (s *Scope) push(e *effect) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return fmt.Errorf("%s: %s %s: %w", s.Path(), e.kind, e.name, errClosed)
	}
	s.stack = append(s.stack, e)
	return nil
}

// unlink takes e out of the stack and reports whether it was there. The caller holds s.mu.
func (s *Scope) unlink(e *effect) bool {
	i := slices.Index(s.stack, e)
	if i >= 0 {
		s.stack = slices.Delete(s.stack, i, i+1)
	}
	return i >= 0
}

// Node is one line of the audit tree.
type Node struct {
	Kind     string `json:"kind"`            // scope, service, effect, goroutine, entry, listener
	Name     string `json:"name"`            // scope name, key, table entry, or the label given at registration
	Label    string `json:"label,omitempty"` // of a scope: layer, bounded, the keys it isolates
	Children []Node `json:"children,omitempty"`
}

// Audit returns what s owns, oldest first, down to the last effect. It is a snapshot of each
// scope in turn, not of the whole tree at one moment.
func (s *Scope) Audit() Node {
	var notes []string
	if s.layer == s {
		notes = append(notes, "layer")
	}
	if s.bound == s {
		notes = append(notes, "bounded")
	}
	for _, id := range s.private {
		notes = append(notes, "isolates "+id.String())
	}
	n := Node{Kind: "scope", Name: s.name, Label: strings.Join(notes, ", ")}
	s.mu.Lock()
	stack := slices.Clone(s.stack)
	s.mu.Unlock()
	for _, e := range stack {
		if e.child != nil {
			n.Children = append(n.Children, e.child.Audit())
		} else {
			n.Children = append(n.Children, Node{Kind: e.kind, Name: e.name})
		}
	}
	return n
}
