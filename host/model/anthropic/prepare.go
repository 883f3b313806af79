package anthropic

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// defaultMaxTokens is sent when neither the request nor the catalogue says how long an answer may be.
const defaultMaxTokens = 8192

// Prepare encodes r. See model.Adapter.
func (a *Adapter) Prepare(r model.Request) (*model.Prepared, error) {
	e := encoder{Body: wire.NewBody(r), images: a.cfg.Images, reasoning: !r.RepairReasoning}
	e.Begin(openingSetup{a.cfg.Model, r.System, e.images, e.reasoning}, cleanID, func() { e.head(a.cfg.Model, r.System) }, e.entry)
	e.Raw("]")
	if len(r.Tools) > 0 {
		e.Raw(`,"tools":`)
		e.Tools(r.Tools, func(t model.Tool) {
			e.Raw(`{"name":`)
			e.Text(t.Name)
			e.Raw(`,"description":`)
			e.Text(t.Description)
			e.Raw(`,"input_schema":`)
			e.JSON(t.Parameters)
			e.Raw("}")
		})
	}
	e.Raw(`,"stream":true`)
	if err := e.Parameters(parameters(r, a.cfg.MaxOutput), r.Params, "model", "messages", "tools", "stream", "system"); err != nil {
		return nil, err
	}
	e.Raw("}")
	return e.Prepared(Encoder), nil
}

// openingSetup is what the bytes of a body up to its last message depend on, besides the history.
type openingSetup struct {
	model, system     string
	images, reasoning bool
}

func (e *encoder) head(model, system string) {
	e.Raw(`{"model":`)
	e.Text(model)
	if system != "" {
		e.Raw(`,"system":`)
		e.System(func() { e.Text(system) })
	}
	e.Raw(`,"messages":[`)
}

// cleanID maps an id to the characters that the wire allows.
func cleanID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}

// encoder writes one body. Fields are always written in the same order.
type encoder struct {
	*wire.Body
	images    bool
	reasoning bool
	blocks    int // in the message being written
}

func (e *encoder) message(role string, write func()) {
	e.blocks = 0
	e.Message(e.Messages() == 0, func() {
		e.Raw(`{"role":"` + role + `","content":[`)
		write()
		e.Raw("]}")
	})
}

func (e *encoder) block(kind string) {
	if e.blocks > 0 {
		e.Raw(",")
	}
	e.blocks++
	e.Raw(`{"type":"` + kind + `"`)
}

// entry writes a message and, after an assistant's with calls, one user message with all results: the wire wants them together.
func (e *encoder) entry(m wire.Entry) {
	if m.Role == model.RoleUser {
		e.message("user", func() { e.content(m.Blocks) })
		return
	}
	e.message("assistant", func() { e.assistant(m) })
	if len(m.Results) > 0 {
		e.message("user", func() {
			for _, r := range m.Results {
				e.result(r)
			}
		})
	}
}

func (e *encoder) assistant(m wire.Entry) {
	for _, b := range m.Blocks {
		switch {
		case b.Type == model.BlockReasoning && b.Signature != "" && e.reasoning:
			e.thinking(b)
		case b.Type == model.BlockText && strings.TrimSpace(b.Text) != "":
			e.textBlock(b.Text)
		}
	}
	for _, c := range m.Calls {
		e.block("tool_use")
		e.Raw(`,"id":`)
		e.Text(c.ID)
		e.Raw(`,"name":`)
		e.Text(c.Name)
		e.Raw(`,"input":`)
		e.JSON(json.RawMessage(c.Arguments))
		e.Raw("}")
	}
	if e.blocks == 0 { // text of nothing but white space, which the wire refuses
		e.textBlock(wire.Empty())
	}
}

// thinking writes a block of reasoning exactly as it came, its signature included. Redacted reasoning has no text: the signature is its data.
func (e *encoder) thinking(b model.Block) {
	if data, redacted := strings.CutPrefix(b.Signature, redactedMark); redacted {
		e.block("redacted_thinking")
		e.Raw(`,"data":`)
		e.Text(data)
		e.Raw("}")
		return
	}
	e.block("thinking")
	e.Raw(`,"thinking":`)
	e.Text(b.Text)
	e.Raw(`,"signature":`)
	e.Text(b.Signature)
	e.Raw("}")
}

// redactedMark begins the signature of a block that the server encrypted.
const redactedMark = "redacted:"

func (e *encoder) textBlock(s string) {
	e.block("text")
	e.Raw(`,"text":`)
	e.Text(s)
	e.Raw("}")
}

func (e *encoder) result(r wire.Result) {
	e.block("tool_result")
	e.Raw(`,"tool_use_id":`)
	e.Text(r.CallID)
	e.Raw(`,"content":[`)
	outer := e.blocks
	e.blocks = 0
	e.content(r.Content)
	e.blocks = outer
	e.Raw("]")
	if r.IsError {
		e.Raw(`,"is_error":true`)
	}
	e.Raw("}")
}

// content writes text and images. The wire refuses text without a visible character, so that is left out, unless nothing else is there.
func (e *encoder) content(blocks []model.Block) {
	for _, b := range blocks {
		switch {
		case b.Type == model.BlockText && strings.TrimSpace(b.Text) != "":
			e.textBlock(b.Text)
		case b.Type == model.BlockImage && e.images:
			e.block("image")
			e.Raw(`,"source":{"type":"base64","media_type":`)
			e.Text(b.Mime)
			e.Raw(`,"data":"`)
			e.Base64(b.Data)
			e.Raw(`"}}`)
		case b.Type == model.BlockImage:
			e.textBlock(wire.NoImage())
		}
	}
	if e.blocks == 0 {
		e.textBlock(wire.Empty())
	}
}

// parameters are the fields that stand for what the request sets. The wire demands max_tokens.
func parameters(r model.Request, maxOutput int) map[string]json.RawMessage {
	limit := cmp.Or(max(0, r.MaxTokens), max(0, maxOutput), defaultMaxTokens)
	out := map[string]json.RawMessage{"max_tokens": strconv.AppendInt(nil, int64(limit), 10)}
	if r.ReasoningEffort != "" {
		out["output_config"] = append(append([]byte(`{"effort":`), wire.AppendString(nil, r.ReasoningEffort)...), '}')
	}
	return out
}
