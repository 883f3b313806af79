package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
)

// Guard stands around a call. It either answers itself or calls next.
type Guard = func(ctx context.Context, call Call, next func(context.Context, Call) (Result, error)) (Result, error)

// The codes of results that the pipeline itself gives.
const (
	CodeUnknownTool  = "UNKNOWN_TOOL"
	CodeBadArguments = "BAD_ARGUMENTS"
	CodePanic        = "PANIC"
	CodeFailed       = "FAILED"
	CodeCancelled    = "CANCELLED"
	CodeStuck        = "STUCK"
)

// stopGrace is how long a cancelled tool may take to hand in what it has. The shell's own ladder needs about two seconds.
const stopGrace = 10 * time.Second

// Runner sends one agent's calls through the pipeline.
type Runner struct {
	Registry *Registry
	// Scope owns the goroutines of running calls.
	Scope *scope.Scope
	// View is the scope whose guards stand around the calls.
	View func() *scope.Scope
	// Secrets lists what may not leave, longest first; every call asks anew. Nil means that there are none.
	Secrets func() []string
	// Report hears of panics and stuck tools, with the stack. Nil drops them.
	Report func(call Call, problem string)
}

// Run executes one call among the given tools and always returns a result. When ctx ends, the tool is told, and waited for a bounded time.
func (r *Runner) Run(ctx context.Context, set []Tool, call session.ToolCall, output io.Writer) Result {
	return r.redact(r.run(ctx, set, call, output))
}

func (r *Runner) run(ctx context.Context, set []Tool, asked session.ToolCall, output io.Writer) Result {
	tool, ok := find(set, asked.Name)
	if !ok {
		return ErrorResult(asked.Name, CodeUnknownTool, fmt.Sprintf("There is no tool named %q. The tools are: %s.", asked.Name, names(set)))
	}
	arguments, err := object(asked.Arguments)
	if err != nil {
		return ErrorResult(tool.Name, CodeBadArguments, fmt.Sprintf("The arguments of %s %v.", tool.Name, err))
	}
	if output == nil {
		output = io.Discard
	}
	var after []func()
	call := Call{
		ID: asked.CallID, Name: tool.Name, Arguments: arguments, Output: r.guardOutput(output),
		After: func(do func()) { after = append(after, do) },
	}

	done := make(chan Result, 1)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = r.Scope.Go("tool "+tool.Name+" "+asked.CallID, func(closing context.Context) error {
		stop := context.AfterFunc(closing, cancel)
		defer stop()
		done <- r.guarded(runCtx, tool, call)
		if len(after) > 0 {
			runtime.Gosched() // whoever waits for the result goes first, not behind a system call
		}
		for _, do := range after {
			do()
		}
		return nil
	})
	if err != nil {
		return ErrorResult(tool.Name, CodeCancelled, "The agent is closing; the tool did not run.")
	}
	select {
	case res := <-done:
		return res
	case <-runCtx.Done():
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case res := <-done:
		return res
	case <-grace.C:
		r.report(call, "did not stop within "+stopGrace.String()+" of its cancel")
		return ErrorResult(tool.Name, CodeStuck, "The tool was cancelled and did not stop; its outcome is unknown.")
	}
}

// guarded runs the tool inside its guards. A panic anywhere inside is a result.
func (r *Runner) guarded(ctx context.Context, tool Tool, call Call) Result {
	ran := false
	res, err := r.Registry.sentries.Run(ctx, r.View(), call, func(ctx context.Context, call Call) (res Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				r.report(call, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
				res = ErrorResult(tool.Name, CodePanic, "The tool failed inside; what it had done by then is unknown.")
			}
		}()
		ran = true
		return tool.Run(ctx, call), nil
	})
	if err == nil {
		return res
	}
	r.report(call, err.Error())
	var inside guardPanic
	switch {
	case errors.As(err, &inside): // its text has a stack, which is no concern of the model's
		return ErrorResult(tool.Name, CodePanic, "What watches over the tool failed inside; whether the tool ran is unknown.")
	case ran:
		return ErrorResult(tool.Name, CodeFailed, "The call failed after the tool ran: "+err.Error())
	}
	return ErrorResult(tool.Name, CodeFailed, "The call was stopped before the tool ran: "+err.Error())
}

func (r *Runner) report(call Call, problem string) {
	if r.Report != nil {
		r.Report(call, problem)
	}
}

func find(set []Tool, name string) (Tool, bool) {
	for _, t := range set {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}
