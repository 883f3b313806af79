package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

// request is a model call that is written to the log and about to leave.
type request struct {
	// durable waits until the log holds the request for good. Nothing that comes of the request may be told, kept or acted on before. When it
	// fails, the turn is what it was before the request. Safe to call again.
	durable  func() error
	route    model.Route
	prepared *model.Prepared
	tools    []tools.Tool // what calls of this step may name
	attempt  int
	fixed    prompt.Frozen // what the agent's prompt is once this request is in the log
}

// contextName marks the host's runtime-context messages.
const contextName = "runtime-context"

var errMoved = errors.New("the queue changed meanwhile")

// checkpoint writes the start of the next step, the messages it takes and the hash of the request, and returns that request, which may leave while
// the disk still syncs: a request does nothing but be answered. Nil without an error means that there was nothing to start a turn with. When the
// request can't be made, the step is opened all the same, so that the messages are taken and the turn ends with the reason.
func (t *turn) checkpoint(ctx context.Context) (*request, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		st := t.log.State()
		taken := take(st, t.number == 0)
		if t.offer != nil && t.offer.fits(st) {
			taken = t.offer.claim()
		} else {
			t.reply(nil)
		}
		if t.number == 0 && len(taken.messages) == 0 {
			return nil, nil
		}
		number, step := t.number, t.step+1
		if number == 0 {
			number = st.Turns + 1
		}
		drafts := slices.Clone(t.pending)
		add := func(p session.Payload) { drafts = append(drafts, session.Draft{Payload: p}) }
		if t.number == 0 {
			add(session.TurnStart{Turn: number})
		}
		for _, s := range taken.splices {
			add(s)
		}
		add(session.StepStart{Turn: number, Step: step})

		req, more, failed := t.build(ctx, st, taken.messages, number, step)
		for _, p := range more {
			add(p)
		}
		if t.number == 0 {
			t.beginsWith(taken.messages[0].ID)
		}
		committed, err := t.write(ctx, taken, drafts)
		t.reply(committed)
		if errors.Is(err, errMoved) {
			if t.number == 0 {
				t.beginsWith("")
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		before := *t
		t.pending, t.number, t.step, t.open = nil, number, step, true
		durable := sync.OnceValue(func() error {
			if err := committed(); err != nil {
				*t = before
				return err
			}
			if failed == nil {
				t.frozen, t.prev = req.fixed, req.prepared.Kept()
			}
			return nil
		})
		if failed != nil {
			return nil, cmp.Or(durable(), failed)
		}
		t.calls++
		req.durable = durable
		return req, nil
	}
}

// write writes the drafts of a step if what it takes still stands. committed waits until they are durable; it may be called again, by anybody.
func (t *turn) write(ctx context.Context, taken claim, drafts []session.Draft) (committed func() error, err error) {
	o := taken.offer
	if o != nil && !o.take() {
		return nil, errMoved
	}
	// It isn't cancelled with the turn, as commit isn't.
	wait, err := t.log.Begin(context.WithoutCancel(ctx), func(now session.State) ([]session.Draft, error) {
		switch {
		case !taken.still(now):
			return nil, errMoved
		case o != nil:
			return append(enqueue(o.message, session.TargetNextTurn, 0, now.Title == ""), drafts...), nil
		}
		return drafts, nil
	})
	if err != nil {
		return nil, err
	}
	return func() error { _, err := wait(); return err }, nil
}

// reply answers the offer, if there is one; a nil wait leaves it to its sender.
func (t *turn) reply(wait func() error) {
	t.offer.answer(wait)
	t.offer = nil
}

// claim is what a step takes from the queue.
type claim struct {
	messages []model.Message
	splices  []session.InboxSpliced
	turn     int    // messages taken from the next-turn queue
	steer    int    // and from the next-step queue
	offer    *offer // what the message is that was never queued
}

// take claims the first queued turn message at a turn's start, and everything that steers, at every step.
func take(st session.State, start bool) claim {
	var c claim
	if start && len(st.NextTurn) > 0 {
		c.turn = 1
		c.messages = append(c.messages, st.NextTurn[0])
		c.splices = claimed(session.TargetNextTurn, 1)
	}
	if c.steer = len(st.NextStep); c.steer > 0 {
		c.messages = append(c.messages, st.NextStep...)
		c.splices = append(c.splices, claimed(session.TargetNextStep, c.steer)...)
	}
	return c
}

func claimed(target string, count int) []session.InboxSpliced {
	return []session.InboxSpliced{{Target: target, RemovedCount: count, Inserted: []model.Message{}, Outcome: "claimed"}}
}

// still says whether st's queues begin with exactly what c takes. An edit keeps a message's id, so contents are compared too.
func (c claim) still(st session.State) bool {
	if c.offer != nil {
		return c.offer.fits(st)
	}
	if len(st.NextTurn) < c.turn || len(st.NextStep) < c.steer {
		return false
	}
	now := append(slices.Clone(st.NextTurn[:c.turn]), st.NextStep[:c.steer]...)
	return slices.EqualFunc(now, c.messages, func(a, b model.Message) bool {
		return a.ID == b.ID && len(a.Content) == len(b.Content) && (len(a.Content) == 0 || &a.Content[0] == &b.Content[0])
	})
}

// build makes the request of a step over st, what is pending and the messages taken. The payloads go into the step's commit, also when the
// request failed; then the failure ends the turn. A panic is such a failure: else the messages would stay queued and meet it again at once.
func (t *turn) build(ctx context.Context, st session.State, taken []model.Message, number, step int) (_ *request, payloads []session.Payload, err error) {
	claimed := taken
	defer func() {
		if p := recover(); p != nil {
			payloads = nil
			for _, m := range claimed {
				payloads = append(payloads, session.UserMessage{Message: m})
			}
			err = failure{t.inside(p)}
		}
	}()
	fail := func(code, format string, args ...any) (*request, []session.Payload, error) {
		return nil, payloads, failure{session.Reason{Kind: session.EndError, Code: code, Message: fmt.Sprintf(format, args...)}}
	}

	view := t.cfg.View()
	visible := t.cfg.Tools.Visible(view)
	assembled, assembleErr := t.cfg.Prompt.Assemble(ctx, view, func() []model.Tool { return tools.Schemas(visible) })
	if assembleErr == nil {
		if m, ok := runtimeContext(st, assembled.Contexts); ok {
			taken = append([]model.Message{m}, taken...)
		}
	}
	for _, m := range taken {
		payloads = append(payloads, session.UserMessage{Message: m})
	}
	if assembleErr != nil {
		return fail("PROMPT", "The system prompt could not be put together: %v", assembleErr)
	}
	if limit := t.limits().Tokens; limit > 0 && st.Usage.InputTokens+st.Usage.OutputTokens >= limit {
		return nil, payloads, failure{session.Reason{Kind: session.EndBlocked, Code: "TOKEN_BUDGET", Message: fmt.Sprintf("The session used its budget of %d tokens.", limit)}}
	}
	route, selection, err := t.cfg.Route()
	if err != nil {
		return fail("ROUTE", "The model can't be reached: %v", err)
	}
	fixed := t.freeze(st, assembled.System, assembled.Tools)
	system, schemas := fixed.System(), fixed.Tools()
	messages, err := t.history(ctx, st, taken)
	if err != nil {
		return fail("ATTACHMENT", "An attachment can't be read: %v", err)
	}
	prepared, err := route.Adapter.Prepare(model.Request{
		System: system, Tools: schemas, Messages: messages,
		MaxTokens: selection.MaxTokens, ReasoningEffort: selection.ReasoningEffort, Params: selection.Params,
		Session: t.log.ID(), Call: t.calls + 1, Earlier: t.prev,
	})
	if err != nil {
		reason := reasonOf(err)
		return nil, payloads, failure{reason}
	}
	payloads = append(payloads, t.header(st, route, selection, system, schemas)...)
	req := &request{route: route, prepared: prepared, tools: visible, attempt: 1, fixed: fixed}
	payloads = append(payloads, t.record(st, req, number, step))
	return req, payloads, nil
}

// freeze gives the bytes that were fixed by the first request; on a resume by the log's. A difference is reported, never sent. They count
// from the commit on that holds the request: one that never came to be fixes nothing.
func (t *turn) freeze(st session.State, system string, schemas []model.Tool) prompt.Frozen {
	fixed := t.frozen
	if !fixed.Set() && st.Request != nil && t.cfg.KeepRecorded {
		fixed.Fix(st.Request.Header.System, st.Request.Header.Tools)
		if err := fixed.Check(system, schemas); err != nil {
			t.cfg.Logger.Warn("prompt drifted since the session was recorded; the recorded one is used", "session", t.log.ID(), "difference", err)
		}
	} else if !fixed.Set() {
		fixed.Fix(system, schemas)
	} else if err := fixed.Check(system, schemas); err != nil {
		t.cfg.Logger.Error("prompt changed after the first request", "session", t.log.ID(), "difference", err)
		if t.cfg.Violation != nil {
			t.cfg.Violation(err)
		}
	}
	return fixed
}

// history is the model's view: the log's, then what waits for this commit, then what this step takes; image bytes filled in.
func (t *turn) history(ctx context.Context, st session.State, taken []model.Message) ([]model.Message, error) {
	from := t.known(st)
	rest := make([]model.Message, 0, len(st.History)-from+len(t.pending)+len(taken))
	for _, e := range st.History[from:] {
		rest = append(rest, e.Message)
	}
	for _, d := range t.pending {
		switch p := d.Payload.(type) {
		case session.ToolResult:
			rest = append(rest, p.Message)
		case session.AssistantMessage:
			rest = append(rest, p.Message)
		}
	}
	rest = append(rest, taken...)
	images := false
	for i := range rest {
		content, err := t.loadImages(ctx, rest[i].Content)
		if err != nil {
			return nil, err
		}
		images = images || len(content) > 0 && &content[0] != &rest[i].Content[0]
		rest[i].Content = content
	}
	if images { // whose bytes aren't kept
		return slices.Concat(t.view[:from], rest), nil
	}
	// What the last request ended with is mostly in the log by now. Then only what is new is added behind it, in room that no other request has.
	if end := t.view[from:]; len(end) <= len(rest) && slices.EqualFunc(end, rest[:len(end)], model.Message.Equal) {
		t.view = append(t.view, rest[len(end):]...)
	} else {
		t.view = slices.Concat(t.view[:from], rest)
	}
	t.seen = st.History
	return slices.Clip(t.view), nil
}

// known counts the messages at the beginning of the history that the last request's view holds. A log's history grows behind what was seen of it,
// or is another list.
func (t *turn) known(st session.State) int {
	if n := len(t.seen); n > 0 && n <= len(st.History) && &t.seen[0] == &st.History[0] {
		return n
	}
	return 0
}

func (t *turn) loadImages(ctx context.Context, content []model.Block) ([]model.Block, error) {
	copied := false
	for i, b := range content {
		if b.Type == model.BlockToolResult {
			inner, err := t.loadImages(ctx, b.Content)
			if err != nil {
				return nil, err
			}
			if len(inner) > 0 && &inner[0] != &b.Content[0] {
				if !copied {
					content, copied = slices.Clone(content), true
				}
				content[i].Content = inner
			}
			continue
		}
		if b.Type != model.BlockImage || b.AttachmentID == "" || t.cfg.Attachments == nil {
			continue
		}
		data, mime, err := t.cfg.Attachments.Load(ctx, b.AttachmentID)
		if err != nil && !errors.Is(err, ErrNoAttachment) {
			return nil, fmt.Errorf("attachment %s: %w", b.AttachmentID, err)
		}
		if !copied {
			content, copied = slices.Clone(content), true
		}
		if err != nil { // it is in the history for good, so it may not fail every turn from here on
			content[i] = model.Text("[an image that is no longer there]")
			continue
		}
		content[i].Data, content[i].Mime = data, mime
	}
	return content, nil
}

// runtimeContext is the host's message about the surroundings, when it differs from the last one the history holds.
func runtimeContext(st session.State, contexts []string) (model.Message, bool) {
	if len(contexts) == 0 {
		return model.Message{}, false
	}
	text := strings.Join(contexts, "\n\n")
	for _, e := range slices.Backward(st.History) {
		if e.Message.Source.Kind == model.SourceHost && e.Message.Source.Name == contextName {
			if e.Message.Text() == text {
				return model.Message{}, false
			}
			break
		}
	}
	return model.Message{
		ID: NewID("ctx_"), Role: model.RoleUser, Content: []model.Block{model.Text(text)},
		Source: model.Source{Kind: model.SourceHost, Name: contextName},
	}, true
}

// header is the request header and context, where they differ from the log's last ones.
func (t *turn) header(st session.State, route model.Route, sel model.Selection, system string, schemas []model.Tool) []session.Payload {
	var out []session.Payload
	h := session.RequestHeader{Reason: "initial"}
	h.Header.Config = session.RequestConfig{
		Provider: route.Provider, Model: route.Model, MaxTokens: sel.MaxTokens, ReasoningEffort: sel.ReasoningEffort,
		Thinking: route.Thinking, Params: sel.Params,
	}
	h.Header.System, h.Header.Tools = system, schemas
	if st.Sent != nil {
		h.Reason = "change"
		if t.calls == 0 {
			h.Reason = "resume"
		}
	}
	if st.Request == nil || !sameHeader(*st.Request, h) {
		out = append(out, h)
	}
	c := session.RequestContext{Provider: route.Provider, Model: route.Model, ContextWindow: route.ContextWindow}
	if st.Context == nil || *st.Context != c {
		out = append(out, c)
	}
	return out
}

func sameHeader(a, b session.RequestHeader) bool {
	x, y := a.Header, b.Header
	same := func(p, q json.RawMessage) bool { return bytes.Equal(p, q) }
	return x.System == y.System &&
		x.Config.Provider == y.Config.Provider && x.Config.Model == y.Config.Model && x.Config.MaxTokens == y.Config.MaxTokens &&
		x.Config.ReasoningEffort == y.Config.ReasoningEffort && x.Config.Thinking == y.Config.Thinking &&
		maps.EqualFunc(x.Config.Params, y.Config.Params, same) &&
		slices.EqualFunc(x.Tools, y.Tools, model.Tool.Equal)
}

// record is the proof of a request: what is about to leave, and whether it extends the one before.
func (t *turn) record(st session.State, req *request, number, step int) session.RequestSent {
	p := req.prepared
	sent := session.RequestSent{
		Turn: number, Step: step, Attempt: req.attempt, Encoder: p.Encoder,
		BodySHA256: p.BodySHA256(), ChainSHA256: p.PrefixSHA256(len(p.Messages)),
		Messages: len(p.Messages), Bytes: len(p.Body), Contiguous: true,
	}
	if st.Sent == nil {
		sent.PrefixSHA256 = p.PrefixSHA256(0)
		return sent
	}
	sent.PrefixSHA256 = p.PrefixSHA256(st.Sent.Messages)
	sent.Contiguous = sent.PrefixSHA256 == st.Sent.ChainSHA256 && st.Sent.Messages <= len(p.Messages)
	if !sent.Contiguous {
		_, sent.DivergesAt = p.Extends(t.prev)
	}
	return sent
}
