// Package model is the vocabulary of language models: messages, tools, requests, streamed deltas, typed errors, the contract
// every wire adapter keeps, and the router that turns a session's selection into an adapter.
//
// It imports nothing of the project. Adapters live below it, one folder per wire.
package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Role names who speaks in the model's conversation. Tool results travel as user messages whose source is a tool.
type Role string

// The two roles of the log. System text is part of a Request, never a message.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// SourceKind says where the bytes of a message came from; training code reads it to decide what to learn from.
type SourceKind string

// The sources a message can have.
const (
	SourceUser  SourceKind = "user"
	SourceModel SourceKind = "model"
	SourceTool  SourceKind = "tool"
	SourceHost  SourceKind = "host"
)

// Source is the origin of one message.
type Source struct {
	Kind SourceKind `json:"kind"`
	// CallID pairs a tool result with its call. Set for SourceTool only.
	CallID string `json:"callId,omitempty"`
	// Provider and Model name the route that wrote the message. Set for SourceModel only.
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	// Name tells host messages apart, for example "runtime-context". Set for SourceHost only.
	Name string `json:"name,omitempty"`
}

// Message is one entry of the conversation, as the log keeps it and as adapters render it.
type Message struct {
	ID      string  `json:"id"`
	Role    Role    `json:"role"`
	Content []Block `json:"content"`
	Source  Source  `json:"source"`
}

// Text joins the text blocks of m.
func (m Message) Text() string { return JoinText(m.Content) }

// Equal says whether m and o are the same in every field. Messages that share their content are compared in no time.
func (m Message) Equal(o Message) bool {
	return m.ID == o.ID && m.Role == o.Role && m.Source == o.Source && equalBlocks(m.Content, o.Content)
}

func equalBlocks(a, b []Block) bool {
	if len(a) != len(b) || len(a) > 0 && &a[0] == &b[0] {
		return len(a) == len(b)
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Type != y.Type || x.Text != y.Text || x.Signature != y.Signature || x.AttachmentID != y.AttachmentID || x.Mime != y.Mime ||
			x.ID != y.ID || x.Name != y.Name || x.Arguments != y.Arguments || x.ToolCallID != y.ToolCallID || x.IsError != y.IsError ||
			!bytes.Equal(x.Data, y.Data) || !equalBlocks(x.Content, y.Content) {
			return false
		}
	}
	return true
}

// HoldsData says whether m carries the bytes of an image.
func (m Message) HoldsData() bool { return holdsData(m.Content) }

func holdsData(content []Block) bool {
	return slices.ContainsFunc(content, func(b Block) bool { return b.Data != nil || holdsData(b.Content) })
}

// ToolCalls lists the tool-call blocks of m in the order the model wrote them.
func (m Message) ToolCalls() []Block {
	var calls []Block
	for _, b := range m.Content {
		if b.Type == BlockToolCall {
			calls = append(calls, b)
		}
	}
	return calls
}

// BlockType tags a content block.
type BlockType string

// The block types of the log.
const (
	BlockText       BlockType = "text"
	BlockReasoning  BlockType = "reasoning"
	BlockImage      BlockType = "image"
	BlockToolCall   BlockType = "tool-call"
	BlockToolResult BlockType = "tool-result"
)

// Block is one piece of content. Which fields count depends on Type; MarshalJSON writes exactly those.
type Block struct {
	Type BlockType

	Text      string // text, reasoning
	Signature string // reasoning: opaque proof some wires want back unchanged

	AttachmentID string // image: id of a stored attachment
	Mime         string // image
	Data         []byte // image: raw bytes, filled by the host before a request and never logged

	ID        string // tool-call: the call's id
	Name      string // tool-call: the tool's name
	Arguments string // tool-call: raw JSON text as the model wrote it, possibly broken

	ToolCallID string  // tool-result: the call it answers
	Content    []Block // tool-result: text and image blocks
	IsError    bool    // tool-result
}

// blockJSON is the wire form. Pointers make a field present or absent by block type, not by emptiness.
type blockJSON struct {
	Type         BlockType `json:"type"`
	Text         *string   `json:"text,omitempty"`
	Signature    string    `json:"signature,omitempty"`
	AttachmentID string    `json:"attachmentId,omitempty"`
	Mime         string    `json:"mime,omitempty"`
	ID           *string   `json:"id,omitempty"`
	Name         *string   `json:"name,omitempty"`
	Arguments    *string   `json:"arguments,omitempty"`
	ToolCallID   *string   `json:"toolCallId,omitempty"`
	Content      *[]Block  `json:"content,omitempty"`
	IsError      bool      `json:"isError,omitempty"`
}

// MarshalJSON writes the fields that belong to b's type. Data is never written.
func (b Block) MarshalJSON() ([]byte, error) {
	out := blockJSON{Type: b.Type}
	switch b.Type {
	case BlockText:
		out.Text = &b.Text
	case BlockReasoning:
		out.Text, out.Signature = &b.Text, b.Signature
	case BlockImage:
		out.AttachmentID, out.Mime = b.AttachmentID, b.Mime
	case BlockToolCall:
		out.ID, out.Name, out.Arguments = &b.ID, &b.Name, &b.Arguments
	case BlockToolResult:
		content := b.Content
		if content == nil {
			content = []Block{}
		}
		out.ToolCallID, out.Content, out.IsError = &b.ToolCallID, &content, b.IsError
	default:
		return nil, fmt.Errorf("encode content block: unknown type %q", b.Type)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes. An unknown type is an error.
func (b *Block) UnmarshalJSON(data []byte) error {
	var in blockJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	switch in.Type {
	case BlockText, BlockReasoning, BlockImage, BlockToolCall, BlockToolResult:
	default:
		return fmt.Errorf("decode content block: unknown type %q", in.Type)
	}
	*b = Block{
		Type: in.Type, Text: deref(in.Text), Signature: in.Signature,
		AttachmentID: in.AttachmentID, Mime: in.Mime,
		ID: deref(in.ID), Name: deref(in.Name), Arguments: deref(in.Arguments),
		ToolCallID: deref(in.ToolCallID), IsError: in.IsError,
	}
	if in.Content != nil {
		b.Content = *in.Content
	}
	return nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Text makes a text block.
func Text(s string) Block { return Block{Type: BlockText, Text: s} }

// JoinText concatenates the text blocks of content.
func JoinText(content []Block) string {
	out := ""
	for _, b := range content {
		if b.Type == BlockText {
			out += b.Text
		}
	}
	return out
}

// Usage counts the tokens of one model call. InputTokens excludes what a cache served.
type Usage struct {
	InputTokens      int64 `json:"inputTokens"`
	OutputTokens     int64 `json:"outputTokens"`
	CacheReadTokens  int64 `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  int64 `json:"reasoningTokens,omitempty"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.ReasoningTokens += v.ReasoningTokens
	return u
}

// Tool is a tool as the model sees it. Parameters is a JSON Schema object.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Equal says whether t and o are the same to the byte.
func (t Tool) Equal(o Tool) bool {
	return t.Name == o.Name && t.Description == o.Description && bytes.Equal(t.Parameters, o.Parameters)
}
