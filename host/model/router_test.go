package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/model"
)

// binding is an adapter that only remembers what it was built from.
type binding struct {
	model.Adapter
	model.Binding
}

type env map[string]string

func (e env) lookup(name string) (string, bool) { v, ok := e[name]; return v, ok }

func router(t *testing.T, e env, c model.Config) *model.Router {
	t.Helper()
	factory := func(b model.Binding) (model.Adapter, error) { return binding{Binding: b}, nil }
	c.Kinds = map[string]model.Factory{"openai": factory, "anthropic": factory, "script": factory}
	c.Lookup = e.lookup
	r, err := model.NewRouter(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func resolve(t *testing.T, r *model.Router, s model.Selection) (model.Route, binding) {
	t.Helper()
	route, err := r.Resolve(s)
	if err != nil {
		t.Fatal(err)
	}
	return route, route.Adapter.(binding)
}

var local = model.Provider{ID: "local", Kind: "openai", BaseURL: "http://127.0.0.1:8000/v1", CaptureTokens: true, Models: []model.Catalog{{ID: "qwen", ContextWindow: 4096, Images: true}}}

func TestPrecedence(t *testing.T) {
	cases := []struct {
		name string
		env  env
		conf model.Config
		sel  model.Selection
		want string
		demo bool
	}{
		{"nothing at all", nil, model.Config{}, model.Selection{}, "demo/demo", true},
		{"a key", env{"DEEPSEEK_API_KEY": "k"}, model.Config{}, model.Selection{}, "deepseek/deepseek-v4-flash", false},
		{"an empty key", env{"DEEPSEEK_API_KEY": " "}, model.Config{}, model.Selection{}, "demo/demo", true},
		{"configured default", env{"DEEPSEEK_API_KEY": "k"}, model.Config{Providers: []model.Provider{local}, Default: model.Choice{Provider: "local"}}, model.Selection{}, "local/qwen", false},
		{"user default", nil, model.Config{Providers: []model.Provider{local}}, model.Selection{}.Or(model.Choice{Provider: "local", Model: "other"}), "local/other", false},
		{"session's own", env{"DEEPSEEK_API_KEY": "k"}, model.Config{Providers: []model.Provider{local}}, model.Selection{Provider: "local", Model: "x"}.Or(model.Choice{Provider: "deepseek"}), "local/x", false},
		{"unknown model passes through", nil, model.Config{}, model.Selection{Provider: "deepseek", Model: "deepseek-v9"}, "deepseek/deepseek-v9", false},
		{"the other name", nil, model.Config{}, model.Selection{Provider: "deepseek-official", Model: "deepseek-v4-pro"}, "deepseek/deepseek-v4-pro", false},
		{"provider only", nil, model.Config{}, model.Selection{Provider: "deepseek"}, "deepseek/deepseek-v4-flash", false},
		{"model only", nil, model.Config{Providers: []model.Provider{local}}, model.Selection{Model: "qwen"}, "local/qwen", false},
		{"unknown model only", env{"DEEPSEEK_API_KEY": "k"}, model.Config{}, model.Selection{Model: "new"}, "deepseek/new", false},
		{"chaos", nil, model.Config{}, model.Selection{Provider: "demo", Model: "chaos"}, "demo/chaos", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			route, b := resolve(t, router(t, c.env, c.conf), c.sel)
			if got := route.Provider + "/" + route.Model; got != c.want || route.Demo != c.demo || b.Model != route.Model {
				t.Errorf("%s, demo %v; want %s", got, route.Demo, c.want)
			}
		})
	}
}

func TestUnknownProvider(t *testing.T) {
	_, err := router(t, nil, model.Config{Providers: []model.Provider{local}}).Resolve(model.Selection{Provider: "nope", Model: "x"})
	var unknown *model.UnknownProviderError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "deepseek, demo, local") {
		t.Error(err)
	}
}

func TestRouteCarriesTheCatalogue(t *testing.T) {
	route, b := resolve(t, router(t, nil, model.Config{Providers: []model.Provider{local}}), model.Selection{Provider: "local", Model: "qwen"})
	if route.ContextWindow != 4096 || !route.Images || !route.CaptureTokens || route.Thinking || !b.CaptureTokens || !b.Images {
		t.Errorf("%+v", route)
	}
	route, _ = resolve(t, router(t, nil, model.Config{}), model.Selection{Provider: "deepseek"})
	if route.ContextWindow != 1048576 || !route.Thinking {
		t.Errorf("%+v", route)
	}
}

func TestThinking(t *testing.T) {
	params := func(s string) map[string]json.RawMessage {
		var p map[string]json.RawMessage
		if err := json.Unmarshal([]byte(s), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	r := router(t, nil, model.Config{Providers: []model.Provider{local,
		{ID: "always", Kind: "openai", Dialect: model.Dialect{Thinking: "on"}}, {ID: "never", Kind: "openai", Dialect: model.Dialect{Thinking: "off"}}}})
	for _, c := range []struct {
		sel  model.Selection
		want bool
	}{
		{model.Selection{Provider: "deepseek"}, true},
		{model.Selection{Provider: "deepseek", Params: params(`{"thinking":{"type":"disabled"}}`)}, false},
		{model.Selection{Provider: "deepseek", ReasoningEffort: "none"}, false},
		{model.Selection{Provider: "local", Model: "x"}, false},
		{model.Selection{Provider: "local", Model: "x", Params: params(`{"thinking":{"type":"enabled"}}`)}, true},
		{model.Selection{Provider: "local", Model: "x", Params: params(`{"enable_thinking":true}`)}, true},
		{model.Selection{Provider: "local", Model: "x", Params: params(`{"chat_template_kwargs":{"enable_thinking":true}}`)}, true},
		{model.Selection{Provider: "always", Model: "x", Params: params(`{"enable_thinking":false}`)}, true},
		{model.Selection{Provider: "never", Model: "x", Params: params(`{"enable_thinking":true}`)}, false},
	} {
		if route, b := resolve(t, r, c.sel); route.Thinking != c.want || b.Thinking != c.want {
			t.Errorf("%+v: thinking %v", c.sel, route.Thinking)
		}
	}
}

func TestKeysAndBaseURLs(t *testing.T) {
	e := env{"DEEPSEEK_API_KEY": "sk-one"}
	r := router(t, e, model.Config{Providers: []model.Provider{local}})
	key := func(b binding) string {
		k, err := b.Key(context.Background())
		if err != nil {
			var me *model.Error
			if !errors.As(err, &me) {
				t.Fatal(err)
			}
			return string(me.Code)
		}
		return k
	}
	_, b := resolve(t, r, model.Selection{Provider: "deepseek"})
	if b.BaseURL() != "https://api.deepseek.com" || key(b) != "sk-one" {
		t.Errorf("%s, %s", b.BaseURL(), key(b))
	}
	// L51: both are asked for every request.
	e["DEEPSEEK_API_KEY"], e["DEEPSEEK_BASE_URL"] = "sk-two", " http://127.0.0.1:9/v1 "
	if b.BaseURL() != "http://127.0.0.1:9/v1" || key(b) != "sk-two" {
		t.Errorf("%s, %s", b.BaseURL(), key(b))
	}
	if _, b := resolve(t, r, model.Selection{Provider: "deepseek", BaseURL: "http://127.0.0.1:9/rollout/7"}); key(b) != "sk-two" || b.BaseURL() != "http://127.0.0.1:9/rollout/7" {
		t.Errorf("same host: %s, %s", b.BaseURL(), key(b))
	}
	for _, url := range []string{"http://gateway.example/v1", "https://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"} {
		if _, b := resolve(t, r, model.Selection{Provider: "deepseek", BaseURL: url}); key(b) != "" {
			t.Errorf("the provider's key went to %s", url)
		}
	}
	if _, b := resolve(t, r, model.Selection{Provider: "deepseek", BaseURL: "http://gateway.example", APIKey: "own"}); key(b) != "own" {
		t.Error("the session's own key wasn't used")
	}
	delete(e, "DEEPSEEK_API_KEY")
	if _, b := resolve(t, r, model.Selection{Provider: "deepseek"}); key(b) != "MISSING_CREDENTIAL" {
		t.Errorf("without a key: %s", key(b))
	}
	if _, b := resolve(t, r, model.Selection{Provider: "local"}); key(b) != "" {
		t.Error("a provider without a key must go without")
	}
	e["LOCAL_API_KEY"] = "sk-local"
	if _, b := resolve(t, r, model.Selection{Provider: "local"}); key(b) != "sk-local" {
		t.Error("a stored key of a provider that needs none must be used")
	}
	for _, bad := range []string{"ftp://x", "file:///etc/passwd", "example.com/v1", "http://"} {
		if _, err := r.Resolve(model.Selection{Provider: "deepseek", BaseURL: bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestListings(t *testing.T) {
	r := router(t, env{"DEEPSEEK_API_KEY": "secret-key", "DEEPSEEK_BASE_URL": "https://user:secret-pw@h/v1?k=secret-q"}, model.Config{Providers: []model.Provider{local}})
	raw, err := json.Marshal([]any{r.Providers(), r.Models()})
	if err != nil || strings.Contains(string(raw), "secret") {
		t.Errorf("%s, %v", raw, err)
	}
	want := []model.ProviderInfo{
		{ID: "deepseek", Aliases: []string{"deepseek-official"}, Kind: "openai", BaseURL: "https://h/v1", KeyName: "DEEPSEEK_API_KEY", KeyRequired: true, HasKey: true},
		{ID: "demo", Kind: "script", HasKey: true, Demo: true},
		{ID: "local", Kind: "openai", BaseURL: "http://127.0.0.1:8000/v1", KeyName: "LOCAL_API_KEY", HasKey: true},
	}
	if d := cmp.Diff(want, r.Providers()); d != "" {
		t.Error(d)
	}
	defaults := 0
	for _, m := range r.Models() {
		if m.Default {
			defaults++
			if m.Model != "deepseek-v4-flash" {
				t.Errorf("default is %s", m.Model)
			}
		}
	}
	if defaults != 1 || len(r.Models()) != 5 {
		t.Errorf("%d defaults of %d", defaults, len(r.Models()))
	}
	if p, err := r.Provider("deepseek-official"); err != nil || p.ID != "deepseek" {
		t.Error(p, err)
	}
}

func TestConfigErrors(t *testing.T) {
	ok := func(model.Binding) (model.Adapter, error) { return nil, nil }
	kinds := map[string]model.Factory{"openai": ok, "script": ok}
	for want, providers := range map[string][]model.Provider{
		"without an id":    {{Kind: "openai"}},
		"no kind":          {{ID: "x"}},
		"unknown kind":     {{ID: "x", Kind: "telepathy"}},
		"configured twice": {{ID: "x", Kind: "openai"}, {ID: "x", Kind: "openai"}},
		"claimed by":       {{ID: "x", Kind: "openai", Aliases: []string{"deepseek-official"}}},
	} {
		if _, err := model.NewRouter(model.Config{Kinds: kinds, Providers: providers}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := model.NewRouter(model.Config{Kinds: kinds, Default: model.Choice{Provider: "nope"}}); err == nil {
		t.Error("an unknown default was taken")
	}
	r, err := model.NewRouter(model.Config{Kinds: kinds, Providers: []model.Provider{{ID: "deepseek", BaseURL: "http://mine", Models: []model.Catalog{{ID: "m"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := r.Provider("deepseek-official"); err != nil || p.BaseURL != "http://mine" || p.KeyName != "DEEPSEEK_API_KEY" {
		t.Errorf("the built-in provider isn't overlaid: %+v, %v", p, err)
	}
}

func TestContextWindowOfUnknownModels(t *testing.T) {
	r := router(t, nil, model.Config{Providers: []model.Provider{local}, ContextWindow: 1000})
	for name, want := range map[string]int{"qwen": 4096, "unlisted": 1000} {
		if route, _ := resolve(t, r, model.Selection{Provider: "local", Model: name}); route.ContextWindow != want {
			t.Errorf("%s: %d", name, route.ContextWindow)
		}
	}
}
