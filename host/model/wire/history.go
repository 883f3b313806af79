package wire

import (
	_ "embed" // texts that the model reads
	"encoding/json"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
)

//go:embed missing.md
var missingText string

//go:embed empty.md
var emptyText string

//go:embed noimage.md
var noImageText string

// NoImage is what stands for an image where the model takes none.
func NoImage() string { return strings.TrimSpace(noImageText) }

// Empty is what stands for a result without content.
func Empty() string { return strings.TrimSpace(emptyText) }

// Entry is one message of a sendable history. An assistant entry carries its calls and, in the same order, exactly one result for each.
type Entry struct {
	Role model.Role
	// Blocks holds text, image and reasoning blocks.
	Blocks  []model.Block
	Calls   []model.Block
	Results []Result
}

// Result is the answer to one call. Where its content comes to nothing an adapter writes Empty.
type Result struct {
	CallID  string
	Content []model.Block
	IsError bool
}

// History makes messages sendable, whatever happened to them: every call has exactly one result right after it and in order, ids are
// unique, arguments are JSON objects ({} in place of others), names fit every server, orphan and doubled results are gone, calls that were
// cut off and never answered are gone, and so is an assistant message with neither text nor calls. It looks only at what is there, so a
// longer history gives a longer list with the same beginning, as long as calls are answered before the next request. clean, when not nil,
// maps ids to the form that a wire allows.
func History(messages []model.Message, clean func(string) string) []Entry {
	out := make([]Entry, 0, len(messages))
	used := map[string]struct{}{}
	for i, m := range messages {
		if m.Role != model.RoleAssistant {
			if blocks := spoken(m); len(blocks) > 0 {
				out = append(out, Entry{Role: model.RoleUser, Blocks: blocks})
			}
			continue
		}
		e := Entry{Role: model.RoleAssistant, Blocks: m.Content}
		if calls := m.ToolCalls(); len(calls) > 0 {
			e.Blocks = spoken(m)
			e.Calls, e.Results = pair(calls, messages[i+1:], used, clean)
		}
		if len(e.Calls) > 0 || model.JoinText(e.Blocks) != "" {
			out = append(out, e)
		}
	}
	return out
}

// spoken returns the blocks of m that are neither calls nor results; for a tool's message, none.
func spoken(m model.Message) []model.Block {
	if m.Source.Kind == model.SourceTool {
		return nil
	}
	plain := true
	for _, b := range m.Content {
		plain = plain && b.Type != model.BlockToolCall && b.Type != model.BlockToolResult
	}
	if plain {
		return m.Content
	}
	var out []model.Block
	for _, b := range m.Content {
		if b.Type != model.BlockToolCall && b.Type != model.BlockToolResult {
			out = append(out, b)
		}
	}
	return out
}

// pair finds the results of calls in what follows, up to the next message that makes calls.
func pair(calls []model.Block, after []model.Message, used map[string]struct{}, clean func(string) string) ([]model.Block, []Result) {
	found := make([]*Result, len(calls))
	take := func(id string, r Result) {
		for i, c := range calls {
			if c.ID == id && found[i] == nil {
				found[i] = &r
				return
			}
		}
	}
	for _, m := range after {
		if m.Role == model.RoleAssistant {
			if len(m.ToolCalls()) > 0 {
				break
			}
			continue
		}
		inBlocks := false
		for _, b := range m.Content {
			if b.Type == model.BlockToolResult {
				inBlocks = true
				take(b.ToolCallID, Result{Content: b.Content, IsError: b.IsError})
			}
		}
		if !inBlocks && m.Source.Kind == model.SourceTool {
			take(m.Source.CallID, Result{Content: m.Content})
		}
	}
	keptCalls := make([]model.Block, 0, len(calls))
	results := make([]Result, 0, len(calls))
	for i, c := range calls {
		whole := isObject(c.Arguments)
		if found[i] == nil && !whole {
			continue // cut off while it was written, and nobody answered it
		}
		if !whole {
			c.Arguments = "{}"
		}
		c.Name = fitName(c.Name)
		if clean != nil {
			c.ID = clean(c.ID)
		}
		c.ID = model.UniqueCallID(c.ID, used)
		r := Result{Content: []model.Block{model.Text(strings.TrimSpace(missingText))}, IsError: true}
		if found[i] != nil {
			r = *found[i]
		}
		r.CallID = c.ID
		keptCalls, results = append(keptCalls, c), append(results, r)
	}
	return keptCalls, results
}

func isObject(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "{") && json.Valid([]byte(s))
}

// fitName makes a tool's name one that every server takes. A name that a model made up must not get the whole session refused.
func fitName(name string) string {
	fit := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	if len(fit) > 64 {
		fit = fit[:64]
	}
	if fit == "" {
		return "unnamed"
	}
	return fit
}
