package openai

import (
	"net/url"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
)

// Values of a dialect's fields.
const (
	reasoningNone    = "none"
	effortPlain      = "reasoning_effort"
	effortNested     = "reasoning.effort"
	effortThinking   = "thinking"
	effortNone       = "none"
	emptyNull        = "null"
	emptyOmit        = "omit"
	fieldMaxTokens   = "max_tokens"
	fieldMaxComplete = "max_completion_tokens"
)

// known lists servers whose wire differs from the plain form, by host name or a suffix of it.
func known(host string) (d model.Dialect, version string) {
	d = model.Dialect{ReasoningField: "reasoning_content", MaxTokensField: fieldMaxTokens, SystemRole: "system", EffortForm: effortPlain}
	is := func(name string) bool { return host == name || strings.HasSuffix(host, "."+name) }
	switch {
	case is("api.openai.com"), is("openai.azure.com"):
		d.ReasoningField, d.MaxTokensField, d.SystemRole, version = reasoningNone, fieldMaxComplete, "developer", "/v1"
	case is("openrouter.ai"):
		d.ReasoningField, d.EffortForm = "reasoning", effortNested
	case is("api.groq.com"), is("api.cerebras.ai"):
		d.ReasoningField, d.MaxTokensField = "reasoning", fieldMaxComplete
	case is("generativelanguage.googleapis.com"), is("api.mistral.ai"):
		d.ReasoningField = reasoningNone
	case is("api.x.ai"):
		version = "/v1"
	}
	return d, version
}

func hostOf(base string) string {
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// pads says whether a server fills every chunk up with random bytes, against guesses from sizes, unless told not to. They double the traffic
// and make every chunk another, which the fast path can't learn.
func pads(base string) bool { return hostOf(base) == "api.openai.com" }

// dialect is what the host name suggests, overlaid with what the configuration sets.
func dialect(base string, set model.Dialect) (d model.Dialect, version string) {
	d, version = known(hostOf(base))
	overlay := func(to *string, from string) {
		if from != "" {
			*to = from
		}
	}
	overlay(&d.ReasoningField, set.ReasoningField)
	overlay(&d.MaxTokensField, set.MaxTokensField)
	overlay(&d.SystemRole, set.SystemRole)
	overlay(&d.EffortForm, set.EffortForm)
	overlay(&d.EmptyContent, set.EmptyContent)
	return d, version
}
