package presets

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dsh-web/dsh-web/host/scope"
)

// kind is one entry of the catalogue: what a row's use can be.
type kind struct {
	use     string
	prepare func(with []entry) (ready, error)
}

// ready is a row with its settings decoded and checked.
type ready struct {
	needs    []need
	complete bool // it contributes a complete section
	mount    func(ctx context.Context, at site) error
	verify   func(at site) error // after all rows are mounted; may be nil
}

// need is a service that must be visible before a row can be mounted.
type need struct {
	name    string
	visible func(*scope.Scope) bool
}

func needs[T any](k scope.Key[T]) need {
	return need{k.String(), func(s *scope.Scope) bool {
		_, ok := scope.Get(s, k)
		return ok
	}}
}

// site is where a row is being mounted.
type site struct {
	Services
	id      string       // of the row
	scope   *scope.Scope // the row's own
	mounted *Mounted
}

// catalogue lists the rows that exist. A row is here or it isn't; nothing registers itself.
func catalogue() []kind {
	return []kind{
		personaRow(),
		promptSectionRow(),
		workspaceInstructionsRow(),
		runtimeContextRow(),
		terminalsRow(),
		bashRow(),
		fsLocalRow(),
		fsHostRow(),
		editorRow(),
		filesRow(),
		searchRow(),
		todoRow(),
		askRow(),
		approvalsRow(),
		toolOrderRow(),
		limitsRow(),
	}
}

// kindOf makes a catalogue entry: defaults, then what the preset says, then Validate if the settings have it.
func kindOf[C any](use string, defaults func() C, prepare func(C) ready) kind {
	return kind{use, func(with []entry) (ready, error) {
		c := defaults()
		if err := decode(with, &c); err != nil {
			return ready{}, err
		}
		if v, ok := any(c).(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				return ready{}, err
			}
		}
		return prepare(c), nil
	}}
}

// prepareRow finds the row's kind and decodes its settings.
func prepareRow(r *row) (ready, error) {
	all := catalogue()
	i := slices.IndexFunc(all, func(k kind) bool { return k.use == r.use.Value })
	if i < 0 {
		var uses []string
		for _, k := range all {
			uses = append(uses, k.use)
		}
		return ready{}, r.use.problem("there is no row %q; use can be %s", r.use.Value, oneOf(uses))
	}
	out, err := all[i].prepare(r.with)
	if err == nil {
		return out, nil
	}
	// A problem has its place already. What Validate says is placed at the setting it begins with, if any.
	var p *Problem
	if errors.As(err, &p) {
		return ready{}, err
	}
	at := r.id
	for _, e := range r.with {
		if len(err.Error()) > len(e.key) && err.Error()[:len(e.key)+1] == e.key+":" {
			at = e.value
		}
	}
	return ready{}, at.wrap(fmt.Errorf("row %s: %w", r.id.Value, oneLine(err)))
}

// oneLine keeps an error that lists several things to one sentence.
func oneLine(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
		text := ""
		for i, e := range many.Unwrap() {
			if i > 0 {
				text += "; "
			}
			text += e.Error()
		}
		return errors.New(text)
	}
	return err
}
