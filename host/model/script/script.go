// Package script is a model that follows a script: for tests, for the demo that works without a key, and for chaos.
//
// A Model is a model.Adapter; Handler serves the same turns over real HTTP in the chat-completions form. Nothing here is random and nothing
// sleeps unless a step says so; every wait ends at once with its context.
package script

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
)

// Step is one thing that happens in a scripted answer. Make steps with the functions below.
type Step struct {
	kind  stepKind
	text  string
	id    string
	name  string
	err   *model.Error
	stop  model.StopReason
	usage model.Usage
	delay time.Duration
	wait  <-chan struct{}
	do    func()
	raw   []byte
	count int
	http  httpHead
}

type stepKind int

const (
	stepText stepKind = iota + 1
	stepReasoning
	stepCall
	stepFail
	stepStall
	stepCut
	stepPause
	stepWait
	stepDo
	stepStop
	stepRepeat
	stepReset
	stepUsage
	stepRaw
	stepHead
)

type httpHead struct {
	status int
	header http.Header
}

// Turn is one scripted answer. Without a Stop step it ends with tool calls when it holds any, else with stop.
type Turn []Step

// Text streams s as one piece. Several Text steps in a row are several pieces of one block.
func Text(s string) Step { return Step{kind: stepText, text: s} }

// Pieces streams s in pieces of n runes.
func Pieces(s string, n int) []Step {
	var out []Step
	runes := []rune(s)
	for len(runes) > 0 {
		k := min(max(n, 1), len(runes))
		out = append(out, Text(string(runes[:k])))
		runes = runes[k:]
	}
	return out
}

// Reasoning streams s as one piece of reasoning.
func Reasoning(s string) Step { return Step{kind: stepReasoning, text: s} }

// Call is a tool call in one piece. args is JSON text, or any text for a broken call. An empty id is filled in.
func Call(id, name, args string) Step { return Step{kind: stepCall, id: id, name: name, text: args} }

// CallJSON is a tool call whose arguments are encoded from v.
func CallJSON(id, name string, v any) Step {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return Fail(&model.Error{Code: model.CodeInvalidRequest, Message: err.Error(), Err: err})
	}
	return Call(id, name, strings.TrimSpace(out.String()))
}

// Fail ends the answer with an error. Over HTTP, before any other step, it is a response with the error's status.
func Fail(err *model.Error) Step { return Step{kind: stepFail, err: err} }

// Stall says nothing more until the caller gives up.
func Stall() Step { return Step{kind: stepStall} }

// Cut ends the stream without a finish reason.
func Cut() Step { return Step{kind: stepCut} }

// Reset breaks the connection off. To an adapter it is a transport error.
func Reset() Step { return Step{kind: stepReset} }

// Repeat streams s n times, one piece each, as fast as possible. Over HTTP the pieces are flushed when the buffer is full and at the end.
func Repeat(n int, s string) Step { return Step{kind: stepRepeat, count: n, text: s} }

// Pause waits for a time.
func Pause(d time.Duration) Step { return Step{kind: stepPause, delay: d} }

// Wait waits until c is closed or gives a value.
func Wait(c <-chan struct{}) Step { return Step{kind: stepWait, wait: c} }

// Do calls f when the answer gets here, for example to close a channel that a test waits on.
func Do(f func()) Step { return Step{kind: stepDo, do: f} }

// Stop sets the reason with which the answer ends.
func Stop(r model.StopReason) Step { return Step{kind: stepStop, stop: r} }

// Usage reports u at the end.
func Usage(u model.Usage) Step { return Step{kind: stepUsage, usage: u} }

// Raw writes bytes to the HTTP response exactly so and flushes them. It makes the handler add nothing of its own to this answer. Only Handler
// knows it.
func Raw(s string) Step { return Step{kind: stepRaw, raw: []byte(s)} }

// Head sets status and headers of the HTTP response; it must be the first step. Only Handler knows it.
func Head(status int, header http.Header) Step {
	return Step{kind: stepHead, http: httpHead{status: status, header: header}}
}

// Source gives the turn that answers a request. An error that isn't a *model.Error fails the call as INVALID_REQUEST.
type Source func(r model.Request) (Turn, error)

// ErrExhausted says that a script has no turn left.
var ErrExhausted = errors.New("the script has no turn left")

// Sequence answers the n-th call with the n-th turn, whoever calls: a retry gets the next turn. It is safe for concurrent use.
func Sequence(turns ...Turn) Source {
	var mu sync.Mutex
	next := 0
	return func(model.Request) (Turn, error) {
		mu.Lock()
		defer mu.Unlock()
		if next >= len(turns) {
			return nil, ErrExhausted
		}
		next++
		return turns[next-1], nil
	}
}

// ByHistory answers a request that holds n assistant messages with turn n, the last turn over and over. It has no state: many sessions can share it.
func ByHistory(turns ...Turn) Source {
	return func(r model.Request) (Turn, error) {
		n := 0
		for _, m := range r.Messages {
			if m.Role == model.RoleAssistant {
				n++
			}
		}
		if len(turns) == 0 {
			return nil, ErrExhausted
		}
		return turns[min(n, len(turns)-1)], nil
	}
}
