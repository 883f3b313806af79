package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
)

// askingRig has a preset that asks before bash, and a model that calls it once a turn.
func askingRig(t *testing.T, o options) *rig {
	t.Helper()
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	preset := filepath.Join(o.dir, "presets", "careful")
	if err := os.MkdirAll(preset, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "version: 1\nextends: minimal\nrows:\n  - {id: approvals, use: approvals, with: {tools: [bash]}}\n"
	if err := os.WriteFile(filepath.Join(preset, "preset.yml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o.source = script.Demo(script.Options{})
	return newRig(t, o)
}

// ask sends a message that needs leave and waits until it is asked for.
func (r *rig) ask(id, message string) host.Approval {
	r.t.Helper()
	_, err := r.session(id).Send(r.ctx(), host.Message{Content: text(message)})
	r.must(err)
	sub := r.host.Feed().Subscribe()
	defer sub.Close()
	for {
		f, err := sub.Next(r.ctx())
		r.must(err)
		for _, a := range f.Approvals {
			if a.Session == id {
				return a
			}
		}
	}
}

// settled gives how the session's last approval ended.
func (r *rig) settled(id string) (d session.ApprovalDecided) {
	r.t.Helper()
	for _, e := range r.events(id) {
		if e.Type == d.EventType() {
			r.must(json.Unmarshal(e.Data, &d))
		}
	}
	return d
}

func (r *rig) allow(a host.Approval) error {
	return r.host.Decide(r.ctx(), approval.Approval, a.ID, a.ArgsHash, approval.Decision{Outcome: approval.Allowed, Scope: approval.Once})
}

func (r *rig) notSettledAnyMore(a host.Approval, outcome string) {
	r.t.Helper()
	var refusal *host.Error
	if err := r.allow(a); !errors.As(err, &refusal) || refusal.Code != host.CodeApprovalSettled || refusal.Fields["outcome"] != outcome {
		r.t.Errorf("decided afterwards: %v", err)
	}
	all, err := r.host.Pending(r.ctx(), approval.Approval, "")
	r.must(err)
	if len(all) != 0 {
		r.t.Errorf("still pending: %+v", all)
	}
}

func TestCancelWithdrawsWhatWaits(t *testing.T) {
	r := askingRig(t, options{})
	r.create("s", "careful")
	a := r.ask("s", "run: touch x")
	r.must(r.session("s").Cancel(r.ctx(), false))
	st, err := r.session("s").WaitIdle(r.ctx())
	r.must(err)
	if st.LastEnd.Reason.Kind != session.EndAborted || len(st.Approvals) != 0 {
		t.Errorf("%+v", st.LastEnd)
	}
	r.notSettledAnyMore(a, approval.Cancelled)
	if got := results(t, r.events("s")); len(got) != 1 || !strings.Contains(got[0], "was not run") {
		t.Errorf("results %q", got)
	}
	if _, err := os.Stat(filepath.Join(r.ws, "x")); err == nil {
		t.Error("it ran")
	}
	// The session goes on.
	b := r.ask("s", "run: echo on")
	r.must(r.allow(b))
	if st, err := r.session("s").WaitIdle(r.ctx()); err != nil || st.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("%+v, %v", st.LastEnd, err)
	}
}

func TestDrainWithdrawsWhatWaits(t *testing.T) {
	r := askingRig(t, options{})
	r.create("s", "careful")
	a := r.ask("s", "run: touch x")
	r.host.Drain()
	st, err := r.session("s").WaitIdle(r.ctx())
	r.must(err)
	if st.TurnOpen || st.LastEnd.Reason.By != "shutdown" {
		t.Errorf("%+v", st.LastEnd)
	}
	if d := r.settled("s"); d.Outcome != approval.Cancelled || d.Reason != "the host is shutting down" || d.By != approval.ByHost {
		t.Errorf("%+v", d)
	}
	r.notSettledAnyMore(a, approval.Cancelled)
}

func TestShutdownWithdrawsWhatWaits(t *testing.T) {
	r := askingRig(t, options{})
	r.create("s", "careful")
	a := r.ask("s", "run: touch x")
	r.stop()
	r = askingRig(t, options{dir: r.dir})
	if d := r.settled("s"); d.ID != a.ID || d.Outcome != approval.Cancelled || d.Reason == "" {
		t.Errorf("%+v", d)
	}
	r.notSettledAnyMore(a, approval.Cancelled)
	if info, err := r.session("s").Info(r.ctx()); err != nil || info.PendingApprovals != 0 || info.Status != host.StatusIdle {
		t.Errorf("%+v, %v", info, err)
	}
	b := r.ask("s", "run: echo on")
	r.must(r.allow(b))
	if st, err := r.session("s").WaitIdle(r.ctx()); err != nil || st.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("%+v, %v", st.LastEnd, err)
	}
}

func TestDeleteWithSomethingPending(t *testing.T) {
	r := askingRig(t, options{})
	r.create("s", "careful")
	a := r.ask("s", "run: touch x")
	var refusal *host.Error
	if err := r.host.Delete(r.ctx(), "s", false); !errors.As(err, &refusal) || refusal.Code != host.CodeSessionRunning {
		t.Errorf("deleted while it waits: %v", err)
	}
	r.must(r.host.Delete(r.ctx(), "s", true))
	if err := r.allow(a); !errors.As(err, &refusal) || refusal.Code != host.CodeApprovalNotFound {
		t.Errorf("decided afterwards: %v", err)
	}
	if all, err := r.host.Pending(r.ctx(), approval.Approval, ""); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestAWaitingSessionIsNotEvicted(t *testing.T) {
	r := askingRig(t, options{config: func(c *host.Config) { c.EvictIdle, c.EvictUsedShell = time.Millisecond, time.Millisecond }})
	r.create("s", "careful")
	r.create("idle", "careful")
	a := r.ask("s", "run: echo on")
	// The other one goes, so the clock has run; this one stays and its call runs when it is allowed.
	log, err := r.host.Journal().Open(r.ctx(), "idle")
	r.must(err)
	defer r.host.Journal().Release(log)
	for e, err := range log.Follow(r.ctx(), -1) {
		r.must(err)
		if e.Type == (session.AgentEvicted{}).EventType() {
			break
		}
	}
	if info, err := r.session("s").Info(r.ctx()); err != nil || !info.Live || info.PendingApprovals != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	r.must(r.allow(a))
	if _, err := r.session("s").WaitIdle(r.ctx()); err != nil {
		t.Error(err)
	}
	if got := results(t, r.events("s")); len(got) != 1 || !strings.Contains(got[0], "on") {
		t.Errorf("results %q", got)
	}
}

// TestPendingWithoutACall decides what a stopped process left, on a store that wasn't recovered.
func TestPendingWithoutACall(t *testing.T) {
	r := askingRig(t, options{})
	r.create("s", "careful")
	r.must(r.session("s").Close(r.ctx()))
	log, err := r.host.Journal().Open(r.ctx(), "s")
	r.must(err)
	defer r.host.Journal().Release(log)
	asked := session.ApprovalAsked{ID: "x~s", Kind: approval.Approval, Tool: "bash", CallID: "c", ArgsHash: "h"}
	_, err = log.Update(r.ctx(), func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.TurnStart{Turn: 1}}, {Payload: asked}}, nil
	})
	r.must(err)
	all, err := r.host.Pending(r.ctx(), approval.Approval, "")
	r.must(err)
	if len(all) != 1 || all[0].ID != "x~s" {
		t.Errorf("%+v", all)
	}
	r.notSettledAnyMore(all[0], approval.Unavailable)
}

// TestFeedBeginsWithAllThatWaits has more sessions than a first frame lists.
func TestFeedBeginsWithAllThatWaits(t *testing.T) {
	r := askingRig(t, options{config: func(c *host.Config) { c.MaxLive = 5000 }})
	r.create("s", "careful")
	a := r.ask("s", "run: echo on")
	for range 4 {
		_, err := r.host.CreateBatch(r.ctx(), host.Spec{Workspace: r.ws}, 251)
		r.must(err)
	}
	sub := r.host.Feed().Subscribe()
	defer sub.Close()
	f, err := sub.Next(context.Background())
	r.must(err)
	if len(f.Approvals) != 1 || f.Approvals[0].ID != a.ID || len(f.Sessions) != 1001 {
		t.Errorf("%d approvals, %d sessions", len(f.Approvals), len(f.Sessions))
	}
}
