package prompt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
)

var bg = context.Background()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const helpful = "You are a helpful software engineer assistant."

type plane struct {
	*Registry
	root, agent *scope.Scope
	log         *bytes.Buffer
}

func newPlane(t testing.TB) plane {
	root := scope.New("host")
	t.Cleanup(func() { _ = root.Close(bg) })
	log := &bytes.Buffer{}
	return plane{&Registry{Logger: slog.New(slog.NewTextHandler(log, nil))}, root, layer(t, root, "agent"), log}
}

func layer(t testing.TB, s *scope.Scope, name string) *scope.Scope {
	c, err := s.Child(name, scope.Layer())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func (p plane) assemble(t testing.TB, s *scope.Scope) Assembly {
	t.Helper()
	a, err := p.Assemble(bg, s, nil)
	must(t, err)
	return a
}

func sec(name string, order int, text string) Section {
	return Section{Name: name, Order: order, Text: Fixed(text)}
}

func failing(context.Context) (string, error) { return "", errors.New("it failed") }

func TestSectionsSortedJoinedAndShadowed(t *testing.T) {
	p := newPlane(t)
	other := layer(t, p.root, "other")
	must(t,
		p.AddSection(p.root, sec("identity", Identity, "Host.")),
		p.AddSection(p.root, sec("orientation", Orientation, "\nWeb.\n\n")),
		p.AddSection(p.root, sec("persona", Persona, "Nobody.")),
		p.AddSection(p.agent, sec("persona", Persona, "I am {{who}}.")),
		p.AddSection(p.agent, sec("b", Guidance, "second")),
		p.AddSection(p.agent, sec("a", Guidance, "first")),
		p.AddSection(p.agent, sec("empty", 5, " \n ")),
		p.AddVariable(p.root, "who", Fixed("somebody")),
		p.AddVariable(p.agent, "who", Fixed("{{me}}")),
		p.AddSection(other, sec("secret", 1, "of the other agent")),
	)
	if diff := cmp.Diff("Host.\n\nWeb.\n\nI am {{me}}.\n\nfirst\n\nsecond", p.assemble(t, p.agent).System); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("Host.\n\nWeb.\n\nNobody.\n\nof the other agent", p.assemble(t, other).System); diff != "" {
		t.Error(diff)
	}
	wantError(t, p.AddSection(p.agent, sec("persona", 3, "again")), `"persona"`, "already added by host/agent")
}

func TestRegistrationRefuses(t *testing.T) {
	p := newPlane(t)
	wantError(t, p.AddSection(p.root, Section{Name: "x"}), "needs a name and a text")
	wantError(t, p.AddSection(p.root, sec("", 0, "x")), "needs a name and a text")
	wantError(t, p.AddContext(p.root, Context{Name: "x"}), "needs a name and a text")
	for _, name := range []string{"", "A", "1a", "a-b", "a b", "ä"} {
		wantError(t, p.AddVariable(p.root, name, Fixed("")), "register variable")
	}
}

func TestVariables(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"{{model}} in {{cwd}}{{cwd}}", "m in /w/w", ""},
		{"{{ model }}", "", "{{ model }} is not a variable"},
		{"{{Model}}", "", "not a variable"},
		{"{{}}", "", "not a variable"},
		{"{{{model}}}", "", "not a variable"},
		{"{{nope}}", "", "there is no variable nope"},
		{"{{broken}}", "", "variable broken has no value: it failed"},
		{"{{panicky}}", "", "variable panicky has no value: panicky: panic"},
		{"a lone {{ stays", "a lone {{ stays", ""},
		{"}} {{model}} }} {{", "}} m }} {{", ""},
		{"{ {model} }", "{ {model} }", ""},
		{"{{twice}}", "{{model}}", ""},
	} {
		p := newPlane(t)
		must(t,
			p.AddVariable(p.root, "model", Fixed("m")),
			p.AddVariable(p.root, "cwd", Fixed("/w")),
			p.AddVariable(p.root, "twice", Fixed("{{model}}")),
			p.AddVariable(p.root, "broken", failing),
			p.AddVariable(p.root, "panicky", func(context.Context) (string, error) { panic("ow") }),
			p.AddSection(p.agent, sec("s", 0, c.text)))
		a, err := p.Assemble(bg, p.agent, nil)
		if c.err != "" {
			wantError(t, err, "section s: ", c.err)
			continue
		}
		if err != nil || a.System != c.want {
			t.Errorf("%q became %q, %v, want %q", c.text, a.System, err, c.want)
		}
	}
}

func TestLiteralTextIsNotScanned(t *testing.T) {
	p := newPlane(t)
	must(t,
		p.AddSection(p.agent, Section{Name: "file", Text: Fixed("use {{ jinja }} and {{nope}}"), Literal: true}),
		p.AddContext(p.agent, Context{Name: "file", Text: Fixed("{{nope}}"), Literal: true}))
	a := p.assemble(t, p.agent)
	if a.System != "use {{ jinja }} and {{nope}}" || !cmp.Equal(a.Contexts, []string{"{{nope}}"}) {
		t.Errorf("%+v", a)
	}
}

func TestTwoCompleteSectionsNameBoth(t *testing.T) {
	p := newPlane(t)
	complete := func(name, text string) Section {
		return Section{Name: name, Text: Fixed(text), Complete: true}
	}
	must(t, p.AddSection(p.root, complete("house", "H")), p.AddSection(p.agent, complete("persona", "P")))
	_, err := p.Assemble(bg, p.agent, nil)
	wantError(t, err, "house of host", "persona of host/agent")

	shadowed := layer(t, p.agent, "deeper")
	must(t, p.AddSection(shadowed, sec("house", 0, "no longer complete")))
	if got := p.assemble(t, shadowed).System; got != "P" {
		t.Errorf("with one of them shadowed: %q", got)
	}
}

func TestContextsAndSuppressor(t *testing.T) {
	p := newPlane(t)
	asked := 0
	must(t,
		p.AddContext(p.root, Context{Name: "sandbox", Order: 2, Text: func(context.Context) (string, error) { asked++; return "\nsandbox: {{mode}}\n", nil }}),
		p.AddContext(p.root, Context{Name: "workspace", Order: 1, Text: Fixed("workspace: /w")}),
		p.AddContext(p.root, Context{Name: "none", Order: 0, Text: Fixed("")}),
		p.AddVariable(p.root, "mode", Fixed("on")),
		p.AddSection(p.root, sec("s", 0, "system")))
	a := p.assemble(t, p.agent)
	if a.System != "system" || !cmp.Equal(a.Contexts, []string{"workspace: /w", "sandbox: on"}) {
		t.Errorf("%+v", a)
	}
	asked = 0
	bare := layer(t, p.root, "bare")
	must(t, p.AddSuppressor(bare, "minimal"), p.AddContext(p.root, Context{Name: "bad", Text: failing}),
		p.Listen(p.root, "adds", func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
			d.Contexts = append(d.Contexts, Piece{Name: "x", Text: "{{nope}}"})
			return next(ctx, d)
		}))
	if a := p.assemble(t, bare); len(a.Contexts) > 0 || asked > 0 {
		t.Errorf("suppressed, yet asked %d times and got %q", asked, a.Contexts)
	}
	_, err := p.Assemble(bg, p.agent, nil)
	wantError(t, err, "context bad of host: it failed")
}

func TestListenersChangeAnOrdinaryPrompt(t *testing.T) {
	p := newPlane(t)
	var ran []string
	listen := func(name string, change func(*Draft)) Listener {
		return func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
			ran = append(ran, name)
			change(&d)
			return next(ctx, d)
		}
	}
	must(t,
		p.AddSection(p.root, sec("one", 1, "1 {{v}}")), p.AddSection(p.root, sec("two", 2, "2")), p.AddVariable(p.root, "v", Fixed("before")),
		p.ListenLast(p.root, "last", listen("last", func(d *Draft) { d.Sections[0].Text += " last" })),
		p.Listen(p.agent, "agent", listen("agent", func(d *Draft) { d.Sections = d.Sections[:1]; d.Variables["v"] = "after" })),
		p.ListenFirst(p.agent, "first", listen("first", func(d *Draft) {
			d.Sections = append(d.Sections, Piece{Name: "zero", Order: -5, Text: "0"})
			d.Sections = append(d.Sections[2:], d.Sections[:2]...)
			d.Sections, d.Sections[0].Text = append(d.Sections[:1], d.Sections[1:]...), "0 {{v}}"
		})),
		p.Listen(p.root, "host", listen("host", func(d *Draft) { d.Contexts = append(d.Contexts, Piece{Text: "ctx"}) })),
	)
	a := p.assemble(t, p.agent)
	if diff := cmp.Diff([]string{"first", "host", "agent", "last"}, ran); diff != "" {
		t.Error(diff)
	}
	if a.System != "0 after last" || !cmp.Equal(a.Contexts, []string{"ctx"}) {
		t.Errorf("%+v", a)
	}
	must(t, p.Listen(p.agent, "bad", func(context.Context, Draft, func(context.Context, Draft) (Draft, error)) (Draft, error) {
		panic("listener down")
	}))
	_, err := p.Assemble(bg, p.agent, nil)
	wantError(t, err, "bad", "listener down")
}

func TestToolsAreReadOnlyInTheWaterfall(t *testing.T) {
	p := newPlane(t)
	registry := []model.Tool{{Name: "bash", Description: "d", Parameters: json.RawMessage(`{"a":1}`)}}
	must(t, p.Listen(p.root, "greedy", func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
		d.Tools[0].Name = "changed"
		d.Tools[0].Parameters[1] = 'X'
		d.Tools = append(d.Tools, model.Tool{Name: "more"})
		return next(ctx, d)
	}))
	a, err := p.Assemble(bg, p.agent, func() []model.Tool { return registry })
	must(t, err)
	want := []model.Tool{{Name: "bash", Description: "d", Parameters: json.RawMessage(`{"a":1}`)}}
	if diff := cmp.Diff(want, a.Tools); diff != "" {
		t.Error(diff)
	}
	a.Tools[0].Parameters[1] = 'X'
	if diff := cmp.Diff(want, registry); diff != "" {
		t.Error("the registry's own schema was reached:", diff)
	}
}

// Whatever anybody contributes, changes, breaks or panics about, a complete section stays as it is.
func TestCompletePromptCannotBeTouched(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlane(t)
		suppress := rapid.Bool().Draw(rt, "suppress")
		must(t, p.AddSection(p.agent, Section{Name: "persona", Text: Fixed(helpful + " {{v}}\n"), Complete: true}), p.AddVariable(p.root, "v", Fixed("1")))
		if suppress {
			must(t, p.AddSuppressor(p.agent, "minimal"))
		}
		texts := []Text{Fixed("x"), Fixed("{{nope}}"), failing, func(context.Context) (string, error) { panic("text") }}
		changes := []func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error){
			func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
				return Draft{}, errors.New("no")
			},
			func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
				panic("no")
			},
			func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
				d.Complete = false
				d.Variables["v"] = "2"
				d.Sections = append(d.Sections, Piece{Name: "more", Text: "more {{nope}}"})
				d, _ = next(ctx, d)
				d.Sections[0].Text = "mine"
				return d, errors.New("after next")
			},
			func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
				clear(d.Variables)
				d.Sections = nil
				return next(ctx, d)
			},
			func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
				return Draft{}, nil // ends the chain
			},
		}
		for i := range rapid.IntRange(0, 12).Draw(rt, "contributions") {
			at := rapid.SampledFrom([]*scope.Scope{p.root, p.agent}).Draw(rt, "at")
			name := fmt.Sprint("c", i)
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0:
				must(t, p.AddSection(at, Section{Name: name, Order: rapid.IntRange(-999, 999).Draw(rt, "order"), Text: rapid.SampledFrom(texts).Draw(rt, "text")}))
			case 1:
				must(t, p.AddVariable(at, name, rapid.SampledFrom(texts).Draw(rt, "text")))
			case 2:
				if suppress { // else a context that fails is in nobody's way to be discarded
					must(t, p.AddContext(at, Context{Name: name, Text: rapid.SampledFrom(texts).Draw(rt, "text")}))
				}
			case 3:
				add := rapid.SampledFrom([]func(*scope.Scope, string, Listener) error{p.Listen, p.ListenFirst, p.ListenLast}).Draw(rt, "place")
				must(t, add(at, name, rapid.SampledFrom(changes).Draw(rt, "change")))
			}
		}
		a, err := p.Assemble(bg, p.agent, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if a.System != helpful+" 1\n" || len(a.Contexts) > 0 {
			rt.Fatalf("%+v", a)
		}
	})
}

func TestDiscardedFailuresAreLogged(t *testing.T) {
	p := newPlane(t)
	must(t, p.AddSection(p.agent, Section{Name: "persona", Text: Fixed(helpful), Complete: true}),
		p.AddSection(p.root, Section{Name: "guidance", Text: failing}),
		p.Listen(p.root, "stumbler", func(context.Context, Draft, func(context.Context, Draft) (Draft, error)) (Draft, error) {
			return Draft{}, errors.New("stumbled")
		}))
	kept := false
	must(t, p.ListenLast(p.root, "later", func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
		kept = true
		d.Contexts = append(d.Contexts, Piece{Name: "c", Text: "kept"})
		return next(ctx, d)
	}))
	a := p.assemble(t, p.agent)
	if a.System != helpful || !kept || !cmp.Equal(a.Contexts, []string{"kept"}) {
		t.Errorf("a failing listener took others with it: %+v", a)
	}
	for _, want := range []string{"name=guidance", "it failed", "name=stumbler", "stumbled"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, p.log)
		}
	}
	// The complete section's own failure is not discarded.
	q := newPlane(t)
	must(t, q.AddSection(q.agent, Section{Name: "persona", Text: failing, Complete: true}))
	_, err := q.Assemble(bg, q.agent, nil)
	wantError(t, err, "section persona of host/agent: it failed")
}

// A listener that fails half-way leaves nothing of what it did, and none can switch the guarantee off for the next.
func TestFailingListenerOfACompletePromptLeavesNothing(t *testing.T) {
	p := newPlane(t)
	must(t, p.AddSection(p.agent, Section{Name: "persona", Text: Fixed(helpful), Complete: true}), p.AddContext(p.agent, Context{Name: "c", Text: Fixed("kept")}),
		p.ListenFirst(p.root, "downgrade", func(ctx context.Context, d Draft, next func(context.Context, Draft) (Draft, error)) (Draft, error) {
			d.Complete = false
			return next(ctx, d)
		}),
		p.Listen(p.root, "half-way", func(_ context.Context, d Draft, _ func(context.Context, Draft) (Draft, error)) (Draft, error) {
			d.Contexts[0].Text = "mine"
			d.Contexts = append(d.Contexts, Piece{Text: "more"})
			return d, errors.New("stumbled")
		}))
	if a := p.assemble(t, p.agent); a.System != helpful || !cmp.Equal(a.Contexts, []string{"kept"}) {
		t.Errorf("%+v", a)
	}
	if strings.Count(p.log.String(), "stumbled") != 1 || strings.Contains(p.log.String(), "name=downgrade") {
		t.Errorf("it is the one that failed that is named: %s", p.log)
	}
}

func TestClosedScopeLeavesThePrompt(t *testing.T) {
	p := newPlane(t)
	row, err := p.agent.Child("row")
	must(t, err, p.AddSection(row, sec("s", 0, "there")), p.AddSuppressor(row, "x"), p.AddContext(p.root, Context{Name: "c", Text: Fixed("ctx")}))
	must(t, row.Close(bg))
	if a := p.assemble(t, p.agent); a.System != "" || len(a.Contexts) != 1 {
		t.Errorf("%+v", a)
	}
}

func TestFrozen(t *testing.T) {
	tool := func(name, desc, params string) model.Tool {
		return model.Tool{Name: name, Description: desc, Parameters: json.RawMessage(params)}
	}
	var f Frozen
	must(t, f.Check("anything", nil))
	given := []model.Tool{tool("a", "A", `{}`), tool("b", "B", `{}`)}
	f.Fix("system", given)
	given[0].Parameters[0] = 'X'
	f.Fix("other", nil)
	if !f.Set() || f.System() != "system" || string(f.Tools()[0].Parameters) != `{}` {
		t.Errorf("%+v", f)
	}
	must(t, f.Check("system", []model.Tool{tool("a", "A", `{}`), tool("b", "B", `{}`)}))
	for _, c := range []struct {
		system string
		tools  []model.Tool
		says   string
	}{
		{"systole", f.Tools(), "differs from byte 4"},
		{"system", f.Tools()[:1], "2 tools were fixed, now there are 1"},
		{"system", []model.Tool{f.Tools()[1], f.Tools()[0]}, "tool 1 was a, now it is b"},
		{"system", []model.Tool{tool("a", "A2", `{}`), f.Tools()[1]}, "description of tool a"},
		{"system", []model.Tool{f.Tools()[0], tool("b", "B", `{ }`)}, "parameters of tool b"},
	} {
		wantError(t, f.Check(c.system, c.tools), c.says)
	}
}

func TestHash(t *testing.T) {
	tools := []model.Tool{{Name: "a", Description: "<b>", Parameters: json.RawMessage(`{ "z": 1, "a": 2 }`)}}
	// printf '%s' '{"system":"s","tools":[{"name":"a","description":"<b>","parameters":{"z":1,"a":2}}]}' | sha256sum
	if got := Hash("s", tools); got != "02a84d26be1e30391e4a5dc6960db31b05c7b8faf7372570d728f585080aa86d" {
		t.Error(got)
	}
	// printf '%s' '{"system":"","tools":[]}' | sha256sum
	if got := (Assembly{}).Hash(); got != "f83dbcb792522e51cd1f8adcd327061332c1ad95caa7d1d4fe5a213b5ca2be10" {
		t.Error(got)
	}
	seen := map[string]bool{}
	for _, h := range []string{Hash("s", tools), Hash("s", nil), Hash("", tools), Hash("s", append(tools, tools...)), Hash("s", []model.Tool{{Name: "a"}}),
		Hash("s", []model.Tool{{Parameters: json.RawMessage(`{`)}})} {
		if seen[h] {
			t.Error("two prompts, one hash")
		}
		seen[h] = true
	}
}

func BenchmarkAssemble(b *testing.B) {
	p := newPlane(b)
	must(b, p.AddSection(p.root, sec("identity", Identity, "Host.")), p.AddSection(p.root, sec("orientation", Orientation, "Web.")),
		p.AddSection(p.agent, sec("persona", 0, "You work in {{cwd}} with {{model}}.")), p.AddVariable(p.agent, "cwd", Fixed("/w")), p.AddVariable(p.agent, "model", Fixed("m")),
		p.AddContext(p.agent, Context{Name: "runtime", Text: Fixed("sandbox: on")}))
	for i := range 10 {
		must(b, p.AddSection(p.agent, sec(fmt.Sprint("guidance", i), Guidance+i, strings.Repeat("Words about a tool. ", 20))))
	}
	tools := make([]model.Tool, 8)
	for i := range tools {
		tools[i] = model.Tool{Name: fmt.Sprint("tool", i), Description: strings.Repeat("d", 400), Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`)}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Assemble(bg, p.agent, func() []model.Tool { return tools }); err != nil {
			b.Fatal(err)
		}
	}
}
