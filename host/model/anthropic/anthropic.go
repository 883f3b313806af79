// Package anthropic speaks the Messages wire.
//
// It keeps the promises of the chat-completions adapter: deterministic requests that only extend, pieces handed on as they are parsed on the
// calling goroutine, whole tool calls or none, no key outside its header. Whether a model thinks is the session's parameter; what it thought goes
// back as it came, signature included.
package anthropic

import (
	"context"
	"net/http"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// Encoder names the request encoding. It changes whenever equal requests would encode to other bytes.
const Encoder = "anthropic/1"

// Config is what an adapter needs. Model and BaseURL are required.
type Config struct {
	Provider string
	Model    string
	// BaseURL is asked for every request; with or without /v1, a trailing slash or a query.
	BaseURL func() string
	// Key is asked for every request; nil or "" sends no x-api-key header.
	Key    func(ctx context.Context) (string, error)
	Images bool
	// MaxOutput is sent as max_tokens when a request sets none, since the wire demands one; 0 means 8192.
	MaxOutput int
	Clocks    wire.Clocks
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
		cfg.Provider, cfg.Model, cfg.BaseURL, cfg.Key = b.Provider, b.Model, b.BaseURL, b.Key
		cfg.Images, cfg.MaxOutput = b.Images, b.MaxOutput
		return New(cfg), nil
	}
}
