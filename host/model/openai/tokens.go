package openai

import "encoding/json"

// tokens keeps token ids and log-probabilities exactly as the server wrote them, chunk by chunk. They are never counted, joined or
// tokenised again: what is trained on is what was sampled.
type tokens struct {
	Prompt         json.RawMessage `json:"prompt_token_ids,omitempty"`
	PromptLogprobs json.RawMessage `json:"prompt_logprobs,omitempty"`
	Chunks         []tokenChunk    `json:"chunks,omitempty"`
}

type tokenChunk struct {
	TokenIDs json.RawMessage `json:"token_ids,omitempty"`
	Logprobs json.RawMessage `json:"logprobs,omitempty"`
}

func (t *tokens) add(c *chunk) {
	if isSet(c.PromptTokenIDs) {
		t.Prompt = c.PromptTokenIDs
	}
	if isSet(c.PromptLogprobs) {
		t.PromptLogprobs = c.PromptLogprobs
	}
	for _, ch := range c.Choices {
		if ch == nil || ch.Index != 0 || !isSet(ch.TokenIDs) && !isSet(ch.Logprobs) {
			continue
		}
		var piece tokenChunk
		if isSet(ch.TokenIDs) {
			piece.TokenIDs = ch.TokenIDs
		}
		if isSet(ch.Logprobs) {
			piece.Logprobs = ch.Logprobs
		}
		t.Chunks = append(t.Chunks, piece)
	}
}

// raw is {"prompt_token_ids", "prompt_logprobs", "chunks": [{"token_ids", "logprobs"}]}, or nil when the server sent none.
func (t *tokens) raw() json.RawMessage {
	if t.Prompt == nil && t.PromptLogprobs == nil && len(t.Chunks) == 0 {
		return nil
	}
	out := []byte(`{`)
	field := func(name string, value json.RawMessage) {
		if value == nil {
			return
		}
		if len(out) > 0 && out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), name...), `":`...), value...)
	}
	field("prompt_token_ids", t.Prompt)
	field("prompt_logprobs", t.PromptLogprobs)
	if len(t.Chunks) > 0 {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, `"chunks":[`...)
		for i, c := range t.Chunks {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, '{')
			field("token_ids", c.TokenIDs)
			field("logprobs", c.Logprobs)
			out = append(out, '}')
		}
		out = append(out, ']')
	}
	return append(out, '}')
}
