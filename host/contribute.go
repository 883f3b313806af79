package host

import (
	_ "embed"
	"strings"

	"github.com/dsh-web/dsh-web/prompt"
)

// What every ordinary agent is told of the place it works in. A complete prompt leaves it out.
var (
	//go:embed identity.md
	identity string
	//go:embed orientation.md
	orientation string
)

// contribute registers the host's own sections.
func (h *Host) contribute() error {
	for _, s := range []prompt.Section{
		{Name: "host-identity", Order: -100, Text: prompt.Fixed(strings.TrimSpace(identity))},
		{Name: "web-orientation", Order: -98, Text: prompt.Fixed(strings.TrimSpace(orientation))},
	} {
		if err := h.prompts.AddSection(h.root, s); err != nil {
			return err
		}
	}
	return nil
}

// redacted stands for a secret.
const redacted = "[redacted]"

// redact replaces every secret in text; secrets come longest first, so that one inside another doesn't leave a rest.
func redact(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return text
}

// presetName is the name people read; the id when the preset is gone.
func (h *Host) presetName(id string) string {
	if name := h.cfg.Roster.Name(id); name != "" {
		return name
	}
	return id
}
