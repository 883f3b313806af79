package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// object accepts a JSON object in which no name stands twice, at any depth: who reads it might take the first or the last, or the two together,
// and see another call than the one that runs. Nothing at all counts as an empty one. The error goes on after "the arguments".
func object(arguments string) (json.RawMessage, error) {
	if strings.TrimSpace(arguments) == "" {
		return json.RawMessage("{}"), nil
	}
	raw := json.RawMessage(arguments)
	if !json.Valid(raw) || !bytes.HasPrefix(bytes.TrimLeft(raw, blanks), []byte("{")) {
		var m map[string]json.RawMessage // says what is wrong
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("are not a JSON object: %w", err)
		}
		return nil, errors.New("are not a JSON object: it is null")
	}
	if name, found := twice(raw); found {
		return nil, fmt.Errorf("name %q twice in one object, so it is unclear what is meant; the tool did not run. Give each name once", clip(name))
	}
	return raw, nil
}

// blanks is what JSON allows between its parts.
const blanks = " \t\r\n"

// clip keeps a name of the model's short in a text that goes back to it.
func clip(name []byte) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(string(name[:most]), "") + "..."
	}
	return string(name)
}

// fewNames is how many names of one object are looked through one by one.
const fewNames = 24

// level is an open object of a scan.
type level struct {
	first int                 // of its names, where all names are kept
	many  map[string]struct{} // its names, once they are more than a few
}

// twice finds a name that stands twice in one object of valid JSON. Few and short names cost no allocation.
func twice(raw []byte) (name []byte, found bool) {
	var namesRoom [fewNames][]byte
	var openRoom [8]level
	names, open := namesRoom[:0], openRoom[:0]
	for at := 0; at < len(raw); at++ {
		switch raw[at] {
		case '{':
			open = append(open, level{first: len(names)})
		case '}':
			last := len(open) - 1
			names, open = names[:open[last].first], open[:last]
		case '"':
			end := stringEnd(raw, at)
			literal := raw[at:end]
			at = end - 1
			if !isName(raw, end) {
				continue
			}
			name := nameOf(literal)
			o := &open[len(open)-1]
			switch own := names[o.first:]; {
			case o.many != nil:
				_, found = o.many[string(name)]
				o.many[string(name)] = struct{}{}
			case len(own) == fewNames:
				o.many = map[string]struct{}{string(name): {}}
				for _, n := range own {
					found = found || bytes.Equal(n, name)
					o.many[string(n)] = struct{}{}
				}
			default:
				for _, n := range own {
					found = found || bytes.Equal(n, name)
				}
				names = append(names, name)
			}
			if found {
				return name, true
			}
		}
	}
	return nil, false
}

// stringEnd is the offset after the string that begins at at. In what isn't JSON that may be the end of it all.
func stringEnd(raw []byte, at int) int {
	for at++; ; at++ {
		next := bytes.IndexByte(raw[at:], '"')
		if next < 0 {
			return len(raw)
		}
		escapes := 0
		for at += next; raw[at-1-escapes] == '\\'; escapes++ {
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
}

// isName says whether the string that ends at end is a name: only a name has a colon behind it.
func isName(raw []byte, end int) bool {
	rest := bytes.TrimLeft(raw[end:], blanks)
	return len(rest) > 0 && rest[0] == ':'
}

// nameOf reads a name as a decoder does.
func nameOf(literal []byte) []byte {
	if bytes.IndexByte(literal, '\\') < 0 && utf8.Valid(literal) {
		return literal[1 : len(literal)-1]
	}
	var name string
	if json.Unmarshal(literal, &name) != nil {
		return literal
	}
	return []byte(name)
}

// DecodeArguments reads a call's arguments into v, a pointer to a struct. Names count exactly as v's json tags write them; one in another case is
// as unknown as any other, and unknown names are ignored. The error is fit for the model.
func DecodeArguments(arguments json.RawMessage, v any) error {
	if !plainNames(arguments) {
		arguments, _ = exact(arguments, reflect.TypeOf(v))
	}
	if err := json.Unmarshal(arguments, v); err != nil {
		return fmt.Errorf("the arguments do not fit the tool's schema: %w", err)
	}
	return nil
}

// plainNames says that all names are of small ASCII letters, digits and signs: the tags of tools are too, so the decoder, which takes no heed of
// case, can't take one for another.
func plainNames(raw []byte) bool {
	for at := 0; at < len(raw); at++ {
		if raw[at] != '"' {
			continue
		}
		end := stringEnd(raw, at)
		if isName(raw, end) {
			for _, c := range raw[at:end] {
				if 'A' <= c && c <= 'Z' || c == '\\' || c >= utf8.RuneSelf {
					return false
				}
			}
		}
		at = end - 1
	}
	return true
}

// exact leaves out of raw, which is to be decoded into a t, the names that t has only in another case. What doesn't fit t stays as it is, for the
// decoder to refuse.
func exact(raw json.RawMessage, t reflect.Type) (_ json.RawMessage, changed bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		var items []json.RawMessage
		if t.Elem().Kind() == reflect.Uint8 || json.Unmarshal(raw, &items) != nil {
			return raw, false
		}
		for i := range items {
			var c bool
			items[i], c = exact(items[i], t.Elem())
			changed = changed || c
		}
		return encoded(raw, items, changed)
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return raw, false
		}
		names := make([]string, t.NumField())
		for i := range names {
			names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
		}
		for name, value := range fields {
			i := slices.Index(names, name)
			if i < 0 {
				delete(fields, name)
				changed = true
				continue
			}
			var c bool
			fields[name], c = exact(value, t.Field(i).Type)
			changed = changed || c
		}
		return encoded(raw, fields, changed)
	}
	return raw, false
}

// encoded is v as JSON if it was changed.
func encoded(raw json.RawMessage, v any, changed bool) (json.RawMessage, bool) {
	if !changed {
		return raw, false
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw, false
	}
	return out, true
}
