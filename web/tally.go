package web

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// tally counts turns, calls and tokens of the events that were committed, so that the counters can't tell anything else than the logs. The
// committer only puts events down; they are read on a goroutine of the tally's own, and before each answer. What a session was created with
// isn't counted: a fork and an import bring what was counted where it happened.
type tally struct {
	events     prometheus.Counter
	turns      *prometheus.CounterVec
	calls      *prometheus.CounterVec
	callTook   *prometheus.HistogramVec
	firstToken *prometheus.HistogramVec
	modelTook  *prometheus.HistogramVec
	tokens     *prometheus.CounterVec
	retries    *prometheus.CounterVec

	wake chan struct{} // one token: something was put down

	mu      sync.Mutex // a leaf; held for an append or a swap
	pending []noted

	counting sync.Mutex // held while events are read; never by the committer
	open     map[string]map[string]openCall
	tools    names
	routes   names
}

// noted is an event that is to be counted, or the end of a session.
type noted struct {
	session  string
	provider string // of the session's model
	event    session.Event
	deleted  bool
}

// openCall is a call that has no result yet.
type openCall struct {
	name  string
	time  int64  // of its event, or of the owner's last decision about it; epoch milliseconds
	asked string // the approval or question that it waits for
}

// names bounds the values of a label: the first ones stand for themselves, the others share one.
type names struct {
	max  int
	seen map[string]struct{}
}

const (
	labelUnknown = "unknown" // a tool that doesn't exist
	labelOther   = "other"   // what has no value of its own
	mostTools    = 64
	mostRoutes   = 32
	// codeUnknownTool is the code of a call of a tool that the agent doesn't have: its name is the model's invention.
	codeUnknownTool = "UNKNOWN_TOOL"
)

func (n *names) label(name string) string {
	if _, ok := n.seen[name]; ok {
		return name
	}
	if name == "" || len(n.seen) >= n.max {
		return labelOther
	}
	n.seen[name] = struct{}{}
	return name
}

func newTally() *tally {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	long := []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: long}, labels)
	}
	return &tally{
		events:     prometheus.NewCounter(prometheus.CounterOpts{Name: "dsh_events_committed_total", Help: "Events that were committed."}),
		turns:      counter("dsh_turns_total", "Turns that ended, by the kind of their end.", "end"),
		calls:      counter("dsh_tool_calls_total", "Tool calls that have their result.", "tool", "outcome"),
		callTook:   histogram("dsh_tool_call_seconds", "From a call's event, or the owner's decision about it, to its result's.", "tool"),
		firstToken: histogram("dsh_model_first_token_seconds", "From a request to the answer's first token.", "provider"),
		modelTook:  histogram("dsh_model_seconds", "From a request to the answer's end.", "provider"),
		tokens:     counter("dsh_model_tokens_total", "Tokens as the providers count them.", "provider", "kind"),
		retries:    counter("dsh_model_retries_total", "Model calls that are tried again.", "provider"),
		wake:       make(chan struct{}, 1),
		open:       map[string]map[string]openCall{},
		tools:      names{max: mostTools, seen: map[string]struct{}{}},
		routes:     names{max: mostRoutes, seen: map[string]struct{}{}},
	}
}

func (t *tally) collectors() []prometheus.Collector {
	return []prometheus.Collector{t.events, t.turns, t.calls, t.callTook, t.firstToken, t.modelTook, t.tokens, t.retries}
}

// committed puts down what is to be counted. It runs on the committer's goroutine.
func (t *tally) committed(all []session.Committed) {
	events, news := 0, false
	t.mu.Lock()
	for i := range all {
		c := &all[i]
		events += len(c.Events)
		if c.Deleted {
			t.pending, news = append(t.pending, noted{session: c.ID, deleted: true}), true
		}
		if c.Created {
			continue
		}
		for _, e := range c.Events {
			switch e.Type {
			case "turn/end", "tool/call", "tool/result", "approval/asked", "approval/decided", "assistant/message", "compaction/summary", "llm/retry":
				t.pending, news = append(t.pending, noted{session: c.ID, provider: c.Info.Model.Provider, event: e}), true
			}
		}
	}
	t.mu.Unlock()
	t.events.Add(float64(events))
	if news {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// run counts until ctx ends.
func (t *tally) run(ctx context.Context) {
	for {
		select {
		case <-t.wake:
			t.count()
		case <-ctx.Done():
			return
		}
	}
}

// count reads everything that was put down before it was called.
func (t *tally) count() {
	t.counting.Lock()
	defer t.counting.Unlock()
	t.mu.Lock()
	pending := t.pending
	t.pending = nil
	t.mu.Unlock()
	for i := range pending {
		t.one(&pending[i])
	}
}

func (t *tally) one(n *noted) {
	if n.deleted {
		delete(t.open, n.session)
		return
	}
	p, _, err := session.DecodePayload(n.event)
	if err != nil {
		return // a log that holds it is damaged, and says so
	}
	switch p := p.(type) {
	case session.TurnEnd:
		delete(t.open, n.session)
		t.turns.WithLabelValues(endOf(p.Reason.Kind)).Inc()
	case session.ToolCall:
		calls := t.open[n.session]
		if calls == nil {
			calls = map[string]openCall{}
			t.open[n.session] = calls
		}
		calls[p.CallID] = openCall{name: p.Name, time: n.event.Time}
	case session.ApprovalAsked:
		if call, ok := t.open[n.session][p.CallID]; ok {
			call.asked = p.ID
			t.open[n.session][p.CallID] = call
		}
	case session.ApprovalDecided:
		for id, call := range t.open[n.session] {
			if p.ID != "" && call.asked == p.ID { // how long a person thinks says nothing about a tool
				call.asked, call.time = "", n.event.Time
				t.open[n.session][id] = call
			}
		}
	case session.ToolResult:
		t.result(n, p)
	case session.AssistantMessage:
		provider := t.routes.label(p.Message.Source.Provider)
		t.usage(provider, p.Usage)
		if !p.Interrupted {
			t.firstToken.WithLabelValues(provider).Observe(seconds(p.Timing.TTFTMs))
			t.modelTook.WithLabelValues(provider).Observe(seconds(p.Timing.TotalMs))
		}
	case session.CompactionSummary:
		t.usage(t.routes.label(n.provider), p.Usage)
	case session.Retry:
		t.retries.WithLabelValues(t.routes.label(p.Provider)).Inc()
	}
}

// result counts a call. A result without a call is of one that was never begun.
func (t *tally) result(n *noted, p session.ToolResult) {
	id := p.Message.Source.CallID
	call, ok := t.open[n.session][id]
	if !ok {
		return
	}
	delete(t.open[n.session], id)
	outcome, tool := "ok", ""
	for _, b := range p.Message.Content {
		if b.IsError {
			outcome = "error"
		}
	}
	if p.Error != nil && p.Error.Code == codeUnknownTool {
		tool = labelUnknown
	} else {
		tool = t.tools.label(call.name)
	}
	t.calls.WithLabelValues(tool, outcome).Inc()
	t.callTook.WithLabelValues(tool).Observe(seconds(n.event.Time - call.time))
}

func (t *tally) usage(provider string, u *model.Usage) {
	if u == nil {
		return
	}
	for _, k := range [...]struct {
		kind string
		n    int64
	}{{"input", u.InputTokens}, {"output", u.OutputTokens}, {"cache-read", u.CacheReadTokens}, {"cache-write", u.CacheWriteTokens}, {"reasoning", u.ReasoningTokens}} {
		if k.n > 0 {
			t.tokens.WithLabelValues(provider, k.kind).Add(float64(k.n))
		}
	}
}

// endOf is the kind of a turn's end as a label.
func endOf(kind string) string {
	switch kind {
	case session.EndCompleted, session.EndAborted, session.EndBlocked, session.EndError, session.EndMaxTokens, session.EndMaxSteps,
		session.EndContextFull, session.EndTimeout, session.EndInterrupted:
		return kind
	}
	return labelOther
}

// seconds turns milliseconds into seconds; a clock that was set back gives none.
func seconds(ms int64) float64 { return max(0, time.Duration(ms)*time.Millisecond).Seconds() }
