package openai

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Nearly all chunks of one stream are the same bytes around one string. A template is a chunk that the full decoder has read, cut at that
// string: a later chunk with the same bytes around it does the same with another text, and needs no decoding. What a template says is
// checked against the full decoder when it is learned, and by a fuzz test.
type template struct {
	prefix, suffix []byte // prefix ends in the string's opening quote, suffix begins with its closing one
	effect         effect
	tried          bool
	hits           int
}

// templates holds one template for each kind of piece, and decides when learning is worth it.
type templates struct {
	by   [effectFragment + 1]template
	last effectKind
	// A stream whose chunks always differ elsewhere would be learned in vain, so after each useless template skip doubles.
	skip, wait int
}

const maxSkip = 1024

// match reads data by a template.
func (t *templates) match(data []byte) (effect, bool) {
	if t.last != 0 {
		if e, ok := t.by[t.last].match(data); ok {
			return e, true
		}
	}
	for k := range t.by {
		if effectKind(k) == t.last || t.by[k].prefix == nil {
			continue
		}
		if e, ok := t.by[k].match(data); ok {
			t.last = effectKind(k)
			return e, true
		}
	}
	return effect{}, false
}

func (t *template) match(data []byte) (effect, bool) {
	if t.prefix == nil || len(data) < len(t.prefix)+len(t.suffix) || !bytes.HasPrefix(data, t.prefix) || !bytes.HasSuffix(data, t.suffix) {
		return effect{}, false
	}
	e := t.effect
	middle := data[len(t.prefix) : len(data)-len(t.suffix)]
	switch {
	case len(middle) == 0:
		return effect{}, false // an empty text does nothing; let the decoder say so
	case simple(middle):
		e.text = string(middle)
	case json.Unmarshal(data[len(t.prefix)-1:len(data)-len(t.suffix)+1], &e.text) != nil:
		return effect{}, false
	}
	t.hits++
	return e, true
}

// simple says whether the inside of a JSON string stands for itself.
func simple(b []byte) bool {
	ascii := true
	for _, c := range b {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(b)
}

// names are the fields whose strings can be a hole.
func (k effectKind) names() []string {
	switch k {
	case effectText:
		return []string{`"content"`}
	case effectReasoning:
		return []string{`"reasoning_content"`, `"reasoning"`}
	case effectFragment:
		return []string{`"arguments"`}
	}
	return nil
}

// sentinel is put into the hole to see whether the decoder then gives it back, and nothing else changes.
const sentinel = "0/sentinel/0"

// learn makes a template from a payload that was decoded in full and did exactly one thing, e.
func (t *templates) learn(data []byte, e effect) {
	if e.kind > effectFragment || e.text == "" || e.id != "" || e.name != "" {
		return
	}
	if t.wait > 0 {
		t.wait--
		return
	}
	slot := &t.by[e.kind]
	if slot.tried && slot.hits == 0 {
		t.skip = min(max(1, 2*t.skip), maxSkip)
		t.wait = t.skip
	} else {
		t.skip = 0
	}
	for _, name := range e.kind.names() {
		for from := 0; ; {
			i := bytes.Index(data[from:], []byte(name))
			if i < 0 {
				break
			}
			from += i + len(name)
			if start, end, ok := literal(data, from); ok && confirmed(data, start, end, e) {
				*slot = template{prefix: bytes.Clone(data[:start]), suffix: bytes.Clone(data[end:]), effect: e, tried: true}
				slot.effect.text = ""
				t.last = e.kind
				return
			}
		}
	}
	*slot = template{tried: true}
}

// literal finds the inside of the string that is the value of the key that ends at i.
func literal(data []byte, i int) (start, end int, ok bool) {
	for _, due := range []byte{':', '"'} {
		for i < len(data) && (data[i] == ' ' || data[i] == '\t') {
			i++
		}
		if i >= len(data) || data[i] != due {
			return 0, 0, false
		}
		i++
	}
	for start = i; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return start, i, true
		}
	}
	return 0, 0, false
}

// confirmed replaces data[start:end] and asks the decoder whether it sees that and nothing else.
func confirmed(data []byte, start, end int, e effect) bool {
	probe := append(append(bytes.Clone(data[:start]), sentinel...), data[end:]...)
	c, err := decode(probe)
	if err != nil || !c.plain() {
		return false
	}
	got := c.effects(nil)
	e.text = sentinel
	return len(got) == 1 && got[0] == e
}

// plain says that a chunk carries nothing beside its effects.
func (c *chunk) plain() bool {
	if c.Usage != nil || isSet(c.Error) || isSet(c.PromptTokenIDs) || isSet(c.PromptLogprobs) || c.Object == "error" {
		return false
	}
	for _, ch := range c.Choices {
		if ch != nil && (isSet(ch.Logprobs) || isSet(ch.TokenIDs)) {
			return false
		}
	}
	return true
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
