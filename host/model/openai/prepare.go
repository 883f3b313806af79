package openai

import (
	"context"
	"errors"

	"github.com/dsh-web/dsh-web/host/model"
)

// Prepare encodes r. See model.Adapter.
func (a *Adapter) Prepare(r model.Request) (*model.Prepared, error) {
	return nil, errors.New("openai: not written yet")
}

// Stream sends p and reads the answer. See model.Adapter.
func (a *Adapter) Stream(ctx context.Context, p *model.Prepared, emit func(model.Delta)) (*model.Response, error) {
	return nil, errors.New("openai: not written yet")
}
