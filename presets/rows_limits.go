package presets

import (
	"context"
	"errors"
	"time"

	"github.com/dsh-web/dsh-web/agent"
)

// limitsConfig bounds the agent's turns. A setting that is left out doesn't bound.
type limitsConfig struct {
	Steps  int    `yaml:"steps"`  // model answers in one turn
	Time   string `yaml:"time"`   // wall clock of one turn, for example 2h
	Tokens int64  `yaml:"tokens"` // input and output of the whole session
}

// Validate wants at least one sensible bound.
func (c limitsConfig) Validate() error {
	if c.Steps < 0 || c.Tokens < 0 {
		return errors.New("limits: a limit is a positive number; leave it out for none")
	}
	if c.Time != "" {
		if d, err := time.ParseDuration(c.Time); err != nil || d <= 0 {
			return errors.New("time: a duration like 90s, 30m or 2h is wanted")
		}
	}
	if c == (limitsConfig{}) {
		return errors.New("limits: name at least one of steps, time, tokens")
	}
	return nil
}

// limitsRow sets what the loop stops a turn at.
func limitsRow() kind {
	return kindOf("limits", func() limitsConfig { return limitsConfig{} }, func(c limitsConfig) ready {
		return ready{mount: func(_ context.Context, at site) error {
			if at.mounted.limits != (agent.Limits{}) {
				return errors.New("another row sets the limits already")
			}
			d, _ := time.ParseDuration(c.Time) // "" is none; the rest was checked
			at.mounted.limits = agent.Limits{Steps: c.Steps, Time: d, Tokens: c.Tokens}
			return nil
		}}
	})
}
