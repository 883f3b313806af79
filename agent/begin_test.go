package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
)

// A panic while the first request is made must not leave the message queued: the loop would meet it again at once, for ever.
func TestAPanicBeforeTheFirstCommitEndsTheTurn(t *testing.T) {
	r := newRig(t, script.Sequence(script.Turn{script.Text("fine")}))
	r.prepare = func() {
		if r.log.State().Turns == 0 {
			panic("inside")
		}
	}
	r.send("m1", "go", false)
	st := r.idle(1)
	if st.LastEnd == nil || st.LastEnd.Reason.Code != "INTERNAL" {
		t.Fatalf("end: %+v", st.LastEnd)
	}
	if len(st.History) != 1 || st.History[0].Message.ID != "m1" {
		t.Errorf("history: %+v", st.History)
	}
	r.send("m2", "again", false)
	if st = r.idle(2); st.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the next turn: %+v", st.LastEnd)
	}
}

// What a request that never came to be would have carried fixes nothing: the session is still blank and may change its preset.
func TestOnlyALoggedRequestFixesThePrompt(t *testing.T) {
	r := newRig(t, script.Sequence(script.Turn{script.Text("fine")}))
	removed := make(chan struct{})
	first := true
	r.prepare = func() {
		if !first {
			return
		}
		first = false
		if err := agent.Remove(context.Background(), r.log, "m1"); err != nil {
			t.Error(err)
		}
		close(removed)
	}
	r.queue("m1", "go")
	<-removed
	r.persona.Store(new("Be long."))
	r.send("m2", "again", false)
	r.idle(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.requests[len(r.requests)-1]; last.System != "Be long." {
		t.Errorf("the first request that left carries %q", last.System)
	}
	if len(r.violated) > 0 {
		t.Errorf("reported: %v", r.violated)
	}
}

// A log that is gone or damaged can't take the turn's end; trying for ever would keep the agent busy for ever.
func TestATurnOnADeletedLogIsGivenUp(t *testing.T) {
	streaming, gate := make(chan struct{}), make(chan struct{})
	r := newRig(t, script.Sequence(script.Turn{script.Do(func() { close(streaming) }), script.Wait(gate), script.Text("late")}))
	r.send("m1", "go", false)
	<-streaming
	r.must(r.journal.Delete(context.Background(), "s"))
	close(gate)
	for !r.agent.Idle() {
		select {
		case rec := <-r.logged:
			if rec == "turn given up" {
				return
			}
		case <-r.ctx().Done():
			t.Fatal("the agent never gives up")
		}
	}
}

// Between turns an agent can be held, and nothing begins until it is let go; in a turn it can't be.
func TestHold(t *testing.T) {
	streaming, gate := make(chan struct{}), make(chan struct{})
	r := newRig(t, script.Sequence(script.Turn{script.Do(func() { close(streaming) }), script.Wait(gate), script.Text("one")}))
	release, ok := r.agent.Hold()
	if !ok {
		t.Fatal("an idle agent can't be held")
	}
	r.send("m1", "go", false)
	if _, ok := r.agent.Hold(); ok {
		t.Error("held twice")
	}
	if st := r.log.State(); st.Turns != 0 || st.Queued() != 1 {
		t.Errorf("a held agent began: %+v", st)
	}
	release()
	<-streaming
	if _, ok := r.agent.Hold(); ok {
		t.Error("held in a turn")
	}
	close(gate)
	r.idle(1)
}

// An edit from nothing to something is a change, too.
func TestAnEditOfAnEmptyMessageIsNotOverlooked(t *testing.T) {
	r := newRig(t, script.Sequence(script.Turn{script.Text("fine")}))
	first := true
	r.prepare = func() {
		if first {
			first = false
			if err := agent.Edit(context.Background(), r.log, "m1", message("", "now it says something").Content, nil); err != nil && !errors.Is(err, agent.ErrStarted) {
				t.Error(err)
			}
		}
	}
	m := message("m1", "")
	m.Content = nil
	r.must(agent.Accept(context.Background(), r.log, m, false))
	r.agent.Wake()
	st := r.idle(1)
	if st.History[0].Message.Text() != "now it says something" {
		t.Errorf("the model saw %+v", st.History[0].Message)
	}
}
