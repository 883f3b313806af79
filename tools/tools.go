// Package tools is the registry of an agent's tools and the guarded pipeline every call goes through.
//
// A tool is filed under the scope that registers it and leaves with it. The pipeline promises that every call ends with exactly one result:
// an unknown tool, broken arguments, a panic, a cancel and a tool that will not stop are results too. Secrets are redacted here, once,
// before log, model and viewers.
package tools

import (
	"context"
	"encoding/json"
	"io"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// Tool is one tool of an agent: what the model sees, and what runs.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // a JSON Schema object

	// Parallel says that calls of this tool may run beside other parallel calls; the others run alone.
	Parallel bool
	// Run executes one call. It returns soon after ctx ends, with what it has; it may be called from several goroutines when Parallel.
	Run func(ctx context.Context, call Call) Result
}

// Schema is t as the model sees it, detached from the registry.
func (t Tool) Schema() model.Tool {
	return model.Tool{Name: t.Name, Description: t.Description, Parameters: append(json.RawMessage(nil), t.Parameters...)}
}

// Schemas are the tools of a set as the model sees them, in the set's order.
func Schemas(set []Tool) []model.Tool {
	out := make([]model.Tool, len(set))
	for i, t := range set {
		out[i] = t.Schema()
	}
	return out
}

// Call is one request of the model to run a tool.
type Call struct {
	ID   string
	Name string
	// Arguments is a JSON object; the pipeline has checked that much.
	Arguments json.RawMessage
	// Output takes live output for viewers: provisional, bounded, never part of the result. Never nil, never fails.
	Output io.Writer
	// After takes what may be done once the result was handed on, by the goroutine of Run, which calls it before it returns. The scope waits
	// for it as for the call. Nil outside the pipeline: do it at once.
	After func(do func())
}

// Result is what a call gave.
type Result struct {
	// Content is shown to the model: text and image blocks.
	Content []model.Block
	IsError bool
	Error   *session.ToolError
	// Meta is for the UI: a diff, an exit code, left-over processes. It is encoded as JSON and never shown to the model.
	Meta any
	// Events are facts the call found, appended with its result: a reset shell, a written todo list.
	Events []session.Payload
}

// TextResult is a successful result of plain text.
func TextResult(text string) Result {
	return Result{Content: []model.Block{model.Text(text)}}
}

// ImageResult is a successful result of one image; data holds the raw bytes of the given media type.
func ImageResult(mime string, data []byte) Result {
	return Result{Content: []model.Block{{Type: model.BlockImage, Mime: mime, Data: data}}}
}

// ErrorResult is a failed call: code for programs (upper case, for example NOT_FOUND), text for the model.
func ErrorResult(tool, code, text string) Result {
	return Result{
		Content: []model.Block{model.Text(text)},
		IsError: true,
		Error:   &session.ToolError{Name: tool, Code: code},
	}
}

// Text joins the text of r.
func (r Result) Text() string { return model.JoinText(r.Content) }
