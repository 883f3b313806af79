package presets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/prompt"
)

const helpful = "You are a helpful software engineer assistant."

func (p *plane) toolNames(s *scope.Scope) []string {
	var names []string
	for _, t := range p.sv.Tools.Visible(s) {
		names = append(names, t.Name)
	}
	return names
}

// Everything that a host can register to reach a model is registered. Nothing of it reaches minimal; all
// of it reaches standard.
func TestMinimalIsOutOfReach(t *testing.T) {
	t.Setenv("DSH_SYSTEM_PROMPT", "You are somebody else.")
	t.Setenv("DSH_MODEL", "other")
	r, _ := user(t, nil)
	p := newPlane(t)
	ran := map[string]int{}
	change := 0
	listen := func(name string) prompt.Listener {
		return func(ctx context.Context, d prompt.Draft, next func(context.Context, prompt.Draft) (prompt.Draft, error)) (prompt.Draft, error) {
			ran[name]++
			d.Sections = append(d.Sections, prompt.Piece{Name: name, Order: 500, Text: "section by " + name})
			d.Contexts = append(d.Contexts, prompt.Piece{Name: name, Text: "context by " + name})
			d.Variables["workspace"] = "/elsewhere"
			return next(ctx, d)
		}
	}
	pr := p.sv.Prompt
	must(t,
		pr.AddSection(p.root, prompt.Section{Name: "identity", Order: prompt.Identity, Text: prompt.Fixed("I am the host.")}),
		pr.AddSection(p.root, prompt.Section{Name: "orientation", Order: prompt.Orientation, Text: prompt.Fixed("On the web.")}),
		pr.AddSection(p.root, prompt.Section{Name: "guidance", Order: prompt.Guidance, Text: prompt.Fixed("Use tools, {{change}}.")}),
		pr.AddSection(p.root, prompt.Section{Name: "last", Order: 999, Text: prompt.Fixed("The end.")}),
		pr.AddContext(p.root, prompt.Context{Name: "sandbox", Text: prompt.Fixed("sandbox: on, approvals: ask")}),
		pr.AddVariable(p.root, "change", func(context.Context) (string, error) { change++; return fmt.Sprint("turn ", change), nil }),
		pr.ListenFirst(p.root, "first", listen("first")), pr.ListenLast(p.root, "last", listen("last")))

	minimal := resolve(t, r, "minimal")
	a, b := p.mount(t, "a", minimal), p.mount(t, "b", minimal)
	c := p.mount(t, "c", resolve(t, r, "standard"))

	standard := p.assemble(t, c.Scope)
	for _, want := range []string{"I am the host.", "On the web.", "who works for the user in the directory /elsewhere", "Use tools, turn 1.", "section by first\n\nsection by last\n\nThe end."} {
		if !strings.Contains(standard.System, want) {
			t.Errorf("the standard agent is not told %q:\n%s", want, standard.System)
		}
	}
	if len(standard.Contexts) != 4 {
		t.Errorf("contexts of the standard agent: %q", standard.Contexts)
	}

	must(t, pr.AddSection(p.root, prompt.Section{Name: "failing", Text: func(context.Context) (string, error) { return "", errors.New("no") }}))
	for _, m := range []*Mounted{a, b} {
		got := p.assemble(t, m.Scope)
		if got.System != helpful || len(got.Contexts) != 0 {
			t.Errorf("a minimal agent is told %q and %q", got.System, got.Contexts)
		}
		var names []string
		for _, tool := range got.Tools {
			names = append(names, tool.Name)
		}
		if diff := cmp.Diff([]string{"bash", "str_replace_editor"}, names); diff != "" {
			t.Error(diff)
		}
		if mode, confined := m.Files().Sandbox(); confined {
			t.Errorf("the minimal agent's files are confined: %s", mode)
		}
	}
	if ran["first"] != 3 || ran["last"] != 3 {
		t.Errorf("the listeners ran %v", ran)
	}

	if a.Terminals() == b.Terminals() || a.Terminals() == nil || c.Terminals() != nil {
		t.Error("each minimal agent has a shell of its own, the standard one has none")
	}
	if c.Files() != p.sv.HostFS {
		t.Error("the standard agent's files are the host's")
	}
	// From outside its realm everybody sees the host's.
	for _, s := range []*scope.Scope{a.Scope, c.Scope} {
		if fs, ok := scope.Get(s, realm.fs); !ok || fs != p.sv.HostFS {
			t.Error("outside the realm the host's provider is seen")
		}
	}
	if fs, ok := scope.Below(p.root, realm.fs, "a", "preset:minimal", "filesystem"); !ok || fs != a.Files() {
		t.Error("below the realm its own is")
	}
	if _, ok := scope.Below(p.root, realm.terminals, "c", "preset:standard", "filesystem"); ok {
		t.Error("the standard agent sees a shell")
	}

	must(t, a.Close(bg))
	if got := p.toolNames(a.Scope); len(got) != 0 {
		t.Errorf("a closed agent has tools: %v", got)
	}
	if got := p.assemble(t, b.Scope); got.System != helpful || len(got.Tools) != 2 {
		t.Errorf("closing one agent changed another: %+v", got)
	}
	must(t, b.Close(bg), c.Close(bg))
}

func TestTwoCompleteSectionsAcrossHostAndPreset(t *testing.T) {
	r, _ := user(t, nil)
	p := newPlane(t)
	must(t, p.sv.Prompt.AddSection(p.root, prompt.Section{Name: "house", Text: prompt.Fixed("All there is."), Complete: true}))
	m := p.mount(t, "a", resolve(t, r, "minimal"))
	_, err := p.sv.Prompt.Assemble(bg, m.Scope, nil)
	wantError(t, err, "house of host", "persona of host/a/preset:minimal/persona")
}

func TestFailedMountLeavesNothing(t *testing.T) {
	c := compose(t, `version: 1
rows:
  - {id: persona, use: persona, with: {text: P}}
  - id: g
    isolate: [terminals, fs]
    rows:
      - {id: bash, use: tool-bash}
      - {id: fs, use: fs-local}
      - {id: ed, use: tool-str-replace-editor}
      - {id: pty, use: terminals}
  - {id: notes, use: workspace-instructions}
`)
	p := newPlane(t)
	p.sv.Terminals, p.sv.HostFS = nil, nil
	agent, err := AgentScope(p.root, "a", nil)
	must(t, err)
	_, err = Mount(bg, agent, c, p.sv)
	wantError(t, err, "row bash: it waits for terminals", "row pty: this host has no persistent shells", "row notes: this host has no confined file provider")
	if n := len(strings.Split(err.Error(), "\n")); n != 3 {
		t.Errorf("%d lines for 3 failures: %v", n, err)
	}
	if left := agent.Audit().Children; len(left) != 0 {
		t.Errorf("left behind: %+v", left)
	}
	if a := p.assemble(t, agent); a.System != "" || len(a.Tools) != 0 {
		t.Errorf("%+v", a)
	}
	p.sv.Terminals = func() *term.Terminals { panic("no more") }
	_, err = Mount(bg, agent, c, p.sv)
	wantError(t, err, "row pty", "panic: no more")
	if left := agent.Audit().Children; len(left) != 0 {
		t.Errorf("left behind: %+v", left)
	}
}

func TestMountRefuses(t *testing.T) {
	r, _ := user(t, nil)
	c := resolve(t, r, "minimal")
	p := newPlane(t)
	agent := p.agent(t, "a")
	sv := p.sv
	published := errors.New("the session is under way")
	sv.MayMount = func() error { return published }
	if _, err := Mount(bg, agent, c, sv); !errors.Is(err, published) {
		t.Error(err)
	}
	done, cancel := context.WithCancel(bg)
	cancel()
	if _, err := Mount(done, agent, c, p.sv); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := agent.Audit().Children; len(left) != 1 { // the host's file provider
		t.Errorf("left behind: %+v", left)
	}
	must(t, agent.Close(bg))
	_, err := Mount(bg, agent, c, p.sv)
	wantError(t, err, "mount preset minimal", "scope closed")
}

// Rows are mounted when what they need is there, whatever the order they are written in, also when the
// provider's group comes later; they are closed the other way round.
func TestRowsWaitForWhatTheyNeed(t *testing.T) {
	c := compose(t, `version: 1
rows:
  - id: all
    isolate: [terminals, fs]
    rows:
      - id: consumers
        rows:
          - {id: ed, use: tool-str-replace-editor}
          - {id: bash, use: tool-bash}
      - id: providers
        isolate: []
        rows: []
      - {id: fs, use: fs-local}
      - {id: pty, use: terminals}
`)
	m := newPlane(t).mount(t, "a", c)
	var order []string
	for _, n := range m.Audit().Children {
		if name, ok := strings.CutPrefix(n.Name, "row "); ok && n.Kind == "effect" {
			order = append(order, name)
		}
	}
	if diff := cmp.Diff([]string{"fs", "pty", "ed", "bash"}, order); diff != "" {
		t.Error(diff)
	}
}

// A session that is still blank can change its preset: the new one is mounted beside the old one.
func TestMountBeside(t *testing.T) {
	r, _ := user(t, map[string]string{"broken-late": "version: 1\nextends: minimal\n"})
	p := newPlane(t)
	agent := p.agent(t, "a")
	old, err := Mount(bg, agent, resolve(t, r, "minimal"), p.sv)
	must(t, err)
	noShell := p.sv
	noShell.Terminals = nil
	if _, err := Mount(bg, agent, resolve(t, r, "broken-late"), noShell); err == nil {
		t.Fatal("it mounted without shells")
	}
	if got := p.assemble(t, old.Scope); got.System != helpful || len(got.Tools) != 2 {
		t.Errorf("the failed mount beside changed the old one: %+v", got)
	}
	neu, err := Mount(bg, agent, resolve(t, r, "standard"), p.sv)
	must(t, err)
	if got := p.assemble(t, old.Scope); got.System != helpful {
		t.Errorf("%q", got.System)
	}
	must(t, old.Close(bg))
	if got := p.toolNames(neu.Scope); !cmp.Equal(got, p.toolNames(neu.Scope)) || len(got) == 0 {
		t.Errorf("%v", got)
	}
}

func TestWorkspaceInstructions(t *testing.T) {
	c := compose(t, "version: 1\nrows:\n  - {id: i, use: workspace-instructions, with: {files: [AGENTS.md, docs/more.md, gone.md, leak.md]}}\n")
	workspace := t.TempDir()
	must(t, os.WriteFile(filepath.Join(workspace, "AGENTS.md"), []byte("\nUse {{ jinja }} and \xff.\n\n"), 0o644), os.Mkdir(filepath.Join(workspace, "docs"), 0o755),
		os.WriteFile(filepath.Join(workspace, "docs", "more.md"), []byte(strings.Repeat("x", maxInstructions+5)), 0o644), os.Symlink("/etc/passwd", filepath.Join(workspace, "leak.md")))
	host, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: workspace, Mode: fsys.WorkspaceWrite, Locks: &fsys.Locks{}})
	must(t, err)
	defer host.Close()
	p := newPlane(t)
	var log strings.Builder
	p.sv.HostFS, p.sv.Session.Workspace, p.sv.Logger = host, workspace, slog.New(slog.NewTextHandler(&log, nil))
	m := p.mount(t, "a", c)
	want := "Instructions of this workspace, from AGENTS.md:\n\nUse {{ jinja }} and \uFFFD.\n\nInstructions of this workspace, from docs/more.md:\n\n" + strings.Repeat("x", maxInstructions)
	if diff := cmp.Diff(want, p.assemble(t, m.Scope).System); diff != "" {
		t.Error(diff)
	}
	must(t, os.WriteFile(filepath.Join(workspace, "AGENTS.md"), []byte("changed"), 0o644))
	if got := p.assemble(t, m.Scope).System; got != want {
		t.Error("the text changed under the agent")
	}
	for _, says := range []string{"leak.md", "left out", "are cut"} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("the log does not say %q: %s", says, log.String())
		}
	}
	for _, name := range []string{"/etc/passwd", "../x", "."} {
		r, _ := user(t, map[string]string{"bad": "version: 1\nrows:\n  - {id: i, use: workspace-instructions, with: {files: ['" + name + "']}}\n"})
		_, err := r.Resolve("bad")
		wantError(t, err, "is not the path of a file in the workspace")
	}
}

func TestRuntimeContextFollowsTheHost(t *testing.T) {
	p := newPlane(t)
	mode := "on"
	p.sv.Surroundings = func() [][2]string { return [][2]string{{"Sandbox", mode}, {"Approvals", "{{ask}}"}} }
	m := p.mount(t, "a", compose(t, "version: 1\nrows:\n  - {id: r, use: runtime-context}\n"))
	if diff := cmp.Diff([]string{"Workspace: /w\nSandbox: on\nApprovals: {{ask}}"}, p.assemble(t, m.Scope).Contexts); diff != "" {
		t.Error(diff)
	}
	mode = "off"
	if got := p.assemble(t, m.Scope); !strings.Contains(got.Contexts[0], "Sandbox: off") || got.System != "" {
		t.Errorf("%+v", got)
	}
}

func TestVariables(t *testing.T) {
	p := newPlane(t)
	c := compose(t, "version: 1\nrows:\n  - {id: p, use: persona, with: {text: '{{model}} {{cwd}} {{workspace}} {{os}}'}}\n")
	m := p.mount(t, "a", c)
	if got := p.assemble(t, m.Scope).System; got != "m1 /w /w "+runtime.GOOS {
		t.Errorf("%q", got)
	}
	p.sv.Session.Model = nil
	m = p.mount(t, "b", c)
	_, err := p.sv.Prompt.Assemble(bg, m.Scope, nil)
	wantError(t, err, "variable model has no value: the session has no model")
}

func TestToolOrder(t *testing.T) {
	p := newPlane(t)
	m := p.mount(t, "a", compose(t, "version: 1\nextends: minimal\nrows:\n  - {id: order, use: tool-order, with: {tools: [str_replace_editor, '*']}}\n"))
	if diff := cmp.Diff([]string{"str_replace_editor", "bash"}, p.toolNames(m.Scope)); diff != "" {
		t.Error(diff)
	}
}

func TestPromptSection(t *testing.T) {
	p := newPlane(t)
	m := p.mount(t, "a", compose(t, "version: 1\nrows:\n  - {id: b, use: prompt-section, with: {text: 'B {{os}}'}}\n  - {id: z, use: prompt-section, with: {name: a, text: A}}\n  - {id: c, use: prompt-section, with: {text: C, order: -5}}\n"))
	if got := p.assemble(t, m.Scope).System; got != "C\n\nA\n\nB "+runtime.GOOS {
		t.Errorf("%q", got)
	}
}

func TestAuditOfMinimal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the golden file is of Linux")
	}
	r, _ := user(t, nil)
	m := newPlane(t).mount(t, "a", resolve(t, r, "minimal"))
	var out strings.Builder
	var draw func(n scope.Node, indent string)
	draw = func(n scope.Node, indent string) {
		fmt.Fprintf(&out, "%s%s %s", indent, n.Kind, n.Name)
		if n.Label != "" {
			fmt.Fprintf(&out, " (%s)", n.Label)
		}
		out.WriteString("\n")
		for _, c := range n.Children {
			draw(c, indent+"  ")
		}
	}
	draw(m.Audit(), "")
	golden(t, "minimal-audit.txt", out.String())
}

// No part of reading, mounting and checking writes to a preset.
func TestPresetFilesStayAsTheyAre(t *testing.T) {
	r, dir := user(t, map[string]string{"old": "version: 0\nplugins: []\n", "base": base, "bad": "version: 9\n"})
	stat := func() string {
		var out strings.Builder
		for _, name := range tree(t, dir) {
			info, err := os.Stat(filepath.Join(dir, name))
			must(t, err)
			text, _ := os.ReadFile(filepath.Join(dir, name))
			fmt.Fprintln(&out, name, info.ModTime(), info.Mode(), string(text))
		}
		return out.String()
	}
	before := stat()
	_, err := r.List()
	must(t, err)
	p := newPlane(t)
	for _, id := range []string{"old", "base", "bad"} {
		if c, err := r.Resolve(id); err == nil {
			must(t, p.mount(t, id, c).Close(bg))
		}
		_, _ = r.Diff(id, "minimal")
	}
	if diff := cmp.Diff(before, stat()); diff != "" {
		t.Error(diff)
	}
}
