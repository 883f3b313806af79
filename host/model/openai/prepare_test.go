package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
)

func offline(change ...func(*openai.Config)) *openai.Adapter {
	cfg := openai.Config{Provider: "test", Model: "m", BaseURL: func() string { return "http://127.0.0.1:1/v1" }}
	for _, c := range change {
		c(&cfg)
	}
	return openai.New(cfg)
}

func at(url string) func(*openai.Config) {
	return func(c *openai.Config) { c.BaseURL = func() string { return url } }
}

func prepare(t testing.TB, a *openai.Adapter, r model.Request) *model.Prepared {
	t.Helper()
	p, err := a.Prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(p.Body) {
		t.Fatalf("the body isn't JSON: %s", p.Body)
	}
	return p
}

// The exact bytes of a whole request. A change here is a new version of the encoder.
func TestGoldenBody(t *testing.T) {
	r := model.Request{
		System: "You are a helpful software engineer assistant.",
		Tools:  []model.Tool{{Name: "bash", Description: "run <it> & see", Parameters: json.RawMessage(`{ "type": "object", "properties": {"b": {}, "a": {}} }`)}},
		Messages: []model.Message{
			user("tab\there, \"quotes\", \u2028 and \x01"),
			assistant(reasoning("why"), model.Text("I look."), call("c1", "bash", `{"command": "ls"}`)),
			toolResult("c1", "a\r\nb\x1b[0m"),
			assistant(model.Text("done")),
		},
		MaxTokens: 100, ReasoningEffort: "high", Params: map[string]json.RawMessage{"top_p": json.RawMessage("0.9"), "seed": json.RawMessage("7")},
	}
	want := `{"model":"m","messages":[` +
		`{"role":"system","content":"You are a helpful software engineer assistant."},` +
		`{"role":"user","content":"tab\there, \"quotes\", ` + "\u2028" + ` and \u0001"},` +
		`{"role":"assistant","content":"I look.","reasoning_content":"why","tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"command\": \"ls\"}"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"a\r\nb\u001b[0m"},` +
		`{"role":"assistant","content":"done"}],` +
		`"tools":[{"type":"function","function":{"name":"bash","description":"run <it> & see","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}],` +
		`"stream":true,"stream_options":{"include_usage":true},"max_tokens":100,"reasoning_effort":"high","seed":7,"top_p":0.9}`
	p := prepare(t, offline(), r)
	same(t, string(p.Body), want)
	same(t, p.Encoder, "openai/1")
	same(t, string(p.System), `{"role":"system","content":"You are a helpful software engineer assistant."}`)
	same(t, len(p.Messages), 4)
	same(t, string(p.Messages[3]), `{"role":"assistant","content":"done"}`)
	if !bytes.Contains(p.Body, p.Tools) {
		t.Error("the tools aren't part of the body")
	}
}

func TestUnsetParametersAreAbsent(t *testing.T) {
	p := prepare(t, offline(), model.Request{Messages: []model.Message{user("hi")}})
	same(t, string(p.Body), `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`)
}

func TestToolWithoutParameters(t *testing.T) {
	p := prepare(t, offline(), model.Request{Tools: []model.Tool{{Name: "now"}}})
	same(t, string(p.Tools), `[{"type":"function","function":{"name":"now","description":"","parameters":{"type":"object","properties":{}}}}]`)
}

func TestReservedParameters(t *testing.T) {
	for _, name := range []string{"messages", "model", "tools", "stream"} {
		_, err := offline().Prepare(model.Request{Params: map[string]json.RawMessage{name: json.RawMessage("1")}})
		if code(t, err) != model.CodeInvalidRequest || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := offline().Prepare(model.Request{Params: map[string]json.RawMessage{"top_p": json.RawMessage("{")}})
	if err == nil {
		t.Error("a parameter that isn't JSON was taken")
	}
}

func TestDialects(t *testing.T) {
	r := model.Request{
		System: "s", MaxTokens: 5, ReasoningEffort: "low",
		Messages: []model.Message{user("hi"), assistant(reasoning("r"), call("c", "bash", "{}")), toolResult("c", "x")},
	}
	cases := []struct {
		name, url string
		set       model.Dialect
		has, not  []string
	}{
		{"plain", "http://h/v1", model.Dialect{}, []string{`"max_tokens":5`, `"role":"system"`, `"reasoning_content":"r"`, `"reasoning_effort":"low"`, `"content":""`}, []string{"obfuscation"}},
		{"openai", "https://api.openai.com/v1", model.Dialect{}, []string{`"max_completion_tokens":5`, `"role":"developer"`, `"include_obfuscation":false`}, []string{"reasoning_content", `"max_tokens"`}},
		{"azure", "https://x.openai.azure.com/openai", model.Dialect{}, []string{`"max_completion_tokens":5`}, []string{"reasoning_content"}},
		{"not openai", "https://api.openai.com.evil.example/v1", model.Dialect{}, []string{`"max_tokens":5`}, nil},
		{"openrouter", "https://openrouter.ai/api/v1", model.Dialect{}, []string{`"reasoning":{"effort":"low"}`, `"reasoning":"r"`}, []string{"reasoning_effort"}},
		{"overridden", "https://api.openai.com/v1", model.Dialect{ReasoningField: "reasoning", MaxTokensField: "max_tokens", SystemRole: "system", EffortForm: "thinking", EmptyContent: "null"},
			[]string{`"max_tokens":5`, `"role":"system"`, `"reasoning":"r"`, `"thinking":{"type":"enabled"}`, `"content":null`}, []string{"developer"}},
		{"left out", "http://h", model.Dialect{EffortForm: "none", ReasoningField: "none", EmptyContent: "omit"}, []string{`{"role":"assistant","tool_calls"`}, []string{"low", "reasoning"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			body := string(prepare(t, offline(at(c.url), func(cfg *openai.Config) { cfg.Dialect = c.set }), r).Body)
			for _, s := range c.has {
				if !strings.Contains(body, s) {
					t.Errorf("lacks %s in %s", s, body)
				}
			}
			for _, s := range c.not {
				if strings.Contains(body, s) {
					t.Errorf("has %s in %s", s, body)
				}
			}
		})
	}
}

func TestHistoryOnTheWire(t *testing.T) {
	roles := func(messages ...model.Message) string {
		var in []map[string]any
		for _, m := range prepare(t, offline(), model.Request{Messages: messages}).Messages {
			var v map[string]any
			if err := json.Unmarshal(m, &v); err != nil {
				t.Fatal(err)
			}
			in = append(in, v)
		}
		var out []string
		for _, m := range in {
			s := fmt.Sprint(m["role"])
			if id, ok := m["tool_call_id"]; ok {
				s += fmt.Sprintf("(%v)=%v", id, m["content"])
			}
			if list, ok := m["tool_calls"].([]any); ok {
				for _, c := range list {
					c := c.(map[string]any)
					f := c["function"].(map[string]any)
					s += fmt.Sprintf(" %v:%v%v", c["id"], f["name"], f["arguments"])
				}
			}
			out = append(out, s)
		}
		return strings.Join(out, "; ")
	}
	ab := assistant(call("a", "x", "{}"), call("b", "y", "{}"))
	cases := []struct {
		name     string
		messages []model.Message
		want     string
	}{
		{"L18 a cut call is dropped", []model.Message{user("q"), assistant(model.Text("t"), call("a", "x", `{"p":`)), user("go on")}, "user; assistant; user"},
		{"L18 nothing but a cut call", []model.Message{user("q"), assistant(call("a", "x", `{"p":`)), user("go on")}, "user; user"},
		{"L19 broken arguments with a result", []model.Message{user("q"), assistant(call("a", "x", `{"p":`)), toolResult("a", "invalid JSON")}, "user; assistant a:x{}; tool(a)=invalid JSON"},
		{"arguments that aren't an object", []model.Message{assistant(call("a", "x", `[1]`), call("b", "x", `"s"`)), toolResult("a", "1"), toolResult("b", "2")}, "assistant a:x{} b:x{}; tool(a)=1; tool(b)=2"},
		{"L48 orphan result", []model.Message{user("q"), toolResult("zz", "?"), ab, toolResult("a", "1"), toolResult("b", "2")}, "user; assistant a:x{} b:y{}; tool(a)=1; tool(b)=2"},
		{"L48 doubled results", []model.Message{ab, toolResult("a", "1"), toolResult("a", "again"), toolResult("b", "2"), toolResult("b", "again")}, "assistant a:x{} b:y{}; tool(a)=1; tool(b)=2"},
		{"L48 missing result", []model.Message{ab, toolResult("b", "2"), user("q")}, "assistant a:x{} b:y{}; tool(a)=This tool call was not run.; tool(b)=2; user"},
		{"order is the calls'", []model.Message{ab, toolResult("b", "2"), user("q"), toolResult("a", "1")}, "assistant a:x{} b:y{}; tool(a)=1; tool(b)=2; user"},
		{"L49 empty result", []model.Message{ab, toolResult("a", ""), toolResult("b", "2")}, "assistant a:x{} b:y{}; tool(a)=(no output); tool(b)=2"},
		{"one id for all", []model.Message{
			assistant(call("a", "x", "{}"), call("a", "y", "{}")), toolResult("a", "1"), toolResult("a", "2"), assistant(call("a", "z", "{}")), toolResult("a", "3")},
			"assistant a:x{} a-2:y{}; tool(a)=1; tool(a-2)=2; assistant a-3:z{}; tool(a-3)=3"},
		{"no id", []model.Message{assistant(call("", "x", "{}")), toolResult("", "1")}, "assistant call:x{}; tool(call)=1"},
		{"a name that no server takes", []model.Message{assistant(call("a", "functions.x y", "{}")), toolResult("a", "1")}, "assistant a:functions_x_y{}; tool(a)=1"},
		{"text of an interrupted answer", []model.Message{user("q"), assistant(model.Text("half")), user("r")}, "user; assistant; user"},
		{"an interrupted answer without text", []model.Message{user("q"), assistant(reasoning("hm")), user("r")}, "user; user"},
		{"a result of an earlier call", []model.Message{assistant(call("a", "x", "{}")), assistant(call("b", "y", "{}")), toolResult("a", "1"), toolResult("b", "2")},
			"assistant a:x{}; tool(a)=This tool call was not run.; assistant b:y{}; tool(b)=2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { same(t, roles(c.messages...), c.want) })
	}
}

func TestImages(t *testing.T) {
	picture := model.Block{Type: model.BlockImage, Mime: "image/png", Data: []byte{1, 2, 3}}
	u := user("see")
	u.Content = append(u.Content, picture)
	result := toolResult("c", "shot")
	result.Content[0].Content = append(result.Content[0].Content, picture)
	r := model.Request{Messages: []model.Message{u, assistant(call("c", "x", "{}"), call("d", "x", "{}")), result, toolResult("d", "2")}}
	with := prepare(t, offline(func(c *openai.Config) { c.Images = true }), r)
	same(t, string(with.Messages[0]), `{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}]}`)
	same(t, string(with.Messages[4]), `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}]}`)
	without := prepare(t, offline(), r)
	same(t, string(without.Messages[0]), `{"role":"user","content":"see(an image is left out here: this model takes none)"}`)
	same(t, len(without.Messages), 4)
}

// A session that only grows makes requests that only extend, whatever its messages hold.
func TestRequestsOnlyExtend(t *testing.T) {
	texts := rapid.SampledFrom([]string{"", "a", "é\n", "\x00\xff", `{"x":1}`, `{"x":`})
	ids := rapid.SampledFrom([]string{"", "a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		var log []model.Message
		var before *model.Prepared
		a := offline()
		for range rapid.IntRange(1, 8).Draw(t, "turns") {
			log = append(log, user(texts.Draw(t, "user")))
			p, err := a.Prepare(model.Request{System: "s", Messages: log})
			if err != nil || !json.Valid(p.Body) {
				t.Fatalf("%v: %s", err, p.Body)
			}
			if ok, where := p.Extends(before); !ok {
				t.Fatalf("diverges at %s:\n%s\n%s", where, before.Body, p.Body)
			}
			if before != nil && p.PrefixSHA256(len(before.Messages)) != before.PrefixSHA256(len(before.Messages)) {
				t.Fatal("the prefix hash differs")
			}
			before = p
			m := assistant()
			if s := texts.Draw(t, "text"); s != "" {
				m.Content = append(m.Content, model.Text(s))
			}
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				m.Content = append(m.Content, call(ids.Draw(t, "id"), "bash", texts.Draw(t, "args")))
			}
			log = append(log, m)
			// Every call is answered before the next request, as the agent does it.
			for _, c := range m.ToolCalls() {
				log = append(log, toolResult(c.ID, texts.Draw(t, "result")))
			}
		}
	})
}

// Whatever the history, what goes out pairs calls and results one to one.
func TestAnyHistoryIsValid(t *testing.T) {
	texts := rapid.SampledFrom([]string{"", "a", `{"x":1}`, `{"x":`, "null", "[]"})
	ids := rapid.SampledFrom([]string{"", "a", "b", "a-2"})
	message := rapid.Custom(func(t *rapid.T) model.Message {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return user(texts.Draw(t, "user"))
		case 1:
			return toolResult(ids.Draw(t, "id"), texts.Draw(t, "result"))
		}
		m := assistant()
		for range rapid.IntRange(0, 3).Draw(t, "blocks") {
			m.Content = append(m.Content, rapid.SampledFrom([]model.Block{
				model.Text("t"), reasoning("r"), call(ids.Draw(t, "id"), texts.Draw(t, "name"), texts.Draw(t, "args")),
			}).Draw(t, "block"))
		}
		return m
	})
	rapid.Check(t, func(t *rapid.T) {
		p, err := offline().Prepare(model.Request{Messages: rapid.SliceOfN(message, 0, 12).Draw(t, "log")})
		if err != nil {
			t.Fatal(err)
		}
		checkPairs(t, p.Body)
	})
}

func checkPairs(t interface{ Fatalf(string, ...any) }, body []byte) {
	var in struct {
		Messages []struct {
			Role       string
			Content    *string
			ToolCallID string `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	seen := map[string]bool{}
	var due []string
	for i, m := range in.Messages {
		if m.Content == nil {
			t.Fatalf("message %d has no content in %s", i, body)
		}
		if m.Role == "tool" {
			if len(due) == 0 || due[0] != m.ToolCallID || *m.Content == "" {
				t.Fatalf("message %d: result for %q, due are %q in %s", i, m.ToolCallID, due, body)
			}
			due = due[1:]
			continue
		}
		if len(due) > 0 {
			t.Fatalf("message %d comes before the results for %q in %s", i, due, body)
		}
		for _, c := range m.ToolCalls {
			var object map[string]any
			if seen[c.ID] || c.ID == "" || c.Function.Name == "" || json.Unmarshal([]byte(c.Function.Arguments), &object) != nil {
				t.Fatalf("message %d: call %+v in %s", i, c, body)
			}
			seen[c.ID] = true
			due = append(due, c.ID)
		}
	}
	if len(due) > 0 {
		t.Fatalf("no results for %q in %s", due, body)
	}
}
