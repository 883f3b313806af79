package export

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// The document of the Agent Trajectory Interchange Format, version 1.4.
type trajectory struct {
	SchemaVersion string        `json:"schema_version"`
	SessionID     string        `json:"session_id"`
	Agent         atifAgent     `json:"agent"`
	Steps         []*atifStep   `json:"steps"`
	FinalMetrics  atifTotals    `json:"final_metrics"`
	Extra         atifRootExtra `json:"extra"`
}

type atifAgent struct {
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	ModelName string         `json:"model_name,omitempty"`
	Extra     atifAgentExtra `json:"extra"`
}

type atifAgentExtra struct {
	Preset session.PresetRef `json:"preset"`
	Tools  []model.Tool      `json:"tools,omitempty"`
}

type atifRootExtra struct {
	Group       string            `json:"group,omitempty"`
	Attempt     int               `json:"attempt,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Parent      string            `json:"parent_session,omitempty"`
	Annotations json.RawMessage   `json:"annotations,omitempty"`
}

type atifStep struct {
	StepID           int              `json:"step_id"`
	Timestamp        string           `json:"timestamp,omitempty"`
	Source           string           `json:"source"`
	ModelName        string           `json:"model_name,omitempty"`
	ReasoningEffort  string           `json:"reasoning_effort,omitempty"`
	Message          string           `json:"message"`
	ReasoningContent string           `json:"reasoning_content,omitempty"`
	ToolCalls        []atifCall       `json:"tool_calls,omitempty"`
	Observation      *atifObservation `json:"observation,omitempty"`
	Metrics          *atifMetrics     `json:"metrics,omitempty"`
	Extra            *atifStepExtra   `json:"extra,omitempty"`
}

type atifStepExtra struct {
	Seq         int64             `json:"seq"`
	Turn        int               `json:"turn,omitempty"`
	Step        int               `json:"step,omitempty"`
	Source      string            `json:"source,omitempty"` // a host message's name
	Interrupted bool              `json:"interrupted,omitempty"`
	Arguments   map[string]string `json:"raw_arguments,omitempty"` // of calls whose arguments aren't an object, as written
	Tokens      json.RawMessage   `json:"tokens,omitempty"`        // as the server sent them
	Errors      map[string]string `json:"errors,omitempty"`        // codes of failed calls
}

type atifCall struct {
	ID        string          `json:"tool_call_id"`
	Name      string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"`
}

type atifObservation struct {
	Results []atifResult `json:"results"`
}

type atifResult struct {
	CallID  string `json:"source_call_id,omitempty"`
	Content string `json:"content"`
}

type atifMetrics struct {
	PromptTokens     int64             `json:"prompt_tokens"`
	CompletionTokens int64             `json:"completion_tokens"`
	CachedTokens     int64             `json:"cached_tokens,omitempty"`
	PromptTokenIDs   json.RawMessage   `json:"prompt_token_ids,omitempty"`
	CompletionIDs    []json.RawMessage `json:"completion_token_ids,omitempty"`
}

type atifTotals struct {
	PromptTokens     int64 `json:"total_prompt_tokens"`
	CompletionTokens int64 `json:"total_completion_tokens"`
	CachedTokens     int64 `json:"total_cached_tokens"`
	Steps            int   `json:"total_steps"`
}

// atifWriter turns events into steps.
type atifWriter struct {
	t      trajectory
	system string
	calls  map[string]*atifStep // the step that asked for a call
	effort string
}

func writeATIF(ctx context.Context, w io.Writer, j *session.Journal, id string, opts Options) error {
	a := &atifWriter{calls: map[string]*atifStep{}}
	a.t.Steps = []*atifStep{}
	info, err := each(ctx, j, id, func(e session.Event, _ []byte) error {
		p, _, err := session.DecodePayload(e)
		if err != nil {
			return err
		}
		a.add(e, p)
		return nil
	})
	if err != nil {
		return err
	}
	t := &a.t
	t.SchemaVersion, t.SessionID = "ATIF-v1.4", id
	t.Agent.Name, t.Agent.Version, t.Agent.ModelName = "dsh-web", opts.Version, info.Model.Model
	if t.Agent.Version == "" {
		t.Agent.Version = "unknown"
	}
	t.Agent.Extra.Preset = info.Preset
	t.Extra = atifRootExtra{Group: info.Group, Attempt: info.Attempt, Labels: info.Labels, Parent: info.ParentSession}
	if t.Extra.Annotations, err = annotations(ctx, j, id); err != nil {
		return err
	}
	t.FinalMetrics.Steps = len(t.Steps)
	for i, s := range t.Steps {
		s.StepID = i + 1
	}
	return writeJSON(w, t, "  ")
}

func (a *atifWriter) step(e session.Event, source string) *atifStep {
	s := &atifStep{
		Source: source, Extra: &atifStepExtra{Seq: e.Seq},
		Timestamp: time.UnixMilli(e.Time).UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	a.t.Steps = append(a.t.Steps, s)
	return s
}

func (a *atifWriter) add(e session.Event, p session.Payload) {
	switch p := p.(type) {
	case session.RequestHeader:
		a.effort = p.Header.Config.ReasoningEffort
		a.t.Agent.Extra.Tools = p.Header.Tools
		if p.Header.System != a.system {
			first := a.system == ""
			a.system = p.Header.System
			a.step(e, "system").Message = p.Header.System
			if first { // it stood before the first message
				last := len(a.t.Steps) - 1
				a.t.Steps = append([]*atifStep{a.t.Steps[last]}, a.t.Steps[:last]...)
			}
		}
	case session.UserMessage:
		source := "user"
		if p.Source.Kind != model.SourceUser {
			source = "system"
		}
		s := a.step(e, source)
		s.Message, s.Extra.Source = p.Text(), p.Source.Name
	case session.AssistantMessage:
		a.assistant(e, p)
	case session.ToolResult:
		a.result(e, p)
	}
}

func (a *atifWriter) assistant(e session.Event, p session.AssistantMessage) {
	s := a.step(e, "agent")
	s.ModelName, s.ReasoningEffort, s.Message = p.Message.Source.Model, a.effort, p.Message.Text()
	s.Extra.Turn, s.Extra.Step, s.Extra.Interrupted, s.Extra.Tokens = p.Turn, p.Step, p.Interrupted, p.Tokens
	var reasoning strings.Builder
	for _, b := range p.Message.Content {
		switch b.Type {
		case model.BlockReasoning:
			reasoning.WriteString(b.Text)
		case model.BlockToolCall:
			call := atifCall{ID: b.ID, Name: b.Name, Arguments: json.RawMessage("{}")}
			if raw := []byte(b.Arguments); json.Valid(raw) && bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
				call.Arguments = raw
			} else {
				if s.Extra.Arguments == nil {
					s.Extra.Arguments = map[string]string{}
				}
				s.Extra.Arguments[b.ID] = b.Arguments
			}
			s.ToolCalls = append(s.ToolCalls, call)
			a.calls[b.ID] = s
		}
	}
	s.ReasoningContent = reasoning.String()
	if p.Usage != nil {
		m := &atifMetrics{
			PromptTokens:     p.Usage.InputTokens + p.Usage.CacheReadTokens + p.Usage.CacheWriteTokens,
			CompletionTokens: p.Usage.OutputTokens, CachedTokens: p.Usage.CacheReadTokens,
		}
		m.PromptTokenIDs, m.CompletionIDs = tokenIDs(p.Tokens)
		s.Metrics = m
		a.t.FinalMetrics.PromptTokens += m.PromptTokens
		a.t.FinalMetrics.CompletionTokens += m.CompletionTokens
		a.t.FinalMetrics.CachedTokens += m.CachedTokens
	}
}

// tokenIDs reads the ids out of what the route captured, when it has the form that our chat-completions wire writes.
func tokenIDs(tokens json.RawMessage) (prompt json.RawMessage, completion []json.RawMessage) {
	var captured struct {
		Prompt json.RawMessage `json:"prompt_token_ids"`
		Chunks []struct {
			IDs []json.RawMessage `json:"token_ids"`
		} `json:"chunks"`
	}
	if len(tokens) == 0 || json.Unmarshal(tokens, &captured) != nil {
		return nil, nil
	}
	for _, c := range captured.Chunks {
		completion = append(completion, c.IDs...)
	}
	return captured.Prompt, completion
}

func (a *atifWriter) result(e session.Event, p session.ToolResult) {
	callID := p.Message.Source.CallID
	s := a.calls[callID]
	if s == nil { // its call isn't part of the log
		s = a.step(e, "system")
		callID = ""
	}
	if s.Observation == nil {
		s.Observation = &atifObservation{}
	}
	var text strings.Builder
	for _, b := range p.Message.Content {
		text.WriteString(model.JoinText(b.Content))
	}
	s.Observation.Results = append(s.Observation.Results, atifResult{CallID: callID, Content: text.String()})
	if p.Error != nil {
		if s.Extra.Errors == nil {
			s.Extra.Errors = map[string]string{}
		}
		s.Extra.Errors[p.Message.Source.CallID] = p.Error.Code
	}
}
