package agent

import (
	"context"
	"errors"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// ask streams the model's answer, with retries as logged facts of the same step. The error is a failure, or the store's.
func (t *turn) ask(ctx context.Context, req *request) (*model.Response, error) {
	repaired := false
	for retry := 1; ; {
		res, err := t.stream(ctx, req)
		if err := req.durable(); err != nil {
			return nil, err // whatever the answer was
		}
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			t.interrupted(req, res)
			return nil, failure{t.endOf(ctx)}
		}
		var me *model.Error
		if errors.As(err, &me) && me.ReasoningForm && !repaired {
			repaired = true
			if err := t.repair(ctx, req); err != nil {
				return nil, err
			}
			continue
		}
		delay, again := model.RetryDelay(err, retry, roll())
		if !again {
			return nil, failure{reasonOf(err)}
		}
		id := NewID("retry_")
		failed := reasonOf(err)
		if err := t.flush(ctx, session.Retry{
			RetryID: id, Turn: t.number, Step: t.step, Provider: req.route.Provider, Retry: retry, MaxRetries: model.MaxRetries,
			DelayMs: delay.Milliseconds(), Failure: session.Failure{Code: failed.Code, Message: failed.Message, Status: failed.Status},
		}); err != nil {
			return nil, err
		}
		if pause(ctx, delay) != nil {
			return nil, failure{t.endOf(ctx)}
		}
		retry++
		t.again(req)
		if err := t.flush(ctx, session.RetryStarted{RetryID: id, Turn: t.number, Step: t.step}, t.record(t.log.State(), req, t.number, t.step)); err != nil {
			return nil, err
		}
	}
}

// repair encodes the request again in the other reasoning form, after a server refused the first.
func (t *turn) repair(ctx context.Context, req *request) error {
	again := req.prepared.Request
	again.RepairReasoning = true
	prepared, err := req.route.Adapter.Prepare(again)
	if err != nil {
		return failure{reasonOf(err)}
	}
	req.prepared = prepared
	t.again(req)
	record := t.record(t.log.State(), req, t.number, t.step)
	t.prev = prepared.Kept()
	return t.flush(ctx, record)
}

// again counts another attempt; a recorder tells attempts apart by the call's number.
func (t *turn) again(req *request) {
	t.calls++
	req.attempt++
	req.prepared.Request.Call = t.calls
}

// stream makes one attempt. Pieces go to viewers as they arrive, once the request is durable; a failed attempt's are withdrawn.
func (t *turn) stream(ctx context.Context, req *request) (*model.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	live := t.log.Live()
	blocks := map[int]*session.Block{}
	res, err := req.route.Adapter.Stream(ctx, req.prepared, func(d model.Delta) {
		if req.durable() != nil {
			cancel()
			return
		}
		b := blocks[d.Block]
		if b == nil {
			b = live.Begin(t.number, t.step, req.attempt, d.Kind, d.Name, d.CallID)
			blocks[d.Block] = b
		}
		b.Append(d.Text)
	})
	if err != nil && ctx.Err() == nil {
		live.Clear()
	}
	return res, err
}

// answer keeps the model's message for the next commit and returns the calls that can run. Calls whose arguments were cut are dropped from
// nothing: they stay in the message, and get an error result.
func (t *turn) answer(req *request, res *model.Response) []model.Block {
	message := t.message(req, res.Content)
	t.later(session.AssistantMessage{
		Turn: t.number, Step: t.step, Message: message, Usage: res.Usage, Stop: string(res.Stop), Tokens: res.Tokens,
		Timing: session.Timing{TTFTMs: res.TTFT.Milliseconds(), TotalMs: res.Total.Milliseconds()},
	})
	return message.ToolCalls()
}

func (t *turn) message(req *request, content []model.Block) model.Message {
	if content == nil {
		content = []model.Block{}
	}
	return model.Message{
		ID: NewID("msg_"), Role: model.RoleAssistant, Content: content,
		Source: model.Source{Kind: model.SourceModel, Provider: req.route.Provider, Model: req.route.Model},
	}
}

// interrupted keeps what the model had said before a cancel: its text, never its unfinished calls.
func (t *turn) interrupted(req *request, res *model.Response) {
	if res == nil {
		return
	}
	var kept []model.Block
	said := false
	for _, b := range res.Content {
		if b.Type == model.BlockText || b.Type == model.BlockReasoning {
			kept = append(kept, b)
			said = said || b.Text != ""
		}
	}
	if !said {
		return
	}
	t.later(session.AssistantMessage{
		Turn: t.number, Step: t.step, Message: t.message(req, kept), Usage: res.Usage, Interrupted: true,
		Timing: session.Timing{TTFTMs: res.TTFT.Milliseconds(), TotalMs: res.Total.Milliseconds()},
	})
}

// reasonOf turns a failed model call into a turn's end.
func reasonOf(err error) session.Reason {
	var me *model.Error
	if !errors.As(err, &me) {
		return session.Reason{Kind: session.EndError, Code: "MODEL", Message: err.Error()}
	}
	r := session.Reason{Kind: session.EndError, Code: string(me.Code), Message: me.Error(), Status: me.Status}
	if me.Code == model.CodeContextWindow {
		r.Kind = session.EndContextFull
	}
	if me.RetryAfter > 0 {
		r.Message += " (the server asks to wait " + me.RetryAfter.Round(time.Second).String() + ")"
	}
	return r
}
