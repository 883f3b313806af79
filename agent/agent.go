// Package agent drives one session: its inbox, turns, steps, tool calls, retries and cancellation.
//
// One loop goroutine owns the turn. Everybody else changes the log through Log.Update and pokes the loop. Guarantees: every turn that
// starts ends with a logged reason, on every path; messages are taken in order, one turn each; a tool call is durable before the tool
// runs and is never run again; what the model is sent is in the log before it is sent.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

// Limits bound a turn. Zero fields don't.
type Limits struct {
	Steps  int           // model answers in one turn
	Time   time.Duration // wall clock of one turn
	Tokens int64         // input and output tokens of the whole session
}

// Config is what an agent is made of. Everything but Attachments, Secrets, Violation and Limits is required.
type Config struct {
	// Scope owns the agent; its loop and its tool calls end with it.
	Scope *scope.Scope
	// View is the mounted preset: the scope whose sections, tools and guards the agent sees. It changes only while the session is blank.
	View   func() *scope.Scope
	Log    *session.Log
	Prompt *prompt.Registry
	Tools  *tools.Registry
	// Route resolves the session's model. It is asked before every request.
	Route func() (model.Route, model.Selection, error)
	// Attachments loads and keeps image bytes. Nil: the agent has no images.
	Attachments Attachments
	// Secrets lists what tools' results may not hold, longest first. Nil: nothing.
	Secrets func() []string
	Limits  func() Limits // nil: none
	// KeepRecorded makes a resumed session go on with the system text and tools of its log, whatever the preset says by now.
	KeepRecorded bool
	// Violation hears of prompt bytes that changed after the first request; tests make it fatal.
	Violation func(error)
	Logger    *slog.Logger
}

// ErrNoAttachment says that an attachment's bytes aren't here, for example since its session was imported without them.
var ErrNoAttachment = errors.New("there is no such attachment")

// Attachments keeps the bytes of images outside the log.
type Attachments interface {
	// Load reads an image; ErrNoAttachment.
	Load(ctx context.Context, id string) (data []byte, mime string, err error)
	Keep(ctx context.Context, mime string, data []byte) (id string, err error)
}

// Who ended a turn that was aborted.
const (
	ByUser     = "user"
	ByDisposed = "disposed"
	ByShutdown = "shutdown"
)

// abort is the cause of a cancelled turn.
type abort struct{ by string }

func (a abort) Error() string { return "aborted by " + a.by }

var errTurnTime = errors.New("the turn's time is used up")

// Agent is the driver of one live session.
type Agent struct {
	cfg    Config
	log    *session.Log
	runner tools.Runner
	wake   chan struct{} // one token: something may be queued
	offers chan *offer   // to a loop that waits

	mu     sync.Mutex
	turn   context.CancelCauseFunc // of the turn in progress, nil between turns
	begins string                  // the id of the message that the turn begins with, once it is about to be claimed
	parked bool                    // no further step or turn starts
	held   bool                    // no turn starts until the holder lets go
	closed string                  // who closes the agent, "" while it lives

	// Owned by the loop.
	frozen prompt.Frozen
	prev   *model.Prepared // what was sent last, without its body
	calls  int             // model calls since the agent was made live
	// seen is the history that the last request without images began with, view all its messages.
	seen []session.HistoryEntry
	view []model.Message
}

// New makes an agent; Start lets it run.
func New(cfg Config) *Agent {
	a := &Agent{cfg: cfg, log: cfg.Log, wake: make(chan struct{}, 1), offers: make(chan *offer)}
	a.runner = tools.Runner{Registry: cfg.Tools, Scope: cfg.Scope, View: cfg.View, Secrets: cfg.Secrets, Report: func(call tools.Call, problem string) {
		cfg.Logger.Error("tool call", "session", cfg.Log.ID(), "tool", call.Name, "call", call.ID, "problem", problem)
	}}
	return a
}

// Start begins the loop, which takes up what is queued.
func (a *Agent) Start() error {
	return a.cfg.Scope.Go("agent loop", a.loop)
}

// Wake tells the loop to look at the queue. It is false when the agent is closing and won't look any more.
func (a *Agent) Wake() bool {
	select {
	case a.wake <- struct{}{}:
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed == ""
}

// Hold keeps turns from starting until release is called. It is refused while a turn runs or begins, and while somebody else holds.
func (a *Agent) Hold() (release func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turn != nil || a.held {
		return nil, false
	}
	a.held = true
	return sync.OnceFunc(func() {
		a.mu.Lock()
		a.held = false
		a.mu.Unlock()
		a.Wake()
	}), true
}

// Stop ends the turn in progress for the given reason (ByDisposed, ByShutdown) and lets no other one start. It doesn't wait; closing the
// scope does.
func (a *Agent) Stop(by string) {
	a.mu.Lock()
	if a.closed == "" {
		a.closed = by
	}
	cancel := a.turn
	a.mu.Unlock()
	if cancel != nil {
		cancel(abort{by})
	}
}

// Park lets the running step finish and starts nothing after it. Queued messages stay queued.
func (a *Agent) Park() {
	a.mu.Lock()
	a.parked = true
	a.mu.Unlock()
}

// Idle says whether no turn runs and none is due.
func (a *Agent) Idle() bool {
	due := due(a.log.State()) // first: a message that leaves the queue after this is in a turn that the next line sees
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turn == nil && !due
}

// due says whether st holds work for the loop.
func due(st session.State) bool {
	return st.Damage == "" && len(st.NextTurn)+len(st.NextStep) > 0
}

func (a *Agent) loop(ctx context.Context) error {
	var o *offer
	for {
		for o != nil || due(a.log.State()) {
			ran := a.runTurn(ctx, o)
			if o = nil; !ran {
				break
			}
		}
		select {
		case <-a.wake:
		case o = <-a.offers:
		case <-ctx.Done():
			return nil
		}
	}
}

// begin reserves the turn: from here on Cancel reaches it, even before its first event.
func (a *Agent) begin(ctx context.Context) (context.Context, context.CancelCauseFunc, bool) {
	turnCtx, cancel := context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parked || a.held || a.closed != "" || ctx.Err() != nil {
		cancel(nil)
		return nil, nil, false
	}
	a.turn = cancel
	return turnCtx, cancel, true
}

// beginsWith notes whose turn this is, before the log says so.
func (a *Agent) beginsWith(message string) {
	a.mu.Lock()
	a.begins = message
	a.mu.Unlock()
}

func (a *Agent) end(cancel context.CancelCauseFunc) {
	a.mu.Lock()
	a.turn, a.begins = nil, ""
	a.mu.Unlock()
	cancel(nil)
}

func (a *Agent) isParked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parked
}

func (a *Agent) limits() Limits {
	if a.cfg.Limits == nil {
		return Limits{}
	}
	return a.cfg.Limits()
}

// closer says who closes the agent.
func (a *Agent) closer() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed == "" {
		return ByDisposed
	}
	return a.closed
}

// endOf turns the end of a turn's context into its reason.
func (a *Agent) endOf(ctx context.Context) session.Reason {
	cause := context.Cause(ctx)
	var ab abort
	switch {
	case errors.Is(cause, errTurnTime):
		return session.Reason{Kind: session.EndTimeout, Code: "TURN_TIME", Message: fmt.Sprintf("The turn took longer than its limit of %s.", a.limits().Time)}
	case errors.As(cause, &ab):
		return aborted(ab.by)
	}
	return aborted(a.closer())
}

func aborted(by string) session.Reason {
	message := "The turn was cancelled."
	switch by {
	case ByShutdown:
		message = "The host shut down."
	case ByDisposed:
		message = "The agent was closed."
	}
	return session.Reason{Kind: session.EndAborted, By: by, Code: "ABORTED", Message: message}
}

// NewID makes an id for a message: unique, and sorted by time.
func NewID(prefix string) string {
	return prefix + uuid.Must(uuid.NewV7()).String()
}

func roll() float64 { return rand.Float64() }
