package session

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dsh-web/dsh-web/host/model"
)

// NewState is the state of an empty log.
func NewState(h Header) State {
	return State{Header: h, LastSeq: -1, UpdatedAt: h.CreatedAt, Preset: h.AgentPreset, Blank: true, SeedEnd: -1, TurnSeq: -1, StepSeq: -1}
}

// Fold applies one committed event, given in its canonical encoding, and returns the state after it. It is a pure function of s and the
// event: states share the slices they agree on and never change them. An event that doesn't follow (seq, prev) or can't be read is a
// *DamageError; the state beside it is s.
func Fold(s State, encoded []byte) (State, Event, error) {
	e, err := parseUnchecked(encoded)
	if err != nil {
		return s, e, &DamageError{Session: s.Header.ID, Seq: s.LastSeq + 1, Reason: err.Error()}
	}
	if e.Seq != s.LastSeq+1 {
		return s, e, &DamageError{Session: s.Header.ID, Seq: s.LastSeq + 1, Reason: fmt.Sprintf("event %d stands where event %d belongs", e.Seq, s.LastSeq+1)}
	}
	if e.Prev != s.Last {
		return s, e, &DamageError{Session: s.Header.ID, Seq: e.Seq, Reason: fmt.Sprintf("event %d doesn't carry the hash of the event before it", e.Seq)}
	}
	p, known, err := DecodePayload(e)
	if err != nil {
		return s, e, &DamageError{Session: s.Header.ID, Seq: e.Seq, Reason: err.Error()}
	}
	if !known && !json.Valid(e.Data) {
		return s, e, &DamageError{Session: s.Header.ID, Seq: e.Seq, Reason: fmt.Sprintf("the data of event %d isn't JSON", e.Seq)}
	}
	if !known && !e.Ignorable {
		return s, e, &DamageError{Session: s.Header.ID, Seq: e.Seq, Reason: fmt.Sprintf("event %d has the type %q, which this version doesn't know and may not skip", e.Seq, e.Type)}
	}
	next := s
	if known {
		if err := next.apply(e, p); err != nil {
			return s, e, &DamageError{Session: s.Header.ID, Seq: e.Seq, Reason: err.Error()}
		}
	}
	next.advance(e, HashEvent(encoded))
	return next, e, nil
}

func (s *State) advance(e Event, hash string) {
	s.LastSeq, s.Last, s.UpdatedAt = e.Seq, hash, e.Time
}

// seal cuts the spare capacity of every growing slice, so that whoever appends next copies instead of writing where a reader may look.
func (s *State) seal() {
	s.History = slices.Clip(s.History)
	s.Accepted = slices.Clip(s.Accepted)
	s.NextTurn, s.NextStep = slices.Clip(s.NextTurn), slices.Clip(s.NextStep)
	s.OpenCalls, s.Approvals, s.Grants = slices.Clip(s.OpenCalls), slices.Clip(s.Approvals), slices.Clip(s.Grants)
}

// apply folds one payload, a struct value of the vocabulary. History and Accepted grow in place behind the length that readers hold; the
// short lists are copied.
func (s *State) apply(e Event, p Payload) error {
	switch p := p.(type) {
	case InboxSpliced:
		return s.splice(e, p)
	case TurnStart:
		s.Turns, s.TurnOpen, s.Blank, s.TurnSeq = p.Turn, true, false, e.Seq
		s.Step, s.StepOpen, s.StepSeq, s.OpenCalls = 0, false, -1, nil
	case TurnEnd:
		s.TurnOpen, s.Step, s.StepOpen, s.StepSeq, s.OpenCalls = false, 0, false, -1, nil
		s.Approvals = nil // only a running call waits for one
		s.LastEnd = &p
	case StepStart:
		s.Step, s.StepOpen, s.StepSeq, s.OpenCalls = p.Step, true, e.Seq, nil
	case StepEnd:
		s.StepOpen = false
	case UserMessage:
		s.remember(HistoryEntry{Seq: e.Seq, Message: p.Message, Turn: s.openTurn(), Step: s.Step})
	case RequestHeader:
		s.Request = &p
	case RequestContext:
		s.Context = &p
	case RequestSent:
		s.Sent = &p
	case AssistantMessage:
		s.remember(HistoryEntry{Seq: e.Seq, Message: p.Message, Turn: p.Turn, Step: p.Step, Interrupted: p.Interrupted, Stop: p.Stop})
		if p.Usage != nil {
			s.Usage = s.Usage.Add(*p.Usage)
		}
	case ToolCall:
		s.OpenCalls = append(slices.Clip(s.OpenCalls), p)
	case ToolResult:
		s.remember(HistoryEntry{Seq: e.Seq, Message: p.Message, Turn: p.Turn, Step: p.Step})
		s.OpenCalls = without(s.OpenCalls, func(c ToolCall) bool { return c.CallID == p.Message.Source.CallID })
	case ApprovalAsked:
		s.Approvals = append(slices.Clip(s.Approvals), p)
	case ApprovalDecided:
		s.grant(e, p)
		s.Approvals = without(s.Approvals, func(a ApprovalAsked) bool { return a.ID == p.ID })
	case ApprovalRevoked:
		s.Grants = without(s.Grants, func(g Grant) bool { return g.ID == p.ID })
	case ApprovalPolicy:
		s.Policy = p.Policy
	case SandboxMode:
		s.Mode = p.Mode
	case PresetSelected:
		s.Preset, s.Request = p.AgentPreset, nil // the next request is made of the new preset
	case Title:
		s.Title = p.Title
	case EndSeed:
		s.SeedEnd, s.Preset, s.Usage = e.Seq, s.Header.AgentPreset, model.Usage{}
		s.Grants, s.Policy = nil, "" // what was allowed there was allowed there
	case TodoWrite:
		s.Todos = p.Items
	case CompactionStart:
		s.Compacting = p.CompactionID
	case CompactionEnd:
		s.Compacting = ""
	case CompactionSummary:
		s.compact(e, p)
	}
	return nil
}

// grant keeps what was allowed for the whole session.
func (s *State) grant(e Event, p ApprovalDecided) {
	if p.Outcome != OutcomeAllowed || p.Scope != ScopeSession {
		return
	}
	for _, a := range s.Approvals {
		if a.ID == p.ID && a.Kind != KindQuestion {
			s.Grants = append(slices.Clip(s.Grants), Grant{ID: a.ID, Tool: a.Tool, Arguments: a.Arguments, Cwd: a.Cwd, At: e.Time})
			return
		}
	}
}

func (s *State) openTurn() int {
	if s.TurnOpen {
		return s.Turns
	}
	return 0
}

func (s *State) remember(h HistoryEntry) {
	s.History = append(s.History, h)
}

func (s *State) splice(e Event, p InboxSpliced) error {
	queue := &s.NextTurn
	switch p.Target {
	case TargetNextTurn:
	case TargetNextStep:
		queue = &s.NextStep
	default:
		return fmt.Errorf("event %d splices the queue %q, which doesn't exist", e.Seq, p.Target)
	}
	old := *queue
	if p.Start < 0 || p.RemovedCount < 0 || p.Start+p.RemovedCount > len(old) {
		return fmt.Errorf("event %d removes messages %d to %d of a queue of %d", e.Seq, p.Start, p.Start+p.RemovedCount, len(old))
	}
	next := make([]model.Message, 0, len(old)-p.RemovedCount+len(p.Inserted))
	next = append(next, old[:p.Start]...)
	next = append(next, p.Inserted...)
	*queue = append(next, old[p.Start+p.RemovedCount:]...)
	if len(*queue) == 0 {
		*queue = nil
	}
	for _, m := range p.Inserted {
		s.Accepted = append(s.Accepted, Accepted{ID: m.ID, Seq: e.Seq})
	}
	return nil
}

// compact puts the summary before the entries that stay.
func (s *State) compact(e Event, p CompactionSummary) {
	next := []HistoryEntry{{Seq: e.Seq, Message: p.Message}}
	for _, h := range s.History {
		if h.Seq >= p.KeepFrom {
			next = append(next, h)
		}
	}
	s.History = next
	if p.Usage != nil {
		s.Usage = s.Usage.Add(*p.Usage)
	}
}

func without[T any](list []T, drop func(T) bool) []T {
	var out []T
	for _, v := range list {
		if !drop(v) {
			out = append(out, v)
		}
	}
	return out
}
