package presets

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// idPattern is what ids of presets and rows look like.
var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// Composition is a resolved preset: base and changes merged, every row known and its settings checked.
// It can be mounted any number of times, also at once.
type Composition struct {
	ID          string
	Name        string
	Description string
	Order       int
	Hash        string   // lower-case hex SHA-256 of the canonical JSON of version and rows: equal compositions have equal hashes, whatever they are called
	Warnings    []string // about reading it; nothing that stops a mount

	rows []*row
}

// Row is one row of a composition as people see it: a group if it has rows.
type Row struct {
	ID      string         `json:"id" yaml:"id"`
	Use     string         `json:"use,omitempty" yaml:"use,omitempty"`
	OS      []string       `json:"os,omitempty" yaml:"os,omitempty,flow"`
	Isolate []string       `json:"isolate,omitempty" yaml:"isolate,omitempty,flow"`
	With    map[string]any `json:"with,omitempty" yaml:"with,omitempty"`
	Rows    []Row          `json:"rows,omitempty" yaml:"rows,omitempty"`
}

// row is one row in the making and, once it is ready, to be mounted.
type row struct {
	id      value
	use     value
	os      []value
	isolate []value
	with    []entry
	group   bool
	rows    []*row
	ready   ready // of a leaf
}

// problem is something wrong with the row, placed at its id.
func (r *row) problem(format string, args ...any) *Problem {
	return r.id.problem("row %s: "+format, append([]any{r.id.Value}, args...)...)
}

// find returns the list that holds the row with this id, and its place there.
func find(rows *[]*row, id string) (*[]*row, int) {
	for i, r := range *rows {
		if r.id.Value == id {
			return rows, i
		}
		if list, j := find(&r.rows, id); list != nil {
			return list, j
		}
	}
	return nil, 0
}

// resolver makes compositions. base looks up what a preset extends.
type resolver struct {
	base func(id string) (*document, error)
	goos string
}

// resolve merges doc with its bases and gets every row ready.
func (z resolver) resolve(id string, doc *document) (*Composition, error) {
	c := &Composition{ID: id, Name: doc.Name, Description: doc.Description, Order: doc.Order}
	if c.Name == "" {
		c.Name = id
	}
	var err error
	if c.rows, c.Warnings, err = z.merge(doc, []string{id}); err != nil {
		return nil, err
	}
	if err := z.prepare(c); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(encode(struct {
		Version int   `json:"version"`
		Rows    []Row `json:"rows"`
	}{Version, c.Rows()}))
	c.Hash = hex.EncodeToString(sum[:])
	return c, nil
}

// merge returns the rows of doc over those of the presets it extends. chain is how we came here.
func (z resolver) merge(doc *document, chain []string) (rows []*row, warnings []string, err error) {
	if doc.Extends.given() {
		id, err := doc.Extends.text()
		if err != nil {
			return nil, nil, err
		}
		chain = append(chain, id)
		if slices.Contains(chain[:len(chain)-1], id) {
			return nil, nil, doc.Extends.problem("extends goes in a circle: %s", strings.Join(chain, ", "))
		}
		base, err := z.base(id)
		if errors.Is(err, ErrNotFound) {
			p := doc.Extends.problem("extends: %v", err)
			p.Cause = err
			return nil, nil, p
		}
		if err != nil {
			return nil, nil, err
		}
		if rows, warnings, err = z.merge(base, chain); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range doc.Remove {
		id, err := v.text()
		if err != nil {
			return nil, nil, err
		}
		list, i := find(&rows, id)
		if list == nil {
			return nil, nil, v.problem("remove: there is no row %q in what this preset extends", id)
		}
		*list = slices.Delete(*list, i, i+1)
	}
	if err := distinct(doc.Rows, map[string]value{}); err != nil {
		return nil, nil, err
	}
	base := rows // for the settings that a replaced row keeps
	for _, d := range doc.Rows {
		r, err := build(d, base, 1)
		if err != nil {
			return nil, nil, err
		}
		if list, _ := find(&rows, r.id.Value); list != nil {
			rows = slices.Clone(rows)
			list, i := find(&rows, r.id.Value)
			(*list)[i] = r
		} else {
			rows = append(slices.Clip(rows), r)
		}
	}
	return rows, append(warnings, doc.warnings...), nil
}

// distinct refuses two rows with one id in one file; those would otherwise be taken for a change of each other.
func distinct(rows []rowDoc, seen map[string]value) error {
	for _, d := range rows {
		if d.ID.given() {
			if first, ok := seen[d.ID.Value]; ok {
				return takenBy(d.ID, first)
			}
			seen[d.ID.Value] = d.ID
		}
		if err := distinct(d.Rows, seen); err != nil {
			return err
		}
	}
	return nil
}

func takenBy(id, first value) error {
	return id.problem("row %s: the id is taken; the first row with it is at %s:%d:%d", id.Value, first.file, first.Line, first.Column)
}

// build makes a row of what is written. One that a base has too, with the same use, keeps the settings that aren't written.
func build(d rowDoc, base []*row, depth int) (*row, error) {
	r := &row{id: d.ID, use: d.Use, os: d.OS, isolate: d.Isolate, group: d.Rows != nil}
	if !d.ID.given() {
		return nil, d.at.problem("the row has no id")
	}
	if id, err := d.ID.text(); err != nil {
		return nil, err
	} else if !idPattern.MatchString(id) {
		return nil, d.ID.problem("%q can't be an id: lower-case letters, digits and -, at most 64", id)
	}
	var old *row
	if list, i := find(&base, r.id.Value); list != nil && !(*list)[i].group {
		old = (*list)[i]
	}
	switch {
	case depth > maxDepth:
		return nil, r.problem("rows are nested more than %d deep", maxDepth)
	case r.group && d.Use.given():
		return nil, r.problem("it has both use and rows; a group only holds rows")
	case r.group && d.With.given():
		return nil, r.problem("it has both with and rows; a group has no settings")
	case !r.group && len(d.Isolate) > 0:
		return nil, r.problem("isolate belongs to a group of rows, and this row has none")
	case !r.group && !d.Use.given() && old == nil:
		return nil, r.problem("it needs use, or rows if it is a group")
	case !r.group && !d.Use.given():
		r.use = old.use
	}
	if r.use.given() {
		if _, err := r.use.text(); err != nil {
			return nil, err
		}
	}
	if d.With.given() {
		var err error
		if r.with, err = d.With.entries(); err != nil {
			return nil, err
		}
	}
	if old != nil && !r.group && old.use.Value == r.use.Value {
		for _, e := range old.with {
			if !slices.ContainsFunc(r.with, func(n entry) bool { return n.key == e.key }) {
				r.with = append(r.with, e)
			}
		}
	}
	for _, sub := range d.Rows {
		child, err := build(sub, base, depth+1)
		if err != nil {
			return nil, err
		}
		r.rows = append(r.rows, child)
	}
	return r, nil
}

// prepare checks the whole tree and gets the rows ready.
func (z resolver) prepare(c *Composition) error {
	seen := map[string]*row{}
	var complete *row
	var walk func(rows []*row) error
	walk = func(rows []*row) error {
		for _, r := range rows {
			if first := seen[r.id.Value]; first != nil {
				return takenBy(r.id, first.id)
			}
			seen[r.id.Value] = r
			if err := z.fits(r); err != nil {
				return err
			}
			if r.group {
				if err := walk(r.rows); err != nil {
					return err
				}
				continue
			}
			var err error
			if r.ready, err = prepareRow(r); err != nil {
				return err
			}
			if r.ready.complete && complete != nil {
				return r.problem("it claims to be the complete system prompt, and so does row %s", complete.id.Value)
			}
			if r.ready.complete {
				complete = r
			}
		}
		return nil
	}
	return walk(c.rows)
}

// fits checks os and isolate.
func (z resolver) fits(r *row) error {
	if len(r.os) > 0 {
		var names []string
		for _, v := range r.os {
			name, err := v.text()
			if err != nil {
				return err
			}
			names = append(names, name)
		}
		if !slices.Contains(names, z.goos) {
			p := r.os[0].problem("row %s needs %s, and this is %s", r.id.Value, oneOf(names), z.goos)
			return p
		}
	}
	known := isolation()
	for _, v := range r.isolate {
		name, err := v.text()
		if err != nil {
			return err
		}
		if known[name] == nil {
			return v.problem("there is no service %q to isolate; it can be %s", name, oneOf(slices.Sorted(maps.Keys(known))))
		}
	}
	return nil
}

// Rows returns the rows for people and programs. It is a copy.
func (c *Composition) Rows() []Row { return show(c.rows) }

func show(rows []*row) []Row {
	out := make([]Row, 0, len(rows))
	for _, r := range rows {
		s := Row{ID: r.id.Value, OS: words(r.os), Isolate: words(r.isolate)}
		if r.use.given() {
			s.Use = r.use.Value
		}
		for _, e := range r.with {
			if s.With == nil {
				s.With = map[string]any{}
			}
			s.With[e.key] = simple(e.Node)
		}
		if r.group {
			s.Rows = show(r.rows)
		}
		out = append(out, s)
	}
	return out
}

func words(vs []value) []string {
	var out []string
	for _, v := range vs {
		out = append(out, v.Value)
	}
	return out
}

// simple is a node as plain values. What a row accepted decodes.
func simple(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = simple(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		l := []any{}
		for _, c := range n.Content {
			l = append(l, simple(c))
		}
		return l
	}
	var v any
	if n.Tag == "!!str" || n.Decode(&v) != nil {
		return n.Value
	}
	return v
}

// encode is JSON without HTML escaping and without a newline. Keys of maps are sorted.
func encode(v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Appendf(nil, "%q", err.Error()) // plain values always encode
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// recorded is the form in which a composition is kept with a session.
type recorded struct {
	Version     int    `json:"version"`
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Order       int    `json:"order"`
	Rows        []Row  `json:"rows"`
}

// Encode returns c as JSON, to be kept with a session and given to Decode when it is resumed.
func (c *Composition) Encode() []byte {
	return encode(recorded{Version, c.ID, c.Name, c.Description, c.Order, c.Rows()})
}

// Decode reads what Encode wrote and gets it ready to be mounted. It needs no preset file.
func Decode(data []byte) (*Composition, error) { return decodeOn(runtime.GOOS, data) }

func decodeOn(goos string, data []byte) (*Composition, error) {
	var rec recorded
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // whole numbers stay whole
	if err := dec.Decode(&rec); err != nil {
		return nil, fmt.Errorf("recorded composition: %w", err)
	}
	if rec.Version != Version {
		return nil, fmt.Errorf("recorded composition of preset %s: it has version %d and this program reads %d", rec.ID, rec.Version, Version)
	}
	doc := &document{file: "recorded composition of preset " + rec.ID, Name: rec.Name, Description: rec.Description, Order: rec.Order}
	for _, r := range rec.Rows {
		doc.Rows = append(doc.Rows, r.doc(doc.file))
	}
	return resolver{goos: goos}.resolve(rec.ID, doc)
}

// doc is r as if it had been read from a file.
func (r Row) doc(file string) rowDoc {
	text := func(s string) value { return value{nodeOf(s), file} }
	d := rowDoc{ID: text(r.ID), at: text(r.ID)}
	if r.Use != "" {
		d.Use = text(r.Use)
	}
	for _, s := range r.OS {
		d.OS = append(d.OS, text(s))
	}
	for _, s := range r.Isolate {
		d.Isolate = append(d.Isolate, text(s))
	}
	if r.With != nil {
		d.With = value{nodeOf(r.With), file}
	}
	for _, sub := range r.Rows {
		d.Rows = append(d.Rows, sub.doc(file))
	}
	if r.Use == "" && d.Rows == nil {
		d.Rows = []rowDoc{} // a group without rows
	}
	return d
}

// nodeOf is a plain value as YAML, the inverse of simple.
func nodeOf(v any) *yaml.Node {
	scalar := func(tag, text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text} }
	switch v := v.(type) {
	case string:
		return scalar("!!str", v)
	case bool:
		return scalar("!!bool", strconv.FormatBool(v))
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return scalar("!!float", v.String())
		}
		return scalar("!!int", v.String())
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range v {
			n.Content = append(n.Content, nodeOf(e))
		}
		return n
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, scalar("!!str", k), nodeOf(v[k]))
		}
		return n
	}
	return scalar("!!null", "null")
}
