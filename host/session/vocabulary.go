package session

import (
	"encoding/json"
	"fmt"

	"github.com/dsh-web/dsh-web/host/model"
)

// ApprovalAsked asks the owner for leave; it is committed before anybody is asked. Kind is "approval" or "question"; Detail is what a
// question shows, and of an approval what a session grant would cover.
type ApprovalAsked struct {
	ID        string          `json:"id"`
	Kind      string          `json:"kind,omitempty"`
	Turn      int             `json:"turn,omitempty"`
	Step      int             `json:"step,omitempty"`
	Tool      string          `json:"tool"`
	CallID    string          `json:"callId"`
	Arguments string          `json:"arguments,omitempty"`
	ArgsHash  string          `json:"argsHash"`
	Cwd       string          `json:"cwd,omitempty" doc:"The workspace. The agent's shell may stand elsewhere by now."`
	Reason    string          `json:"reason"`
	Leaves    string          `json:"leaves,omitempty"` // what leaves the box
	Detail    json.RawMessage `json:"detail,omitempty"`
	// ExpiresAt is when nobody needs to answer any more, epoch milliseconds.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
}

// What is asked.
const (
	KindApproval = "approval" // also ""
	KindQuestion = "question"
)

// The outcomes of an approval. Only Allowed lets a call run.
const (
	OutcomeAllowed     = "allowed"
	OutcomeRejected    = "rejected"
	OutcomeCancelled   = "cancelled"
	OutcomeExpired     = "expired"
	OutcomeUnavailable = "unavailable"
)

// ApprovalDecided settles a pending approval or question; the first one wins. Scope is once or session, By who decided.
type ApprovalDecided struct {
	ID      string          `json:"id"`
	Outcome string          `json:"outcome"`
	Scope   string          `json:"scope,omitempty"`
	By      string          `json:"by"`
	Reason  string          `json:"reason,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
}

// The scopes of an allowed approval.
const (
	ScopeOnce    = "once"
	ScopeSession = "session" // a grant: what was allowed stays so until it is revoked
)

// ApprovalRevoked takes a grant back; ID is the approval's that gave it.
type ApprovalRevoked struct {
	ID string `json:"id"`
	By string `json:"by"`
}

// The approval policies. A log without one means ask.
const (
	PolicyAsk   = "ask"
	PolicyNever = "never" // deny without asking
	PolicyFull  = "full"  // allow without asking
)

// ApprovalPolicy sets the session's policy: ask, never, full.
type ApprovalPolicy struct {
	Policy string `json:"policy"`
}

// SandboxMode sets the session's mode: read-only, workspace-write, danger-full-access.
type SandboxMode struct {
	Mode string `json:"mode"`
}

// TodoItem is one line of the agent's list. Status: pending, in_progress, completed.
type TodoItem struct {
	ID      string `json:"id,omitempty"`
	Content string `json:"content"`
	Status  string `json:"status"`
}

// TodoWrite replaces the agent's list.
type TodoWrite struct {
	Items []TodoItem `json:"items"`
}

// CompactionStart opens a summary of older history. Only presets that mount compaction write these three.
type CompactionStart struct {
	CompactionID string `json:"compactionId"`
	Reason       string `json:"reason,omitempty"`
}

// CompactionSummary replaces every history entry that stands before KeepFrom (a seq) with Message.
type CompactionSummary struct {
	CompactionID string        `json:"compactionId"`
	Message      model.Message `json:"message"`
	KeepFrom     int64         `json:"keepFrom"`
	Usage        *model.Usage  `json:"usage,omitempty"`
}

// CompactionEnd closes a compaction. Failure is set when it changed nothing.
type CompactionEnd struct {
	CompactionID string   `json:"compactionId"`
	Failure      *Failure `json:"failure,omitempty"`
}

// The event types.
func (ApprovalAsked) EventType() string     { return "approval/asked" }
func (ApprovalDecided) EventType() string   { return "approval/decided" }
func (ApprovalRevoked) EventType() string   { return "approval/revoked" }
func (ApprovalPolicy) EventType() string    { return "approval/policy" }
func (SandboxMode) EventType() string       { return "sandbox/mode" }
func (TodoWrite) EventType() string         { return "todo/write" }
func (CompactionStart) EventType() string   { return "compaction/start" }
func (CompactionSummary) EventType() string { return "compaction/summary" }
func (CompactionEnd) EventType() string     { return "compaction/end" }

// DecodePayload reads the data of e into the payload of its type, a struct value. ok is false when the type is unknown.
func DecodePayload(e Event) (p Payload, ok bool, err error) {
	if p, ok := decodeFast(e.Type, e.Data); ok {
		return p, true, nil
	}
	d := decoderOf(e.Type)
	if d == nil {
		return nil, false, nil
	}
	p, err = d(e.Data)
	if err != nil {
		return nil, true, fmt.Errorf("decode data of event %d, %s: %w", e.Seq, e.Type, err)
	}
	return p, true, nil
}

func decode[P Payload](data json.RawMessage) (Payload, error) {
	var p P
	err := json.Unmarshal(data, &p)
	return p, err
}

// decoderOf is the vocabulary: nil for a type it lacks.
func decoderOf(eventType string) func(json.RawMessage) (Payload, error) {
	switch eventType {
	case "agent/inbox/spliced":
		return decode[InboxSpliced]
	case "turn/start":
		return decode[TurnStart]
	case "turn/end":
		return decode[TurnEnd]
	case "step/start":
		return decode[StepStart]
	case "step/end":
		return decode[StepEnd]
	case "user/message":
		return decode[UserMessage]
	case "request/header":
		return decode[RequestHeader]
	case "request/context":
		return decode[RequestContext]
	case "request/sent":
		return decode[RequestSent]
	case "assistant/message":
		return decode[AssistantMessage]
	case "tool/call":
		return decode[ToolCall]
	case "tool/result":
		return decode[ToolResult]
	case "llm/retry":
		return decode[Retry]
	case "llm/retry-started":
		return decode[RetryStarted]
	case "approval/asked":
		return decode[ApprovalAsked]
	case "approval/decided":
		return decode[ApprovalDecided]
	case "approval/revoked":
		return decode[ApprovalRevoked]
	case "approval/policy":
		return decode[ApprovalPolicy]
	case "sandbox/mode":
		return decode[SandboxMode]
	case "agent-preset/selected":
		return decode[PresetSelected]
	case "session/title":
		return decode[Title]
	case "session/end-seed":
		return decode[EndSeed]
	case "todo/write":
		return decode[TodoWrite]
	case "compaction/start":
		return decode[CompactionStart]
	case "compaction/summary":
		return decode[CompactionSummary]
	case "compaction/end":
		return decode[CompactionEnd]
	case "shell/reset":
		return decode[ShellReset]
	case "shell/taken":
		return decode[ShellTaken]
	case "agent/evicted":
		return decode[AgentEvicted]
	}
	return nil
}

// eventTypeName turns b into a string, without an allocation for the types that make up most of a log.
func eventTypeName(b []byte) string {
	switch string(b) {
	case "agent/inbox/spliced":
		return "agent/inbox/spliced"
	case "turn/start":
		return "turn/start"
	case "turn/end":
		return "turn/end"
	case "step/start":
		return "step/start"
	case "step/end":
		return "step/end"
	case "user/message":
		return "user/message"
	case "request/sent":
		return "request/sent"
	case "assistant/message":
		return "assistant/message"
	case "tool/call":
		return "tool/call"
	case "tool/result":
		return "tool/result"
	}
	return string(b)
}
