package presets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

// maxInstructions bounds, in bytes, what workspace-instructions takes from a file.
const maxInstructions = 64 << 10

// personaConfig is who the agent is.
type personaConfig struct {
	Text           string `yaml:"text"`
	Complete       bool   `yaml:"complete"`       // the text is the whole system prompt
	RuntimeContext bool   `yaml:"runtimeContext"` // false keeps every runtime context away
	Literal        bool   `yaml:"literal"`        // {{ stands for itself: the text is somebody else's
}

// Validate wants a text.
func (c personaConfig) Validate() error {
	if strings.TrimSpace(c.Text) == "" {
		return errors.New("text: a persona needs a text")
	}
	return nil
}

func personaRow() kind {
	return kindOf("persona", func() personaConfig { return personaConfig{RuntimeContext: true} }, func(c personaConfig) ready {
		return ready{complete: c.Complete, mount: func(_ context.Context, at site) error {
			if !c.RuntimeContext {
				if err := at.Prompt.AddSuppressor(at.scope, at.id+": no runtime context"); err != nil {
					return err
				}
			}
			return at.Prompt.AddSection(at.scope, prompt.Section{
				Name: "persona", Order: prompt.Persona, Text: prompt.Fixed(c.Text), Complete: c.Complete, Literal: c.Literal,
			})
		}}
	})
}

// sectionConfig is any other piece of the system prompt.
type sectionConfig struct {
	Name  string `yaml:"name"` // default: the row's id
	Order int    `yaml:"order"`
	Text  string `yaml:"text"`
}

// Validate wants a text.
func (c sectionConfig) Validate() error {
	if strings.TrimSpace(c.Text) == "" {
		return errors.New("text: a section needs a text")
	}
	return nil
}

func promptSectionRow() kind {
	return kindOf("prompt-section", func() sectionConfig { return sectionConfig{Order: prompt.Guidance} }, func(c sectionConfig) ready {
		return ready{mount: func(_ context.Context, at site) error {
			name := c.Name
			if name == "" {
				name = at.id
			}
			return at.Prompt.AddSection(at.scope, prompt.Section{Name: name, Order: c.Order, Text: prompt.Fixed(c.Text)})
		}}
	})
}

// instructionsConfig is where a workspace says how to work in it.
type instructionsConfig struct {
	Files []string `yaml:"files"` // looked for in the workspace; those that exist are taken in this order
}

// Validate wants names that stay in the workspace.
func (c instructionsConfig) Validate() error {
	for _, f := range c.Files {
		if !fs.ValidPath(f) || f == "." {
			return fmt.Errorf("files: %q is not the path of a file in the workspace", f)
		}
	}
	return nil
}

// workspaceInstructionsRow reads the files once, at the mount: an agent's system prompt doesn't change under it.
func workspaceInstructionsRow() kind {
	return kindOf("workspace-instructions", func() instructionsConfig { return instructionsConfig{Files: []string{"AGENTS.md"}} }, func(c instructionsConfig) ready {
		return ready{mount: func(ctx context.Context, at site) error {
			if at.HostFS == nil {
				return errors.New("this host has no confined file provider")
			}
			var parts []string
			for _, name := range c.Files {
				text, err := readInstructions(ctx, at, path.Join(at.Session.Workspace, name))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					// What a workspace holds must not keep its sessions from starting.
					at.warn("workspace instructions are left out", "file", name, "error", err)
					continue
				}
				parts = append(parts, "Instructions of this workspace, from "+name+":\n\n"+strings.Trim(text, "\r\n"))
			}
			return at.Prompt.AddSection(at.scope, prompt.Section{
				Name: "workspace-instructions", Order: prompt.Persona + 10, Text: prompt.Fixed(strings.Join(parts, "\n\n")), Literal: true,
			})
		}}
	})
}

func readInstructions(ctx context.Context, at site, file string) (string, error) {
	r, _, err := at.HostFS.Open(ctx, file)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxInstructions+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxInstructions {
		at.warn("workspace instructions are cut", "file", file, "bytes", maxInstructions)
		data = data[:maxInstructions]
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), nil
}

func (at site) warn(text string, args ...any) {
	if at.Logger != nil {
		at.Logger.Warn(text, append([]any{"session", at.Session.ID, "row", at.id}, args...)...)
	}
}

// runtimeContextRow tells the agent where it is. It is asked again before every request, and told to the model only when it changed.
func runtimeContextRow() kind {
	return kindOf("runtime-context", func() struct{} { return struct{}{} }, func(struct{}) ready {
		return ready{mount: func(_ context.Context, at site) error {
			return at.Prompt.AddContext(at.scope, prompt.Context{Name: "runtime-context", Literal: true, Text: func(context.Context) (string, error) {
				lines := []string{"Workspace: " + at.Session.Workspace}
				if at.Surroundings != nil {
					for _, s := range at.Surroundings() {
						lines = append(lines, s[0]+": "+s[1])
					}
				}
				return strings.Join(lines, "\n"), nil
			}})
		}}
	})
}

// orderConfig is the order in which the model is shown its tools.
type orderConfig struct {
	Tools []string `yaml:"tools"` // names; * stands once for all others
}

// Validate wants exactly one rest marker.
func (c orderConfig) Validate() error {
	if err := tools.CheckOrder(c.Tools); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	return nil
}

func toolOrderRow() kind {
	return kindOf("tool-order", func() orderConfig { return orderConfig{} }, func(c orderConfig) ready {
		return ready{
			mount: func(_ context.Context, at site) error { return at.Tools.Order(at.scope, c.Tools) },
			verify: func(at site) error {
				if unknown := at.Tools.Unknown(at.scope); len(unknown) > 0 {
					return fmt.Errorf("it names tools that the agent doesn't have: %s", strings.Join(unknown, ", "))
				}
				return nil
			},
		}
	})
}
