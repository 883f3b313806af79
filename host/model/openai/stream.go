package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// Stream sends p and reads the answer. See model.Adapter.
func (a *Adapter) Stream(ctx context.Context, p *model.Prepared, emit func(model.Delta)) (*model.Response, error) {
	post, err := a.post(ctx, p)
	if err != nil {
		return nil, err
	}
	client := wire.Client{Provider: a.cfg.Provider, Transport: a.cfg.Transport, Clocks: a.cfg.Clocks, Annotate: a.cfg.Annotate, Tails: a.cfg.Tails}
	s, err := client.Open(ctx, post)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &reading{
		stream: s, thinking: a.cfg.Thinking, capture: a.cfg.CaptureTokens, answer: newAssembler(p.Request.Messages, emit),
	}
	if s.Plain != nil {
		err = r.plain(s.Plain)
	} else {
		err = r.events()
	}
	return r.result(err)
}

func (a *Adapter) post(ctx context.Context, p *model.Prepared) (wire.Post, error) {
	post := wire.Post{Body: p.Body, Session: p.Request.Session, Call: p.Request.Call, Header: http.Header{}}
	base := a.cfg.BaseURL()
	_, version := dialect(base, a.cfg.Dialect)
	var err error
	if post.URL, err = wire.Endpoint(base, version, "/chat/completions"); err != nil {
		return post, &model.Error{Code: model.CodeInvalidRequest, Provider: a.cfg.Provider, Message: err.Error(), Err: err}
	}
	post.Secret, err = wire.FetchKey(ctx, a.cfg.Provider, a.cfg.Key)
	if err == nil && post.Secret != "" {
		post.Header.Set("Authorization", "Bearer "+post.Secret)
	}
	return post, err
}

// reading is the state of one answer.
type reading struct {
	stream   *wire.Stream
	thinking bool
	capture  bool
	answer   *assembler

	templates templates
	scratch   []effect
	finish    string
	done      bool
	usage     *model.Usage
	tokens    tokens
}

// events reads a stream to its end.
func (r *reading) events() error {
	for {
		ev, err := r.stream.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(ev.Data) == 0 || ev.Data[0] != '{' {
			if wire.Done(ev.Data) {
				r.done = true
				r.stream.Finish()
				return nil
			}
			if data := bytes.TrimSpace(ev.Data); len(data) == 0 || data[0] != '{' {
				continue // null, or a word that keeps the connection alive
			}
		}
		r.stream.Payload()
		if err := r.payload(ev); err != nil {
			return err
		}
	}
}

// payload handles one chunk.
func (r *reading) payload(ev wire.Event) error {
	if e, ok := r.templates.match(ev.Data); ok {
		r.answer.apply(e)
		return nil
	}
	c, err := decode(ev.Data)
	if err != nil {
		return r.malformed(err)
	}
	if (isSet(c.Error) || c.Object == "error" || ev.Type == "error") && r.finish == "" {
		if failure := r.stream.Failure(ev.Data); failure != nil {
			return failure
		}
	}
	r.scratch = c.effects(r.scratch[:0])
	r.take(c)
	if len(r.scratch) == 1 && c.plain() {
		r.templates.learn(ev.Data, r.scratch[0])
	}
	return nil
}

// take applies what a decoded chunk does.
func (r *reading) take(c *chunk) {
	for _, e := range r.scratch {
		if e.kind == effectFinish {
			if r.finish == "" {
				r.finish = e.text
			}
			r.stream.Finish()
			continue
		}
		r.answer.apply(e)
	}
	if c.Usage != nil {
		r.usage = c.Usage.counts()
	}
	if r.capture {
		r.tokens.add(c)
	}
}

// malformed explains a payload that isn't JSON: the rest of a cut stream, noise after the answer, or a broken server.
func (r *reading) malformed(cause error) error {
	if r.finish != "" {
		return nil
	}
	if _, err := r.stream.Next(); err != nil {
		if err == io.EOF {
			return r.stream.Fail(model.CodeStreamClosed, "the stream ended inside a chunk")
		}
		return err
	}
	return r.stream.Fail(model.CodeMalformedResponse, "a chunk isn't JSON: "+cause.Error())
}

// plain handles a whole completion in place of a stream.
func (r *reading) plain(body []byte) error {
	c, err := decode(body)
	if err != nil {
		return r.stream.Fail(model.CodeMalformedResponse, "the answer isn't JSON: "+err.Error())
	}
	if len(c.Choices) == 0 {
		if failure := r.stream.Failure(body); failure != nil {
			return failure
		}
	}
	r.scratch = c.effects(nil)
	r.take(c)
	r.done = true
	return nil
}

// result makes the response, or the error and what had arrived beside it.
func (r *reading) result(err error) (*model.Response, error) {
	resp := &model.Response{Content: r.answer.content(r.thinking), Usage: r.usage, Tokens: r.tokens.raw(), Stop: model.StopEnd}
	r.stream.Times(resp)
	if err == nil {
		err = r.verdict(resp)
	}
	for _, b := range resp.Content {
		if b.Type == model.BlockToolCall && (err != nil || resp.Stop == model.StopMaxTokens && !json.Valid([]byte(b.Arguments))) {
			resp.Incomplete = append(resp.Incomplete, b.ID)
		}
	}
	if err != nil {
		var e *model.Error
		if !errors.As(err, &e) {
			err = r.stream.Fail(model.CodeTransport, err.Error())
		}
		if len(r.answer.blocks) == 0 && resp.Usage == nil {
			return nil, err
		}
	}
	return resp, err
}

// verdict turns the finish reason into a stop reason or an error.
func (r *reading) verdict(resp *model.Response) error {
	switch r.finish {
	case "":
		if !r.done {
			return r.stream.Fail(model.CodeStreamClosed, "the stream ended before the answer was complete")
		}
	case "length", "max_tokens", "model_length", "max_output_tokens":
		resp.Stop = model.StopMaxTokens
	case "tool_calls", "function_call", "tool_use":
		resp.Stop = model.StopTools
	case "content_filter", "safety", "SAFETY":
		return r.stream.Fail(model.CodeContentFilter, "the server's content filter stopped the answer")
	case "insufficient_system_resource", "error", "network_error":
		return r.stream.Fail(model.CodeServer, "the server gave up on the answer ("+r.finish+")")
	case "abort", "cancelled":
		return r.stream.Fail(model.CodeStreamClosed, "the server cut the answer off ("+r.finish+")")
	}
	if len(r.answer.blocks) == 0 {
		if resp.Stop == model.StopMaxTokens {
			return nil
		}
		return r.stream.Fail(model.CodeEmptyResponse, "the server's answer holds nothing")
	}
	return nil
}
