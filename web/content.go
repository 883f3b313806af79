package web

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// Block documents model.Block, whose JSON form depends on its type.
type Block struct {
	Type         string   `json:"type" enum:"text,reasoning,image,tool-call,tool-result"`
	Text         string   `json:"text,omitempty"`
	Signature    string   `json:"signature,omitempty"`
	AttachmentID string   `json:"attachmentId,omitempty"`
	Mime         string   `json:"mime,omitempty"`
	ID           string   `json:"id,omitempty"`
	Name         string   `json:"name,omitempty"`
	Arguments    string   `json:"arguments,omitempty" doc:"Raw JSON text as the model wrote it."`
	ToolCallID   string   `json:"toolCallId,omitempty"`
	Content      []*Block `json:"content,omitempty"`
	IsError      bool     `json:"isError,omitempty"`
}

// InputBlock is a block that a client may send.
type InputBlock struct {
	Type         string `json:"type" enum:"text,image"`
	Text         string `json:"text,omitempty"`
	AttachmentID string `json:"attachmentId,omitempty" doc:"Of an image that was uploaded to this session."`
	Mime         string `json:"mime,omitempty"`
}

// Content is what a message says: a text, or blocks.
type Content []model.Block

// UnmarshalJSON takes both forms.
func (c *Content) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*c = Content{model.Text(text)}
		return nil
	}
	var blocks []InputBlock
	if err := json.Unmarshal(data, &blocks); err != nil {
		return err
	}
	*c = make(Content, 0, len(blocks))
	for _, b := range blocks {
		switch b.Type {
		case "text":
			*c = append(*c, model.Text(b.Text))
		case "image":
			*c = append(*c, model.Block{Type: model.BlockImage, AttachmentID: b.AttachmentID, Mime: b.Mime})
		default:
			return fmt.Errorf("a message can't hold a block of type %q", b.Type)
		}
	}
	return nil
}

// Schema documents both forms.
func (Content) Schema(r huma.Registry) *huma.Schema {
	one := 1
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, MinLength: &one, Description: "Plain text."},
		{Type: huma.TypeArray, MinItems: &one, Items: r.Schema(reflect.TypeFor[InputBlock](), true, "InputBlock")},
	}}
}

// encodedEvent is an event in the bytes the log keeps.
type encodedEvent json.RawMessage

// MarshalJSON gives the bytes as they are.
func (e encodedEvent) MarshalJSON() ([]byte, error) { return e, nil }

// Schema documents it as an event.
func (encodedEvent) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[session.Event](), true, "Event")
}

// number is an optional integer parameter.
type number struct {
	value int64
	set   bool
}

// Receiver is where huma puts the value.
func (n *number) Receiver() reflect.Value { return reflect.ValueOf(&n.value).Elem() }

// OnParamSet notes whether there was one.
func (n *number) OnParamSet(set bool, _ any) { n.set = set }

// Schema documents it as an integer.
func (number) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64"}
}

// flag is an optional truth parameter.
type flag struct{ value, set bool }

// Receiver is where huma puts the value.
func (f *flag) Receiver() reflect.Value { return reflect.ValueOf(&f.value).Elem() }

// OnParamSet notes whether there was one.
func (f *flag) OnParamSet(set bool, _ any) { f.set = set }

// Schema documents it as a boolean.
func (flag) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

// pointer is the value, or nil when it wasn't given.
func (f flag) pointer() *bool {
	if !f.set {
		return nil
	}
	return &f.value
}
