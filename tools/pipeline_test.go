package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var object = json.RawMessage(`{"type":"object"}`)

type bench struct {
	registry tools.Registry
	scope    *scope.Scope
	runner   tools.Runner
	problems []string
}

func newBench(t *testing.T) *bench {
	b := &bench{scope: scope.New("host")}
	b.runner = tools.Runner{
		Registry: &b.registry, Scope: b.scope, View: func() *scope.Scope { return b.scope },
		Report: func(_ tools.Call, problem string) { b.problems = append(b.problems, problem) },
	}
	t.Cleanup(func() {
		if err := b.scope.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) add(t *testing.T, tool tools.Tool) {
	t.Helper()
	if err := b.registry.Add(b.scope, tool); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) run(ctx context.Context, name, arguments string) tools.Result {
	return b.runner.Run(ctx, b.registry.Visible(b.scope), session.ToolCall{CallID: "c1", Name: name, Arguments: arguments}, nil)
}

func echo(name string) tools.Tool {
	return tools.Tool{Name: name, Parameters: object, Run: func(_ context.Context, c tools.Call) tools.Result {
		return tools.TextResult(c.Name + string(c.Arguments))
	}}
}

func TestEveryCallHasAResult(t *testing.T) {
	b := newBench(t)
	b.add(t, echo("echo"))
	b.add(t, tools.Tool{Name: "bomb", Parameters: object, Run: func(context.Context, tools.Call) tools.Result { panic("inside") }})

	for _, c := range []struct{ name, arguments, code, text string }{
		{"echo", `{"a":1}`, "", `echo{"a":1}`},
		{"echo", ``, "", `echo{}`},
		{"echo", `{"a":`, tools.CodeBadArguments, "not a JSON object"},
		{"echo", `[1]`, tools.CodeBadArguments, "not a JSON object"},
		{"echo", `null`, tools.CodeBadArguments, "null"},
		{"nope", `{}`, tools.CodeUnknownTool, "bomb, echo"},
		{"bomb", `{}`, tools.CodePanic, "failed inside"},
	} {
		res := b.run(context.Background(), c.name, c.arguments)
		if code := codeOf(res); code != c.code || !strings.Contains(res.Text(), c.text) || res.IsError != (c.code != "") {
			t.Errorf("%s %s: code %q, error %v, text %q", c.name, c.arguments, code, res.IsError, res.Text())
		}
	}
	if len(b.problems) != 1 || !strings.Contains(b.problems[0], "inside") {
		t.Errorf("reported: %q", b.problems)
	}
}

// A guard is somebody else's code; its panic must not leave the call without a result.
func TestAPanickingGuardIsAResult(t *testing.T) {
	b := newBench(t)
	b.add(t, echo("echo"))
	err := b.registry.Guard(b.scope, "bomb", func(context.Context, tools.Call, func(context.Context, tools.Call) (tools.Result, error)) (tools.Result, error) {
		panic("in the guard")
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if res := b.run(ctx, "echo", "{}"); codeOf(res) != tools.CodePanic {
		t.Errorf("got %+v", res)
	}
	if len(b.problems) != 1 || !strings.Contains(b.problems[0], "in the guard") {
		t.Errorf("reported: %q", b.problems)
	}
}

func codeOf(r tools.Result) string {
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

func TestCancelledToolIsWaitedFor(t *testing.T) {
	b := newBench(t)
	started := make(chan struct{})
	b.add(t, tools.Tool{Name: "slow", Parameters: object, Run: func(ctx context.Context, _ tools.Call) tools.Result {
		close(started)
		<-ctx.Done()
		return tools.TextResult("partial")
	}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	if res := b.run(ctx, "slow", "{}"); res.Text() != "partial" {
		t.Errorf("got %q, want what the tool had", res.Text())
	}
}

func TestStuckToolEndsAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := make(chan struct{})
		b.add(t, tools.Tool{Name: "stuck", Parameters: object, Run: func(context.Context, tools.Call) tools.Result {
			<-release
			return tools.Result{}
		}})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if res := b.run(ctx, "stuck", "{}"); codeOf(res) != tools.CodeStuck {
			t.Errorf("got %+v", res)
		}
		close(release)
	})
}

func TestSecretsLeaveTextMetaAndOutput(t *testing.T) {
	b := newBench(t)
	b.runner.Secrets = func() []string { return []string{"sk-12345678"} }
	b.add(t, tools.Tool{Name: "leak", Parameters: object, Run: func(_ context.Context, c tools.Call) tools.Result {
		if _, err := c.Output.Write([]byte("live sk-12345678")); err != nil {
			t.Error(err)
		}
		res := tools.TextResult("text sk-12345678")
		res.Meta = map[string]string{"diff": "+sk-12345678"}
		return res
	}})
	var live strings.Builder
	res := b.runner.Run(context.Background(), b.registry.Visible(b.scope), session.ToolCall{Name: "leak", Arguments: "{}"}, &live)
	meta, err := json.Marshal(res.Meta)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{res.Text(), string(meta), live.String()} {
		if !strings.Contains(s, "[redacted]") || strings.Contains(s, "12345678") {
			t.Errorf("a secret is left, or nothing was: %q", s)
		}
	}
}

func TestGuardAnswersInsteadOfTheTool(t *testing.T) {
	b := newBench(t)
	b.add(t, echo("echo"))
	err := b.registry.Guard(b.scope, "deny", func(ctx context.Context, c tools.Call, next func(context.Context, tools.Call) (tools.Result, error)) (tools.Result, error) {
		if strings.Contains(string(c.Arguments), "fail") {
			return tools.Result{}, errors.New("not today")
		}
		if strings.Contains(string(c.Arguments), "deny") {
			return tools.ErrorResult("echo", "DENIED", "denied"), nil
		}
		return next(ctx, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]string{`{"a":1}`: "", `{"deny":1}`: "DENIED", `{"fail":1}`: tools.CodeFailed} {
		if res := b.run(context.Background(), "echo", arguments); codeOf(res) != want {
			t.Errorf("%s: code %q, want %q", arguments, codeOf(res), want)
		}
	}
}

func TestVisibleOrderAndRestriction(t *testing.T) {
	b := newBench(t)
	for _, n := range []string{"c", "a", "d", "b"} {
		b.add(t, echo(n))
	}
	agentScope, err := b.scope.Child("agent", scope.Layer())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.registry.Add(agentScope, echo("own")); err != nil {
		t.Fatal(err)
	}
	if err := b.registry.Restrict(agentScope, "no d", func(name string) bool { return name != "d" }); err != nil {
		t.Fatal(err)
	}
	if err := b.registry.Order(agentScope, []string{"own", "*", "a", "ghost"}); err != nil {
		t.Fatal(err)
	}
	if got := list(b.registry.Visible(agentScope)); got != "own b c a" {
		t.Errorf("agent sees %q", got)
	}
	if got := list(b.registry.Visible(b.scope)); got != "a b c d" {
		t.Errorf("host sees %q", got)
	}
	if got := b.registry.Unknown(agentScope); len(got) != 1 || got[0] != "ghost" {
		t.Errorf("unknown: %q", got)
	}
}

func list(set []tools.Tool) string {
	var names []string
	for _, t := range set {
		names = append(names, t.Name)
	}
	return strings.Join(names, " ")
}

func TestCheckOrder(t *testing.T) {
	for _, bad := range [][]string{nil, {"a"}, {"*", "*"}, {"a", "a", "*"}, {"", "*"}} {
		if tools.CheckOrder(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// What a tool leaves for afterwards delays nobody, and is done before the scope is closed.
func TestAfterTheResult(t *testing.T) {
	b := newBench(t)
	handed, did := make(chan struct{}), false
	b.add(t, tools.Tool{Name: "slow", Parameters: object, Run: func(_ context.Context, c tools.Call) tools.Result {
		c.After(func() { <-handed; did = true })
		return tools.TextResult("done")
	}})
	if res := b.run(t.Context(), "slow", "{}"); res.Text() != "done" {
		t.Error(res.Text())
	}
	close(handed)
	if err := b.scope.Close(t.Context()); err != nil || !did {
		t.Errorf("did it: %v, %v", did, err)
	}
}
