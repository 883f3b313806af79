// Package openai speaks the chat-completions wire to every server that serves it: DeepSeek, vLLM, SGLang, llama.cpp, Ollama, OpenAI.
//
// Guarantees: a request is encoded without I/O and deterministically, and a longer history only extends a shorter one's messages; each
// piece of a stream is handed on as it is parsed, in order, on the calling goroutine, with nothing held back; tool calls come out whole or
// not at all; a key never leaves in a URL, an error or a redirect.
package openai

import (
	"context"
	"net/http"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// Encoder names the request encoding. It changes whenever equal requests would encode to other bytes.
const Encoder = "openai/1"

// Config is what an adapter needs. Model and BaseURL are required.
type Config struct {
	Provider string
	Model    string
	// BaseURL is asked for every request; with or without /v1, a trailing slash or a query.
	BaseURL func() string
	// Key is asked for every request; nil or "" sends no Authorization header.
	Key           func(ctx context.Context) (string, error)
	Dialect       model.Dialect
	Thinking      bool
	Images        bool
	CaptureTokens bool
	Clocks        wire.Clocks
	// Transport is shared by adapters; nil uses http.DefaultTransport. See wire.NewTransport.
	Transport http.RoundTripper
	// Annotate marks a request with its session and call for a transport that records; nil leaves it as it is.
	Annotate func(r *http.Request, session string, call int) *http.Request
	// Tails reads on after an answer, so that its caller needn't wait; nil makes it wait.
	Tails *wire.Tails
}

// Adapter is one model of one provider. It is safe for concurrent use.
type Adapter struct{ cfg Config }

var _ model.Adapter = (*Adapter)(nil)

// New makes an adapter.
func New(cfg Config) *Adapter { return &Adapter{cfg: cfg} }

// Factory makes adapters that share a transport, clocks, recorder and tails. Only those fields of shared count.
func Factory(shared Config) model.Factory {
	return func(b model.Binding) (model.Adapter, error) {
		cfg := shared
		cfg.Provider, cfg.Model, cfg.BaseURL, cfg.Key, cfg.Dialect = b.Provider, b.Model, b.BaseURL, b.Key, b.Dialect
		cfg.Thinking, cfg.Images, cfg.CaptureTokens = b.Thinking, b.Images, b.CaptureTokens
		return New(cfg), nil
	}
}
