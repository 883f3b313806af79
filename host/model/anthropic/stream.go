package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// apiVersion is the version of the wire that this adapter speaks.
const apiVersion = "2023-06-01"

// Stream sends p and reads the answer. See model.Adapter.
func (a *Adapter) Stream(ctx context.Context, p *model.Prepared, emit func(model.Delta)) (*model.Response, error) {
	post := wire.Post{Body: p.Body, Session: p.Request.Session, Call: p.Request.Call, Header: http.Header{"Anthropic-Version": {apiVersion}}}
	var err error
	if post.URL, err = wire.Endpoint(a.cfg.BaseURL(), "/v1", "/messages"); err != nil {
		return nil, &model.Error{Code: model.CodeInvalidRequest, Provider: a.cfg.Provider, Message: err.Error(), Err: err}
	}
	if post.Secret, err = wire.FetchKey(ctx, a.cfg.Provider, a.cfg.Key); err != nil {
		return nil, err
	}
	if post.Secret != "" {
		post.Header.Set("X-Api-Key", post.Secret)
	}
	client := wire.Client{Provider: a.cfg.Provider, Transport: a.cfg.Transport, Clocks: a.cfg.Clocks, Annotate: a.cfg.Annotate, Tails: a.cfg.Tails}
	s, err := client.Open(ctx, post)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &reading{
		stream: s, emit: emit, used: model.CallIDsOf(p.Request.Messages), prefix: fmt.Sprintf("call_%d", len(p.Request.Messages)), blocks: map[int]*block{},
	}
	if s.Plain != nil {
		err = r.plain(s.Plain)
	} else {
		err = r.events()
	}
	return r.result(err)
}

// event is any event of the wire; which fields count depends on its type.
type event struct {
	Type    string          `json:"type"`
	Index   int             `json:"index"`
	Message *message        `json:"message"`
	Block   *content        `json:"content_block"`
	Delta   *delta          `json:"delta"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

// message is the head of a stream, or a whole answer.
type message struct {
	Type       string    `json:"type"`
	Content    []content `json:"content"`
	StopReason string    `json:"stop_reason"`
	Usage      *usage    `json:"usage"`
}

type content struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
}

type delta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	PartialJSON string `json:"partial_json"`
	StopReason  string `json:"stop_reason"`
}

// usage is cumulative: each report replaces the numbers that it holds.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

type block struct {
	pos       int
	kind      model.DeltaKind
	text      strings.Builder
	whole     string // a call's input when it came whole, at the block's start
	signature strings.Builder
	id, name  string
}

// reading is the state of one answer.
type reading struct {
	stream *wire.Stream
	emit   func(model.Delta)
	used   *model.CallIDs
	prefix string
	blocks map[int]*block // by the server's index
	order  []*block
	stop   string
	done   bool
	usage  *model.Usage

	templates wire.Templates
	shapes    [4]shape // what an event of each of the templates' slots does
}

func (r *reading) events() error {
	for !r.done {
		ev, err := r.stream.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if slot, text, ok := r.templates.Match(ev.Data); ok {
			r.stream.Payload()
			r.piece(r.shapes[slot].with(slot, text))
			continue
		}
		var e event
		if err := json.Unmarshal(ev.Data, &e); err != nil {
			if r.stop != "" || len(ev.Data) == 0 || ev.Data[0] != '{' {
				continue // noise after the answer, or a word that keeps the connection alive
			}
			var wrongType *json.UnmarshalTypeError
			if !errors.As(err, &wrongType) {
				return r.malformed(err)
			}
		}
		if e.Type == "" {
			e.Type = ev.Type
		}
		if e.Type == "ping" {
			continue
		}
		r.stream.Payload()
		if err := r.take(e, ev.Data); err != nil {
			return err
		}
		r.learn(e, ev.Data)
	}
	return nil
}

func (r *reading) malformed(cause error) error {
	if _, err := r.stream.Next(); err == io.EOF {
		return r.stream.Fail(model.CodeStreamClosed, "the stream ended inside an event")
	} else if err != nil {
		return err
	}
	return r.stream.Fail(model.CodeMalformedResponse, "an event isn't JSON: "+cause.Error())
}

func (r *reading) take(e event, data []byte) error {
	switch e.Type {
	case "message_start":
		if e.Message != nil {
			r.count(e.Message.Usage)
		}
	case "content_block_start":
		if e.Block != nil {
			r.start(e.Index, *e.Block)
		}
	case "content_block_delta":
		if e.Delta != nil {
			r.piece(e.Index, *e.Delta)
		}
	case "message_delta":
		r.count(e.Usage)
		if e.Delta != nil && e.Delta.StopReason != "" {
			r.stop = e.Delta.StopReason
			r.stream.Finish()
		}
	case "message_stop":
		r.done = true
		r.stream.Finish()
	case "error":
		if r.stop != "" {
			return nil
		}
		if failure := r.stream.Failure(data); failure != nil {
			return failure
		}
		return r.stream.Fail(model.CodeServer, "the server reported an error inside the stream")
	}
	return nil // content_block_stop, and events that came after this was written
}

func (r *reading) start(index int, c content) {
	b := &block{pos: len(r.order)}
	switch c.Type {
	case "text":
		b.kind = model.DeltaText
	case "thinking", "redacted_thinking":
		b.kind = model.DeltaReasoning
		if c.Data != "" {
			b.signature.WriteString(redactedMark + c.Data)
		}
		b.signature.WriteString(c.Signature)
	case "tool_use":
		b.kind, b.name = model.DeltaTool, c.Name
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("%s_%d", r.prefix, b.pos)
		}
		b.id = r.used.Unique(id)
		if s := strings.TrimSpace(string(c.Input)); s != "" && s != "null" && s != "{}" {
			b.whole = s
		}
		r.emit(model.Delta{Block: b.pos, Kind: b.kind, Name: b.name, CallID: b.id})
	default:
		return // a kind of block that isn't ours: its deltas are skipped with it
	}
	r.blocks[index] = b
	r.order = append(r.order, b)
	r.write(b, c.Text+c.Thinking)
}

func (r *reading) piece(index int, d delta) {
	b := r.blocks[index]
	if b == nil {
		return
	}
	switch d.Type {
	case "text_delta":
		r.write(b, d.Text)
	case "thinking_delta":
		r.write(b, d.Thinking)
	case "signature_delta":
		b.signature.WriteString(d.Signature)
	case "input_json_delta":
		r.write(b, d.PartialJSON)
	}
}

func (r *reading) write(b *block, s string) {
	if s != "" {
		b.text.WriteString(s)
		r.emit(model.Delta{Block: b.pos, Kind: b.kind, Text: s})
	}
}

func (r *reading) count(u *usage) {
	if u == nil {
		return
	}
	if r.usage == nil {
		r.usage = &model.Usage{}
	}
	set := func(to *int64, from *int64) {
		if from != nil {
			*to = max(0, *from)
		}
	}
	set(&r.usage.InputTokens, u.Input)
	set(&r.usage.OutputTokens, u.Output)
	set(&r.usage.CacheReadTokens, u.CacheRead)
	set(&r.usage.CacheWriteTokens, u.CacheWrite)
}

// plain handles a whole answer in place of a stream.
func (r *reading) plain(body []byte) error {
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return r.stream.Fail(model.CodeMalformedResponse, "the answer isn't JSON: "+err.Error())
	}
	if m.Type != "message" {
		if failure := r.stream.Failure(body); failure != nil {
			return failure
		}
	}
	for i, c := range m.Content {
		r.start(i, c)
	}
	r.count(m.Usage)
	r.stop, r.done = m.StopReason, true
	return nil
}

// result makes the response, or the error and what had arrived beside it.
func (r *reading) result(err error) (*model.Response, error) {
	resp := &model.Response{Usage: r.usage, Stop: model.StopEnd}
	for _, b := range r.order {
		resp.Content = append(resp.Content, b.content())
	}
	r.stream.Times(resp)
	if err == nil {
		err = r.verdict(resp)
	}
	for _, b := range resp.Content {
		if b.Type == model.BlockToolCall && (err != nil || resp.Stop == model.StopMaxTokens && !json.Valid([]byte(b.Arguments))) {
			resp.Incomplete = append(resp.Incomplete, b.ID)
		}
	}
	if err != nil && len(resp.Content) == 0 && resp.Usage == nil {
		return nil, err
	}
	return resp, err
}

func (b *block) content() model.Block {
	text := b.text.String()
	switch b.kind {
	case model.DeltaReasoning:
		return model.Block{Type: model.BlockReasoning, Text: text, Signature: b.signature.String()}
	case model.DeltaTool:
		if strings.TrimSpace(text) == "" {
			text = b.whole
		}
		if text == "" {
			text = "{}"
		}
		return model.Block{Type: model.BlockToolCall, ID: b.id, Name: b.name, Arguments: text}
	}
	return model.Text(text)
}

func (r *reading) verdict(resp *model.Response) error {
	switch r.stop {
	case "":
		if !r.done {
			return r.stream.Fail(model.CodeStreamClosed, "the stream ended before the answer was complete")
		}
	case "max_tokens":
		resp.Stop = model.StopMaxTokens
	case "tool_use":
		resp.Stop = model.StopTools
	case "refusal":
		return r.stream.Fail(model.CodeContentFilter, "the server refused to answer")
	case "model_context_window_exceeded":
		return r.stream.Fail(model.CodeContextWindow, "the answer reached the end of the context window")
	}
	if len(resp.Content) == 0 && resp.Stop != model.StopMaxTokens {
		return r.stream.Fail(model.CodeEmptyResponse, "the server's answer holds nothing")
	}
	return nil
}
