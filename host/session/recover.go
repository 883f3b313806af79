package session

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
)

//go:embed text/outcome-unknown.md
var textOutcomeUnknown string

//go:embed text/not-started.md
var textNotStarted string

//go:embed text/interrupted.md
var textInterrupted string

//go:embed text/withdrawn.md
var textWithdrawn string

// Codes of what recovery writes.
const (
	CodeNotStarted     = "NOT_STARTED"
	CodeOutcomeUnknown = "OUTCOME_UNKNOWN"
	CodeHostStopped    = "HOST_STOPPED"
)

// Recovered counts what Recover mended.
type Recovered struct {
	Sessions  int // with a turn that was open
	Calls     int // closed with an error result
	Approvals int // withdrawn
	Messages  int // unfinished ones that became assistant/message
	Damaged   int // found damaged and quarantined
}

// recoverBatch is how many sessions share one commit while recovering.
const recoverBatch = 64

// Recover closes the turns that the last process left open, each session in one transaction: unfinished text becomes an interrupted
// assistant/message, pending approvals are withdrawn, calls without a result get an error result and aren't run again, and the turn ends
// as interrupted. Queued messages stay queued. Call it once after Start and before any log is opened; it reads only the open step of a log.
func (j *Journal) Recover(ctx context.Context) (Recovered, error) {
	var total Recovered
	j.mu.Lock()
	busy := len(j.logs) > 0
	j.mu.Unlock()
	if busy {
		return total, errors.New("recover: a log is open already")
	}
	enc := newEncoder()
	var open []Info
	for q := (Query{Status: StatusRunning, Limit: 1000}); ; {
		list, err := j.store.List(ctx, q)
		if err != nil {
			return total, fmt.Errorf("recover: %w", err)
		}
		open = append(open, list.Sessions...)
		if q.Cursor = list.NextCursor; q.Cursor == "" {
			break
		}
	}
	for batch := range slices.Chunk(open, recoverBatch) {
		op := &operation{ready: make([]Change, 0, len(batch))}
		for _, info := range batch {
			change, counts, err := j.recoverOne(ctx, enc, info)
			var damage *DamageError
			if errors.As(err, &damage) {
				info.Damage = damage.Reason
				change, counts = Change{ID: info.ID, Info: &info}, Recovered{Damaged: 1}
				j.logger.Warn("session quarantined", "session", info.ID, "seq", damage.Seq, "reason", damage.Reason)
			} else if err != nil {
				return total, fmt.Errorf("recover session %s: %w", info.ID, err)
			}
			op.ready = append(op.ready, change)
			total = total.add(counts)
		}
		if err := j.submit(ctx, op); err != nil {
			return total, fmt.Errorf("recover: %w", err)
		}
		if op.err != nil {
			return total, fmt.Errorf("recover: %w", op.err)
		}
	}
	return total, nil
}

// Mend is Recover for one open log: for processes that share a store and take over one session at a time.
func (j *Journal) Mend(ctx context.Context, l *Log) (Recovered, error) {
	partials, err := j.store.Partials(ctx, l.ID())
	if err != nil {
		return Recovered{}, err
	}
	var counts Recovered
	_, err = l.Update(ctx, func(s State) ([]Draft, error) {
		var drafts []Draft
		drafts, counts = Closing(s, partials)
		return drafts, nil
	})
	return counts, err
}

func (r Recovered) add(v Recovered) Recovered {
	r.Sessions += v.Sessions
	r.Calls += v.Calls
	r.Approvals += v.Approvals
	r.Messages += v.Messages
	r.Damaged += v.Damaged
	return r
}

func (j *Journal) recoverOne(ctx context.Context, enc *encoder, info Info) (Change, Recovered, error) {
	state, err := j.openStep(ctx, info)
	if err != nil {
		return Change{}, Recovered{}, err
	}
	partials, err := j.store.Partials(ctx, info.ID)
	if err != nil {
		return Change{}, Recovered{}, err
	}
	drafts, counts := Closing(state, partials)
	w := &work{state: state, info: info}
	a := applier{encoder: enc}
	now := j.now().UnixMilli()
	for _, d := range drafts {
		if err := a.appendOne(w, now, d); err != nil {
			return Change{}, counts, err
		}
	}
	info.LastSeq, info.LastHash, info.UpdatedAt = w.state.LastSeq, w.state.Last, w.state.UpdatedAt
	info.TurnOpen, info.StepSeq = false, -1
	info.Pending = max(0, info.Pending-counts.Approvals)
	return Change{ID: info.ID, Info: &info, Events: w.encoded, Texts: w.change.Texts, DropPartial: true}, counts, nil
}

// openStep folds only the open step, or the open turn when it has none: its calls and approvals are right, history and queues are not. What
// a step leaves open, only that step can.
func (j *Journal) openStep(ctx context.Context, info Info) (State, error) {
	from := info.TurnSeq
	if info.StepSeq > from {
		from = info.StepSeq
	}
	state := NewState(info.Header)
	state.LastSeq, state.Turns, state.TurnOpen = from-1, info.Turns, true
	if info.Model != (ModelRef{}) {
		state.Request = &RequestHeader{}
		state.Request.Header.Config = RequestConfig{Provider: info.Model.Provider, Model: info.Model.Model}
	}
	first := true
	for state.LastSeq < info.LastSeq {
		raw, err := j.store.Read(ctx, info.ID, Range{After: state.LastSeq, Before: info.LastSeq + 1, MaxBytes: foldPage})
		if err != nil {
			return state, err
		}
		if len(raw) == 0 {
			return state, &DamageError{Session: info.ID, Seq: state.LastSeq + 1, Reason: "the log ends before the event that the session's row names"}
		}
		for _, b := range raw {
			if first {
				e, err := ParseEvent(b)
				if err != nil {
					return state, &DamageError{Session: info.ID, Seq: from, Reason: err.Error()}
				}
				state.Last, first = e.Prev, false
			}
			if e, err := ParseEvent(b); err == nil && e.Type == (InboxSpliced{}).EventType() && e.Seq == state.LastSeq+1 && e.Prev == state.Last {
				state.advance(e, HashEvent(b)) // the queue before the turn isn't known here
				continue
			}
			if state, _, err = Fold(state, b); err != nil {
				return state, err
			}
		}
	}
	if state.Last != info.LastHash {
		return state, &DamageError{Session: info.ID, Seq: info.LastSeq, Reason: "the last event isn't the one that the session's row names"}
	}
	return state, nil
}

// Closing gives the events that close what is open in s, which a stopped process left so; none when no turn is open. A call that waited for
// an approval, or that has no tool/call, didn't start; of the others nobody knows the outcome.
func Closing(s State, partials []Partial) ([]Draft, Recovered) {
	var counts Recovered
	if !s.TurnOpen {
		return nil, counts
	}
	counts.Sessions = 1
	var drafts []Draft
	id := func() string { return fmt.Sprintf("recovered-%d", s.LastSeq+1+int64(len(drafts))) }
	add := func(p Payload) { drafts = append(drafts, Draft{Payload: p}) }

	if content := partialContent(partials); len(content) > 0 && s.StepOpen {
		source := model.Source{Kind: model.SourceModel}
		if s.Request != nil {
			source.Provider, source.Model = s.Request.Header.Config.Provider, s.Request.Header.Config.Model
		}
		add(AssistantMessage{
			Turn: s.Turns, Step: s.Step, Interrupted: true,
			Message: model.Message{ID: id(), Role: model.RoleAssistant, Content: content, Source: source},
		})
		counts.Messages++
	}
	waited := map[string]bool{}
	for _, a := range s.Approvals {
		waited[a.CallID] = true
		add(ApprovalDecided{ID: a.ID, Outcome: OutcomeCancelled, By: "host", Reason: strings.TrimSpace(textWithdrawn)})
		counts.Approvals++
	}
	for _, c := range openCalls(s) {
		text, code := textOutcomeUnknown, CodeOutcomeUnknown
		if c.notStarted || waited[c.CallID] {
			text, code = textNotStarted, CodeNotStarted
		}
		add(ToolResult{
			Turn: s.Turns, Step: s.Step, Error: &ToolError{Name: c.Name, Code: code},
			Message: model.Message{
				ID: id(), Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: c.CallID},
				Content: []model.Block{{
					Type: model.BlockToolResult, ToolCallID: c.CallID, IsError: true, Content: []model.Block{model.Text(strings.TrimSpace(text))},
				}},
			},
		})
		counts.Calls++
	}
	if s.StepOpen {
		add(StepEnd{Turn: s.Turns, Step: s.Step})
	}
	add(TurnEnd{Turn: s.Turns, Reason: Reason{Kind: EndInterrupted, Code: CodeHostStopped, Message: strings.TrimSpace(textInterrupted)}})
	return drafts, counts
}

type danglingCall struct {
	ToolCall
	notStarted bool
}

// openCalls lists the calls of the open step without a result: those of the log, and those that the last answer asks for and that have no
// tool/call.
func openCalls(s State) []danglingCall {
	var out []danglingCall
	known := map[string]bool{}
	for _, c := range s.OpenCalls {
		known[c.CallID] = true
		out = append(out, danglingCall{ToolCall: c})
	}
	asked := -1
	for i := len(s.History) - 1; i >= 0 && s.History[i].Turn == s.Turns && s.History[i].Step == s.Step; i-- {
		if s.History[i].Message.Role == model.RoleAssistant {
			asked = i
			break
		}
		if call := s.History[i].Message.Source.CallID; call != "" {
			known[call] = true
		}
	}
	if asked < 0 || s.History[asked].Interrupted {
		return out
	}
	for _, b := range s.History[asked].Message.ToolCalls() {
		if !known[b.ID] {
			out = append(out, danglingCall{ToolCall{Turn: s.Turns, Step: s.Step, CallID: b.ID, Name: b.Name, Arguments: b.Arguments}, true})
		}
	}
	return out
}

// partialContent joins the pieces of the last attempt into content blocks. Unfinished calls are left out: nobody may run them.
func partialContent(partials []Partial) []model.Block {
	if len(partials) == 0 {
		return nil
	}
	last := partials[len(partials)-1]
	var content []model.Block
	block := map[int]int{}
	for _, p := range partials {
		if p.Turn != last.Turn || p.Step != last.Step || p.Attempt != last.Attempt || p.Text == "" {
			continue
		}
		kind := model.BlockText
		switch p.Kind {
		case model.DeltaReasoning:
			kind = model.BlockReasoning
		case model.DeltaTool:
			continue
		}
		at, ok := block[p.Block]
		if !ok {
			at = len(content)
			block[p.Block] = at
			content = append(content, model.Block{Type: kind})
		}
		content[at].Text += p.Text
	}
	return content
}
