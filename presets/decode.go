package presets

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is a piece of a preset together with the file it stands in.
type value struct {
	*yaml.Node
	file string
}

func (v value) problem(format string, args ...any) *Problem {
	return &Problem{File: v.file, Line: max(v.Line, 1), Column: max(v.Column, 1), Text: fmt.Sprintf(format, args...)}
}

// kindName says in a person's words what a node is.
func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	}
	return "a " + n.Tag
}

// entry is one key of a mapping.
type entry struct {
	key string
	at  value // of the key
	value
}

// entries takes a mapping apart. A key that stands there twice is a problem, and so is one that isn't text.
func (v value) entries() ([]entry, error) {
	if v.Kind != yaml.MappingNode {
		return nil, v.problem("this must be a mapping, and is %s", kindName(v.Node))
	}
	var out []entry
	for i := 0; i+1 < len(v.Content); i += 2 {
		k := value{v.Content[i], v.file}
		if k.Kind != yaml.ScalarNode || k.Tag != "!!str" {
			return nil, k.problem("a key must be text, and this is %s", kindName(k.Node))
		}
		if slices.ContainsFunc(out, func(e entry) bool { return e.key == k.Value }) {
			return nil, k.problem("the key %q stands there twice", k.Value)
		}
		out = append(out, entry{k.Value, k, value{v.Content[i+1], v.file}})
	}
	return out, nil
}

// decode fills target, a pointer to a struct, from the entries. It is strict: every key must be a field and
// every value must have the field's type as it is written.
func decode(entries []entry, target any) error {
	s := reflect.ValueOf(target).Elem()
	fields := make(map[string]reflect.Value)
	var known []string
	for i := range s.NumField() {
		name, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		fields[name] = s.Field(i)
		known = append(known, name)
	}
	for _, e := range entries {
		f, ok := fields[e.key]
		if !ok {
			return e.at.problem("unknown key %q; it can be %s", e.key, oneOf(known))
		}
		if err := e.value.into(f); err != nil {
			return err
		}
	}
	return nil
}

func oneOf(words []string) string {
	switch len(words) {
	case 0:
		return "nothing"
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// into decodes v into a settable target.
func (v value) into(target reflect.Value) error {
	switch t := target.Addr().Interface().(type) {
	case *value:
		*t = v
		return nil
	case encoding.TextUnmarshaler:
		if err := v.want("!!str", "text"); err != nil {
			return err
		}
		return v.wrap(t.UnmarshalText([]byte(v.Value)))
	case interface{ UnmarshalYAML(func(any) error) error }:
		return v.wrap(t.UnmarshalYAML(v.Decode))
	case yaml.Unmarshaler:
		return v.wrap(t.UnmarshalYAML(v.Node))
	}
	switch target.Kind() {
	case reflect.Struct:
		if p, ok := target.Addr().Interface().(interface{ standsAt(value) }); ok {
			p.standsAt(v)
		}
		entries, err := v.entries()
		if err != nil {
			return err
		}
		return decode(entries, target.Addr().Interface())
	case reflect.Map:
		entries, err := v.entries()
		if err != nil {
			return err
		}
		target.Set(reflect.MakeMapWithSize(target.Type(), len(entries)))
		for _, e := range entries {
			item := reflect.New(target.Type().Elem()).Elem()
			if err := e.value.into(item); err != nil {
				return err
			}
			target.SetMapIndex(reflect.ValueOf(e.key).Convert(target.Type().Key()), item)
		}
		return nil
	case reflect.Slice:
		if v.Kind != yaml.SequenceNode {
			return v.problem("this must be a list, and is %s", kindName(v.Node))
		}
		target.Set(reflect.MakeSlice(target.Type(), len(v.Content), len(v.Content)))
		for i, n := range v.Content {
			if err := (value{n, v.file}).into(target.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		return v.into(target.Elem())
	}
	tag, what := "", ""
	switch target.Kind() {
	case reflect.String:
		tag, what = "!!str", "text"
	case reflect.Bool:
		tag, what = "!!bool", "true or false"
	case reflect.Int, reflect.Int64:
		tag, what = "!!int", "a whole number"
	default:
		return v.problem("a setting of type %s can't be read", target.Type()) // a mistake in a row's settings type
	}
	if err := v.want(tag, what); err != nil {
		return err
	}
	if err := v.Decode(target.Addr().Interface()); err != nil {
		return v.problem("%q doesn't fit: it must be %s", v.Value, what)
	}
	return nil
}

func (v value) want(tag, what string) error {
	if v.Kind == yaml.ScalarNode && v.Tag == tag {
		return nil
	}
	hint := ""
	if tag == "!!str" && v.Kind == yaml.ScalarNode && v.Tag != "!!null" {
		hint = "; put it in quotes if text is meant"
	}
	return v.problem("this must be %s, and is %s%s", what, kindName(v.Node), hint)
}

func (v value) wrap(err error) error {
	if err == nil {
		return nil
	}
	p := v.problem("%v", err)
	p.Cause = err
	return p
}
