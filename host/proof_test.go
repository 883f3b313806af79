package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/prompt"
)

const minimalSystem = "You are a helpful software engineer assistant."

// body is a chat-completions request as it went over the wire.
type body struct {
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
	Tools []struct {
		Function struct{ Name string }
	}
}

// noisy registers everything that a host's own code or a plugin could try to add to a prompt.
func noisy(t *testing.T, h *host.Host, ran map[string]int) {
	t.Helper()
	add := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, root := h.Prompts(), h.Scope()
	add(p.AddSection(root, prompt.Section{Name: "late", Order: 999, Text: prompt.Fixed("LATE SECTION")}))
	add(p.AddSection(root, prompt.Section{Name: "failing", Order: 5, Text: func(context.Context) (string, error) { return "", errors.New("this section always fails") }}))
	add(p.AddSection(root, prompt.Section{Name: "guidance", Order: 100, Text: prompt.Fixed("TOOL GUIDANCE")}))
	add(p.AddContext(root, prompt.Context{Name: "policy", Text: prompt.Fixed("Sandbox and approval policy: ask.")}))
	n := 0
	add(p.AddVariable(root, "tick", func(context.Context) (string, error) { n++; return fmt.Sprint(n), nil }))
	listen := func(name string) prompt.Listener {
		return func(ctx context.Context, d prompt.Draft, next func(context.Context, prompt.Draft) (prompt.Draft, error)) (prompt.Draft, error) {
			ran[name]++
			d.Sections = append(d.Sections, prompt.Piece{Name: name, Order: -1000, Text: "INJECTED BY " + name})
			d.Contexts = append(d.Contexts, prompt.Piece{Name: name, Text: "CONTEXT BY " + name})
			return next(ctx, d)
		}
	}
	add(p.ListenFirst(root, "first", listen("first")))
	add(p.ListenLast(root, "last", listen("last")))
}

// TestMinimalIsProvable is the promise of the project: whatever the host and its plugins register, a minimal agent's model sees one sentence,
// two tools and what the user said. It is asserted on the bytes that went out.
func TestMinimalIsProvable(t *testing.T) {
	source := func(r model.Request) (script.Turn, error) {
		last := r.Messages[len(r.Messages)-1]
		if last.Role == model.RoleUser && last.Source.Kind != model.SourceTool && strings.HasPrefix(last.Text(), "$ ") {
			return script.Turn{bash("", strings.TrimPrefix(last.Text(), "$ "))}, nil
		}
		if after, ok := strings.CutPrefix(last.Text(), "edit "); ok {
			return script.Turn{script.Call("", "str_replace_editor", after)}, nil
		}
		return script.Turn{script.Text("ok")}, nil
	}
	ran := map[string]int{}
	r := newRig(t, options{
		source:  source,
		env:     map[string]string{"DSH_SYSTEM_PROMPT": "SOMETHING ELSE", "DSH_MODEL": "other"},
		onStart: func(h *host.Host) { noisy(t, h, ran) },
	})
	r.create("a", "minimal")
	r.create("b", "minimal")
	r.create("c", "standard")

	r.say("a", "$ cd /usr; export Z=1")
	r.say("a", "$ echo $PWD $Z")
	r.say("b", "$ echo [$Z] $PWD")
	file := filepath.Join(r.ws, "f.txt")
	r.say("a", fmt.Sprintf(`edit {"command":"create","path":%q,"file_text":"x\n"}`, file))
	r.say("a", `edit {"command":"create","path":"g.txt","file_text":"x"}`)
	r.say("c", "hello")

	for _, q := range r.wire.Requests() {
		var b body
		if err := json.Unmarshal(q.Body, &b); err != nil {
			t.Fatal(err)
		}
		system := contentOf(t, b.Messages[0].Content)
		if b.Messages[0].Role != "system" {
			t.Fatalf("the first message is of role %s", b.Messages[0].Role)
		}
		var names []string
		for _, tool := range b.Tools {
			names = append(names, tool.Function.Name)
		}
		if strings.Contains(string(q.Body), "hello") { // the standard agent
			for _, want := range []string{"dsh-web", "TOOL GUIDANCE", "LATE SECTION", "INJECTED BY first", "INJECTED BY last"} {
				if !strings.Contains(system, want) {
					t.Errorf("the standard agent's prompt lacks %q:\n%s", want, system)
				}
			}
			if !strings.Contains(string(q.Body), "Sandbox and approval policy") {
				t.Error("the standard agent got no runtime context")
			}
			if slices.Contains(names, "bash") {
				t.Error("the standard agent has the persistent bash")
			}
			continue
		}
		if system != minimalSystem {
			t.Errorf("system text: %q", system)
		}
		if got := strings.Join(names, " "); got != "bash str_replace_editor" {
			t.Errorf("tools: %s", got)
		}
		for _, m := range b.Messages[1:] {
			text := contentOf(t, m.Content)
			if m.Role == "system" || m.Role == "developer" {
				t.Errorf("a second system message: %q", text)
			}
			if m.Role == "user" && !strings.HasPrefix(text, "$ ") && !strings.HasPrefix(text, "edit ") {
				t.Errorf("a user message that no user sent: %q", text)
			}
		}
	}
	if ran["first"] == 0 || ran["last"] == 0 {
		t.Errorf("the listeners did not run: %v", ran)
	}
	got := results(t, r.events("a"))
	if len(got) != 4 || got[1] != "/usr 1" {
		t.Errorf("agent a: %q", got)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "x\n" {
		t.Errorf("the editor wrote %q, %v", raw, err)
	}
	if !strings.Contains(got[3], "absolute") {
		t.Errorf("a relative path: %q", got[3])
	}
	if got := results(t, r.events("b")); len(got) != 1 || got[0] != "[] "+r.ws {
		t.Errorf("agent b: %q", got)
	}
	if _, ok := r.session("c").Terminal(); ok {
		t.Error("the standard agent owns a terminal")
	}
	for _, id := range []string{"a", "b"} {
		if p, err := r.session(id).Proof(r.ctx()); err != nil || !p.Contiguous || len(p.Requests) == 0 {
			t.Errorf("proof of %s: %+v, %v", id, p, err)
		}
	}

	// Closing one ends its shell and nothing else.
	r.must(r.host.Delete(r.ctx(), "a", true))
	r.say("b", "$ echo alive")
	if got := results(t, r.events("b")); got[len(got)-1] != "alive" {
		t.Errorf("agent b after a's end: %q", got)
	}
}

func contentOf(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// TestRequestsHashToTheLog compares the hash in the log with the bytes on the wire.
func TestRequestsHashToTheLog(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{bash("c1", "echo one")}, script.Turn{script.Text("done")})})
	r.create("s", "minimal")
	r.say("s", "go")
	r.say("s", "again")
	p, err := r.session("s").Proof(r.ctx())
	r.must(err)
	requests := r.wire.Requests()
	if len(p.Requests) != 3 || len(requests) != 3 {
		t.Fatalf("%d in the log, %d on the wire, want 3", len(p.Requests), len(requests))
	}
	for i, sent := range p.Requests {
		if want := (&model.Prepared{Body: requests[i].Body}).BodySHA256(); sent.BodySHA256 != want || sent.Bytes != len(requests[i].Body) {
			t.Errorf("request %d: the log says %s, %d bytes; the wire had %s, %d bytes", i, sent.BodySHA256, sent.Bytes, want, len(requests[i].Body))
		}
		if !sent.Contiguous {
			t.Errorf("request %d isn't contiguous: %+v", i, sent)
		}
		if i > 0 && sent.PrefixSHA256 != p.Requests[i-1].ChainSHA256 {
			t.Errorf("request %d: its prefix isn't the request before", i)
		}
	}
	for _, e := range r.events("s") {
		if e.Type == (session.RequestHeader{}).EventType() {
			var h session.RequestHeader
			r.must(json.Unmarshal(e.Data, &h))
			if h.Header.System != minimalSystem || len(h.Header.Tools) != 2 || h.Reason != "initial" {
				t.Errorf("request header of %d tools, reason %s: %q", len(h.Header.Tools), h.Reason, h.Header.System)
			}
		}
	}
	if n := count(r.events("s"), "request/header"); n != 1 {
		t.Errorf("%d request headers, want 1: nothing changed", n)
	}
}

// TestFailedMountLeavesNothing has a preset whose last row can't be mounted.
func TestFailedMountLeavesNothing(t *testing.T) {
	root := t.TempDir()
	write := func(id, text string) {
		if err := os.MkdirAll(filepath.Join(root, id), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, id, "preset.yml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bad := "version: 1\nrows:\n  - {id: pty, use: terminals}\n  - {id: bash, use: tool-bash}\n  - {id: order, use: tool-order, with: {order: [ghost, '*']}}\n"
	two := "version: 1\nrows:\n  - {id: p1, use: persona, with: {text: one, complete: true}}\n  - {id: p2, use: persona, with: {text: two, complete: true}}\n"
	write("late-failure", bad)
	write("two-personas", two)
	r := newRig(t, options{roots: []string{root}})
	before := r.host.Report().Live
	for _, id := range []string{"late-failure", "two-personas"} {
		_, _, err := r.host.Create(r.ctx(), host.Spec{ID: "x", Preset: id, Workspace: r.ws})
		var refused *host.Error
		if !errors.As(err, &refused) || refused.Code != host.CodePresetBroken {
			t.Errorf("%s: %v, want %s", id, err, host.CodePresetBroken)
		}
		if _, err := r.host.Session(r.ctx(), "x"); err == nil {
			t.Errorf("%s left a session", id)
		}
	}
	if n := r.host.Report().Live; n != before {
		t.Errorf("%d live agents, want %d", n, before)
	}
	for id, text := range map[string]string{"late-failure": bad, "two-personas": two} {
		if raw, err := os.ReadFile(filepath.Join(root, id, "preset.yml")); err != nil || string(raw) != text {
			t.Errorf("the file of %s changed: %q, %v", id, raw, err)
		}
	}
	if _, err := r.host.Roster().Resolve("nope"); !errors.Is(err, presets.ErrNotFound) {
		t.Errorf("unknown preset: %v", err)
	}
}
