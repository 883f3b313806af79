// Package strictjson says of JSON text what a decoder keeps to itself: a name that stands twice, names that differ only in case, depth. The text
// isn't decoded; who has it decoded afterwards knows that every reader of it reads the same.
package strictjson

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// fewNames is how many names of one object are looked through one by one.
const fewNames = 24

// level is an open object of a scan.
type level struct {
	first int                 // of its names, where all names are kept
	many  map[string]struct{} // its names, once they are more than a few
}

// Twice finds a name that stands twice in one object of valid JSON, at any depth. Names are compared as they read, so "c\u006f" is "co". Few and
// short names cost no allocation.
func Twice(raw []byte) (name []byte, found bool) {
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

// Plain says that all names in raw, which needn't be valid, are of small ASCII letters, digits and signs: a decoder that takes no heed of case
// can't take one of them for another.
func Plain(raw []byte) bool {
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

// Depth is how many objects and arrays of valid JSON are open at once.
func Depth(raw []byte) (deepest int) {
	depth := 0
	for at := 0; at < len(raw); at++ {
		switch raw[at] {
		case '"':
			at = stringEnd(raw, at) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
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
	rest := bytes.TrimLeft(raw[end:], " \t\r\n")
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
