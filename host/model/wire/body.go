package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/dsh-web/dsh-web/host/model"
)

// Body writes the body of one request, front to back, and remembers where its parts are: the parts of a Prepared are slices of the body, so
// what is hashed and compared is what is sent.
type Body struct {
	buf      []byte
	system   span
	tools    span
	messages []span
}

type span struct{ from, to int }

// of returns the part, or nil when it was never written.
func (s span) of(b []byte) json.RawMessage {
	if s.to == 0 {
		return nil
	}
	return b[s.from:s.to:s.to]
}

// NewBody makes a body with room for r.
func NewBody(r model.Request) *Body {
	n := 1024 + len(r.System)
	for _, t := range r.Tools {
		n += 128 + len(t.Description) + len(t.Parameters)
	}
	for _, m := range r.Messages {
		n += 160 + sizeOf(m.Content)
	}
	return &Body{buf: make([]byte, 0, n+n/8), messages: make([]span, 0, len(r.Messages)+8)}
}

func sizeOf(content []model.Block) int {
	n := 0
	for _, b := range content {
		n += len(b.Text) + len(b.Arguments) + len(b.Data)*4/3 + 64 + sizeOf(b.Content)
	}
	return n
}

// Raw appends text as it is.
func (b *Body) Raw(s string) { b.buf = append(b.buf, s...) }

// Text appends a JSON string.
func (b *Body) Text(s string) { b.buf = AppendString(b.buf, s) }

// JSON appends JSON text without its white space. Text that isn't JSON becomes null. Keys keep their order, which a model may see.
func (b *Body) JSON(raw json.RawMessage) { b.buf = AppendRaw(b.buf, raw) }

// Base64 appends data in base64, without quotes.
func (b *Body) Base64(data []byte) { b.buf = base64.StdEncoding.AppendEncode(b.buf, data) }

// System writes the system part.
func (b *Body) System(write func()) {
	b.system.from = len(b.buf)
	write()
	b.system.to = len(b.buf)
}

// Tools writes the list of tools with one call of write each. A tool without parameters gets the schema that says so, since servers demand one.
func (b *Body) Tools(tools []model.Tool, write func(model.Tool)) {
	b.tools.from = len(b.buf)
	b.Raw("[")
	for i, t := range tools {
		if i > 0 {
			b.Raw(",")
		}
		if len(t.Parameters) == 0 {
			t.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		write(t)
	}
	b.Raw("]")
	b.tools.to = len(b.buf)
}

// Message writes one message of the history, after a comma unless it is the first of its list.
func (b *Body) Message(first bool, write func()) {
	if !first {
		b.Raw(",")
	}
	m := span{from: len(b.buf)}
	write()
	m.to = len(b.buf)
	b.messages = append(b.messages, m)
}

// Messages counts the messages so far.
func (b *Body) Messages() int { return len(b.messages) }

// Parameters writes what somebody set, sorted by name, each after a comma. What the session gave by name wins over the field of ours that would mean
// the same; names that the adapter writes itself are refused.
func (b *Body) Parameters(ours, session map[string]json.RawMessage, reserved ...string) error {
	all := maps.Clone(ours)
	maps.Copy(all, session)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.Contains(reserved, name) {
			return &model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf("the parameter %q is set by the host and can't be overridden", name)}
		}
		if !json.Valid(all[name]) {
			return &model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf("the parameter %q isn't JSON", name)}
		}
		b.Raw(",")
		b.Text(name)
		b.Raw(":")
		b.JSON(all[name])
	}
	return nil
}

// Prepared is the finished request.
func (b *Body) Prepared(encoder string, r model.Request) *model.Prepared {
	p := &model.Prepared{Encoder: encoder, Body: b.buf, Request: r, System: b.system.of(b.buf), Tools: b.tools.of(b.buf), Messages: make([]json.RawMessage, len(b.messages))}
	for i, m := range b.messages {
		p.Messages[i] = m.of(b.buf)
	}
	return p
}
