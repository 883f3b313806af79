package presets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/ask"
)

// useApprovals names the row that asks before tools run.
const useApprovals = "approvals"

// askReason is what the owner reads. No row confines processes, so it says what the call could do.
const askReason = "This preset asks before each call of {{tool}}. The call isn't confined: it can do what the host's user can."

// approvalsConfig is what is asked about.
type approvalsConfig struct {
	Tools  []string `yaml:"tools"`  // asked about before each call
	Expire string   `yaml:"expire"` // how long an answer is waited for, for example 10m; default 12h
}

// Validate wants names, each once.
func (c approvalsConfig) Validate() error {
	if len(c.Tools) == 0 {
		return errors.New("tools: name the tools that are asked about")
	}
	for i, name := range c.Tools {
		if name == "" || slices.Contains(c.Tools[:i], name) {
			return fmt.Errorf("tools: %q is empty or there twice", name)
		}
	}
	return checkExpire(c.Expire)
}

func checkExpire(text string) error {
	if text == "" {
		return nil
	}
	if d, err := time.ParseDuration(text); err != nil || d <= 0 {
		return errors.New("expire: a duration like 90s, 10m or 2h is wanted")
	}
	return nil
}

// approvalsRow asks the owner before the named tools run.
func approvalsRow() kind {
	return kindOf(useApprovals, func() approvalsConfig { return approvalsConfig{} }, func(c approvalsConfig) ready {
		return ready{
			mount: func(_ context.Context, at site) error {
				if at.Approvals == nil {
					return errors.New("this host asks nobody")
				}
				expire, _ := time.ParseDuration(c.Expire) // "" is the default; the rest was checked
				return at.Tools.Guard(at.scope, at.id+": asks before "+strings.Join(c.Tools, ", "),
					tools.Approve(at.Approvals, c.Tools, at.Session.Workspace, askReason, expire))
			},
			// A name without a tool is a tool that runs without being asked about.
			verify: func(at site) error {
				visible := at.Tools.Visible(at.scope)
				for _, name := range c.Tools {
					if !slices.ContainsFunc(visible, func(t tools.Tool) bool { return t.Name == name }) {
						return fmt.Errorf("it asks about %q, and the agent has no such tool", name)
					}
				}
				return nil
			},
		}
	})
}

// Asks says whether c has a row that asks before tools run, so that there is a policy to change.
func (c *Composition) Asks() bool { return uses(c.rows, useApprovals) }

func uses(rows []*row, use string) bool {
	return slices.ContainsFunc(rows, func(r *row) bool { return !r.group && r.use.Value == use || uses(r.rows, use) })
}

// askConfig is how the tool asks.
type askConfig struct {
	Expire string `yaml:"expire"` // how long an answer is waited for; default 12h
}

// Validate wants a duration.
func (c askConfig) Validate() error { return checkExpire(c.Expire) }

// askRow is the tool with which the agent asks its user.
func askRow() kind {
	return kindOf("tool-ask", func() askConfig { return askConfig{} }, func(c askConfig) ready {
		return ready{mount: func(_ context.Context, at site) error {
			if at.Approvals == nil {
				return errors.New("this host asks nobody")
			}
			expire, _ := time.ParseDuration(c.Expire) // "" is the default; the rest was checked
			tool, err := ask.New(at.Approvals, expire)
			if err != nil {
				return err
			}
			return at.Tools.Add(at.scope, tool)
		}}
	})
}
