package wire

import (
	_ "embed" // texts that the model reads
	"encoding/json"
	"slices"
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
	s := sendable{messages: messages, ids: &model.CallIDs{}, clean: clean}
	for i := range messages {
		if e, ok := s.entry(i); ok {
			out = append(out, e)
		}
	}
	return out
}

// sendable makes entries, message by message in their order.
type sendable struct {
	messages []model.Message
	ids      *model.CallIDs
	clean    func(string) string

	// reach is how many messages the entries so far depend on; open says that a later message may still change the last one.
	reach int
	open  bool
}

// entry is what message i becomes, if anything.
func (s *sendable) entry(i int) (Entry, bool) {
	m := s.messages[i]
	s.reach = max(s.reach, i+1)
	s.open = false
	if m.Role != model.RoleAssistant {
		blocks := spoken(m)
		return Entry{Role: model.RoleUser, Blocks: blocks}, len(blocks) > 0
	}
	e := Entry{Role: model.RoleAssistant, Blocks: m.Content}
	if calls := m.ToolCalls(); len(calls) > 0 {
		e.Blocks = spoken(m)
		e.Calls, e.Results = s.pair(calls, i+1)
	}
	return e, len(e.Calls) > 0 || model.JoinText(e.Blocks) != ""
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

// pair finds the results of calls in what follows, up to the next message that makes calls, or until all are found.
func (s *sendable) pair(calls []model.Block, from int) ([]model.Block, []Result) {
	found := make([]*Result, len(calls))
	left := len(calls)
	take := func(id string, r Result) {
		for i, c := range calls {
			if c.ID == id && found[i] == nil {
				found[i] = &r
				left--
				return
			}
		}
	}
	s.open = true
	for i := from; i < len(s.messages) && s.open; i++ {
		m := s.messages[i]
		s.reach = max(s.reach, i+1)
		if m.Role == model.RoleAssistant {
			s.open = !slices.ContainsFunc(m.Content, func(b model.Block) bool { return b.Type == model.BlockToolCall })
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
		s.open = left > 0
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
		if s.clean != nil {
			c.ID = s.clean(c.ID)
		}
		c.ID = s.ids.Unique(c.ID)
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
