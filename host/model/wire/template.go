package wire

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Templates reads payloads without decoding them. Nearly all payloads of one stream are the same bytes around one string. A template is a
// payload that the full decoder has read, cut at that string: a later payload with the same bytes around it does the same with another
// text. What a template says is checked against the full decoder when it is learned; fuzz tests of the adapters compare the two.
//
// There is one slot for each kind of piece, numbered by the adapter, which keeps what a payload of that slot does.
type Templates struct {
	slots [4]template
	last  int
	// A stream whose payloads always differ elsewhere would be learned in vain, so after each useless template the pause doubles.
	skip, wait int
}

type template struct {
	prefix, suffix []byte // prefix ends in the string's opening quote, suffix begins with its closing one
	met, tried     bool
	hits           int
}

const (
	maxSkip  = 1024
	maxLearn = 16 << 10 // bytes; longer payloads are too rare to be worth a second decoding
)

// Match reads data by a template: which slot, and which text.
func (t *Templates) Match(data []byte) (slot int, text string, ok bool) {
	if text, ok = t.slots[t.last].match(data); ok {
		return t.last, text, true
	}
	for i := range t.slots {
		if i == t.last {
			continue
		}
		if text, ok = t.slots[i].match(data); ok {
			t.last = i
			return i, text, true
		}
	}
	return 0, "", false
}

func (t *template) match(data []byte) (text string, ok bool) {
	if t.prefix == nil || len(data) <= len(t.prefix)+len(t.suffix) || !bytes.HasPrefix(data, t.prefix) || !bytes.HasSuffix(data, t.suffix) {
		return "", false // also when the text is empty: such a piece does nothing, and the decoder says so
	}
	middle := data[len(t.prefix) : len(data)-len(t.suffix)]
	if Plain(middle) {
		text = string(middle)
	} else if json.Unmarshal(data[len(t.prefix)-1:len(data)-len(t.suffix)+1], &text) != nil {
		return "", false
	}
	t.hits++
	return text, true
}

// Plain says whether the inside of a JSON string stands for itself.
func Plain(b []byte) bool {
	ascii := true
	for _, c := range b {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(b)
}

// Sentinel is what Learn puts in place of the text.
const Sentinel = "0/sentinel/0"

// Learn makes a template for a slot from a payload that was decoded in full and did one thing with one text. The text is the value of one of the
// keys (written with their quotes). confirm decodes a payload and says whether it does the same thing with the text Sentinel, and nothing else.
// Only when Learn says true does the slot's template stand for this payload. The first payload of a slot isn't learned: many an answer has no other.
func (t *Templates) Learn(slot int, data []byte, keys []string, confirm func(probe []byte) bool) bool {
	if len(data) > maxLearn {
		return false
	}
	s := &t.slots[slot]
	if !s.met {
		s.met = true
		return false
	}
	if t.wait > 0 {
		t.wait--
		return false
	}
	if s.tried && s.hits == 0 {
		t.skip = min(max(1, 2*t.skip), maxSkip)
		t.wait = t.skip
	} else {
		t.skip = 0
	}
	*s = template{met: true, tried: true}
	for _, key := range keys {
		for from := 0; ; {
			i := bytes.Index(data[from:], []byte(key))
			if i < 0 {
				break
			}
			from += i + len(key)
			start, end, ok := literal(data, from)
			if ok && confirm(append(append(bytes.Clone(data[:start]), Sentinel...), data[end:]...)) {
				s.prefix, s.suffix = bytes.Clone(data[:start]), bytes.Clone(data[end:])
				t.last = slot
				return true
			}
		}
	}
	return false
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
