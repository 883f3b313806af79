package model

import (
	"fmt"
	"time"
)

// Code classifies a failed model call.
type Code string

// The codes of failed model calls.
const (
	CodeAuth              Code = "AUTH"
	CodeQuota             Code = "QUOTA"
	CodeRateLimit         Code = "RATE_LIMIT"
	CodeInvalidRequest    Code = "INVALID_REQUEST"
	CodeContextWindow     Code = "CONTEXT_WINDOW_EXCEEDED"
	CodeServer            Code = "SERVER"
	CodeTimeout           Code = "TIMEOUT"
	CodeTransport         Code = "TRANSPORT"
	CodeEmptyResponse     Code = "EMPTY_RESPONSE"
	CodeMalformedResponse Code = "MALFORMED_RESPONSE"
	CodeStreamClosed      Code = "STREAM_CLOSED"
	CodeContentFilter     Code = "CONTENT_FILTER"
	CodeMissingCredential Code = "MISSING_CREDENTIAL"
	CodeInvalidCredential Code = "INVALID_CREDENTIAL"
	CodeAborted           Code = "ABORTED"
)

// Error is a failed model call. Its text names where and what, never a secret.
type Error struct {
	Code     Code
	Message  string
	Provider string
	URL      string // without query and credentials
	Status   int    // HTTP status, 0 when none was received
	// RetryAfter is what the server asked for; 0 when it didn't.
	RetryAfter time.Duration
	RequestID  string
	// ReasoningForm marks a 400 about the reasoning field, which one repaired request may answer.
	ReasoningForm bool
	Err           error
}

// Error says what failed in one sentence.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable says whether the same request may be sent again. STREAM_CLOSED and MALFORMED_RESPONSE count since tools only run after a
// stream has ended well.
func (e *Error) Retryable() bool {
	switch e.Code {
	case CodeEmptyResponse, CodeRateLimit, CodeServer, CodeTimeout, CodeTransport, CodeStreamClosed, CodeMalformedResponse:
		return true
	}
	return false
}
