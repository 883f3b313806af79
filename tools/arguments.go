package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/strictjson"
)

// object accepts a JSON object in which no name stands twice, at any depth: who reads it might take the first or the last, or the two together,
// and see another call than the one that runs. Nothing at all counts as an empty one. The error goes on after "the arguments".
func object(arguments string) (json.RawMessage, error) {
	if strings.TrimSpace(arguments) == "" {
		return json.RawMessage("{}"), nil
	}
	raw := json.RawMessage(arguments)
	if !json.Valid(raw) || !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		var m map[string]json.RawMessage // says what is wrong
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("are not a JSON object: %w", err)
		}
		return nil, errors.New("are not a JSON object: it is null")
	}
	if name, found := strictjson.Twice(raw); found {
		return nil, fmt.Errorf("name %q twice in one object, so it is unclear what is meant; the tool did not run. Give each name once", clip(name))
	}
	return raw, nil
}

// clip keeps a name of the model's short in a text that goes back to it.
func clip(name []byte) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(string(name[:most]), "") + "..."
	}
	return string(name)
}

// DecodeArguments reads a call's arguments into v, a pointer to a struct. Names count exactly as v's json tags write them; one in another case is
// as unknown as any other, and unknown names are ignored. The error is fit for the model.
func DecodeArguments(arguments json.RawMessage, v any) error {
	if !strictjson.Plain(arguments) {
		arguments, _ = exact(arguments, reflect.TypeOf(v))
	}
	if err := json.Unmarshal(arguments, v); err != nil {
		return fmt.Errorf("the arguments do not fit the tool's schema: %w", err)
	}
	return nil
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
