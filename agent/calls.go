package agent

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/tools"
)

// parallelCalls is how many parallel-safe calls run at a time.
const parallelCalls = 10

// runCalls runs a step's calls in the model's order: runs of parallel-safe ones together, every other one alone. Each call is durable before
// it runs, each result as soon as no other commit will carry it. After a cancel the calls that haven't started get a result that says so.
func (t *turn) runCalls(ctx context.Context, req *request, calls []model.Block) error {
	for len(calls) > 0 {
		if ctx.Err() != nil {
			t.refuse(calls, tools.CodeCancelled, "Not run: the turn was cancelled.")
			return failure{t.endOf(ctx)}
		}
		n := batch(req.tools, calls)
		for _, c := range calls[:n] {
			t.later(session.ToolCall{Turn: t.number, Step: t.step, CallID: c.ID, Name: c.Name, Arguments: c.Arguments})
		}
		if err := t.flush(ctx); err != nil {
			return err
		}
		if err := t.runBatch(ctx, req.tools, calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	if ctx.Err() != nil {
		return failure{t.endOf(ctx)}
	}
	return nil
}

// batch counts the calls at the head that may run together.
func batch(set []tools.Tool, calls []model.Block) int {
	parallel := map[string]bool{}
	for _, tool := range set {
		parallel[tool.Name] = tool.Parallel
	}
	n := 0
	for n < len(calls) && parallel[calls[n].Name] {
		n++
	}
	return max(n, 1)
}

// runBatch runs calls together. All results but the last to arrive are committed at once; the last one joins the next commit.
func (t *turn) runBatch(ctx context.Context, set []tools.Tool, calls []model.Block) error {
	if len(calls) == 1 {
		t.later(t.runCall(ctx, set, calls[0])...)
		return nil
	}
	queue := make(chan model.Block, len(calls))
	for _, c := range calls {
		queue <- c
	}
	close(queue)
	results := make(chan []session.Payload, len(calls))
	var group sync.WaitGroup
	defer group.Wait()
	for range min(parallelCalls, len(calls)) {
		group.Go(func() {
			for c := range queue {
				results <- t.runCall(ctx, set, c)
			}
		})
	}
	var failed error
	for left := len(calls) - 1; left >= 0; left-- {
		t.later(<-results...)
		if left > 0 && failed == nil {
			failed = t.flush(ctx)
		}
	}
	return failed
}

// runCall sends one call through the pipeline.
func (t *turn) runCall(ctx context.Context, set []tools.Tool, c model.Block) []session.Payload {
	output := t.log.Live().Output(c.ID)
	res := t.runner.Run(ctx, set, session.ToolCall{Turn: t.number, Step: t.step, CallID: c.ID, Name: c.Name, Arguments: c.Arguments}, output)
	return append(res.Events, t.result(ctx, c.ID, res))
}

// result is a call's result as the log keeps it. Image bytes move to the attachments.
func (t *turn) result(ctx context.Context, callID string, res tools.Result) session.ToolResult {
	content := make([]model.Block, 0, len(res.Content))
	for _, b := range res.Content {
		if b.Type == model.BlockImage && b.AttachmentID == "" {
			b = t.keepImage(ctx, b)
		}
		content = append(content, b)
	}
	out := session.ToolResult{Turn: t.number, Step: t.step, Error: res.Error, Message: model.Message{
		ID: NewID("msg_"), Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: callID},
		Content: []model.Block{{Type: model.BlockToolResult, ToolCallID: callID, Content: content, IsError: res.IsError}},
	}}
	if res.Meta != nil {
		if raw, err := json.Marshal(res.Meta); err == nil {
			out.Meta = raw
		} else {
			t.cfg.Logger.Error("encode tool meta", "session", t.log.ID(), "call", callID, "error", err)
		}
	}
	return out
}

func (t *turn) keepImage(ctx context.Context, b model.Block) model.Block {
	if t.cfg.Attachments == nil {
		return model.Text("[an image that this host can't show to the model]")
	}
	id, err := t.cfg.Attachments.Keep(context.WithoutCancel(ctx), b.Mime, b.Data)
	if err != nil {
		return model.Text("[an image that could not be kept: " + err.Error() + "]")
	}
	return model.Block{Type: model.BlockImage, AttachmentID: id, Mime: b.Mime}
}

// refuse answers calls that will not run.
func (t *turn) refuse(calls []model.Block, code, text string) {
	for _, c := range calls {
		t.later(t.result(context.Background(), c.ID, tools.ErrorResult(c.Name, code, text)))
	}
}
