package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// decodeFast reads a payload whose names are all of small letters, digits and _, each known one once, and whose known values are of the types that
// they nearly always are. It says no to every other one. Where it says yes, encoding/json gives an equal chunk, several times slower. Values kept
// beyond the payload are copies; the other raw ones are parts of data.
func decodeFast(data []byte) (*chunk, bool) {
	if !json.Valid(data) {
		return nil, false
	}
	w := walk{b: data}
	c := new(chunk)
	w.object(func(name string) int {
		switch name {
		case "choices":
			w.array(func() { c.Choices = append(c.Choices, w.choice()) })
			return 0
		case "usage":
			c.Usage = w.usage()
			return 1
		case "error":
			c.Error = w.raw()
			return 2
		case "object":
			c.Object = w.text()
			return 3
		case "prompt_token_ids":
			c.PromptTokenIDs = w.kept()
			return 4
		case "prompt_logprobs":
			c.PromptLogprobs = w.kept()
			return 5
		}
		return w.skip()
	})
	return c, !w.bad
}

func (w *walk) choice() *choice {
	c := new(choice)
	w.object(func(name string) int {
		switch name {
		case "index":
			c.Index = int(w.int())
			return 0
		case "delta":
			c.Delta = w.delta()
			return 1
		case "message":
			c.Message = w.delta()
			return 2
		case "finish_reason":
			c.FinishReason = w.raw()
			return 3
		case "logprobs":
			c.Logprobs = w.kept()
			return 4
		case "token_ids":
			c.TokenIDs = w.kept()
			return 5
		}
		return w.skip()
	})
	return c
}

func (w *walk) delta() *delta {
	d := new(delta)
	w.object(func(name string) int {
		switch name {
		case "content":
			d.Content = w.raw()
			return 0
		case "reasoning_content":
			d.ReasoningContent = w.raw()
			return 1
		case "reasoning":
			d.Reasoning = w.raw()
			return 2
		case "refusal":
			d.Refusal = w.raw()
			return 3
		case "tool_calls":
			w.array(func() { d.ToolCalls = append(d.ToolCalls, w.fragment()) })
			return 4
		case "function_call":
			d.FunctionCall = w.function()
			return 5
		}
		return w.skip()
	})
	return d
}

func (w *walk) fragment() *fragment {
	f := new(fragment)
	w.object(func(name string) int {
		switch name {
		case "index":
			n := int(w.int())
			f.Index = &n
			return 0
		case "id":
			f.ID = w.optional()
			return 1
		case "function":
			f.Function = w.function()
			return 2
		}
		return w.skip()
	})
	return f
}

func (w *walk) function() *function {
	f := new(function)
	w.object(func(name string) int {
		switch name {
		case "name":
			f.Name = w.optional()
			return 0
		case "arguments":
			f.Arguments = w.raw()
			return 1
		}
		return w.skip()
	})
	return f
}

func (w *walk) usage() *usage {
	if w.null() {
		return nil
	}
	u := new(usage)
	w.object(func(name string) int {
		switch name {
		case "prompt_tokens":
			u.PromptTokens = w.int()
			return 0
		case "completion_tokens":
			u.CompletionTokens = w.int()
			return 1
		case "prompt_cache_hit_tokens", "prompt_tokens_details", "completion_tokens_details":
			w.bad = true // once an answer: encoding/json reads it
		}
		return w.skip()
	})
	return u
}

// walk steps through valid JSON. A surprise makes it bad, and then everything it gives is worthless.
type walk struct {
	b   []byte
	i   int
	bad bool
}

func (w *walk) space() {
	for w.i < len(w.b) && (w.b[w.i] == ' ' || w.b[w.i] == '\n' || w.b[w.i] == '\t' || w.b[w.i] == '\r') {
		w.i++
	}
}

// open steps into what begins with c, and says whether it did and whether there is anything in it.
func (w *walk) open(c, end byte) bool {
	w.space()
	if w.bad || w.i >= len(w.b) || w.b[w.i] != c {
		w.bad = true
		return false
	}
	w.i++
	w.space()
	if w.b[w.i] == end {
		w.i++
		return false
	}
	return true
}

// next steps over the comma, or out.
func (w *walk) next() bool {
	w.space()
	w.i++
	return !w.bad && w.b[w.i-1] == ','
}

// object calls member with each name; it steps over the value and gives a number for each known name, -1 for the others. Names are judged on the
// way: two looks by strictjson beforehand cost half as much again.
func (w *walk) object(member func(name string) int) {
	if !w.open('{', '}') {
		return
	}
	var seen uint32
	for {
		w.space()
		name := w.plain()
		for _, c := range name {
			if ('a' > c || c > 'z') && ('0' > c || c > '9') && c != '_' {
				w.bad = true // to encoding/json it may be a known one
			}
		}
		w.space()
		w.i++ // the colon
		w.space()
		if w.bad {
			return
		}
		if n := member(string(name)); n >= 0 {
			w.bad = w.bad || seen&(1<<n) != 0
			seen |= 1 << n
		}
		if w.bad || !w.next() {
			return
		}
	}
}

func (w *walk) array(element func()) {
	if !w.open('[', ']') {
		return
	}
	for {
		element()
		if w.bad || !w.next() {
			return
		}
	}
}

// plain gives the inside of a string without escapes.
func (w *walk) plain() []byte {
	raw := w.raw()
	if len(raw) < 2 || raw[0] != '"' || bytes.IndexByte(raw, '\\') >= 0 {
		w.bad = true
		return nil
	}
	return raw[1 : len(raw)-1]
}

// text reads a short string of ASCII, where there is nothing to replace.
func (w *walk) text() string {
	raw := w.plain()
	for _, c := range raw {
		w.bad = w.bad || c >= 0x80
	}
	return string(raw)
}

func (w *walk) optional() *string {
	if w.null() {
		return nil
	}
	s := w.text()
	return &s
}

func (w *walk) null() bool {
	w.space()
	if bytes.HasPrefix(w.b[w.i:], []byte("null")) {
		w.i += len("null")
		return true
	}
	return false
}

// int reads a number without sign, fraction and exponent.
func (w *walk) int() int64 {
	n, err := strconv.ParseUint(string(w.raw()), 10, 31)
	w.bad = w.bad || err != nil
	return int64(n)
}

// kept is a copy of the value, unless it is null, which nobody keeps.
func (w *walk) kept() json.RawMessage {
	raw := w.raw()
	if isSet(raw) {
		raw = bytes.Clone(raw)
	}
	return raw
}

// skip steps over the value of a name that isn't known.
func (w *walk) skip() int {
	w.raw()
	return -1
}

// raw steps over any value and gives its text.
func (w *walk) raw() json.RawMessage {
	w.space()
	start, depth := w.i, 0
	for w.i < len(w.b) {
		switch c := w.b[w.i]; c {
		case '"':
			w.i = stringEnd(w.b, w.i)
		case '{', '[':
			depth++
			w.i++
			continue
		case '}', ']':
			depth--
			w.i++
		case ',', ':', ' ', '\n', '\t', '\r':
			w.i++
			continue
		default:
			for w.i < len(w.b) && bytes.IndexByte([]byte(",]} \n\t\r"), w.b[w.i]) < 0 {
				w.i++
			}
		}
		if depth == 0 {
			break
		}
	}
	return w.b[start:w.i:w.i]
}

// stringEnd is the offset after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}
