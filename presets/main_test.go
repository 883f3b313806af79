package presets

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

var (
	update = flag.Bool("update", false, "write the golden files anew")
	bg     = context.Background()
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantError(t testing.TB, err error, parts ...string) {
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

// golden compares got with a file under testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (run with -update if this is meant):\n%s", file, diff)
	}
}

// user returns a roster whose writable folder holds these presets, id to text, and the folder.
func user(t testing.TB, texts map[string]string) (*Roster, string) {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, texts)
	r := NewRoster(nil, dir)
	r.goos = "linux" // the tests say what they expect of it
	return r, dir
}

func put(t testing.TB, dir string, texts map[string]string) {
	t.Helper()
	for id, text := range texts {
		must(t, os.MkdirAll(filepath.Join(dir, id), 0o755), os.WriteFile(filepath.Join(dir, id, fileName), []byte(text), 0o644))
	}
}

// plane is a host's registries and what it offers to mounts.
type plane struct {
	root *scope.Scope
	sv   Services
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	root := scope.New("host")
	t.Cleanup(func() { must(t, root.Close(bg)) })
	host, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: t.TempDir(), Mode: fsys.WorkspaceWrite, Locks: &fsys.Locks{}})
	must(t, err)
	t.Cleanup(func() { must(t, host.Close()) })
	return &plane{root, Services{
		Prompt: &prompt.Registry{}, Tools: &tools.Registry{}, HostFS: host, Locks: &fsys.Locks{}, Approvals: approval.New(nil, nil),
		Session:   Session{ID: "s1", Workspace: "/w", Model: func() string { return "m1" }},
		Terminals: func() *term.Terminals { return term.New(term.Options{Dir: "/", Session: "s1"}) },
	}}
}

func (p *plane) agent(t testing.TB, id string) *scope.Scope {
	t.Helper()
	s, err := AgentScope(p.root, id, p.sv.HostFS)
	must(t, err)
	return s
}

func (p *plane) mount(t testing.TB, id string, c *Composition) *Mounted {
	t.Helper()
	m, err := Mount(bg, p.agent(t, id), c, p.sv)
	must(t, err)
	return m
}

func (p *plane) assemble(t testing.TB, s *scope.Scope) prompt.Assembly {
	t.Helper()
	a, err := p.sv.Prompt.Assemble(bg, s, func() []model.Tool {
		var out []model.Tool
		for _, tool := range p.sv.Tools.Visible(s) {
			out = append(out, tool.Schema())
		}
		return out
	})
	must(t, err)
	return a
}

func resolve(t testing.TB, r *Roster, id string) *Composition {
	t.Helper()
	c, err := r.Resolve(id)
	must(t, err)
	return c
}

func compose(t testing.TB, text string) *Composition {
	t.Helper()
	r, _ := user(t, map[string]string{"test": text})
	return resolve(t, r, "test")
}
