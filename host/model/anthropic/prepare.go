package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// defaultMaxTokens is sent when neither the request nor the catalogue says how long an answer may be.
const defaultMaxTokens = 8192

// Prepare encodes r. The parts of the result are slices of its body. See model.Adapter.
func (a *Adapter) Prepare(r model.Request) (*model.Prepared, error) {
	for _, name := range []string{"model", "messages", "tools", "stream", "system"} {
		if _, taken := r.Params[name]; taken {
			return nil, &model.Error{
				Code: model.CodeInvalidRequest, Provider: a.cfg.Provider,
				Message: fmt.Sprintf("the parameter %q is set by the host and can't be overridden", name),
			}
		}
	}
	e := encoder{images: a.cfg.Images, reasoning: !r.RepairReasoning}
	e.raw(`{"model":`)
	e.text(a.cfg.Model)
	var system, tools span
	if r.System != "" {
		e.raw(`,"system":`)
		system.from = len(e.buf)
		e.text(r.System)
		system.to = len(e.buf)
	}
	e.raw(`,"messages":[`)
	for _, entry := range wire.History(r.Messages, cleanID) {
		e.entry(entry)
	}
	e.raw("]")
	if len(r.Tools) > 0 {
		e.raw(`,"tools":`)
		tools.from = len(e.buf)
		e.tools(r.Tools)
		tools.to = len(e.buf)
	}
	e.raw(`,"stream":true`)
	if err := e.parameters(r, a.cfg.MaxOutput); err != nil {
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

// cleanID maps an id to the characters that the wire allows.
func cleanID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}

type span struct{ from, to int }

func (s span) of(b []byte) json.RawMessage {
	if s.to == 0 {
		return nil
	}
	return b[s.from:s.to:s.to]
}

// encoder writes one body. Fields are always written in the same order.
type encoder struct {
	images    bool
	reasoning bool
	buf       []byte
	messages  []span
	blocks    int // in the message being written
}

func (e *encoder) raw(s string)  { e.buf = append(e.buf, s...) }
func (e *encoder) text(s string) { e.buf = wire.AppendString(e.buf, s) }

func (e *encoder) begin(role string) {
	if len(e.messages) > 0 {
		e.raw(",")
	}
	e.messages = append(e.messages, span{from: len(e.buf)})
	e.raw(`{"role":"` + role + `","content":[`)
	e.blocks = 0
}

func (e *encoder) end() {
	e.raw("]}")
	e.messages[len(e.messages)-1].to = len(e.buf)
}

func (e *encoder) block(kind string) {
	if e.blocks > 0 {
		e.raw(",")
	}
	e.blocks++
	e.raw(`{"type":"` + kind + `"`)
}

// entry writes a message and, after an assistant's with calls, one user message with all results: the wire wants them together.
func (e *encoder) entry(m wire.Entry) {
	if m.Role == model.RoleUser {
		e.begin("user")
		e.content(m.Blocks)
		e.end()
		return
	}
	e.begin("assistant")
	for _, b := range m.Blocks {
		switch {
		case b.Type == model.BlockReasoning && b.Signature != "" && e.reasoning:
			e.thinking(b)
		case b.Type == model.BlockText && strings.TrimSpace(b.Text) != "":
			e.textBlock(b.Text)
		}
	}
	for _, c := range m.Calls {
		e.block("tool_use")
		e.raw(`,"id":`)
		e.text(c.ID)
		e.raw(`,"name":`)
		e.text(c.Name)
		e.raw(`,"input":`)
		e.buf = wire.AppendRaw(e.buf, json.RawMessage(c.Arguments))
		e.raw("}")
	}
	if e.blocks == 0 { // text of nothing but white space, which the wire refuses
		e.textBlock(wire.Empty())
	}
	e.end()
	if len(m.Results) == 0 {
		return
	}
	e.begin("user")
	for _, r := range m.Results {
		e.result(r)
	}
	e.end()
}

// thinking writes a block of reasoning exactly as it came, its signature included. Redacted reasoning has no text: the signature is its data.
func (e *encoder) thinking(b model.Block) {
	if data, redacted := strings.CutPrefix(b.Signature, redactedMark); redacted {
		e.block("redacted_thinking")
		e.raw(`,"data":`)
		e.text(data)
		e.raw("}")
		return
	}
	e.block("thinking")
	e.raw(`,"thinking":`)
	e.text(b.Text)
	e.raw(`,"signature":`)
	e.text(b.Signature)
	e.raw("}")
}

// redactedMark begins the signature of a block that the server encrypted.
const redactedMark = "redacted:"

func (e *encoder) textBlock(s string) {
	e.block("text")
	e.raw(`,"text":`)
	e.text(s)
	e.raw("}")
}

func (e *encoder) result(r wire.Result) {
	e.block("tool_result")
	e.raw(`,"tool_use_id":`)
	e.text(r.CallID)
	e.raw(`,"content":[`)
	outer := e.blocks
	e.blocks = 0
	e.content(r.Content)
	e.blocks = outer
	e.raw("]")
	if r.IsError {
		e.raw(`,"is_error":true`)
	}
	e.raw("}")
}

// content writes text and images. The wire refuses text without a visible character, so that is left out, unless nothing else is there.
func (e *encoder) content(blocks []model.Block) {
	for _, b := range blocks {
		switch {
		case b.Type == model.BlockText && strings.TrimSpace(b.Text) != "":
			e.textBlock(b.Text)
		case b.Type == model.BlockImage && e.images:
			e.block("image")
			e.raw(`,"source":{"type":"base64","media_type":`)
			e.text(b.Mime)
			e.raw(`,"data":"`)
			e.buf = base64.StdEncoding.AppendEncode(e.buf, b.Data)
			e.raw(`"}}`)
		case b.Type == model.BlockImage:
			e.textBlock(wire.NoImage())
		}
	}
	if e.blocks == 0 {
		e.textBlock(wire.Empty())
	}
}

func (e *encoder) tools(tools []model.Tool) {
	e.raw("[")
	for i, t := range tools {
		if i > 0 {
			e.raw(",")
		}
		e.raw(`{"name":`)
		e.text(t.Name)
		e.raw(`,"description":`)
		e.text(t.Description)
		e.raw(`,"input_schema":`)
		e.buf = wire.AppendRaw(e.buf, t.Parameters)
		e.raw("}")
	}
	e.raw("]")
}

// parameters writes what somebody set, sorted by name, and max_tokens, which the wire demands.
func (e *encoder) parameters(r model.Request, maxOutput int) error {
	limit := r.MaxTokens
	if limit <= 0 {
		limit = maxOutput
	}
	if limit <= 0 {
		limit = defaultMaxTokens
	}
	all := map[string]json.RawMessage{"max_tokens": strconv.AppendInt(nil, int64(limit), 10)}
	if r.ReasoningEffort != "" {
		all["output_config"] = append(append([]byte(`{"effort":`), wire.AppendString(nil, r.ReasoningEffort)...), '}')
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
