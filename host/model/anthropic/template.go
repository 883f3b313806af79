package anthropic

import (
	"encoding/json"

	"github.com/dsh-web/dsh-web/host/model/wire"
)

// Slots of the fast path for the common event: see wire.Templates.
const (
	slotText = 1 + iota
	slotThinking
	slotInput
)

// shape is a delta event without its text.
type shape struct {
	index int
	kind  string
}

// with gives the delta of a slot's event back its text.
func (s shape) with(slot int, text string) (index int, d delta) {
	d.Type = s.kind
	*d.field(slot) = text
	return s.index, d
}

func (d *delta) field(slot int) *string {
	switch slot {
	case slotThinking:
		return &d.Thinking
	case slotInput:
		return &d.PartialJSON
	}
	return &d.Text
}

// slot says which kind of piece a delta is, 0 for none that can be learned.
func (d *delta) slot() int {
	switch d.Type {
	case "text_delta":
		return slotText
	case "thinking_delta":
		return slotThinking
	case "input_json_delta":
		return slotInput
	}
	return 0
}

// learn makes a template from an event that was decoded in full, when all it does is add one text.
func (r *reading) learn(e event, data []byte) {
	if e.Type != "content_block_delta" || e.Delta == nil {
		return
	}
	slot := e.Delta.slot()
	if slot == 0 || *e.Delta.field(slot) == "" {
		return
	}
	key := []string{"", `"text"`, `"thinking"`, `"partial_json"`}[slot]
	want := shape{index: e.Index, kind: e.Delta.Type}
	learned := r.templates.Learn(slot, data, []string{key}, func(probe []byte) bool {
		var got event
		if json.Unmarshal(probe, &got) != nil || got.Type != e.Type || got.Delta == nil {
			return false
		}
		index, d := want.with(slot, wire.Sentinel)
		return got.Index == index && *got.Delta == d
	})
	if learned {
		r.shapes[slot] = want
	}
}
