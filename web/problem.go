package web

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web/guard"
)

// The codes that this package adds to the host's.
const (
	codeRouteNotFound  = "route-not-found"
	codeMethod         = "method-not-allowed"
	codeBadJSON        = "bad-json"
	codeValidation     = "validation"
	codeUnauthorized   = "unauthorized"
	codeTooLarge       = "too-large"
	codeMediaType      = "media-type"
	codeNotAcceptable  = "not-acceptable"
	codeLimit          = "limit"
	codeInternal       = "internal"
	codeCursorAhead    = "cursor-ahead"
	codeTokenNotFound  = "token-not-found"
	codeStorage        = "storage"
	codeSessionReading = "session-damaged"
)

// statusOf is the one table from codes to HTTP status. A code that isn't here is a 500.
func statusOf(code string) int {
	switch code {
	case codeBadJSON:
		return http.StatusBadRequest
	case codeUnauthorized:
		return http.StatusUnauthorized
	case host.CodeSessionNotFound, codeRouteNotFound, host.CodeMessageNotFound, host.CodeAttachmentNotFound, codeTokenNotFound,
		host.CodeApprovalNotFound, host.CodeGrantNotFound, "provider-not-found", "path-not-found":
		return http.StatusNotFound
	case codeMethod:
		return http.StatusMethodNotAllowed
	case codeNotAcceptable:
		return http.StatusNotAcceptable
	case host.CodeSessionConflict, host.CodeSessionRunning, host.CodeSessionDamaged, host.CodePresetLocked, host.CodeMessageStarted,
		host.CodeNotConfined, host.CodeForkPoint, host.CodeReadOnly, host.CodeApprovalSettled, host.CodeApprovalChanged, "preset-exists", "preset-shipped":
		return http.StatusConflict
	case codeTooLarge:
		return http.StatusRequestEntityTooLarge
	case codeMediaType:
		return http.StatusUnsupportedMediaType
	case host.CodeValidation, host.CodeIDInvalid, host.CodeWorkspaceInvalid, host.CodePresetNotFound, host.CodePresetBroken, host.CodePresetChanged,
		"sandbox-unavailable", codeCursorAhead:
		return http.StatusUnprocessableEntity
	case host.CodeLimit:
		return http.StatusTooManyRequests
	case host.CodeDraining:
		return http.StatusServiceUnavailable
	case codeStorage:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// codeOf names what huma refuses by status alone.
func codeOf(status int) string {
	switch status {
	case http.StatusBadRequest:
		return codeBadJSON
	case http.StatusUnprocessableEntity:
		return codeValidation
	case http.StatusNotAcceptable:
		return codeNotAcceptable
	case http.StatusRequestEntityTooLarge:
		return codeTooLarge
	case http.StatusUnsupportedMediaType:
		return codeMediaType
	}
	return codeInternal
}

// refuse makes a refusal of this package.
func refuse(code, message string) error { return &host.Error{Code: code, Message: message} }

// problem turns an error of a handler into what the client is told. What it doesn't know is logged and told as an internal error.
func (s *Server) problem(ctx context.Context, operation string, err error) *guard.Problem {
	var p *guard.Problem
	if errors.As(err, &p) {
		return p
	}
	if e := known(err); e != nil {
		return &guard.Problem{Status: statusOf(e.Code), Code: e.Code, Detail: e.Message, More: free(e.Fields)}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return &guard.Problem{Status: 499, Title: "Client Closed Request", Code: "cancelled", Detail: "The request ended."}
	}
	s.log.Error("request failed", "operation", operation, "error", err)
	internal := internalProblem()
	return &internal
}

// known gives the refusal in err, if it is one that a client can act on.
func known(err error) *host.Error {
	var e *host.Error
	var damage *session.DamageError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, session.ErrNotFound):
		return &host.Error{Code: host.CodeSessionNotFound, Message: "There is no such session."}
	case errors.As(err, &damage):
		return &host.Error{Code: codeSessionReading, Message: damage.Error() + "."}
	case errors.Is(err, session.ErrReadOnly):
		return &host.Error{Code: codeSessionReading, Message: "The session is damaged and read-only."}
	case errors.Is(err, session.ErrCursorAhead):
		return &host.Error{Code: codeCursorAhead, Message: "The cursor is beyond the end of the log: it belongs to another or a restored database. Load the session again."}
	}
	return nil
}

// free renames facts that would collide with a problem's own members.
func free(fields map[string]any) map[string]any {
	if len(fields) == 0 {
		return nil
	}
	out := maps.Clone(fields)
	for _, own := range []string{"status", "title", "code", "detail", "errors", "type", "instance"} {
		delete(out, own)
	}
	return out
}

func routeNotFound() guard.Problem {
	return guard.Problem{Status: http.StatusNotFound, Code: codeRouteNotFound, Detail: "There is nothing at this address."}
}

func internalProblem() guard.Problem {
	return guard.Problem{Status: http.StatusInternalServerError, Code: codeInternal,
		Detail: "The host failed; its log says why, under this answer's X-Request-Id."}
}
