package openai

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/wire"
)

// Prepare encodes r. See model.Adapter.
func (a *Adapter) Prepare(r model.Request) (*model.Prepared, error) {
	base := a.cfg.BaseURL()
	d, _ := dialect(base, a.cfg.Dialect)
	padded := pads(base)
	e := encoder{Body: wire.NewBody(r), dialect: d, images: a.cfg.Images, reasoning: reasoningFor(d, r)}
	setup := openingSetup{a.cfg.Model, r.System, d, e.images, e.reasoning}
	e.Begin(setup, nil, func() { e.head(a.cfg.Model, r.System) }, e.entry)
	e.Raw("]")
	if len(r.Tools) > 0 {
		e.Raw(`,"tools":`)
		e.Tools(r.Tools, func(t model.Tool) {
			e.Raw(`{"type":"function","function":{"name":`)
			e.Text(t.Name)
			e.Raw(`,"description":`)
			e.Text(t.Description)
			e.Raw(`,"parameters":`)
			e.JSON(t.Parameters)
			e.Raw("}}")
		})
	}
	e.Raw(`,"stream":true,"stream_options":{"include_usage":true`)
	if padded {
		e.Raw(`,"include_obfuscation":false`)
	}
	e.Raw("}")
	ours := e.parameters(r, a.cfg.CaptureTokens)
	if err := e.Parameters(ours, r.Params, "model", "messages", "tools", "stream", "stream_options"); err != nil {
		return nil, err
	}
	e.Raw("}")
	return e.Prepared(Encoder), nil
}

// openingSetup is what the bytes of a body up to its last message depend on, besides the history.
type openingSetup struct {
	model, system string
	dialect       model.Dialect
	images        bool
	reasoning     reasoningForm
}

func (e *encoder) head(model, system string) {
	e.Raw(`{"model":`)
	e.Text(model)
	e.Raw(`,"messages":[`)
	if system == "" {
		return
	}
	e.System(func() {
		e.Raw(`{"role":`)
		e.Text(e.dialect.SystemRole)
		e.Raw(`,"content":`)
		e.Text(system)
		e.Raw("}")
	})
}

// reasoningForm says which assistant messages carry the reasoning field.
type reasoningForm int

const (
	reasoningRecorded reasoningForm = iota // those that have a reasoning block, with its text; "" counts
	reasoningAll                           // every one that makes calls or has a block
	reasoningOmit
)

// reasoningFor picks the form. A message carries what was recorded with it, so that an old message is rendered alike for ever. A repaired request
// takes the other form: none when every message with calls already carried the field, else all.
func reasoningFor(d model.Dialect, r model.Request) reasoningForm {
	if d.ReasoningField == reasoningNone {
		return reasoningOmit
	}
	if !r.RepairReasoning {
		return reasoningRecorded
	}
	for _, e := range wire.History(r.Messages, nil) {
		if e.Role == model.RoleAssistant && len(e.Calls) > 0 && !hasReasoning(e.Blocks) {
			return reasoningAll
		}
	}
	return reasoningOmit
}

func hasReasoning(blocks []model.Block) bool {
	return slices.ContainsFunc(blocks, func(b model.Block) bool { return b.Type == model.BlockReasoning })
}

// encoder writes one body. Fields are always written in the same order.
type encoder struct {
	*wire.Body
	dialect   model.Dialect
	images    bool
	reasoning reasoningForm
}

func (e *encoder) message(write func()) {
	first := e.Messages() == 0 && !e.HasSystem() // which is in the same list
	e.Message(first, func() {
		write()
		e.Raw("}")
	})
}

func (e *encoder) user(blocks []model.Block) {
	e.message(func() {
		e.Raw(`{"role":"user","content":`)
		e.content(blocks)
	})
}

func (e *encoder) entry(m wire.Entry) {
	if m.Role == model.RoleUser {
		e.user(m.Blocks)
		return
	}
	e.message(func() { e.assistant(m) })
	var pictures []model.Block
	for _, r := range m.Results {
		e.message(func() {
			e.Raw(`{"role":"tool","tool_call_id":`)
			e.Text(r.CallID)
			e.Raw(`,"content":`)
			e.Text(e.plainText(r.Content))
		})
		for _, b := range r.Content {
			if b.Type == model.BlockImage && e.images {
				pictures = append(pictures, b)
			}
		}
	}
	if len(pictures) > 0 { // a tool message takes text only, so its images follow
		e.user(pictures)
	}
}

func (e *encoder) assistant(m wire.Entry) {
	e.Raw(`{"role":"assistant"`)
	text := model.JoinText(m.Blocks)
	switch {
	case text != "" || e.dialect.EmptyContent == "" || (e.dialect.EmptyContent != emptyNull && e.dialect.EmptyContent != emptyOmit):
		e.Raw(`,"content":`)
		e.Text(text)
	case e.dialect.EmptyContent == emptyNull:
		e.Raw(`,"content":null`)
	}
	has := hasReasoning(m.Blocks)
	if has && e.reasoning != reasoningOmit || e.reasoning == reasoningAll && len(m.Calls) > 0 {
		e.Raw(",")
		e.Text(e.dialect.ReasoningField)
		e.Raw(":")
		e.Text(joinReasoning(m.Blocks))
	}
	if len(m.Calls) > 0 {
		e.Raw(`,"tool_calls":[`)
		for i, c := range m.Calls {
			if i > 0 {
				e.Raw(",")
			}
			e.Raw(`{"id":`)
			e.Text(c.ID)
			e.Raw(`,"type":"function","function":{"name":`)
			e.Text(c.Name)
			e.Raw(`,"arguments":`)
			e.Text(c.Arguments)
			e.Raw("}}")
		}
		e.Raw("]")
	}
}

func joinReasoning(blocks []model.Block) string {
	out := ""
	for _, b := range blocks {
		if b.Type == model.BlockReasoning {
			out += b.Text
		}
	}
	return out
}

// content writes plain text as a string, and text with images as a list of parts.
func (e *encoder) content(blocks []model.Block) {
	if !e.images || !slices.ContainsFunc(blocks, func(b model.Block) bool { return b.Type == model.BlockImage }) {
		e.Text(e.plainText(blocks))
		return
	}
	e.Raw("[")
	n := 0
	for _, b := range blocks {
		if b.Type != model.BlockText && b.Type != model.BlockImage {
			continue
		}
		if n++; n > 1 {
			e.Raw(",")
		}
		if b.Type == model.BlockText {
			e.Raw(`{"type":"text","text":`)
			e.Text(b.Text)
			e.Raw("}")
			continue
		}
		e.Raw(`{"type":"image_url","image_url":{"url":"data:`)
		quoted := wire.AppendString(nil, b.Mime)
		e.Raw(string(quoted[1:len(quoted)-1]) + `;base64,`)
		e.Base64(b.Data)
		e.Raw(`"}}`)
	}
	e.Raw("]")
}

// plainText joins text. An image that can't travel in it is named, so that the model knows of it.
func (e *encoder) plainText(blocks []model.Block) string {
	if len(blocks) == 1 && blocks[0].Type == model.BlockText {
		return blocks[0].Text
	}
	out := ""
	for _, b := range blocks {
		switch {
		case b.Type == model.BlockText:
			out += b.Text
		case b.Type == model.BlockImage && !e.images:
			out += wire.NoImage()
		}
	}
	if out == "" {
		return wire.Empty()
	}
	return out
}

// parameters are the fields that stand for what the request sets.
func (e *encoder) parameters(r model.Request, capture bool) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if r.MaxTokens > 0 {
		out[e.dialect.MaxTokensField] = strconv.AppendInt(nil, int64(r.MaxTokens), 10)
	}
	if r.ReasoningEffort != "" {
		effort := wire.AppendString(nil, r.ReasoningEffort)
		switch e.dialect.EffortForm {
		case effortNested:
			out["reasoning"] = append(append([]byte(`{"effort":`), effort...), '}')
		case effortThinking:
			out["thinking"] = json.RawMessage(`{"type":"enabled"}`)
			if r.ReasoningEffort == "none" {
				out["thinking"] = json.RawMessage(`{"type":"disabled"}`)
			}
		case effortNone:
		default:
			out["reasoning_effort"] = effort
		}
	}
	if capture {
		out["logprobs"] = json.RawMessage("true")
		out["return_token_ids"] = json.RawMessage("true")
	}
	return out
}
