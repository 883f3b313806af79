package editor

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// arguments are a call's arguments by their exact names. Names that the schema doesn't know are ignored; null is like leaving out.
type arguments map[string]json.RawMessage

func parseArguments(raw json.RawMessage) (arguments, error) {
	var a arguments
	if err := json.Unmarshal(raw, &a); err != nil || a == nil {
		return nil, refuse(BadArgument, "The arguments are not a JSON object.")
	}
	maps.DeleteFunc(a, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	return a, nil
}

// text decodes a JSON string.
func text(raw []byte) (s string, err error) {
	if n := len(raw); n > 1 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : n-1]), nil // it reads as it is written
	}
	err = json.Unmarshal(raw, &s)
	return s, err
}

// text gives a string argument; ok is false when it is missing.
func (a arguments) text(name string) (s string, ok bool, err error) {
	raw, ok := a[name]
	if !ok {
		return "", false, nil
	}
	if s, err = text(raw); err != nil {
		return "", true, refuse(BadArgument, "`%s` must be a string.", name)
	}
	return s, true, nil
}

// required gives a string argument that the command can't do without.
func (a arguments) required(name, command string) (string, error) {
	s, ok, err := a.text(name)
	if err == nil && !ok {
		err = refuseMissing(name, command)
	}
	return s, err
}

// requiredInteger is required for a whole number.
func (a arguments) requiredInteger(name, command string) (int, error) {
	raw, ok := a[name]
	if !ok {
		return 0, refuseMissing(name, command)
	}
	n, ok := integer(raw)
	if !ok {
		return 0, refuse(BadArgument, "`%s` must be an integer.", name)
	}
	return n, nil
}

// lines gives view_range; nil when it is missing.
func (a arguments) lines() (*Range, error) {
	raw, ok := a["view_range"]
	if !ok {
		return nil, nil //nolint:nilnil // no range is a good answer
	}
	var pair []json.RawMessage
	if err := json.Unmarshal(raw, &pair); err == nil && len(pair) == 2 {
		first, ok1 := integer(pair[0])
		last, ok2 := integer(pair[1])
		if ok1 && ok2 {
			return &Range{First: first, Last: last}, nil
		}
	}
	return nil, refuse(BadArgument, "`view_range` must be two integers: the first and the last line, for example [1, 20] or [21, -1].")
}

// integer accepts a whole number in the ways models write one: 2, 2.0, "2".
func integer(raw json.RawMessage) (int, bool) {
	s := string(bytes.TrimSpace(raw))
	if strings.HasPrefix(s, `"`) {
		if json.Unmarshal(raw, &s) != nil {
			return 0, false
		}
		s = strings.TrimSpace(s)
	}
	if n, err := strconv.Atoi(s); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int(f), true
}

func refuseMissing(name, command string) *Refusal {
	return refuse(BadArgument, "`%s` is required for `%s`.", name, command)
}
