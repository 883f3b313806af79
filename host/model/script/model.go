package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
)

// Encoder names the encoding of scripted requests.
const Encoder = "script/1"

// Model is a scripted adapter. It is safe for concurrent use when its source is.
type Model struct {
	name   string
	source Source
}

var _ model.Adapter = (*Model)(nil)

// New makes an adapter that answers from source.
func New(source Source) *Model { return &Model{name: "script", source: source} }

// Options tune the demo and chaos.
type Options struct {
	// Pause is the time between two pieces; 0 none. See DefaultPause.
	Pause time.Duration
	// Stall is how long a chaotic stall lasts before it fails as a timeout; 0 means 3 s.
	Stall time.Duration
}

// DefaultPause is what a person finds natural to read.
const DefaultPause = 20 * time.Millisecond

// Factory serves the models "demo" and "chaos".
func Factory(o Options) model.Factory {
	return func(b model.Binding) (model.Adapter, error) {
		switch b.Model {
		case model.ModelDemo:
			return &Model{name: b.Model, source: Demo(o)}, nil
		case model.ModelChaos:
			return &Model{name: b.Model, source: Chaos(o)}, nil
		}
		return nil, fmt.Errorf("there is no script named %q, only %q and %q", b.Model, model.ModelDemo, model.ModelChaos)
	}
}

// Prepare encodes r: its parts as the log writes them. See model.Adapter.
func (m *Model) Prepare(r model.Request) (*model.Prepared, error) {
	p := &model.Prepared{Encoder: Encoder, Request: r, Messages: make([]json.RawMessage, 0, len(r.Messages))}
	var err error
	if p.System, err = json.Marshal(r.System); err != nil {
		return nil, fmt.Errorf("encode scripted request: %w", err)
	}
	if p.Tools, err = json.Marshal(r.Tools); err != nil {
		return nil, fmt.Errorf("encode scripted request: %w", err)
	}
	known := earlier(r)
	p.Messages = append(p.Messages, known.encoded...)
	for _, msg := range r.Messages[len(known.encoded):] {
		raw, err := json.Marshal(msg)
		if err != nil {
			return nil, fmt.Errorf("encode scripted request: %w", err)
		}
		p.Messages = append(p.Messages, raw)
	}
	name, err := json.Marshal(m.name)
	if err != nil {
		return nil, fmt.Errorf("encode scripted request: %w", err)
	}
	p.Body = slices.Concat([]byte(`{"model":`), name, []byte(`,"system":`), p.System, []byte(`,"messages":[`), bytes.Join(raws(p.Messages), []byte(",")),
		[]byte(`],"tools":`), p.Tools, []byte("}"))
	keep := slices.IndexFunc(r.Messages, model.Message.HoldsData) // the bytes of images aren't worth being kept to be compared
	if keep < 0 {
		keep = len(r.Messages)
	}
	p.Memo = &memo{messages: r.Messages[:keep:keep], encoded: p.Messages[:keep:keep]}
	return p, nil
}

// memo is what a later request takes from this one.
type memo struct {
	messages []model.Message
	encoded  []json.RawMessage
}

// earlier is what r's Earlier holds of its messages.
func earlier(r model.Request) memo {
	if r.Earlier == nil {
		return memo{}
	}
	known, ok := r.Earlier.Memo.(*memo)
	if !ok {
		return memo{}
	}
	n := 0
	for n < min(len(known.messages), len(r.Messages)) && known.messages[n].Equal(r.Messages[n]) {
		n++
	}
	return memo{known.messages[:n], known.encoded[:n:n]}
}

func raws(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out
}

// Stream plays the turn that answers p. See model.Adapter.
func (m *Model) Stream(ctx context.Context, p *model.Prepared, emit func(model.Delta)) (*model.Response, error) {
	turn, err := m.source(p.Request)
	if err != nil {
		var e *model.Error
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, &model.Error{Code: model.CodeInvalidRequest, Provider: m.name, Message: err.Error(), Err: err}
	}
	pl := playing{
		name: m.name, began: time.Now(), emit: emit, stop: model.StopEnd,
		prefix: fmt.Sprintf("call_%d", len(p.Request.Messages)), used: model.CallIDsOf(p.Request.Messages),
	}
	for _, s := range turn {
		if err = pl.step(ctx, s); err != nil {
			break
		}
	}
	return pl.response(err)
}

// playing is the state of one answer.
type playing struct {
	name   string
	began  time.Time
	first  time.Time
	emit   func(model.Delta)
	prefix string
	used   *model.CallIDs
	blocks []model.Block
	texts  []*strings.Builder // beside blocks; nil for calls
	stop   model.StopReason
	calls  int
	set    bool // stop was set by a step
	usage  *model.Usage
}

func (pl *playing) step(ctx context.Context, s Step) error {
	if ctx.Err() != nil {
		return pl.aborted(ctx)
	}
	switch s.kind {
	case stepText:
		pl.grow(model.BlockText, model.DeltaText, s.text)
	case stepReasoning:
		pl.grow(model.BlockReasoning, model.DeltaReasoning, s.text)
	case stepRepeat:
		for i := range s.count {
			if i&1023 == 1023 && ctx.Err() != nil {
				return pl.aborted(ctx)
			}
			pl.grow(model.BlockText, model.DeltaText, s.text)
		}
	case stepCall:
		pl.call(s)
	case stepFail:
		e := *s.err
		if e.Provider == "" {
			e.Provider = pl.name
		}
		return &e
	case stepCut:
		return &model.Error{Code: model.CodeStreamClosed, Provider: pl.name, Message: "the script cut the stream"}
	case stepReset:
		return &model.Error{Code: model.CodeTransport, Provider: pl.name, Message: "the script broke the connection off"}
	case stepStop:
		pl.stop, pl.set = s.stop, true
	case stepUsage:
		pl.usage = &s.usage
	case stepRaw, stepHead:
		return &model.Error{Code: model.CodeInvalidRequest, Provider: pl.name, Message: "raw steps are for the HTTP handler"}
	default:
		if !s.idle(ctx) {
			return pl.aborted(ctx)
		}
	}
	return nil
}

// idle does what a waiting step says. It returns false when the context ended first.
func (s Step) idle(ctx context.Context) bool {
	switch s.kind {
	case stepPause:
		timer := time.NewTimer(s.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	case stepWait:
		select {
		case <-s.wait:
		case <-ctx.Done():
		}
	case stepStall:
		<-ctx.Done()
	case stepDo:
		s.do()
	}
	return ctx.Err() == nil
}

func (pl *playing) aborted(ctx context.Context) error {
	return &model.Error{Code: model.CodeAborted, Provider: pl.name, Message: "the call was cancelled", Err: context.Cause(ctx)}
}

func (pl *playing) grow(kind model.BlockType, delta model.DeltaKind, text string) {
	pl.seen()
	if n := len(pl.blocks); n == 0 || pl.blocks[n-1].Type != kind {
		pl.blocks = append(pl.blocks, model.Block{Type: kind})
		pl.texts = append(pl.texts, &strings.Builder{})
	}
	last := len(pl.blocks) - 1
	pl.texts[last].WriteString(text)
	pl.emit(model.Delta{Block: last, Kind: delta, Text: text})
}

func (pl *playing) call(s Step) {
	pl.seen()
	if s.id == "" {
		s.id = fmt.Sprintf("%s_%d", pl.prefix, pl.calls)
	}
	s.id = pl.used.Unique(s.id)
	pl.calls++
	pl.blocks = append(pl.blocks, model.Block{Type: model.BlockToolCall, ID: s.id, Name: s.name, Arguments: s.text})
	pl.texts = append(pl.texts, nil)
	pl.emit(model.Delta{Block: len(pl.blocks) - 1, Kind: model.DeltaTool, Name: s.name, CallID: s.id, Text: s.text})
}

func (pl *playing) seen() {
	if pl.first.IsZero() {
		pl.first = time.Now()
	}
}

func (pl *playing) response(err error) (*model.Response, error) {
	if err != nil && len(pl.blocks) == 0 {
		return nil, err
	}
	r := &model.Response{Content: pl.blocks, Stop: pl.stop, Usage: pl.usage, Total: time.Since(pl.began)}
	if !pl.first.IsZero() {
		r.TTFT = pl.first.Sub(pl.began)
	}
	for i := range r.Content {
		if pl.texts[i] != nil {
			r.Content[i].Text = pl.texts[i].String()
		}
	}
	if pl.calls > 0 && !pl.set {
		r.Stop = model.StopTools
	}
	for _, b := range r.Content {
		if b.Type == model.BlockToolCall && (err != nil || r.Stop == model.StopMaxTokens && !json.Valid([]byte(b.Arguments))) {
			r.Incomplete = append(r.Incomplete, b.ID)
		}
	}
	if err == nil && len(r.Content) == 0 && r.Stop != model.StopMaxTokens {
		return nil, &model.Error{Code: model.CodeEmptyResponse, Provider: pl.name, Message: "the script's answer holds nothing"}
	}
	return r, err
}
