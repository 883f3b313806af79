package model

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// thinks decides whether a route thinks. It is fixed by what is set, never by what a model answered: the dialect, then the session's
// parameters, then the catalogue.
func thinks(d Dialect, info Catalog, s Selection) bool {
	switch d.Thinking {
	case "on":
		return true
	case "off":
		return false
	}
	if on, set := thinkingParam(s.Params); set {
		return on
	}
	if strings.EqualFold(s.ReasoningEffort, "none") {
		return false
	}
	return info.Thinking
}

// thinkingParam reads the forms in which servers take the switch: {"thinking": {"type": ...}}, {"enable_thinking": bool}, and the last
// one or "thinking" inside chat_template_kwargs.
func thinkingParam(params map[string]json.RawMessage) (on, set bool) {
	for _, name := range []string{"thinking", "enable_thinking", "chat_template_kwargs"} {
		raw, ok := params[name]
		if !ok {
			continue
		}
		var flag bool
		if json.Unmarshal(raw, &flag) == nil {
			return flag, true
		}
		var object struct {
			Type           string `json:"type"`
			Thinking       *bool  `json:"thinking"`
			EnableThinking *bool  `json:"enable_thinking"`
		}
		if json.Unmarshal(raw, &object) != nil {
			continue
		}
		switch {
		case object.Type != "":
			return object.Type != "disabled", true
		case object.EnableThinking != nil:
			return *object.EnableThinking, true
		case object.Thinking != nil:
			return *object.Thinking, true
		}
	}
	return false, false
}

func checkBaseURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("model base URL %q isn't an http or https URL", withoutSecrets(raw))
	}
	return nil
}

func sameHost(a, b string) bool {
	ua, errA := url.Parse(a)
	ub, errB := url.Parse(b)
	return errA == nil && errB == nil && ua.Scheme == ub.Scheme && strings.EqualFold(ua.Host, ub.Host)
}

// withoutSecrets drops what a URL may hide: user, password, query, fragment.
func withoutSecrets(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
