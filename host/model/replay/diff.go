package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// maxFields bounds a difference: after a few fields it says nothing more.
const maxFields = 20

// Diff lists the fields in which two JSON values differ, as "path: recorded -> sent", in the order of their paths. Long strings are shown from
// a little before where they part.
func Diff(recorded, sent []byte) []string {
	d := differ{}
	d.compare("", decode(recorded), decode(sent))
	if len(d.fields) > maxFields {
		d.fields = append(d.fields[:maxFields], fmt.Sprintf("and %d more", len(d.fields)-maxFields))
	}
	return d.fields
}

func decode(raw []byte) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return string(raw)
	}
	return v
}

type differ struct{ fields []string }

func (d *differ) add(path, recorded, sent string) {
	if path == "" {
		path = "the body"
	}
	d.fields = append(d.fields, path+": "+recorded+" -> "+sent)
}

const absent = "(absent)"

func (d *differ) compare(path string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			d.objects(path, x, y)
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			d.lists(path, x, y)
			return
		}
	case string:
		if y, ok := b.(string); ok {
			if x != y {
				s, t := part(x, y)
				d.add(path, s, t)
			}
			return
		}
	default:
		if a == b {
			return
		}
	}
	d.add(path, show(a), show(b))
}

func (d *differ) objects(path string, x, y map[string]any) {
	names := slices.Collect(maps.Keys(x))
	for name := range y {
		if _, both := x[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		a, inX := x[name]
		b, inY := y[name]
		switch {
		case !inX:
			d.add(at, absent, show(b))
		case !inY:
			d.add(at, show(a), absent)
		default:
			d.compare(at, a, b)
		}
	}
}

func (d *differ) lists(path string, x, y []any) {
	for i := range max(len(x), len(y)) {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= len(x):
			d.add(at, absent, show(y[i]))
		case i >= len(y):
			d.add(at, show(x[i]), absent)
		default:
			d.compare(at, x[i], y[i])
		}
	}
}

const shown = 80 // runes of a value

// part shows two strings from shortly before they part.
func part(x, y string) (string, string) {
	a, b := []rune(x), []rune(y)
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := 0
	if max(len(a), len(b)) > shown {
		from = max(0, i-20)
	}
	return quote(a, from), quote(b, from)
}

func quote(s []rune, from int) string {
	out := ""
	if from > 0 {
		out = "..."
	}
	to := min(len(s), from+shown)
	out += strconv.Quote(string(s[from:to]))
	if to < len(s) {
		out += "..."
	}
	return out
}

func show(v any) string {
	if s, ok := v.(string); ok {
		return quote([]rune(s), 0)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	if s := []rune(string(raw)); len(s) > shown {
		return string(s[:shown]) + "..."
	}
	return string(raw)
}
