package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
)

// refusals are the answers that any command may get while others run beside it.
var refusals = map[string]bool{
	host.CodeSessionNotFound: true, host.CodeSessionConflict: true, host.CodeSessionRunning: true, host.CodePresetLocked: true,
	host.CodeMessageStarted: true, host.CodeMessageNotFound: true, host.CodeForkPoint: true,
}

// TestEverythingAtOnce runs all commands on a few sessions from several goroutines. Afterwards every turn has ended, every message that was
// accepted was taken at most once, in order, or was cancelled or removed, nothing is left running and the counts are right.
func TestEverythingAtOnce(t *testing.T) {
	var clock atomic.Int64
	r := newRig(t, options{
		config: func(c *host.Config) {
			quiet(c)
			c.MaxLive = 0
			// Time runs, so that whatever can be evicted is, when a round comes.
			c.EvictIdle, c.Now = time.Minute, func() time.Time { return time.Unix(60*clock.Add(1), 0) }
		},
		source: func(q model.Request) (script.Turn, error) {
			if last := q.Messages[len(q.Messages)-1]; last.Source.Kind != model.SourceTool && len(q.Messages)%3 == 0 {
				return script.Turn{script.Call("", "str_replace_editor", `{"command":"view","path":"/"}`)}, nil
			}
			return script.Turn{script.Text("done")}, nil
		},
	})
	ids := []string{"a", "b", "c"}
	presets := []string{"minimal", "standard"}
	var mu sync.Mutex
	sent := map[string]bool{}
	length := time.Second / 2
	if os.Getenv("DSH_SOAK") == "1" {
		length = 30 * time.Second
	}
	deadline := time.Now().Add(length)
	var group sync.WaitGroup
	for worker := range 6 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			for n := 0; time.Now().Before(deadline); n++ {
				id := ids[rng.IntN(len(ids))]
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				if rng.IntN(8) == 0 { // some callers go away at once
					cancel()
				}
				message := fmt.Sprintf("m-%d-%d", worker, n)
				err := r.random(ctx, rng, id, message, presets[rng.IntN(2)])
				cancel()
				var refused *host.Error
				switch {
				case err == nil:
					mu.Lock()
					sent[message] = true
					mu.Unlock()
				case errors.Is(err, context.Canceled), errors.Is(err, session.ErrNotFound), errors.Is(err, session.ErrClosed):
				case errors.As(err, &refused) && refusals[refused.Code]:
				default:
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	group.Wait()
	var all []host.Info
	for q := (session.Query{}); ; {
		list, err := r.host.List(r.ctx(), q)
		r.must(err)
		all, q.Cursor = append(all, list.Sessions...), list.NextCursor
		if q.Cursor == "" {
			break
		}
	}
	live := 0
	for _, in := range all {
		s := r.session(in.ID)
		r.must(s.Wake(r.ctx()))
		st, err := s.WaitIdle(r.ctx())
		r.must(err)
		if st.TurnOpen || st.Queued() > 0 {
			t.Errorf("%s: turn open %v, %d queued", in.ID, st.TurnOpen, st.Queued())
		}
		live++
		checkLog(t, in.ID, r.events(in.ID))
	}
	if n := r.host.Report().Live; n != live {
		t.Errorf("%d agents are counted, %d sessions are live", n, live)
	}
	for _, in := range all {
		r.must(r.host.Delete(r.ctx(), in.ID, true))
	}
	if n := r.host.Report().Live; n != 0 {
		t.Errorf("%d agents are counted after all were deleted", n)
	}
	t.Logf("%d commands succeeded, %d requests, %d sessions", len(sent), len(r.wire.Requests()), len(all))
}

// random gives one command.
func (r *rig) random(ctx context.Context, rng *rand.Rand, id, message, preset string) error {
	what := rng.IntN(20)
	if what < 2 {
		_, _, err := r.host.Create(ctx, host.Spec{ID: id, Preset: "minimal", Workspace: r.ws, Message: text("first")})
		return err
	}
	if what == 2 && rng.IntN(3) == 0 {
		return r.host.Delete(ctx, id, rng.IntN(2) == 0)
	}
	if what == 3 {
		return r.host.Evict(ctx)
	}
	s, err := r.host.Session(ctx, id)
	if err != nil {
		return err
	}
	defer s.Release()
	steer := rng.IntN(2) == 0
	switch what {
	case 4, 5:
		return s.Cancel(ctx, steer)
	case 6:
		return s.Close(context.WithoutCancel(ctx))
	case 7:
		_, err = s.Patch(ctx, host.Patch{Preset: &preset})
	case 8:
		_, err = s.Send(ctx, host.Message{ID: message, Content: text(message), Steer: steer})
		if err == nil {
			err = s.EditQueued(ctx, message, host.Edit{Content: text("edited"), Steer: &steer})
		}
	case 9:
		_, err = s.Send(ctx, host.Message{ID: message, Content: text(message), Steer: steer})
		if err == nil {
			err = s.RemoveQueued(ctx, message)
		}
	case 10:
		_, err = s.Fork(ctx, nil, "")
	case 11:
		_, err = s.WaitIdle(ctx)
	case 12:
		_, err = s.Prompt(ctx)
	case 13:
		_, err = s.Attach(ctx, "image/png", []byte("\x89PNG\r\n\x1a\n"))
	default:
		_, err = s.Send(ctx, host.Message{ID: message, Content: text(message), Steer: steer})
	}
	return err
}

// checkLog reads a log for what must hold in every one.
func checkLog(t *testing.T, id string, events []session.Event) {
	t.Helper()
	taken := map[string]int{}
	open, turns := false, 0
	calls := map[string]bool{}
	for _, e := range events {
		switch e.Type {
		case session.TurnStart{}.EventType():
			var p session.TurnStart
			if err := json.Unmarshal(e.Data, &p); err != nil || open || p.Turn != turns+1 {
				t.Errorf("%s: event %d starts turn %d after %d, one is open: %v; %v", id, e.Seq, p.Turn, turns, open, err)
			}
			open, turns = true, turns+1
		case session.TurnEnd{}.EventType():
			if !open || len(calls) > 0 {
				t.Errorf("%s: event %d ends a turn, one is open: %v; calls without a result: %v", id, e.Seq, open, calls)
			}
			open = false
		case session.UserMessage{}.EventType():
			var p session.UserMessage
			if err := json.Unmarshal(e.Data, &p); err != nil {
				t.Error(err)
			}
			if taken[p.ID]++; taken[p.ID] > 1 {
				t.Errorf("%s: message %s was taken twice", id, p.ID)
			}
		case session.ToolCall{}.EventType():
			var p session.ToolCall
			if err := json.Unmarshal(e.Data, &p); err != nil {
				t.Error(err)
			}
			calls[p.CallID] = true
		case session.ToolResult{}.EventType():
			var p session.ToolResult
			if err := json.Unmarshal(e.Data, &p); err != nil {
				t.Error(err)
			}
			delete(calls, p.Message.Source.CallID)
		}
	}
	if open {
		t.Errorf("%s: the last turn has no end", id)
	}
}
