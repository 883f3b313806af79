package host

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/presets"
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

// names remembers what compositions are called: a hash fixes what it names, so nothing here grows stale.
type names struct {
	roster sync.Once // fills in the presets that can be used now, when a stored session's isn't known yet
	mu     sync.Mutex
	byHash map[session.PresetRef]string
}

func (n *names) keep(ref session.PresetRef, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byHash == nil {
		n.byHash = map[session.PresetRef]string{}
	}
	n.byHash[ref] = name
}

func (n *names) get(ref session.PresetRef) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byHash[ref]
}

// presetName is the name people read; the id when the preset isn't known by now.
func (h *Host) presetName(ref session.PresetRef) string {
	if name := h.names.get(ref); name != "" {
		return name
	}
	h.names.roster.Do(func() {
		entries, err := h.cfg.Roster.List()
		if err != nil {
			h.cfg.Logger.Warn("list presets", "error", err)
		}
		for _, e := range entries {
			h.names.keep(session.PresetRef{ID: e.ID, Hash: e.Hash}, e.Name)
		}
	})
	if name := h.names.get(ref); name != "" {
		return name
	}
	return ref.ID
}

func refOf(c *presets.Composition) session.PresetRef {
	return session.PresetRef{ID: c.ID, Hash: c.Hash}
}
