package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/prompt"
)

// TestSendWhilePromptIsMade: a message waits for no section of a prompt. It is queued after a moment, or not at all when its sender gives up.
func TestSendWhilePromptIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, script.Sequence(script.Turn{script.Text("1")}, script.Turn{script.Text("2")}))
		gate, entered := make(chan struct{}), make(chan struct{}, 2)
		r.must(r.prompts.AddSection(r.root, prompt.Section{Name: "slow", Text: func(context.Context) (string, error) {
			entered <- struct{}{}
			<-gate
			return "slow", nil
		}}))
		synctest.Wait()

		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan error)
		go func() { // joined by the receive
			_, err := r.agent.Send(ctx, message("m0", "nobody waits"), false)
			gone <- err
		}()
		<-entered
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error("the sender gave up:", err)
		}
		begun := time.Now()
		r.send("m1", "one", false) // the loop is at the prompt: queued at once
		if st := r.log.State(); time.Since(begun) != 0 || st.Queued() != 1 || st.Knows("m0") {
			t.Errorf("after %v: %+v", time.Since(begun), st)
		}
		gate <- struct{}{} // for m0, which is withdrawn by now; then m1 is next
		<-entered
		gate <- struct{}{}
		r.idle(1)
		synctest.Wait()

		begun = time.Now()
		r.send("m2", "two", false)
		if took, st := time.Since(begun), r.log.State(); took == 0 || took > time.Second || st.Queued() != 1 {
			t.Errorf("after %v: %+v", took, st)
		}
		<-entered
		gate <- struct{}{} // for the offer
		<-entered
		gate <- struct{}{}
		r.idle(2)
		var asked []string
		for _, m := range decode[session.UserMessage](r) {
			asked = append(asked, m.ID)
		}
		if !slices.Equal(asked, []string{"m1", "m2"}) {
			t.Error("the messages that ran:", asked)
		}
	})
}

// TestSendOfAKnownMessage changes nothing, whatever the loop does.
func TestSendOfAKnownMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, script.Sequence(script.Turn{script.Text("1")}))
		r.send("m1", "one", false)
		r.idle(1)
		synctest.Wait()
		last := r.log.State().LastSeq
		r.send("m1", "again", false)
		synctest.Wait()
		if st := r.log.State(); st.LastSeq != last {
			t.Errorf("the log: %v", r.types())
		}
	})
}

// TestSendOnABrokenStore: the sender hears why, and no turn begins.
func TestSendOnABrokenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, did := slowDisk(t)
		synctest.Wait() // the loop rests
		broken := errors.New("input/output error")
		result := make(chan error)
		go func() { // joined by the receive
			_, err := r.agent.Send(context.Background(), message("m1", "go"), false)
			result <- err
		}()
		synctest.Wait()
		d.syncs <- broken
		if err := <-result; !errors.Is(err, broken) {
			t.Error("send:", err)
		}
		synctest.Wait()
		if st := r.log.State(); st.LastSeq != -1 || !did.are("asked") {
			t.Errorf("%v, %+v", did.list, st)
		}
		// The store works again, and so does the session, at once.
		begun := time.Now()
		go func() { d.syncs <- nil; d.syncs <- nil }() // joined by idle
		r.send("m2", "again", false)
		r.idle(1)
		if took := time.Since(begun); took != 0 {
			t.Error("the next message waited:", took)
		}
		if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndCompleted {
			t.Errorf("%+v", end)
		}
	})
}

// TestSendWhoseRequestCantBeMade: the message is accepted, and its turn says what is wrong.
func TestSendWhoseRequestCantBeMade(t *testing.T) {
	r := newRig(t, nil)
	r.must(r.prompts.AddSection(r.root, prompt.Section{Name: "bad", Text: func(context.Context) (string, error) { panic("inside") }}))
	r.send("m1", "go", false)
	st := r.idle(1)
	if end := decode[session.TurnEnd](r)[0].Reason; end.Code != "PROMPT" || !st.Knows("m1") {
		t.Errorf("%+v", end)
	}
}

// TestSendersAtOnce: whoever is accepted runs exactly once, whether the loop rests, works, is held, or is cancelled.
func TestSendersAtOnce(t *testing.T) {
	const senders, each = 8, 25
	r := newRig(t, func(model.Request) (script.Turn, error) { return script.Turn{script.Text("ok")}, nil })
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				r.send(fmt.Sprintf("m%d-%d", s, i), "go", false)
				switch {
				case s == 0:
					r.must(r.agent.Cancel(context.Background(), true))
				case s == 1:
					if release, ok := r.agent.Hold(); ok {
						release()
					}
				case s == 2:
					r.send(fmt.Sprintf("m%d-%d", s, i), "a repeat", false)
				}
			}
		})
	}
	all.Wait()
	r.idle(senders * each)
	ran := map[string]int{}
	page, err := r.log.Read(context.Background(), -1, 1<<20, 1<<30)
	r.must(err)
	for _, e := range page.Events {
		p, _, err := session.DecodePayload(e)
		r.must(err)
		if m, ok := p.(session.UserMessage); ok {
			ran[m.ID]++
		}
	}
	for s := range senders {
		for i := range each {
			if id := fmt.Sprintf("m%d-%d", s, i); ran[id] != 1 {
				t.Errorf("%s ran %d times", id, ran[id])
			}
		}
	}
}

// TestSendToAClosedAgent: the message is durable for another life.
func TestSendToAClosedAgent(t *testing.T) {
	r := newRig(t, nil)
	r.agent.Stop(agent.ByDisposed)
	if alive, err := r.agent.Send(context.Background(), message("m1", "go"), false); alive || err != nil {
		t.Error(alive, err)
	}
	if st := r.log.State(); st.Queued() != 1 {
		t.Errorf("%+v", st)
	}
}

// TestCancelMessage: only what became of that message ends.
func TestCancelMessage(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, script.Sequence(
		script.Turn{script.Text("1"), script.Wait(gate)}, script.Turn{script.Text("3"), script.Wait(gate), script.Text(", done")},
	))
	r.send("m1", "one", false)
	r.until("m1's turn", func(st session.State) bool { return st.TurnOpen })
	r.send("m2", "two", false)
	r.send("m3", "three", false)
	r.must(r.cancel("m2"))
	if st := r.log.State(); !st.TurnOpen || len(st.NextTurn) != 1 || st.NextTurn[0].ID != "m3" {
		t.Errorf("%+v", st.NextTurn)
	}
	r.must(r.cancel("m1"))
	r.until("m3's turn", func(st session.State) bool { return st.Turns == 2 && st.TurnOpen })
	for _, had := range []string{"m1", "m2"} {
		r.must(r.cancel(had))
	}
	if err := r.cancel("m4"); !errors.Is(err, agent.ErrUnknownMessage) {
		t.Error("a message that never was:", err)
	}
	close(gate)
	r.idle(2)
	ends := decode[session.TurnEnd](r)
	if ends[0].Reason.Kind != session.EndAborted || ends[0].Reason.By != agent.ByUser || ends[1].Reason.Kind != session.EndCompleted {
		t.Errorf("%+v", ends)
	}
	outcomes := map[string]int{}
	for _, p := range decode[session.InboxSpliced](r) {
		outcomes[p.Outcome]++
	}
	if outcomes["cancelled"] != 1 || outcomes["claimed"] != 2 {
		t.Errorf("%v", outcomes)
	}
}

// TestCancelOfARemovedMessage: it doesn't end the turn of the next one, which is being made.
func TestCancelOfARemovedMessage(t *testing.T) {
	r := newRig(t, script.Sequence(script.Turn{script.Text("2")}))
	gate, entered := make(chan struct{}), make(chan struct{}, 2)
	r.must(r.prompts.AddSection(r.root, prompt.Section{Name: "slow", Text: func(context.Context) (string, error) {
		entered <- struct{}{}
		<-gate
		return "slow", nil
	}}))
	r.queue("m1", "one")
	<-entered
	r.must(r.cancel("m1"))
	r.queue("m2", "two")
	gate <- struct{}{} // for m1, which is gone by now; then m2 is next
	<-entered
	r.must(r.cancel("m1"))
	gate <- struct{}{}
	r.idle(1)
	if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndCompleted {
		t.Errorf("%+v", end)
	}
}
