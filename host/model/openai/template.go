package openai

import (
	"encoding/json"

	"github.com/dsh-web/dsh-web/host/model/wire"
)

// templates is the fast path for the common chunk: see wire.Templates. Its slots are the kinds of pieces.
type templates struct {
	wire.Templates
	effects [effectFinish]effect // what a chunk of each slot does, without its text
}

// match reads data by a template.
func (t *templates) match(data []byte) (effect, bool) {
	slot, text, ok := t.Match(data)
	if !ok {
		return effect{}, false
	}
	e := t.effects[slot]
	e.text = text
	return e, true
}

// keys are the fields whose strings can be the text of a piece.
func (k effectKind) keys() []string {
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

// learn makes a template from a payload that was decoded in full and did exactly one thing, e. A piece that names a call does more than its
// text says, and isn't learned.
func (t *templates) learn(data []byte, e effect) {
	if e.kind >= effectFinish || e.text == "" || e.id != "" || e.name != "" {
		return
	}
	want := e
	want.text = wire.Sentinel
	learned := t.Learn(int(e.kind), data, e.kind.keys(), func(probe []byte) bool {
		c, err := decode(probe)
		if err != nil || !c.plain() {
			return false
		}
		got := c.effects(nil)
		return len(got) == 1 && got[0] == want
	})
	if learned {
		t.effects[e.kind] = e
	}
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
