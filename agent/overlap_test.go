package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
	"github.com/dsh-web/dsh-web/tools"
)

// disk is a store whose commits of requests come to a halt once they are written, until somebody says how the sync ends.
type disk struct {
	*jsonl.Store
	syncs chan error
}

func (d disk) CommitStaged(epoch int64, changes []session.Change, written func()) error {
	written()
	if err := <-d.syncs; err != nil {
		return err
	}
	return d.Commit(epoch, changes)
}

// deeds lists what happens, in order.
type deeds struct {
	mu   sync.Mutex
	list []string
}

func (d *deeds) add(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, what)
}

func (d *deeds) are(want ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Equal(d.list, want)
}

// slowDisk is an agent over such a store: its model asks for one call and is done.
func slowDisk(t *testing.T) (r *rig, d disk, did *deeds) {
	t.Helper()
	store, err := jsonl.Open(t.TempDir(), jsonl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	did = &deeds{}
	note := func(what string) script.Step { return script.Do(func() { did.add(what) }) }
	answers := script.ByHistory(
		script.Turn{note("asked"), script.Text("I look."), note("heard"), script.Call("c1", "echo", "{}")},
		script.Turn{note("asked again"), script.Text("done")},
	)
	d = disk{store, make(chan error)}
	r = newRigOn(t, d, answers)
	r.tool("echo", false, func(ctx context.Context, c tools.Call) tools.Result {
		did.add("ran")
		return echo(ctx, c)
	})
	return r, d, did
}

// TestARequestLeavesDuringItsSync: a request is with the model while its record is on the way to the disk, and nothing of the answer is seen or
// done before it has arrived there.
func TestARequestLeavesDuringItsSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, did := slowDisk(t)
		r.queue("m1", "go")
		synctest.Wait()
		if !did.are("asked") {
			t.Errorf("while the first request's record isn't durable: %v", did.list)
		}
		if st := r.log.State(); st.TurnOpen || st.Queued() != 1 || len(r.log.Live().View().Blocks) > 0 {
			t.Errorf("something of it is visible: %+v", st)
		}
		d.syncs <- nil
		synctest.Wait()
		if !did.are("asked", "heard", "ran", "asked again") {
			t.Errorf("while the second one's isn't: %v", did.list)
		}
		if len(decode[session.ToolResult](r)) != 0 {
			t.Error("the result is visible before it is durable")
		}
		d.syncs <- nil
		r.idle(1)
		if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndCompleted {
			t.Errorf("end: %+v", end)
		}
	})
}

// TestARequestWhoseSyncFails: the answer is dropped, and the turn goes on from where the log stands.
func TestARequestWhoseSyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, did := slowDisk(t)
		r.queue("m1", "go")
		synctest.Wait()
		d.syncs <- errors.New("input/output error")
		synctest.Wait()
		if st := r.log.State(); st.Turns != 0 || st.Queued() != 1 || !did.are("asked") {
			t.Errorf("after the sync failed: %v, %+v", did.list, st)
		}
		// The turn begins anew after a pause.
		d.syncs <- nil
		synctest.Wait()
		d.syncs <- errors.New("input/output error")
		// Now the turn is in the log, which can be written: it ends, with the result of the call.
		r.idle(1)
		if end := decode[session.TurnEnd](r)[0].Reason; end.Code != "STORE" || len(decode[session.ToolResult](r)) != 1 || len(decode[session.RequestSent](r)) != 1 {
			t.Errorf("%+v; the log: %v", end, r.types())
		}
		if !did.are("asked", "asked", "heard", "ran", "asked again") {
			t.Error(did.list)
		}
	})
}

// TestAPanicDuringASync: the turn ends all the same, after the request's record.
func TestAPanicDuringASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := jsonl.Open(t.TempDir(), jsonl.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := disk{store, make(chan error)}
		r := newRigOn(t, d, func(model.Request) (script.Turn, error) { panic("inside") })
		r.queue("m1", "go")
		d.syncs <- nil
		r.idle(1)
		if end := decode[session.TurnEnd](r)[0].Reason; end.Code != "INTERNAL" || len(decode[session.RequestSent](r)) != 1 {
			t.Errorf("%+v; the log: %v", end, r.types())
		}
	})
}
