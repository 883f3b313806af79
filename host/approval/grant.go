package approval

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/session"
)

// Shell is the tool whose arguments are shell text. Everything else is compared as a whole.
const Shell = "bash"

// ErrNoGrant says that the session has no such grant.
var ErrNoGrant = errors.New("there is no such grant")

// grantable is what a call is to the grants of its session.
type grantable struct {
	tool, arguments string
	commands        [][]string // of shell text: every command it runs, in full
	never           string     // why no grant may cover it, "" when one may
}

// grantableOf reads a call. It is a pure function: what a grant covers is derived from what was allowed, under today's rules.
func grantableOf(tool, arguments string) grantable {
	g := grantable{tool: tool, arguments: arguments}
	if tool != Shell {
		return g
	}
	var fields map[string]json.RawMessage
	var text string
	switch err := json.Unmarshal([]byte(arguments), &fields); {
	case err != nil:
		g.never = "its arguments can't be read"
	case len(fields) != 1 || fields["command"] == nil || json.Unmarshal(fields["command"], &text) != nil:
		g.never = "it is more than a command"
	default:
		g.commands, g.never = Commands(text)
	}
	return g
}

// leave is what grants allow, read before the log is asked: for each thing the ids of the grants that allow it.
type leave map[string][]string

// leaveOf reads grants. Rules that came after a grant count: what they don't let be remembered isn't.
func leaveOf(grants []session.Grant) leave {
	out := leave{}
	for _, g := range grants {
		for _, key := range grantableOf(g.Tool, g.Arguments).keys() {
			out[key] = append(out[key], g.ID)
		}
	}
	return out
}

// keys are what has to be allowed, all of it; none when no grant may cover the call. A word of a command can't hold NUL.
func (g grantable) keys() []string {
	if g.never != "" {
		return nil
	}
	if g.tool != Shell {
		return []string{"call\x00" + g.tool + "\x00" + g.arguments}
	}
	var out []string
	for _, c := range g.commands {
		out = append(out, "run\x00"+strings.Join(c, "\x00"))
	}
	return out
}

// covered says whether grants that still stand allow all of the call.
func (l leave) covered(keys []string, standing []session.Grant) bool {
	stands := func(id string) bool {
		return slices.ContainsFunc(standing, func(g session.Grant) bool { return g.ID == id })
	}
	return len(keys) > 0 && !slices.ContainsFunc(keys, func(key string) bool { return !slices.ContainsFunc(l[key], stands) })
}

func (g grantable) detail() json.RawMessage {
	raw, err := json.Marshal(Detail{Covers: g.commands, Never: g.never})
	if err != nil { // texts always encode
		return nil
	}
	return raw
}

// Grant is something allowed for the rest of the session.
type Grant struct {
	ID        string     `json:"id" doc:"Of the approval that gave it."`
	Tool      string     `json:"tool"`
	Arguments string     `json:"arguments"`
	Covers    [][]string `json:"covers,omitempty" doc:"Of a shell: the commands, word by word. Of another tool it is the same arguments."`
	Cwd       string     `json:"cwd,omitempty" doc:"The workspace. It is no part of what is covered: that runs wherever the shell stands."`
	GrantedAt int64      `json:"grantedAt" doc:"Epoch milliseconds."`
}

// Grants lists what the owner allowed for the whole session.
func Grants(s session.State) []Grant {
	out := make([]Grant, 0, len(s.Grants))
	for _, g := range s.Grants {
		out = append(out, Grant{
			ID: g.ID, Tool: g.Tool, Arguments: g.Arguments, Covers: grantableOf(g.Tool, g.Arguments).commands, Cwd: g.Cwd, GrantedAt: g.At,
		})
	}
	return out
}

// Revoke takes a grant back, durably. Calls it let through go on. ErrNoGrant.
func Revoke(ctx context.Context, log *session.Log, id string) error {
	_, err := log.Update(ctx, func(s session.State) ([]session.Draft, error) {
		if !slices.ContainsFunc(s.Grants, func(g session.Grant) bool { return g.ID == id }) {
			return nil, ErrNoGrant
		}
		return []session.Draft{{Payload: session.ApprovalRevoked{ID: id, By: ByOwner}}}, nil
	})
	return err
}

// SetPolicy logs the session's policy: session.PolicyAsk, PolicyNever, PolicyFull.
func SetPolicy(ctx context.Context, log *session.Log, policy string) error {
	_, err := log.Update(ctx, func(s session.State) ([]session.Draft, error) {
		if PolicyOf(s) == policy {
			return nil, nil
		}
		return []session.Draft{{Payload: session.ApprovalPolicy{Policy: policy}}}, nil
	})
	return err
}

// PolicyOf is the policy in force. What the log says and this version doesn't know asks.
func PolicyOf(s session.State) string {
	switch s.Policy {
	case session.PolicyNever, session.PolicyFull:
		return s.Policy
	}
	return session.PolicyAsk
}
