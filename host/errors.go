package host

import "fmt"

// The codes of refusals. Each has one HTTP status, given by the API's table.
const (
	CodeSessionNotFound    = "session-not-found"
	CodeSessionConflict    = "session-conflict"
	CodeSessionRunning     = "session-running"
	CodeSessionDamaged     = "session-damaged"
	CodeIDInvalid          = "id-invalid"
	CodeWorkspaceInvalid   = "workspace-invalid"
	CodePresetNotFound     = "preset-not-found"
	CodePresetBroken       = "preset-broken"
	CodePresetChanged      = "preset-changed"
	CodePresetLocked       = "preset-locked"
	CodeMessageStarted     = "message-started"
	CodeMessageNotFound    = "message-not-found"
	CodeNotConfined        = "not-confined"
	CodeValidation         = "validation"
	CodeLimit              = "limit"
	CodeDraining           = "draining"
	CodeAttachmentNotFound = "attachment-not-found"
	CodeForkPoint          = "fork-point"
	CodeReadOnly           = "read-only"
	CodeApprovalNotFound   = "approval-not-found"
	CodeApprovalSettled    = "approval-settled"
	CodeApprovalChanged    = "approval-changed"
	CodeGrantNotFound      = "grant-not-found"
)

// Error is a refusal that a client can act on: a code, a sentence that says what to do, and facts.
type Error struct {
	Code    string
	Message string
	Fields  map[string]any
}

// Error is the sentence.
func (e *Error) Error() string { return e.Message }

func refuse(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) with(key string, value any) *Error {
	if e.Fields == nil {
		e.Fields = map[string]any{}
	}
	e.Fields[key] = value
	return e
}
