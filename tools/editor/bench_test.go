//go:build unix

package editor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/editor"
)

// pipeline sends calls through the whole tool pipeline.
type pipeline struct {
	*testing.B
	dir  string
	call func(command string, args ...any)
}

func newPipeline(b *testing.B, provider func(dir string) fsys.Provider) *pipeline {
	dir, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	tool, err := editor.New(editor.DefaultConfig(), editor.Options{Files: provider(dir), Workspace: dir})
	if err != nil {
		b.Fatal(err)
	}
	s := scope.New("bench")
	b.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	var registry tools.Registry
	if err := registry.Add(s, tool); err != nil {
		b.Fatal(err)
	}
	runner := tools.Runner{Registry: &registry, Scope: s, View: func() *scope.Scope { return s }, Secrets: func() []string { return []string{"sk-secret-value"} }}
	return &pipeline{B: b, dir: dir, call: func(command string, args ...any) {
		object := map[string]any{"command": command}
		for i := 0; i < len(args); i += 2 {
			object[args[i].(string)] = args[i+1]
		}
		raw, err := json.Marshal(object)
		if err != nil {
			b.Fatal(err)
		}
		r := runner.Run(b.Context(), registry.Visible(s), session.ToolCall{CallID: "c", Name: tool.Name, Arguments: string(raw)}, nil)
		if r.IsError {
			b.Fatal(r.Text())
		}
	}}
}

func (p *pipeline) put(lines int) string {
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "line %d of a file that looks like code\n", i+1)
	}
	path := filepath.Join(p.dir, "f")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		p.Fatal(err)
	}
	return path
}

// spent reports the processor time of each operation, which says more than the clock while others use the machine.
func spent(b *testing.B) func() {
	now := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := now()
	return func() { b.ReportMetric(float64(now()-before)/float64(b.N), "cpu-ns/op") }
}

func local(string) fsys.Provider { return fsys.NewLocal(nil) }

func BenchmarkCall(b *testing.B) {
	providers := map[string]func(b *testing.B) func(string) fsys.Provider{
		"local": func(*testing.B) func(string) fsys.Provider { return local },
		"rooted": func(b *testing.B) func(string) fsys.Provider {
			return func(dir string) fsys.Provider {
				r, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: dir, Mode: fsys.WorkspaceWrite})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() {
					if err := r.Close(); err != nil {
						b.Error(err)
					}
				})
				return r
			}
		},
	}
	for _, provider := range []string{"local", "rooted"} {
		for _, size := range []struct {
			name  string
			lines int
		}{{"100lines", 100}, {"1MB", 24_000}} {
			name := provider + "/" + size.name
			middle := size.lines / 2
			b.Run("view/"+name, func(b *testing.B) {
				p := newPipeline(b, providers[provider](b))
				path := p.put(size.lines)
				defer spent(b)()
				for b.Loop() {
					p.call("view", "path", path, "view_range", []int{middle, middle + 50})
				}
			})
			b.Run("replace/"+name, func(b *testing.B) {
				p := newPipeline(b, providers[provider](b))
				path := p.put(size.lines)
				old, text := fmt.Sprintf("line %d of", middle), fmt.Sprintf("line %d off", middle)
				defer spent(b)()
				for b.Loop() {
					p.call("str_replace", "path", path, "old_str", old+" a", "new_str", text+" a")
					old, text = text, old
				}
			})
			b.Run("insert/"+name, func(b *testing.B) {
				p := newPipeline(b, providers[provider](b))
				path := p.put(size.lines)
				defer spent(b)()
				for b.Loop() {
					p.call("insert", "path", path, "insert_line", middle, "new_str", "a new line")
				}
			})
		}
	}
}

func BenchmarkViewDirectory100k(b *testing.B) {
	p := newPipeline(b, local)
	for i := range 100_000 {
		f, err := os.Create(filepath.Join(p.dir, fmt.Sprintf("file-%06d", i*7919%100_000)))
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	defer spent(b)()
	for b.Loop() {
		p.call("view", "path", p.dir)
	}
}

// BenchmarkNew is the editor's part of mounting a preset.
func BenchmarkNew(b *testing.B) {
	files := fsys.NewLocal(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := editor.New(editor.DefaultConfig(), editor.Options{Files: files}); err != nil {
			b.Fatal(err)
		}
	}
}
