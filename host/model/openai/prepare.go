package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// Prepare encodes r. The parts of the result are slices of its body. See model.Adapter.
func (a *Adapter) Prepare(r model.Request) (*model.Prepared, error) {
	d, _ := dialect(a.cfg.BaseURL(), a.cfg.Dialect)
	for _, name := range []string{"model", "messages", "tools", "stream", "stream_options"} {
		if _, taken := r.Params[name]; taken {
			return nil, &model.Error{
				Code: model.CodeInvalidRequest, Provider: a.cfg.Provider,
				Message: fmt.Sprintf("the parameter %q is set by the host and can't be overridden", name),
			}
		}
	}
	history := wire.History(r.Messages, nil)
	e := encoder{dialect: d, images: a.cfg.Images, reasoning: reasoningFor(d, history, r.RepairReasoning), buf: make([]byte, 0, sizeOf(r))}

	e.raw(`{"model":`)
	e.text(a.cfg.Model)
	e.raw(`,"messages":[`)
	var system span
	if r.System != "" {
		system.from = len(e.buf)
		e.raw(`{"role":`)
		e.text(d.SystemRole)
		e.raw(`,"content":`)
		e.text(r.System)
		e.raw("}")
		system.to = len(e.buf)
	}
	for _, entry := range history {
		e.entry(entry, r.System != "")
	}
	e.raw("]")
	var tools span
	if len(r.Tools) > 0 {
		e.raw(`,"tools":`)
		tools.from = len(e.buf)
		e.tools(r.Tools)
		tools.to = len(e.buf)
	}
	e.raw(`,"stream":true,"stream_options":{"include_usage":true}`)
	if err := e.parameters(r, a.cfg.CaptureTokens); err != nil {
		return nil, err
	}
	e.raw("}")

	p := &model.Prepared{Encoder: Encoder, Body: e.buf, Request: r, Messages: make([]json.RawMessage, len(e.messages))}
	p.System, p.Tools = system.of(e.buf), tools.of(e.buf)
	for i, m := range e.messages {
		p.Messages[i] = m.of(e.buf)
	}
	return p, nil
}

// sizeOf guesses the size of the body, so that it is allocated once.
func sizeOf(r model.Request) int {
	n := 1024 + len(r.System)
	for _, t := range r.Tools {
		n += 128 + len(t.Description) + len(t.Parameters)
	}
	for _, m := range r.Messages {
		n += 160 + blockSize(m.Content)
	}
	return n + n/8
}

func blockSize(content []model.Block) int {
	n := 0
	for _, b := range content {
		n += len(b.Text) + len(b.Arguments) + len(b.Data)*4/3 + 64 + blockSize(b.Content)
	}
	return n
}

type span struct{ from, to int }

func (s span) of(b []byte) json.RawMessage {
	if s.to == 0 {
		return nil
	}
	return b[s.from:s.to:s.to]
}

// reasoningForm says which assistant messages carry the reasoning field.
type reasoningForm int

const (
	reasoningRecorded reasoningForm = iota // those that have a reasoning block, with its text; "" counts
	reasoningAll                           // every one that makes calls or has a block
	reasoningOmit
)

// reasoningFor picks the form. A message carries what was recorded with it, so that an old message is rendered alike for ever. A repaired request
// takes the other form: none when every message with calls already carried the field, else all.
func reasoningFor(d model.Dialect, history []wire.Entry, repair bool) reasoningForm {
	if d.ReasoningField == reasoningNone {
		return reasoningOmit
	}
	if !repair {
		return reasoningRecorded
	}
	for _, e := range history {
		if e.Role == model.RoleAssistant && len(e.Calls) > 0 && !hasReasoning(e.Blocks) {
			return reasoningAll
		}
	}
	return reasoningOmit
}

func hasReasoning(blocks []model.Block) bool {
	return slices.ContainsFunc(blocks, func(b model.Block) bool { return b.Type == model.BlockReasoning })
}

// encoder writes one body. Fields are always written in the same order.
type encoder struct {
	dialect   model.Dialect
	images    bool
	reasoning reasoningForm
	buf       []byte
	messages  []span
}

func (e *encoder) raw(s string)  { e.buf = append(e.buf, s...) }
func (e *encoder) text(s string) { e.buf = wire.AppendString(e.buf, s) }

func (e *encoder) begin(afterSystem bool) {
	if afterSystem || len(e.messages) > 0 {
		e.raw(",")
	}
	e.messages = append(e.messages, span{from: len(e.buf)})
}

func (e *encoder) end() {
	e.raw("}")
	e.messages[len(e.messages)-1].to = len(e.buf)
}

func (e *encoder) entry(m wire.Entry, afterSystem bool) {
	e.begin(afterSystem)
	if m.Role == model.RoleUser {
		e.raw(`{"role":"user","content":`)
		e.content(m.Blocks)
		e.end()
		return
	}
	e.assistant(m)
	e.end()
	var pictures []model.Block
	for _, r := range m.Results {
		e.begin(afterSystem)
		e.raw(`{"role":"tool","tool_call_id":`)
		e.text(r.CallID)
		e.raw(`,"content":`)
		e.text(e.resultText(r.Content))
		e.end()
		for _, b := range r.Content {
			if b.Type == model.BlockImage && e.images {
				pictures = append(pictures, b)
			}
		}
	}
	if len(pictures) > 0 { // a tool message takes text only, so its images follow
		e.begin(afterSystem)
		e.raw(`{"role":"user","content":`)
		e.content(pictures)
		e.end()
	}
}

func (e *encoder) assistant(m wire.Entry) {
	e.raw(`{"role":"assistant"`)
	text := model.JoinText(m.Blocks)
	switch {
	case text != "" || e.dialect.EmptyContent == "" || (e.dialect.EmptyContent != emptyNull && e.dialect.EmptyContent != emptyOmit):
		e.raw(`,"content":`)
		e.text(text)
	case e.dialect.EmptyContent == emptyNull:
		e.raw(`,"content":null`)
	}
	has := hasReasoning(m.Blocks)
	if has && e.reasoning != reasoningOmit || e.reasoning == reasoningAll && len(m.Calls) > 0 {
		e.raw(",")
		e.text(e.dialect.ReasoningField)
		e.raw(":")
		e.text(joinReasoning(m.Blocks))
	}
	if len(m.Calls) > 0 {
		e.raw(`,"tool_calls":[`)
		for i, c := range m.Calls {
			if i > 0 {
				e.raw(",")
			}
			e.raw(`{"id":`)
			e.text(c.ID)
			e.raw(`,"type":"function","function":{"name":`)
			e.text(c.Name)
			e.raw(`,"arguments":`)
			e.text(c.Arguments)
			e.raw("}}")
		}
		e.raw("]")
	}
}

func joinReasoning(blocks []model.Block) string {
	out := ""
	for _, b := range blocks {
		if b.Type == model.BlockReasoning {
			out += b.Text
		}
	}
	return out
}

// content writes plain text as a string, and text with images as a list of parts.
func (e *encoder) content(blocks []model.Block) {
	if !e.images || !slices.ContainsFunc(blocks, func(b model.Block) bool { return b.Type == model.BlockImage }) {
		e.text(e.resultText(blocks))
		return
	}
	e.raw("[")
	n := 0
	for _, b := range blocks {
		if b.Type != model.BlockText && b.Type != model.BlockImage {
			continue
		}
		if n++; n > 1 {
			e.raw(",")
		}
		if b.Type == model.BlockText {
			e.raw(`{"type":"text","text":`)
			e.text(b.Text)
			e.raw("}")
			continue
		}
		e.raw(`{"type":"image_url","image_url":{"url":"data:`)
		quoted := wire.AppendString(nil, b.Mime)
		e.buf = append(e.buf, quoted[1:len(quoted)-1]...)
		e.raw(`;base64,`)
		e.buf = base64.StdEncoding.AppendEncode(e.buf, b.Data)
		e.raw(`"}}`)
	}
	e.raw("]")
}

// resultText joins text. An image that can't travel in it is named, so that the model knows of it.
func (e *encoder) resultText(blocks []model.Block) string {
	if len(blocks) == 1 && blocks[0].Type == model.BlockText {
		return blocks[0].Text
	}
	out := ""
	for _, b := range blocks {
		switch {
		case b.Type == model.BlockText:
			out += b.Text
		case b.Type == model.BlockImage && !e.images:
			out += wire.NoImage()
		}
	}
	if out == "" {
		return wire.Empty()
	}
	return out
}

func (e *encoder) tools(tools []model.Tool) {
	e.raw("[")
	for i, t := range tools {
		if i > 0 {
			e.raw(",")
		}
		e.raw(`{"type":"function","function":{"name":`)
		e.text(t.Name)
		e.raw(`,"description":`)
		e.text(t.Description)
		e.raw(`,"parameters":`)
		e.buf = wire.AppendRaw(e.buf, t.Parameters)
		e.raw("}}")
	}
	e.raw("]")
}

// parameters writes what somebody set, sorted by name. A parameter that is given by name wins over the field that would mean the same.
func (e *encoder) parameters(r model.Request, capture bool) error {
	all := map[string]json.RawMessage{}
	if r.MaxTokens > 0 {
		all[e.dialect.MaxTokensField] = strconv.AppendInt(nil, int64(r.MaxTokens), 10)
	}
	if r.ReasoningEffort != "" {
		effort := wire.AppendString(nil, r.ReasoningEffort)
		switch e.dialect.EffortForm {
		case effortNested:
			all["reasoning"] = append(append([]byte(`{"effort":`), effort...), '}')
		case effortThinking:
			all["thinking"] = json.RawMessage(`{"type":"enabled"}`)
			if r.ReasoningEffort == "none" {
				all["thinking"] = json.RawMessage(`{"type":"disabled"}`)
			}
		case effortNone:
		default:
			all["reasoning_effort"] = effort
		}
	}
	if capture {
		all["logprobs"] = json.RawMessage("true")
		all["return_token_ids"] = json.RawMessage("true")
	}
	maps.Copy(all, r.Params)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !json.Valid(all[name]) {
			return &model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf("the parameter %q isn't JSON", name)}
		}
		e.raw(",")
		e.text(name)
		e.raw(":")
		e.buf = wire.AppendRaw(e.buf, all[name])
	}
	return nil
}
