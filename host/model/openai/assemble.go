package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
)

// assembler builds the answer from effects and hands each piece on.
type assembler struct {
	emit   func(model.Delta)
	used   *model.CallIDs // the history's included
	prefix string         // of generated ids
	blocks []*block
	open   *block // the text or reasoning block that grows
	calls  []*block
	index  map[int]*block // the call that a server's index means now
}

type block struct {
	pos   int
	kind  model.DeltaKind
	text  strings.Builder // of calls: the arguments
	rawID string          // the id as the server wrote it
	id    string          // unique in the history
	name  string
	slot  int // the server's index, -1 for none
}

// newAssembler makes one for an answer to a history. Generated ids depend on the history alone, so a replay makes the same.
func newAssembler(history []model.Message, emit func(model.Delta)) *assembler {
	return &assembler{
		emit: emit, used: model.CallIDsOf(history), prefix: fmt.Sprintf("call_%d", len(history)), index: map[int]*block{},
	}
}

func (a *assembler) apply(e effect) {
	switch e.kind {
	case effectText:
		a.grow(model.DeltaText, e.text)
	case effectReasoning:
		a.grow(model.DeltaReasoning, e.text)
	case effectFragment:
		a.fragment(e)
	}
}

func (a *assembler) grow(kind model.DeltaKind, text string) {
	if a.open == nil || a.open.kind != kind {
		a.open = a.add(kind)
	}
	a.open.text.WriteString(text)
	a.emit(model.Delta{Block: a.open.pos, Kind: kind, Text: text})
}

func (a *assembler) add(kind model.DeltaKind) *block {
	b := &block{pos: len(a.blocks), kind: kind, slot: -1}
	a.blocks = append(a.blocks, b)
	return b
}

// fragment files one piece of a call. Neither index nor id is trusted: servers leave them out, repeat them, and use one index for all calls.
func (a *assembler) fragment(e effect) {
	b := a.callOf(e)
	fresh := b == nil
	if fresh {
		b = a.add(model.DeltaTool)
		b.slot = e.index
		a.calls = append(a.calls, b)
	}
	if e.index >= 0 {
		a.index[e.index] = b
	}
	tell := fresh
	if b.rawID == "" && e.id != "" {
		b.rawID, b.id = e.id, a.used.Unique(e.id)
		tell = true
	}
	// The first name counts. One that goes on growing replaces it; a repeat or anything else doesn't.
	if e.name != "" && e.name != b.name && strings.HasPrefix(e.name, b.name) {
		b.name = e.name
		tell = true
	}
	b.text.WriteString(e.text)
	if !tell && e.text == "" {
		return
	}
	d := model.Delta{Block: b.pos, Kind: model.DeltaTool, Text: e.text}
	if tell {
		d.Name, d.CallID = b.name, b.id
	}
	a.emit(d)
}

// callOf finds the call that a fragment belongs to, or nil when it starts one.
func (a *assembler) callOf(e effect) *block {
	var last *block
	if len(a.calls) > 0 {
		last = a.calls[len(a.calls)-1]
	}
	if e.index >= 0 {
		if b := a.index[e.index]; b != nil {
			switch {
			case e.id != "" && b.rawID != "" && e.id != b.rawID:
				return a.byID(e.id, e.index)
			case e.id == "" && e.name != "" && e.text != "" && whole(b):
				return nil // a second whole call under the index of the first
			}
			return b
		}
		if e.id == "" && e.name == "" {
			return last
		}
		return nil
	}
	switch {
	case e.id != "":
		return a.byID(e.id, -1)
	case e.name == "":
		return last
	case last != nil && last.slot < 0 && last.name == e.name && last.text.Len() > 0 && !whole(last):
		return last // a server that repeats the name with every piece
	}
	return nil
}

func (a *assembler) byID(id string, slot int) *block {
	for _, b := range a.calls {
		if b.rawID == id && b.slot == slot {
			return b
		}
	}
	return nil
}

func whole(b *block) bool { return json.Valid([]byte(b.text.String())) }

// content finishes the blocks. When thinking is on, a message with calls always records its reasoning, "" when there was none, so that the next
// request says so. Arguments that are empty become {}.
func (a *assembler) content(thinking bool) []model.Block {
	var out []model.Block
	if thinking && len(a.calls) > 0 && !a.has(model.DeltaReasoning) {
		out = append(out, model.Block{Type: model.BlockReasoning})
	}
	for _, b := range a.blocks {
		switch b.kind {
		case model.DeltaText:
			out = append(out, model.Text(b.text.String()))
		case model.DeltaReasoning:
			out = append(out, model.Block{Type: model.BlockReasoning, Text: b.text.String()})
		case model.DeltaTool:
			args := b.text.String()
			if strings.TrimSpace(args) == "" {
				args = "{}"
			}
			if b.id == "" {
				b.id = a.used.Unique(fmt.Sprintf("%s_%d", a.prefix, b.pos))
			}
			out = append(out, model.Block{Type: model.BlockToolCall, ID: b.id, Name: b.name, Arguments: args})
		}
	}
	return out
}

func (a *assembler) has(kind model.DeltaKind) bool {
	for _, b := range a.blocks {
		if b.kind == kind {
			return true
		}
	}
	return false
}
