package presets

import (
	"fmt"
	"runtime"
)

// Parse resolves the text of a composition that no roster lists, the profile of a standalone program. It may extend a shipped preset. file is
// how messages call it.
func Parse(id, file string, text []byte) (*Composition, error) {
	doc, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	r := NewRoster(nil, "")
	v := r.open()
	defer v.close()
	return r.resolver(v).resolve(id, doc)
}

// With returns c with one setting of one row changed. value is text, true or false, a list or a mapping of these.
func (c *Composition) With(row, key string, value any) (*Composition, error) {
	rows := c.Rows()
	if !set(rows, row, key, value) {
		return nil, fmt.Errorf("composition %s has no row %q with settings", c.ID, row)
	}
	return Decode(encode(recorded{Version, c.ID, c.Name, c.Description, c.Order, rows}))
}

func set(rows []Row, id, key string, value any) bool {
	for i := range rows {
		if rows[i].ID == id && rows[i].Use != "" {
			if rows[i].With == nil {
				rows[i].With = map[string]any{}
			}
			rows[i].With[key] = value
			return true
		}
		if set(rows[i].Rows, id, key, value) {
			return true
		}
	}
	return false
}

// Fixed is a roster of exactly one composition, that of a standalone program.
func Fixed(c *Composition) *Roster { return &Roster{goos: runtime.GOOS, fixed: c} }

func (r *Roster) checkFixed(id string) (Report, error) {
	if id != r.fixed.ID {
		return Report{}, fmt.Errorf("%w %q; there is %s", ErrNotFound, id, r.fixed.ID)
	}
	return dryMount(r.fixed)
}

func (r *Roster) listFixed() ([]Entry, error) {
	e := Entry{ID: r.fixed.ID, Name: r.fixed.Name, Description: r.fixed.Description, Order: r.fixed.Order, Origin: Shipped}
	if _, err := r.checkFixed(e.ID); err != nil {
		e.Broken = oneLine(err).Error()
	} else {
		e.Hash, e.Warnings = r.fixed.Hash, r.fixed.Warnings
	}
	return []Entry{e}, nil
}
