package presets

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"go.yaml.in/yaml/v3"

	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

// Report is what a dry mount of a preset gave: what its agent's model would be told, without the
// host's own contributions.
type Report struct {
	Composition *Composition
	System      string
	Contexts    []string
	Tools       []model.Tool
	Hash        string // of system text and tools, as a session records it
	Tokens      int    // of both, roughly: a quarter of their bytes
	Audit       scope.Node
}

// Check reads a preset and mounts it dry. The report is shared with other callers; leave it as it is.
func (r *Roster) Check(id string) (Report, error) {
	if r.fixed != nil {
		return r.checkFixed(id)
	}
	v := r.open()
	defer v.close()
	f, err := v.find(id)
	if err != nil {
		return Report{}, err
	}
	_, report, err := r.checkFile(v, f)
	return report, err
}

// checkFile reads and checks a preset. The document is nil when the text is none. A text that was checked
// before, and says all by itself, is not checked again: the answer can't be another one.
func (r *Roster) checkFile(v view, f found) (*document, Report, error) {
	text, err := f.read()
	if err != nil {
		return nil, Report{}, err
	}
	key := checked{f.file(), sha256.Sum256(text)}
	r.mu.Lock()
	known, ok := r.known[key]
	r.mu.Unlock()
	if ok {
		return known.doc, known.report, nil
	}
	doc, err := parse(f.file(), text)
	if err != nil {
		return nil, Report{}, err
	}
	report, err := r.check(v, f.id, doc)
	if err == nil && !doc.Extends.given() {
		r.mu.Lock()
		if len(r.known) >= maxKnown || r.known == nil {
			r.known = map[checked]outcome{}
		}
		r.known[key] = outcome{doc, report}
		r.mu.Unlock()
	}
	return doc, report, err
}

// maxKnown is how many checked texts a roster remembers before it forgets them all.
const maxKnown = 64

// checked is a text at a place, for which its outcome is known.
type checked struct {
	file string
	text [sha256.Size]byte
}

type outcome struct {
	doc    *document
	report Report
}

// CheckText is Check for a text that isn't saved.
func (r *Roster) CheckText(text []byte) (Report, error) {
	v := r.open()
	defer v.close()
	doc, err := parse(fileName, text)
	if err != nil {
		return Report{}, err
	}
	return r.check(v, "unsaved", doc)
}

func (r *Roster) check(v view, id string, doc *document) (Report, error) {
	c, err := r.resolver(v).resolve(id, doc)
	if err != nil {
		return Report{}, err
	}
	return dryMount(c)
}

// dryMount mounts c on a host of its own that offers everything and does nothing: no shell is started,
// no file is touched. Health is this, not a look at the shape.
func dryMount(c *Composition) (report Report, err error) {
	ctx := context.Background()
	root := scope.New("check")
	defer func() { err = errors.Join(err, root.Close(ctx)) }()
	agent, err := AgentScope(root, "agent", nowhere{})
	if err != nil {
		return Report{}, err
	}
	sv := Services{
		Prompt: &prompt.Registry{}, Tools: &tools.Registry{},
		Session:   Session{ID: "check", Workspace: "/workspace", Model: func() string { return "model" }},
		HostFS:    nowhere{},
		Locks:     &fsys.Locks{},
		Approvals: approval.New(nil, nil),
		Terminals: func() *term.Terminals { return term.New(term.Options{Dir: "/", Session: "check"}) },
	}
	m, err := Mount(ctx, agent, c, sv)
	if err != nil {
		return Report{}, err
	}
	visible := sv.Tools.Visible(m.Scope)
	a, err := sv.Prompt.Assemble(ctx, m.Scope, func() []model.Tool { return tools.Schemas(visible) })
	if err != nil {
		return Report{}, c.place(err)
	}
	report = Report{Composition: c, System: a.System, Contexts: a.Contexts, Tools: a.Tools, Hash: a.Hash(), Audit: m.Audit()}
	report.Tokens = (len(a.System) + len(encode(a.Tools)) + 3) / 4
	return report, nil
}

// place gives an error of the whole preset a place: the first row's, or the recorded file's start.
func (c *Composition) place(err error) error {
	if len(c.rows) == 0 {
		return fmt.Errorf("preset %s: %w", c.ID, err)
	}
	p := c.rows[0].id.problem("the prompt can't be put together: %v", err)
	p.Cause = err
	return p
}

// Diff compares two presets: their compositions, and what their agents' models would be told. It is a
// unified diff, empty when there is no difference.
func (r *Roster) Diff(a, b string) (string, error) {
	var texts []string
	for _, id := range []string{a, b} {
		report, err := r.Check(id)
		if err != nil {
			return "", fmt.Errorf("diff: preset %s: %w", id, err)
		}
		text, err := report.render()
		if err != nil {
			return "", fmt.Errorf("diff: preset %s: %w", id, err)
		}
		texts = append(texts, text)
	}
	return udiff.Unified(a, b, texts[0], texts[1]), nil
}

// render is the report line by line, for a diff.
func (r Report) render() (string, error) {
	var out strings.Builder
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err := enc.Encode(struct {
		Rows     []Row
		System   string
		Contexts []string
		Tools    []any
	}{r.Composition.Rows(), r.System, r.Contexts, readable(r.Tools)})
	return out.String(), errors.Join(err, enc.Close())
}

func readable(ts []model.Tool) []any {
	var out []any
	for _, t := range ts {
		var schema yaml.Node // JSON is YAML, and so keeps the order of its keys
		if err := yaml.Unmarshal(t.Parameters, &schema); err != nil || len(schema.Content) == 0 {
			out = append(out, struct{ Name, Description, Parameters string }{t.Name, t.Description, string(t.Parameters)})
			continue
		}
		plainStyle(schema.Content[0])
		out = append(out, struct {
			Name, Description string
			Parameters        *yaml.Node
		}{t.Name, t.Description, schema.Content[0]})
	}
	return out
}

func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plainStyle(c)
	}
}

// nowhere is a file system without files, for dry mounts.
type nowhere struct{}

var errNowhere = errors.New("a dry mount has no files")

func (nowhere) Sandbox() (fsys.Mode, bool) { return "", false }
func (nowhere) Stat(context.Context, string) (fsys.Info, error) {
	return fsys.Info{}, errNowhere
}
func (nowhere) Open(context.Context, string) (io.ReadCloser, fsys.Info, error) {
	return nil, fsys.Info{}, errNowhere
}
func (nowhere) ReadDir(context.Context, string, func(fsys.Entry) bool) error { return errNowhere }
func (nowhere) Create(context.Context, string, []byte) (fsys.Info, error) {
	return fsys.Info{}, errNowhere
}
func (nowhere) Edit(context.Context, string, func([]byte, fsys.Info) (fsys.Splice, error)) (fsys.Info, error) {
	return fsys.Info{}, errNowhere
}
func (nowhere) Remove(context.Context, string, func([]byte, fsys.Info) error) error {
	return errNowhere
}
