package presets

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/prompt"
)

// rollbackTime is how long a failed mount waits for what it undoes.
const rollbackTime = 10 * time.Second

// Mounted is a preset in force in one agent.
type Mounted struct {
	// Scope is what the agent sees: prompts are assembled and tools listed for it.
	Scope       *scope.Scope
	Composition *Composition

	files     fsys.Provider
	terminals *term.Terminals
	limits    agent.Limits
}

// Limits bound the agent's turns; zero fields don't.
func (m *Mounted) Limits() agent.Limits { return m.limits }

// Terminals is the holder of the agent's shell, nil when the preset has none.
func (m *Mounted) Terminals() *term.Terminals { return m.terminals }

// Files is the file system that the preset's rows work on; nil when no row provides one.
func (m *Mounted) Files() fsys.Provider { return m.files }

// Audit is the tree of all that the preset holds.
func (m *Mounted) Audit() scope.Node { return m.Scope.Audit() }

// Close undoes the mount: consumers before what they consume, each named if it doesn't stop in time.
func (m *Mounted) Close(ctx context.Context) error { return m.Scope.Close(ctx) }

// Mount mounts c under the agent's scope, all of it or nothing. What it registers is seen from
// Mounted.Scope and below, not from the agent's scope itself; so a second preset can be mounted beside
// the first, and the agent changes over by looking from there. Rows are mounted as soon as what they
// need is visible. After a failure everything is undone, and the error names every row that failed or
// still waited, and what could not be undone.
func Mount(ctx context.Context, agent *scope.Scope, c *Composition, sv Services) (*Mounted, error) {
	if sv.MayMount != nil {
		if err := sv.MayMount(); err != nil {
			return nil, err
		}
	}
	top, err := agent.Child("preset:"+c.ID, scope.Layer(), scope.Bounded())
	if err != nil {
		return nil, fmt.Errorf("mount preset %s: %w", c.ID, err)
	}
	m := &Mounted{Scope: top, Composition: c}
	if err := m.mount(ctx, sv); err != nil {
		return nil, joinClose(ctx, err, top)
	}
	return m, nil
}

// joinClose closes what a failure leaves and adds to the failure what that says.
func joinClose(ctx context.Context, err error, s *scope.Scope) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	if closeErr := s.Close(ctx); closeErr != nil {
		return errors.Join(err, fmt.Errorf("undo: %w", closeErr))
	}
	return err
}

// placed is a leaf row and the scope it belongs in.
type placed struct {
	*row
	in *scope.Scope
	at site
}

func (m *Mounted) mount(ctx context.Context, sv Services) error {
	if err := m.variables(sv); err != nil {
		return err
	}
	var waiting []*placed
	if err := m.groups(m.Composition.rows, m.Scope, &waiting); err != nil {
		return err
	}
	var failed []error
	var mounted []*placed
	for progress := true; progress && len(waiting) > 0; {
		progress = false
		var still []*placed
		for _, p := range waiting {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("mount preset %s: %w", m.Composition.ID, err)
			}
			if len(p.unmet()) > 0 {
				still = append(still, p)
				continue
			}
			progress = true
			if err := m.one(ctx, p, sv); err != nil {
				failed = append(failed, p.failure(err))
			} else {
				mounted = append(mounted, p)
			}
		}
		waiting = still
	}
	for _, p := range waiting {
		failed = append(failed, p.problem("it waits for %s, and nothing it can see provides that", strings.Join(p.unmet(), " and ")))
	}
	for _, p := range mounted {
		if p.ready.verify == nil || len(failed) > 0 {
			continue
		}
		if err := p.ready.verify(p.at); err != nil {
			failed = append(failed, p.failure(err))
		}
	}
	return errors.Join(failed...)
}

func (p *placed) unmet() []string {
	var names []string
	for _, n := range p.ready.needs {
		if !n.visible(p.in) {
			names = append(names, n.name)
		}
	}
	return names
}

func (p *placed) failure(err error) error {
	problem := p.problem("%v", err)
	problem.Cause = err
	return problem
}

// one mounts a row into a scope of its own. That scope lies in its group, so that it sees the group's
// services, but it is the mount that closes it, in the order of mounting: a row that waited for
// another goes before it, in whichever group they are.
func (m *Mounted) one(ctx context.Context, p *placed, sv Services) error {
	var failure error
	err := m.Scope.Own("row "+p.id.Value, func(context.Context) (func(context.Context) error, error) {
		s, err := p.in.Child(p.id.Value)
		if err != nil {
			return nil, err
		}
		p.at = site{Services: sv, id: p.id.Value, scope: s, mounted: m}
		failure = p.ready.mount(ctx, p.at)
		return s.Close, nil // also after a failure: what the row has done so far is undone with the rest
	})
	return errors.Join(failure, err)
}

// groups makes the scopes of groups and lists the rows in them, in the order they are written.
func (m *Mounted) groups(rows []*row, in *scope.Scope, out *[]*placed) error {
	for _, r := range rows {
		if !r.group {
			*out = append(*out, &placed{row: r, in: in})
			continue
		}
		var opts []scope.Option
		for _, v := range r.isolate {
			opts = append(opts, isolation()[v.Value])
		}
		s, err := in.Child(r.id.Value, opts...)
		if err != nil {
			return err
		}
		if err := m.groups(r.rows, s, out); err != nil {
			return err
		}
	}
	return nil
}

// variables are those that every preset's texts can use.
func (m *Mounted) variables(sv Services) error {
	workspace := prompt.Fixed(sv.Session.Workspace)
	for _, v := range []struct {
		name string
		text prompt.Text
	}{
		{"model", func(context.Context) (string, error) {
			if sv.Session.Model == nil || sv.Session.Model() == "" {
				return "", errors.New("the session has no model")
			}
			return sv.Session.Model(), nil
		}},
		{"cwd", workspace},
		{"workspace", workspace},
		{"os", prompt.Fixed(runtime.GOOS)},
	} {
		if err := sv.Prompt.AddVariable(m.Scope, v.name, v.text); err != nil {
			return err
		}
	}
	return nil
}
