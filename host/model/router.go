package model

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// KindScript is the kind of providers that answer from a script, not from a model; routes of this kind are marked Demo.
const KindScript = "script"

// KindReplay is the kind of providers that answer from a recording.
const KindReplay = "replay"

// Names of the built-in providers and models.
const (
	ProviderDeepSeek = "deepseek"
	ProviderDemo     = "demo"
	ModelDeepSeek    = "deepseek-v4-flash"
	ModelDemo        = "demo"
	ModelChaos       = "chaos"
)

// Config is what a Router is built from. The built-in providers deepseek and demo are always there; a configured provider with the same
// id overrides them field by field.
type Config struct {
	Providers []Provider
	// Default names the configured default route; empty fields leave the built-in rule.
	Default Choice
	// ContextWindow is the capacity, in tokens, of models that no catalogue knows; 0 leaves it unknown.
	ContextWindow int
	// Kinds maps a provider's kind to the constructor of its adapters.
	Kinds map[string]Factory
	// Lookup finds environment-like values: keys and base URLs. It is asked for every request, so that a changed key counts at once.
	Lookup func(name string) (value string, ok bool)
}

// Provider is one configured place that serves models.
type Provider struct {
	ID      string   `json:"id"`
	Aliases []string `json:"aliases,omitempty"`
	Kind    string   `json:"kind"` // openai, anthropic, script, replay, ...
	BaseURL string   `json:"baseUrl,omitempty"`
	// BaseURLEnv names a value that replaces BaseURL when it is set.
	BaseURLEnv string `json:"baseUrlEnv,omitempty"`
	// APIKeyEnv names the key. When it is empty the provider works without one, and uses a stored key when there is one (see KeyName).
	APIKeyEnv string    `json:"apiKeyEnv,omitempty"`
	Models    []Catalog `json:"models,omitempty"`
	Dialect   Dialect   `json:"dialect,omitzero"`
	// CaptureTokens asks the server for token ids and log-probabilities.
	CaptureTokens bool `json:"captureTokens,omitempty"`
	// File is the recording that a provider of kind replay answers from.
	File string `json:"file,omitempty"`
	// Lenient makes it answer requests that differ from the recorded ones, too.
	Lenient bool `json:"lenient,omitempty"`
}

// TakesKey says whether the provider has a use for a key at all.
func (p Provider) TakesKey() bool { return p.Kind != KindScript && p.Kind != KindReplay }

// KeyName is the name under which the provider's key is looked up and stored.
func (p Provider) KeyName() string {
	if p.APIKeyEnv != "" {
		return p.APIKeyEnv
	}
	name := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, p.ID)
	return name + "_API_KEY"
}

// Catalog is what is known about one model. It is advisory: a model that isn't listed works too.
type Catalog struct {
	ID            string `json:"id"`
	Name          string `json:"name,omitempty"`
	ContextWindow int    `json:"contextWindow,omitempty"` // tokens, 0 unknown
	MaxOutput     int    `json:"maxOutput,omitempty"`     // tokens, 0 unknown
	Images        bool   `json:"images,omitempty"`
	Thinking      bool   `json:"thinking,omitempty"`
}

// Dialect overrides what an adapter would guess from the host name of its base URL. Empty fields leave the guess.
type Dialect struct {
	// ReasoningField is the name of an assistant message's reasoning text: "reasoning_content", "reasoning", or "none".
	ReasoningField string `json:"reasoningField,omitempty"`
	// MaxTokensField is "max_tokens" or "max_completion_tokens".
	MaxTokensField string `json:"maxTokensField,omitempty"`
	// SystemRole is "system" or "developer".
	SystemRole string `json:"systemRole,omitempty"`
	// EffortForm says how the reasoning effort travels: "reasoning_effort", "reasoning.effort", "thinking" or "none".
	EffortForm string `json:"effortForm,omitempty"`
	// EmptyContent says what stands for an assistant message without text: "empty" (an empty string), "null", or "omit".
	EmptyContent string `json:"emptyContent,omitempty"`
	// Thinking fixes whether routes of this provider think, whatever the catalogue says: "on", "off".
	Thinking string `json:"thinking,omitempty"`
}

// Choice names a provider and a model of it.
type Choice struct {
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
}

// Selection is what a session asks for. Zero fields weren't set by anybody and reach no server.
type Selection struct {
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	// BaseURL replaces the provider's. The provider's own key isn't sent to another host than the provider's.
	BaseURL string `json:"baseUrl,omitempty"`
	// APIKey is the session's own key. It is kept outside the log and never exported.
	APIKey          string                     `json:"apiKey,omitempty"`
	Params          map[string]json.RawMessage `json:"params,omitempty"`
	MaxTokens       int                        `json:"maxTokens,omitempty"`
	ReasoningEffort string                     `json:"reasoningEffort,omitempty"`
}

// Or fills provider and model from c when s names neither.
func (s Selection) Or(c Choice) Selection {
	if s.Provider == "" && s.Model == "" {
		s.Provider, s.Model = c.Provider, c.Model
	}
	return s
}

// Route is a resolved selection.
type Route struct {
	Provider string
	Model    string
	Adapter  Adapter
	// ContextWindow is in tokens, 0 when unknown.
	ContextWindow int
	// MaxOutput is in tokens, 0 when unknown.
	MaxOutput int
	Images    bool
	Thinking  bool
	// Demo says that no model answers here but a script.
	Demo          bool
	CaptureTokens bool
}

// Binding is what an adapter is built from: one model of one provider.
type Binding struct {
	Provider string
	Model    string
	// BaseURL is asked for every request.
	BaseURL func() string
	// Key is asked for every request. "" means that the request goes without one. Its errors are *Error.
	Key           func(ctx context.Context) (string, error)
	Dialect       Dialect
	MaxOutput     int
	Thinking      bool
	Images        bool
	CaptureTokens bool
	File          string
	Lenient       bool
}

// Factory makes an adapter. It does no I/O; adapters are made often, so shared things (transports) belong to the factory.
type Factory func(Binding) (Adapter, error)

// Router turns selections into routes. It is immutable and safe for concurrent use.
type Router struct {
	providers []Provider
	byName    map[string]int
	def       Choice
	window    int // of models without catalogue data
	kinds     map[string]Factory
	lookup    func(string) (string, bool)
}

// UnknownProviderError says that a selection names a provider that isn't configured.
type UnknownProviderError struct {
	Name  string
	Known []string
}

// Error names the known providers.
func (e *UnknownProviderError) Error() string {
	return fmt.Sprintf("unknown model provider %q; configured are: %s", e.Name, strings.Join(e.Known, ", "))
}

// NewRouter checks c and builds a router.
func NewRouter(c Config) (*Router, error) {
	r := &Router{byName: map[string]int{}, kinds: c.Kinds, lookup: c.Lookup, def: c.Default, window: c.ContextWindow}
	if r.lookup == nil {
		r.lookup = func(string) (string, bool) { return "", false }
	}
	r.providers = builtin()
	for _, p := range c.Providers {
		if p.ID == "" {
			return nil, fmt.Errorf("model provider without an id")
		}
		if i := slices.IndexFunc(r.providers, func(q Provider) bool { return q.ID == p.ID }); i >= 0 {
			if i >= len(builtin()) {
				return nil, fmt.Errorf("model provider %q is configured twice", p.ID)
			}
			r.providers[i] = overlay(r.providers[i], p)
			continue
		}
		r.providers = append(r.providers, p)
	}
	for i, p := range r.providers {
		if p.Kind == "" {
			return nil, fmt.Errorf("model provider %q: no kind", p.ID)
		}
		if c.Kinds[p.Kind] == nil {
			return nil, fmt.Errorf("model provider %q: unknown kind %q", p.ID, p.Kind)
		}
		for _, name := range append([]string{p.ID}, p.Aliases...) {
			if j, taken := r.byName[name]; taken {
				return nil, fmt.Errorf("model provider name %q is claimed by %q and %q", name, r.providers[j].ID, p.ID)
			}
			r.byName[name] = i
		}
	}
	if r.def.Provider != "" {
		if _, err := r.provider(r.def.Provider); err != nil {
			return nil, fmt.Errorf("default model: %w", err)
		}
	}
	return r, nil
}

func builtin() []Provider {
	return []Provider{
		{
			ID: ProviderDeepSeek, Aliases: []string{"deepseek-official"}, Kind: "openai",
			BaseURL: "https://api.deepseek.com", BaseURLEnv: "DEEPSEEK_BASE_URL", APIKeyEnv: "DEEPSEEK_API_KEY",
			Models: []Catalog{
				{ID: ModelDeepSeek, Name: "DeepSeek V4 Flash", ContextWindow: 1 << 20, MaxOutput: 384 << 10, Thinking: true},
				{ID: "deepseek-v4-pro", Name: "DeepSeek V4 Pro", ContextWindow: 1 << 20, MaxOutput: 384 << 10, Thinking: true},
			},
		},
		{
			ID: ProviderDemo, Kind: KindScript,
			Models: []Catalog{{ID: ModelDemo, Name: "Demo (a script, no model)"}, {ID: ModelChaos, Name: "Chaos (a script that misbehaves)"}},
		},
	}
}

// overlay returns base with the fields that p sets.
func overlay(base, p Provider) Provider {
	if p.Aliases != nil {
		base.Aliases = p.Aliases
	}
	if p.Kind != "" {
		base.Kind = p.Kind
	}
	if p.BaseURL != "" {
		base.BaseURL = p.BaseURL
	}
	if p.BaseURLEnv != "" {
		base.BaseURLEnv = p.BaseURLEnv
	}
	if p.APIKeyEnv != "" {
		base.APIKeyEnv = p.APIKeyEnv
	}
	if p.Models != nil {
		base.Models = p.Models
	}
	if p.Dialect != (Dialect{}) {
		base.Dialect = p.Dialect
	}
	if p.File != "" {
		base.File = p.File
	}
	base.CaptureTokens = base.CaptureTokens || p.CaptureTokens
	base.Lenient = base.Lenient || p.Lenient
	return base
}

// Default is the route of a selection that names nothing: the configured one, else deepseek when it has a key, else demo.
func (r *Router) Default() Choice {
	c := r.def
	if c.Provider == "" {
		c.Provider = ProviderDemo
		if p, err := r.provider(ProviderDeepSeek); err == nil && r.hasKey(p) {
			c.Provider = ProviderDeepSeek
		}
		if r.def.Model != "" {
			c.Provider = r.owner(r.def.Model, c.Provider)
		}
	}
	if c.Model == "" {
		c.Model = r.firstModel(c.Provider)
	}
	return c
}

// Resolve turns a selection into a route. Missing names are filled from the default; an unknown model id passes through. It does no I/O.
func (r *Router) Resolve(s Selection) (Route, error) {
	switch {
	case s.Provider == "" && s.Model == "":
		s = s.Or(r.Default())
	case s.Provider == "":
		s.Provider = r.owner(s.Model, r.Default().Provider)
	}
	p, err := r.provider(s.Provider)
	if err != nil {
		return Route{}, err
	}
	if s.Model == "" {
		if s.Model = r.firstModel(p.ID); s.Model == "" {
			return Route{}, fmt.Errorf("model provider %q lists no models; the session must name one", p.ID)
		}
	}
	if s.BaseURL != "" {
		if err := checkBaseURL(s.BaseURL); err != nil {
			return Route{}, err
		}
	}
	info := Catalog{ID: s.Model}
	if i := slices.IndexFunc(p.Models, func(m Catalog) bool { return m.ID == s.Model }); i >= 0 {
		info = p.Models[i]
	}
	if info.ContextWindow == 0 {
		info.ContextWindow = r.window
	}
	route := Route{
		Provider: p.ID, Model: s.Model, ContextWindow: info.ContextWindow, MaxOutput: info.MaxOutput, Images: info.Images,
		Thinking: thinks(p.Dialect, info, s), Demo: p.Kind == KindScript, CaptureTokens: p.CaptureTokens,
	}
	baseURL := func() string { return r.baseURL(p) }
	if s.BaseURL != "" {
		own := s.BaseURL
		baseURL = func() string { return own }
	}
	route.Adapter, err = r.kinds[p.Kind](Binding{
		Provider: p.ID, Model: s.Model, BaseURL: baseURL, Key: r.key(p, s), Dialect: p.Dialect,
		MaxOutput: info.MaxOutput, Thinking: route.Thinking, Images: info.Images, CaptureTokens: p.CaptureTokens,
		File: p.File, Lenient: p.Lenient,
	})
	if err != nil {
		return Route{}, fmt.Errorf("model provider %q: %w", p.ID, err)
	}
	return route, nil
}

// Configured lists the providers as they are in force: the built-in ones with what overrides them, then the others.
func (r *Router) Configured() []Provider { return slices.Clone(r.providers) }

// ProviderInfo describes a provider to people. It holds no secret.
type ProviderInfo struct {
	ID      string   `json:"id"`
	Aliases []string `json:"aliases,omitempty"`
	Kind    string   `json:"kind"`
	BaseURL string   `json:"baseUrl,omitempty"`
	// KeyName is the name to store a key under; "" when the provider takes none.
	KeyName     string `json:"keyName,omitempty"`
	KeyRequired bool   `json:"keyRequired"`
	HasKey      bool   `json:"hasKey"`
	Demo        bool   `json:"demo"`
	// File is the recording that it answers from, of kind replay; Lenient that differing requests are answered, too.
	File    string `json:"file,omitempty"`
	Lenient bool   `json:"lenient,omitempty"`
}

// Providers lists the providers, built-in ones first, then in the order of the configuration.
func (r *Router) Providers() []ProviderInfo {
	out := make([]ProviderInfo, 0, len(r.providers))
	for _, p := range r.providers {
		info := ProviderInfo{
			ID: p.ID, Aliases: slices.Clone(p.Aliases), Kind: p.Kind, BaseURL: withoutSecrets(r.baseURL(p)),
			KeyRequired: p.needsKey(), HasKey: r.hasKey(p), Demo: p.Kind == KindScript, File: p.File, Lenient: p.Lenient,
		}
		if p.TakesKey() {
			info.KeyName = p.KeyName()
		}
		out = append(out, info)
	}
	return out
}

// Provider describes one provider by id or alias.
func (r *Router) Provider(name string) (ProviderInfo, error) {
	p, err := r.provider(name)
	if err != nil {
		return ProviderInfo{}, err
	}
	all := r.Providers()
	return all[r.byName[p.ID]], nil
}

// Info describes one listed model to people.
type Info struct {
	Provider      string `json:"provider"`
	Model         string `json:"model"`
	Name          string `json:"name,omitempty"`
	ContextWindow int    `json:"contextWindow,omitempty"`
	MaxOutput     int    `json:"maxOutput,omitempty"`
	Images        bool   `json:"images"`
	Thinking      bool   `json:"thinking"`
	HasKey        bool   `json:"hasKey"`
	Demo          bool   `json:"demo"`
	Default       bool   `json:"default"`
}

// Models lists the catalogue of every provider, in the order of Providers.
func (r *Router) Models() []Info {
	def := r.Default()
	var out []Info
	for _, p := range r.providers {
		has := r.hasKey(p)
		for _, m := range p.Models {
			out = append(out, Info{
				Provider: p.ID, Model: m.ID, Name: m.Name, ContextWindow: m.ContextWindow, MaxOutput: m.MaxOutput, Images: m.Images,
				Thinking: thinks(p.Dialect, m, Selection{}), HasKey: has, Demo: p.Kind == KindScript,
				Default: def.Provider == p.ID && def.Model == m.ID,
			})
		}
	}
	return out
}

func (r *Router) provider(name string) (Provider, error) {
	i, ok := r.byName[name]
	if !ok {
		known := make([]string, len(r.providers))
		for i, p := range r.providers {
			known[i] = p.ID
		}
		return Provider{}, &UnknownProviderError{Name: name, Known: known}
	}
	return r.providers[i], nil
}

// owner finds the provider whose catalogue lists a model, the fallback first.
func (r *Router) owner(model, fallback string) string {
	lists := func(p Provider) bool {
		return slices.ContainsFunc(p.Models, func(m Catalog) bool { return m.ID == model })
	}
	if p, err := r.provider(fallback); err == nil && lists(p) {
		return fallback
	}
	if i := slices.IndexFunc(r.providers, lists); i >= 0 {
		return r.providers[i].ID
	}
	return fallback
}

func (r *Router) firstModel(provider string) string {
	if p, err := r.provider(provider); err == nil && len(p.Models) > 0 {
		return p.Models[0].ID
	}
	return ""
}

func (r *Router) baseURL(p Provider) string {
	if p.BaseURLEnv != "" {
		if v, ok := r.lookup(p.BaseURLEnv); ok && strings.TrimSpace(v) != "" {
			return strings.TrimSpace(v)
		}
	}
	return p.BaseURL
}

// needsKey says whether p's requests need a key. A recording needs none, whatever it is a recording of.
func (p Provider) needsKey() bool { return p.APIKeyEnv != "" && p.Kind != KindReplay }

// hasKey says whether requests to p would carry what they need: a script needs no key, nor does a provider that names none.
func (r *Router) hasKey(p Provider) bool {
	if !p.needsKey() {
		return true
	}
	v, ok := r.lookup(p.APIKeyEnv)
	return ok && strings.TrimSpace(v) != ""
}

func (r *Router) key(p Provider, s Selection) func(context.Context) (string, error) {
	if s.APIKey != "" {
		return func(context.Context) (string, error) { return s.APIKey, nil }
	}
	return func(context.Context) (string, error) {
		if s.BaseURL != "" && !sameHost(s.BaseURL, r.baseURL(p)) {
			return "", nil // the provider's key belongs to the provider's host
		}
		if v, ok := r.lookup(p.KeyName()); ok && strings.TrimSpace(v) != "" {
			return v, nil
		}
		if !p.needsKey() {
			return "", nil
		}
		return "", &Error{
			Code: CodeMissingCredential, Provider: p.ID,
			Message: fmt.Sprintf("no key for provider %q: set %s in the environment or store one in the settings", p.ID, p.APIKeyEnv),
		}
	}
}
