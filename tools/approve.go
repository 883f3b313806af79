package tools

import (
	"context"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/approval"
)

//go:embed approve.md
var approveText string

// The codes of calls that needed leave and didn't get it.
const (
	CodeDenied      = "DENIED"
	CodeExpired     = "EXPIRED"
	CodeUnavailable = "UNAVAILABLE"
)

// Approve is a guard that asks at the desk before a call of the named tools runs. Only an allowed call runs, with exactly the arguments that
// were asked about. cwd, the workspace, and reason are shown to the owner; expire 0 is the desk's default.
func Approve(desk *approval.Desk, named []string, cwd, reason string, expire time.Duration) Guard {
	return func(ctx context.Context, call Call, next func(context.Context, Call) (Result, error)) (Result, error) {
		if !slices.Contains(named, call.Name) {
			return next(ctx, call)
		}
		decision := desk.Ask(ctx, approval.Request{
			Kind: approval.Approval, Tool: call.Name, CallID: call.ID, Arguments: string(call.Arguments), Cwd: cwd,
			Reason: strings.ReplaceAll(reason, "{{tool}}", call.Name), Expire: expire,
		})
		if decision.Allowed() {
			return next(ctx, call)
		}
		return Refused(call.Name, decision), nil
	}
}

// Refused is the result of a call that didn't get leave. Whatever isn't known denies.
func Refused(tool string, d approval.Decision) Result {
	section, code := "unavailable", CodeUnavailable
	switch d.Outcome {
	case approval.Rejected:
		section, code = "rejected", CodeDenied
		switch {
		case d.By == approval.ByPolicy:
			section = "policy"
		case d.Reason != "":
			section = "rejected because"
		}
	case approval.Cancelled:
		section, code = "cancelled", CodeCancelled
	case approval.Expired:
		section, code = "expired", CodeExpired
	}
	_, text, _ := strings.Cut(approveText, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return ErrorResult(tool, code, strings.ReplaceAll(strings.TrimSpace(text), "{{reason}}", d.Reason))
}
