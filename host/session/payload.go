package session

import (
	"encoding/json"

	"github.com/dsh-web/dsh-web/host/model"
)

// The targets of queued messages.
const (
	TargetNextTurn = "next-turn" // its own turn, after those before it
	TargetNextStep = "next-step" // steers the running turn at its next step
)

// InboxSpliced changes the queue of Target: at index Start, RemovedCount messages leave and Inserted enter. Outcome says what became of the
// removed ones: claimed, cancelled, edited, removed, promoted.
type InboxSpliced struct {
	Target       string          `json:"target"`
	Start        int             `json:"start"`
	RemovedCount int             `json:"removedCount,omitempty"`
	Inserted     []model.Message `json:"inserted"`
	Outcome      string          `json:"outcome,omitempty"`
}

// TurnStart opens turn Turn, counted from 1.
type TurnStart struct {
	Turn int `json:"turn"`
}

// TurnEnd closes a turn with its reason.
type TurnEnd struct {
	Turn   int    `json:"turn"`
	Reason Reason `json:"reason"`
}

// The kinds of a turn's end.
const (
	EndCompleted   = "completed"
	EndAborted     = "aborted"
	EndBlocked     = "blocked"
	EndError       = "error"
	EndMaxTokens   = "max-tokens"
	EndMaxSteps    = "max-steps"
	EndContextFull = "context-full"
	EndTimeout     = "timeout"
	EndInterrupted = "interrupted"
)

// Reason is why a turn ended: a kind, a machine code and a sentence. By is set for aborted: user, parent, disposed, shutdown.
type Reason struct {
	Kind    string `json:"kind"`
	By      string `json:"by,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Status  int    `json:"status,omitempty"`
}

// StepStart opens step Step of turn Turn, both counted from 1. A step is one model answer and the tool calls it asks for.
type StepStart struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// StepEnd closes a step.
type StepEnd struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// UserMessage puts a message into the model's history.
type UserMessage struct {
	model.Message
}

// RequestConfig is the call configuration recorded with a request header.
type RequestConfig struct {
	Provider        string                     `json:"provider"`
	Model           string                     `json:"model"`
	MaxTokens       int                        `json:"maxTokens,omitempty"`
	ReasoningEffort string                     `json:"reasoningEffort,omitempty"`
	Thinking        bool                       `json:"thinking,omitempty"`
	Params          map[string]json.RawMessage `json:"params,omitempty"`
}

// RequestHeader records the exact system text, tool schemas and call parameters whenever they change. Reason: initial, resume, change.
type RequestHeader struct {
	Header struct {
		Config RequestConfig `json:"config"`
		System string        `json:"system"`
		Tools  []model.Tool  `json:"tools"`
	} `json:"header"`
	Reason string `json:"reason"`
}

// RequestContext records the capacity of the route in use.
type RequestContext struct {
	Provider      string `json:"provider"`
	Model         string `json:"model"`
	ContextWindow int    `json:"contextWindow,omitempty"`
}

// RequestSent is committed before a request leaves. BodySHA256 is taken over the exact body, PrefixSHA256 over the canonical form of
// {system, tools, messages[:n]}, n being the message count of the request before. Contiguous says that this request extends that one
// byte for byte; DivergesAt names where it doesn't: "encoder", "system", "tools", "messages[3]", or "" when that is not known.
type RequestSent struct {
	Turn         int    `json:"turn"`
	Step         int    `json:"step"`
	Attempt      int    `json:"attempt"`
	Encoder      string `json:"encoder"`
	BodySHA256   string `json:"bodySha256"`
	PrefixSHA256 string `json:"prefixSha256"`
	// ChainSHA256 is the canonical hash of the whole {system, tools, messages}; the next request's prefix is compared with it.
	ChainSHA256 string `json:"chainSha256"`
	Messages    int    `json:"messages"`
	Bytes       int    `json:"bytes"`
	Contiguous  bool   `json:"contiguous"`
	DivergesAt  string `json:"divergesAt,omitempty"`
}

// Timing of a model call in milliseconds.
type Timing struct {
	TTFTMs  int64 `json:"ttftMs"`
	TotalMs int64 `json:"totalMs"`
}

// AssistantMessage is the model's answer of a step. Interrupted marks one that was cut by a cancel, an error or a crash.
type AssistantMessage struct {
	Turn        int             `json:"turn"`
	Step        int             `json:"step"`
	Message     model.Message   `json:"message"`
	Usage       *model.Usage    `json:"usage,omitempty"`
	Timing      Timing          `json:"timing"`
	Stop        string          `json:"stop,omitempty"`
	Interrupted bool            `json:"interrupted,omitempty"`
	Tokens      json.RawMessage `json:"tokens,omitempty"`
}

// ToolCall is committed before the tool runs. Arguments is the raw text the model wrote.
type ToolCall struct {
	Turn      int    `json:"turn"`
	Step      int    `json:"step"`
	CallID    string `json:"callId"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolError names a tool's failure for programs.
type ToolError struct {
	Name string `json:"name"`
	Code string `json:"code"`
}

// ToolResult answers a call. Message has role user, source tool, and one tool-result block. Meta is for the UI only: diff, exit code,
// left-over processes, durations.
type ToolResult struct {
	Turn    int             `json:"turn"`
	Step    int             `json:"step"`
	Message model.Message   `json:"message"`
	Error   *ToolError      `json:"error,omitempty"`
	Meta    json.RawMessage `json:"meta,omitempty"`
}

// Retry announces a retry of a failed model call after DelayMs.
type Retry struct {
	RetryID    string  `json:"retryId"`
	Turn       int     `json:"turn"`
	Step       int     `json:"step"`
	Provider   string  `json:"provider"`
	Retry      int     `json:"retry"`
	MaxRetries int     `json:"maxRetries"`
	DelayMs    int64   `json:"delayMs"`
	Failure    Failure `json:"failure"`
}

// Failure is a failed model call as the log tells it.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status,omitempty"`
}

// RetryStarted says that the wait of RetryID is over.
type RetryStarted struct {
	RetryID string `json:"retryId"`
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
}

// PresetSelected records a switch of a blank session's preset.
type PresetSelected struct {
	AgentPreset PresetRef `json:"agentPreset"`
}

// Title sets the session's title.
type Title struct {
	Title string `json:"title"`
}

// EndSeed closes the copied part of a fork.
type EndSeed struct{}

// ShellReset says that the agent's shell is a new one. Cause: resume, restart, exited, killed, timeout.
type ShellReset struct {
	Cause string `json:"cause"`
	Note  string `json:"note,omitempty"`
}

// ShellTaken says that a person used the shell's keyboard; Bytes counts what they typed.
type ShellTaken struct {
	By    string `json:"by"`
	Bytes int64  `json:"bytes"`
}

// AgentEvicted says that an idle agent was closed; the log stays.
type AgentEvicted struct {
	IdleMs int64 `json:"idleMs"`
}

// The event types.
func (InboxSpliced) EventType() string     { return "agent/inbox/spliced" }
func (TurnStart) EventType() string        { return "turn/start" }
func (TurnEnd) EventType() string          { return "turn/end" }
func (StepStart) EventType() string        { return "step/start" }
func (StepEnd) EventType() string          { return "step/end" }
func (UserMessage) EventType() string      { return "user/message" }
func (RequestHeader) EventType() string    { return "request/header" }
func (RequestContext) EventType() string   { return "request/context" }
func (RequestSent) EventType() string      { return "request/sent" }
func (AssistantMessage) EventType() string { return "assistant/message" }
func (ToolCall) EventType() string         { return "tool/call" }
func (ToolResult) EventType() string       { return "tool/result" }
func (Retry) EventType() string            { return "llm/retry" }
func (RetryStarted) EventType() string     { return "llm/retry-started" }
func (PresetSelected) EventType() string   { return "agent-preset/selected" }
func (Title) EventType() string            { return "session/title" }
func (EndSeed) EventType() string          { return "session/end-seed" }
func (ShellReset) EventType() string       { return "shell/reset" }
func (ShellTaken) EventType() string       { return "shell/taken" }
func (AgentEvicted) EventType() string     { return "agent/evicted" }

// Ours, unknown to the reference vocabulary.
func (RequestSent) Ignorable() bool  { return true }
func (ShellReset) Ignorable() bool   { return true }
func (ShellTaken) Ignorable() bool   { return true }
func (AgentEvicted) Ignorable() bool { return true }
