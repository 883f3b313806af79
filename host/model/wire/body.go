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
	request  model.Request
	buf      []byte
	system   span
	tools    span
	messages []span

	opening *opening // of this body
	from    *opening // what it goes on from; an empty one for nothing
}

// opening is the beginning of a body that later requests of its session share: the head, and the messages that nothing can change any more. Requests
// only read it.
type opening struct {
	setup any // what the bytes depend on besides
	// history is all that the bytes depend on of the history; the first next of it are in them.
	history  []model.Message
	next     int
	body     []byte
	system   span
	messages []span
	ids      []string
	hashes   *model.Opening
	// tools is what the list after the messages was made of, and its text.
	tools     []model.Tool
	toolsText []byte
}

type span struct{ from, to int }

// of returns the part, or nil when it was never written.
func (s span) of(b []byte) json.RawMessage {
	if s.to == 0 {
		return nil
	}
	return b[s.from:s.to:s.to]
}

// NewBody begins a body for r.
func NewBody(r model.Request) *Body { return &Body{request: r} }

// Begin writes head, which may write the system part, and the messages of the history, with one call of entry each. Where the request's Earlier
// has an equal setup, a comparable value that holds all that head and entry depend on, and the same history so far, its bytes are taken.
func (b *Body) Begin(setup any, clean func(string) string, head func(), entry func(Entry)) {
	history := b.request.Messages
	o := b.reusable(setup)
	b.from = o
	b.messages = append(make([]span, 0, len(o.messages)+len(history)-o.next+8), o.messages...)
	b.system = o.system
	b.reserve(o)
	s := sendable{messages: history, ids: model.CallIDsAfter(o.ids), clean: clean, reach: len(o.history)}
	if o.body == nil {
		head()
	}
	// What follows o's part is settled up to the first message that a later one may change. The bytes of images aren't worth being kept to be compared.
	settled := true
	next, length, count, ids, reach := o.next, len(b.buf), len(b.messages), len(o.ids), len(o.history)
	for i := o.next; i < len(history); i++ {
		if e, ok := s.entry(i); ok {
			entry(e)
		}
		settled = settled && !s.open && !slices.ContainsFunc(history[min(reach, s.reach):s.reach], model.Message.HoldsData)
		if settled {
			next, length, count, ids, reach = i+1, len(b.buf), len(b.messages), s.ids.Len(), s.reach
		}
	}
	b.opening = &opening{
		setup: setup, history: slices.Clip(history[:reach]), next: next, ids: s.ids.First(ids),
		body: slices.Clip(b.buf[:length]), system: b.system, messages: slices.Clip(b.messages[:count]),
	}
}

// reusable is what the request can go on from; an opening of nothing when there is none.
func (b *Body) reusable(setup any) *opening {
	none := &opening{}
	if b.request.Earlier == nil {
		return none
	}
	o, ok := b.request.Earlier.Memo.(*opening)
	if !ok || o.setup != setup || len(o.history) > len(b.request.Messages) || !slices.EqualFunc(o.history, b.request.Messages[:len(o.history)], model.Message.Equal) {
		return none
	}
	return o
}

// reserve makes room for the whole request and begins with what o has of it.
func (b *Body) reserve(o *opening) {
	r := b.request
	n := 1024 + len(r.System)
	for _, t := range r.Tools {
		n += 128 + len(t.Description) + len(t.Parameters)
	}
	for _, m := range r.Messages[o.next:] {
		n += 160 + sizeOf(m.Content)
	}
	b.buf = append(make([]byte, 0, len(o.body)+n+n/8), o.body...)
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

// Tools writes the list of tools with one call of write each, or takes it from the request before. A tool without parameters gets the schema that says so, since servers demand one.
func (b *Body) Tools(tools []model.Tool, write func(model.Tool)) {
	b.tools.from = len(b.buf)
	defer func() { b.tools.to = len(b.buf) }()
	if o := b.opening; o != nil {
		o.tools = tools
		if slices.EqualFunc(tools, b.from.tools, model.Tool.Equal) {
			b.buf = append(b.buf, b.from.toolsText...)
			return
		}
	}
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

// HasSystem says whether the system part was written.
func (b *Body) HasSystem() bool { return b.system.to > 0 }

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
func (b *Body) Prepared(encoder string) *model.Prepared {
	p := &model.Prepared{
		Encoder: encoder, Body: b.buf, Request: b.request, System: b.system.of(b.buf), Tools: b.tools.of(b.buf), Messages: make([]json.RawMessage, len(b.messages)),
	}
	for i, m := range b.messages {
		p.Messages[i] = m.of(b.buf)
	}
	if o := b.opening; o != nil {
		o.hashes = p.Open(b.from.hashes, len(o.body), len(o.messages))
		o.toolsText = p.Tools
		p.Memo = o
	}
	return p
}
