package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
)

// median times each call of one and reports the middle of them beside the mean; what after does isn't counted. One gives the time
// at which it was done.
func median(b *testing.B, one func(i int) time.Time, after func(i int)) {
	b.Helper()
	b.ReportAllocs()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		took = append(took, one(i).Sub(began))
		b.StopTimer()
		after(i)
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
}

func quiet(c *host.Config) { c.Logger = slog.New(slog.DiscardHandler) }

// BenchmarkCreateMinimal makes a session with its agent, durably.
func BenchmarkCreateMinimal(b *testing.B) {
	r := newRig(b, options{config: quiet})
	id := func(i int) string { return fmt.Sprintf("s%d", i) }
	median(b, func(i int) time.Time {
		_, _, err := r.host.Create(context.Background(), host.Spec{ID: id(i), Workspace: r.ws})
		r.must(err)
		return time.Now()
	}, func(i int) { r.must(r.host.Delete(context.Background(), id(i), true)) })
}

// BenchmarkMessageToRequest is from a message to the arrival of its request at the model's server, with both commits before it.
func BenchmarkMessageToRequest(b *testing.B) {
	arrived := make(chan time.Time, 1)
	r := newRig(b, options{config: quiet, source: func(model.Request) (script.Turn, error) {
		arrived <- time.Now()
		return script.Turn{script.Text("ok")}, nil
	}})
	r.create("s", "minimal")
	s := r.session("s")
	median(b, func(int) time.Time {
		_, err := s.Send(context.Background(), host.Message{Content: text("hello")})
		r.must(err)
		return <-arrived
	}, func(i int) {
		_, err := s.WaitIdle(context.Background())
		r.must(err)
		if i%50 == 49 { // a short history again
			r.must(r.host.Delete(context.Background(), "s", true))
			s.Release()
			r.create("s", "minimal")
			s, err = r.host.Session(context.Background(), "s")
			r.must(err)
		}
	})
}

// BenchmarkResume makes an evicted session of 1,000 events live again.
func BenchmarkResume(b *testing.B) {
	r := newRig(b, options{config: quiet})
	r.create("s", "minimal")
	log, err := r.host.Journal().Open(context.Background(), "s")
	r.must(err)
	_, err = log.Update(context.Background(), func(st session.State) ([]session.Draft, error) {
		var out []session.Draft
		for turn := st.Turns + 1; int64(len(out)) < 1000-st.LastSeq; turn++ {
			say := func(role model.Role, source model.SourceKind) model.Message {
				return model.Message{ID: fmt.Sprint(role, turn), Role: role, Content: text("Some words, as they are said in a turn."), Source: model.Source{Kind: source}}
			}
			for _, p := range []session.Payload{
				session.TurnStart{Turn: turn}, session.StepStart{Turn: turn, Step: 1}, session.UserMessage{Message: say(model.RoleUser, model.SourceUser)},
				session.AssistantMessage{Turn: turn, Step: 1, Message: say(model.RoleAssistant, model.SourceModel)},
				session.StepEnd{Turn: turn, Step: 1}, session.TurnEnd{Turn: turn, Reason: session.Reason{Kind: session.EndCompleted}},
			} {
				out = append(out, session.Draft{Payload: p})
			}
		}
		return out, nil
	})
	r.must(err)
	r.host.Journal().Release(log)
	cold := func(int) {
		s, err := r.host.Session(context.Background(), "s")
		r.must(err)
		r.must(s.Close(context.Background()))
		s.Release()
	}
	cold(0)
	median(b, func(int) time.Time {
		s, err := r.host.Session(context.Background(), "s")
		r.must(err)
		r.must(s.Wake(context.Background()))
		done := time.Now()
		s.Release()
		return done
	}, cold)
}
