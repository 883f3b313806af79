package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// chunk is one payload of a stream, or a whole completion. Fields whose type varies between servers stay raw.
type chunk struct {
	Choices        []*choice       `json:"choices"`
	Usage          *usage          `json:"usage"`
	Error          json.RawMessage `json:"error"`
	Object         string          `json:"object"`
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids"`
	PromptLogprobs json.RawMessage `json:"prompt_logprobs"`
}

type choice struct {
	Index        int             `json:"index"`
	Delta        *delta          `json:"delta"`
	Message      *delta          `json:"message"` // a whole completion, or a server that names it so in a stream
	FinishReason json.RawMessage `json:"finish_reason"`
	Logprobs     json.RawMessage `json:"logprobs"`
	TokenIDs     json.RawMessage `json:"token_ids"`
}

type delta struct {
	Content          json.RawMessage `json:"content"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	Refusal          json.RawMessage `json:"refusal"`
	ToolCalls        []*fragment     `json:"tool_calls"`
	FunctionCall     *function       `json:"function_call"`
}

type fragment struct {
	Index    *int      `json:"index"`
	ID       *string   `json:"id"`
	Function *function `json:"function"`
}

type function struct {
	Name      *string         `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type usage struct {
	PromptTokens     int64  `json:"prompt_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	CacheHit         *int64 `json:"prompt_cache_hit_tokens"`
	PromptDetails    *struct {
		Cached     int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails *struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// counts turns a server's usage into ours: the input excludes what the cache served and is never negative.
func (u *usage) counts() *model.Usage {
	out := &model.Usage{OutputTokens: u.CompletionTokens}
	if u.PromptDetails != nil {
		out.CacheReadTokens, out.CacheWriteTokens = u.PromptDetails.Cached, u.PromptDetails.CacheWrite
	}
	if u.CacheHit != nil {
		out.CacheReadTokens = *u.CacheHit
	}
	if u.CompletionDetails != nil {
		out.ReasoningTokens = u.CompletionDetails.Reasoning
	}
	out.InputTokens = max(0, u.PromptTokens-out.CacheReadTokens)
	return out
}

// effectKind says what one part of a chunk does.
type effectKind int

const (
	effectText effectKind = iota + 1
	effectReasoning
	effectFragment
	effectFinish
)

// effect is one thing that a chunk does to the answer. A comparable value, so that a template can be checked against the full decoder.
type effect struct {
	kind effectKind
	text string // text, reasoning, arguments, finish reason
	// Of fragments. index is -1 when the server gave none.
	index    int
	id, name string
}

// decode reads one payload in full. A field of an unexpected type is skipped, broken JSON is an error.
func decode(data []byte) (*chunk, error) {
	if c, ok := decodeFast(data); ok {
		return c, nil
	}
	return decodeAny(data)
}

func decodeAny(data []byte) (*chunk, error) {
	var c chunk
	err := json.Unmarshal(data, &c)
	var wrongType *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &wrongType) {
		return nil, err
	}
	return &c, nil
}

// effects lists what c does, in order: reasoning, text, call fragments, finish. Choices other than the first aren't ours.
func (c *chunk) effects(dst []effect) []effect {
	for _, ch := range c.Choices {
		if ch == nil || ch.Index != 0 {
			continue
		}
		d := ch.Delta
		if d == nil {
			d = ch.Message
		}
		if d != nil {
			dst = d.effects(dst)
		}
		if reason := text(ch.FinishReason); reason != "" {
			dst = append(dst, effect{kind: effectFinish, text: reason})
		}
	}
	return dst
}

func (d *delta) effects(dst []effect) []effect {
	reasoning := text(d.ReasoningContent)
	if reasoning == "" {
		reasoning = text(d.Reasoning)
	}
	if reasoning != "" {
		dst = append(dst, effect{kind: effectReasoning, text: reasoning})
	}
	content := text(d.Content)
	if content == "" {
		content = text(d.Refusal)
	}
	if content != "" {
		dst = append(dst, effect{kind: effectText, text: content})
	}
	for _, f := range d.ToolCalls {
		if f == nil {
			continue
		}
		e := effect{kind: effectFragment, index: -1}
		if f.Index != nil && *f.Index >= 0 {
			e.index = *f.Index
		}
		if f.ID != nil {
			e.id = *f.ID
		}
		f.Function.into(&e)
		dst = append(dst, e)
	}
	if d.FunctionCall != nil {
		e := effect{kind: effectFragment, index: 0}
		d.FunctionCall.into(&e)
		dst = append(dst, e)
	}
	return dst
}

func (f *function) into(e *effect) {
	if f == nil {
		return
	}
	if f.Name != nil {
		e.name = *f.Name
	}
	raw := bytes.TrimSpace(f.Arguments)
	switch {
	case len(raw) == 0 || string(raw) == "null":
	case raw[0] == '"':
		e.text = text(raw)
	default: // an object, where a string of JSON was due
		e.text = string(raw)
	}
}

// text reads a string, or the texts of a list of parts; anything else is "".
func text(raw json.RawMessage) string {
	if len(raw) < 2 {
		return ""
	}
	switch raw[0] {
	case '"':
		if wire.Plain(raw[1 : len(raw)-1]) {
			return string(raw[1 : len(raw)-1])
		}
		var s string
		_ = json.Unmarshal(raw, &s)
		return s
	case '[':
		var parts []struct {
			Text json.RawMessage `json:"text"`
		}
		_ = json.Unmarshal(raw, &parts)
		var out strings.Builder
		for _, p := range parts {
			out.WriteString(text(p.Text))
		}
		return out.String()
	}
	return ""
}
