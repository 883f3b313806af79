package approval

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a desk over a real log.
type rig struct {
	t       *testing.T
	dir     string
	journal *session.Journal
	log     *session.Log
	desk    *Desk
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	r.open()
	log, err := r.journal.Create(t.Context(), session.Header{ID: "s", Version: 1, CreatedAt: 1, Cwd: "/w"}, nil)
	r.must(err)
	r.begin(log)
	r.append(session.TurnStart{Turn: 1}, session.StepStart{Turn: 1, Step: 1}, session.ToolCall{Turn: 1, Step: 1, CallID: "c1", Name: "bash", Arguments: "{}"})
	t.Cleanup(func() { r.close() })
	return r
}

func (r *rig) open() {
	r.t.Helper()
	store, err := sqlite.Open(context.Background(), filepath.Join(r.dir, "db"), sqlite.Options{Synchronous: "normal"})
	r.must(err)
	r.journal = session.NewJournal(store, session.Options{Checked: true})
	r.must(r.journal.Start(context.Background()))
}

func (r *rig) begin(log *session.Log) {
	r.log, r.desk = log, New(func() *session.Log { return log }, nil)
}

func (r *rig) close() {
	r.t.Helper()
	r.journal.Release(r.log)
	r.must(r.journal.Close(context.Background()))
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) append(all ...session.Payload) {
	r.t.Helper()
	_, err := r.log.Update(context.Background(), func(session.State) ([]session.Draft, error) {
		var drafts []session.Draft
		for _, p := range all {
			drafts = append(drafts, session.Draft{Payload: p})
		}
		return drafts, nil
	})
	r.must(err)
}

// ask asks in the background; done gives the decision.
func (r *rig) ask(ctx context.Context, q Request) (asked session.ApprovalAsked, done func() Decision) {
	r.t.Helper()
	before := len(r.log.State().Approvals)
	got := make(chan Decision, 1)
	var group sync.WaitGroup
	group.Go(func() { got <- r.desk.Ask(ctx, q) })
	done = sync.OnceValue(func() Decision { group.Wait(); return <-got })
	r.t.Cleanup(func() { r.desk.Close("the test ends"); done() })
	for {
		changed := r.log.Changed()
		if all := r.log.State().Approvals; len(all) > before {
			return all[len(all)-1], done
		}
		<-changed
	}
}

func (r *rig) decide(a session.ApprovalAsked, d Decision) error {
	if d.By == "" {
		d.By = ByOwner
	}
	return r.desk.Decide(r.t.Context(), Approval, a.ID, a.ArgsHash, d)
}

func shell(command string) Request {
	return Request{Tool: Shell, CallID: "c1", Arguments: `{"command":"` + command + `"}`, Cwd: "/w", Reason: "the preset says so"}
}

var allow = Decision{Outcome: Allowed, Scope: session.ScopeOnce}

func TestTheZeroValueDenies(t *testing.T) {
	if (Decision{}).Allowed() {
		t.Error("it allows")
	}
	for _, outcome := range []string{Rejected, Cancelled, Expired, Unavailable, "yes"} {
		if (Decision{Outcome: outcome}).Allowed() {
			t.Errorf("%s allows", outcome)
		}
	}
	if d := New(nil, nil).Ask(t.Context(), shell("ls")); d.Outcome != Unavailable {
		t.Errorf("a desk without a log: %+v", d)
	}
}

func TestFirstDecisionWins(t *testing.T) {
	r := newRig(t)
	a, done := r.ask(t.Context(), shell("ls"))
	if a.Turn != 1 || a.Step != 1 || a.CallID != "c1" || a.Cwd != "/w" || a.ArgsHash != HashArguments(a.Arguments) || a.ExpiresAt == 0 {
		t.Errorf("asked %+v", a)
	}
	if s, ok := SessionOf(a.ID); !ok || s != "s" {
		t.Errorf("id %s", a.ID)
	}
	if info := r.log.Info(); info.Pending != 1 {
		t.Errorf("the row counts %d pending", info.Pending)
	}
	other := a
	other.ArgsHash = HashArguments("other")
	if err := r.decide(other, allow); !errors.Is(err, ErrChanged) {
		t.Errorf("another hash: %v", err)
	}
	if err := r.desk.Decide(t.Context(), Question, a.ID, a.ArgsHash, allow); !errors.Is(err, ErrNotFound) {
		t.Errorf("as a question: %v", err)
	}

	// Many at once: one wins, the others learn what it was.
	const many = 8
	errs := make([]error, many)
	var group sync.WaitGroup
	for i := range many {
		d := allow
		if i%2 == 1 {
			d.Outcome = Rejected
		}
		group.Go(func() { errs[i] = r.decide(a, d) })
	}
	group.Wait()
	got := done()
	won := 0
	for i, err := range errs {
		var settled *SettledError
		switch {
		case err == nil:
			won++
			if allowed := i%2 == 0; got.Allowed() != allowed {
				t.Errorf("decider %d won and the call got %s", i, got.Outcome)
			}
		case !errors.As(err, &settled) || settled.Outcome != got.Outcome:
			t.Errorf("decider %d: %v, want %s", i, err, got.Outcome)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
	if n := len(r.log.State().Approvals); n != 0 {
		t.Errorf("%d are pending", n)
	}
	if err := r.decide(session.ApprovalAsked{ID: "nobody~s"}, allow); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
}

// TestSeveralWaitAtOnce decides in another order than was asked; each call gets its own.
func TestSeveralWaitAtOnce(t *testing.T) {
	r := newRig(t)
	var asked []session.ApprovalAsked
	var done []func() Decision
	for _, command := range []string{"one", "two", "three"} {
		a, d := r.ask(t.Context(), shell(command))
		asked, done = append(asked, a), append(done, d)
	}
	if n := r.log.Info().Pending; n != 3 {
		t.Errorf("the row counts %d pending", n)
	}
	for i := len(asked) - 1; i >= 0; i-- {
		r.must(r.decide(asked[i], Decision{Outcome: Rejected, Reason: asked[i].Arguments}))
	}
	for i, d := range done {
		if got := d(); got.Reason != asked[i].Arguments {
			t.Errorf("call %d got the decision of %s", i, got.Reason)
		}
	}
}

func TestEveryAskEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(r *rig, cancel context.CancelFunc)
		want   string
		reason string
	}{
		"expiry":            {func(*rig, context.CancelFunc) { time.Sleep(time.Hour) }, Expired, "nobody answered within 1h"}, // the bubble's clock
		"cancel":            {func(_ *rig, cancel context.CancelFunc) { cancel() }, Cancelled, "the call was cancelled while it waited"},
		"close of the desk": {func(r *rig, _ context.CancelFunc) { r.desk.Close("the host drains") }, Cancelled, "the host drains"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q := shell("ls")
				q.Expire = time.Hour
				a, done := r.ask(ctx, q)
				c.end(r, cancel)
				if d := done(); d.Outcome != c.want || d.Reason != c.reason || d.Allowed() {
					t.Errorf("%+v", d)
				}
				var settled *SettledError
				if err := r.decide(a, allow); !errors.As(err, &settled) || settled.Outcome != c.want {
					t.Errorf("decided afterwards: %v", err)
				}
				if len(r.log.State().Approvals) != 0 {
					t.Error("still pending")
				}
			})
		})
	}
	t.Run("the desk is closed", func(t *testing.T) {
		r := newRig(t)
		r.desk.Close("done")
		if d := r.desk.Ask(t.Context(), shell("ls")); d.Outcome != Unavailable {
			t.Errorf("%+v", d)
		}
	})
	t.Run("cancelled before", func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if d := r.desk.Ask(ctx, shell("ls")); d.Outcome != Cancelled || len(r.log.State().Approvals) != 0 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("the turn's end", func(t *testing.T) {
		r := newRig(t)
		a, done := r.ask(t.Context(), shell("ls"))
		r.append(session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: session.EndError}})
		if len(r.log.State().Approvals) != 0 || r.log.Info().Pending != 0 {
			t.Error("pending after the turn's end")
		}
		var settled *SettledError
		if err := r.decide(a, allow); !errors.As(err, &settled) || settled.Outcome != Unavailable {
			t.Errorf("decided afterwards: %v", err)
		}
		r.desk.Close("over")
		if d := done(); d.Allowed() {
			t.Errorf("%+v", d)
		}
	})
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{12 * time.Hour: "12h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 30 * time.Second: "30s", 61 * time.Second: "1m1s"} {
		if got := span(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestSessionGrant(t *testing.T) {
	r := newRig(t)
	once, done := r.ask(t.Context(), shell("git status"))
	r.must(r.decide(once, allow))
	done()
	a, done := r.ask(t.Context(), shell("git status")) // once is once
	always := Decision{Outcome: Allowed, Scope: session.ScopeSession}
	r.must(r.decide(a, always))
	if !done().Allowed() {
		t.Fatal("not allowed")
	}
	if d := r.desk.Ask(t.Context(), shell("git status")); !d.Allowed() || d.By != ByGrant {
		t.Errorf("under the grant: %+v", d)
	}
	for _, command := range []string{
		"git status && rm -rf x", "git status; rm x", "git status | sh", `bash -c \"$X\"`, "env FOO=1 curl", "git  status --short", "git statu", "$(git status)",
		"FOO=1 git status", "git status > x", "eval git status", "git status &",
	} {
		a, done := r.ask(t.Context(), shell(command))
		r.must(r.decide(a, Decision{Outcome: Rejected}))
		if done().Allowed() {
			t.Errorf("%s is covered", command)
		}
	}
	// The words count, not how they are written, and grants add up.
	if d := r.desk.Ask(t.Context(), shell("git   'status'")); d.By != ByGrant {
		t.Errorf("%+v", d)
	}
	b, done := r.ask(t.Context(), shell("ls -l"))
	r.must(r.decide(b, always))
	done()
	if d := r.desk.Ask(t.Context(), shell("git status && ls -l")); d.By != ByGrant {
		t.Errorf("%+v", d)
	}

	// What can't be remembered is refused with the reason, and stays pending.
	c, done := r.ask(t.Context(), shell("curl x"))
	if err := r.decide(c, always); !errors.Is(err, ErrOnce) {
		t.Errorf("a grant for curl: %v", err)
	}
	r.must(r.decide(c, allow))
	done()

	// It survives a restart, is listed and can be taken back.
	r.journal.Release(r.log)
	r.must(r.journal.Close(t.Context()))
	r.open()
	_, err := r.journal.Recover(t.Context())
	r.must(err)
	log, err := r.journal.Open(t.Context(), "s")
	r.must(err)
	r.begin(log)
	r.append(session.TurnStart{Turn: 2})
	if d := r.desk.Ask(t.Context(), shell("git status")); d.By != ByGrant {
		t.Errorf("after a restart: %+v", d)
	}
	grants := Grants(r.log.State())
	if len(grants) != 2 || grants[0].ID != a.ID || len(grants[0].Covers) != 1 || grants[0].Covers[0][1] != "status" || grants[0].GrantedAt == 0 {
		t.Errorf("grants %+v", grants)
	}
	r.must(Revoke(t.Context(), r.log, a.ID))
	if err := Revoke(t.Context(), r.log, a.ID); !errors.Is(err, ErrNoGrant) {
		t.Errorf("revoked twice: %v", err)
	}
	d, done := r.ask(t.Context(), shell("git status"))
	r.must(r.decide(d, Decision{Outcome: Rejected}))
	if done().Allowed() {
		t.Error("allowed after it was revoked")
	}
}

func TestGrantOfAnotherTool(t *testing.T) {
	r := newRig(t)
	q := Request{Tool: "create", Arguments: `{"path":"/w/a"}`}
	a, done := r.ask(t.Context(), q)
	r.must(r.decide(a, Decision{Outcome: Allowed, Scope: session.ScopeSession}))
	done()
	if d := r.desk.Ask(t.Context(), q); d.By != ByGrant {
		t.Errorf("the same call: %+v", d)
	}
	for _, other := range []Request{{Tool: "create", Arguments: `{"path":"/w/b"}`}, {Tool: "insert", Arguments: q.Arguments}} {
		a, done := r.ask(t.Context(), other)
		r.must(r.decide(a, Decision{Outcome: Rejected}))
		if done().Allowed() {
			t.Errorf("%+v is covered", other)
		}
	}
}

func TestPolicies(t *testing.T) {
	r := newRig(t)
	r.must(SetPolicy(t.Context(), r.log, session.PolicyNever))
	last := r.log.State().LastSeq
	if d := r.desk.Ask(t.Context(), shell("ls")); d.Outcome != Rejected || d.By != ByPolicy {
		t.Errorf("never: %+v", d)
	}
	r.must(SetPolicy(t.Context(), r.log, session.PolicyNever))
	if now := r.log.State().LastSeq; now != last {
		t.Errorf("%d events without news", now-last)
	}
	// A question isn't leave: it is asked whatever the policy.
	r.must(SetPolicy(t.Context(), r.log, session.PolicyFull))
	if d := r.desk.Ask(t.Context(), shell("ls")); !d.Allowed() || d.By != ByPolicy {
		t.Errorf("full: %+v", d)
	}
	a, done := r.ask(t.Context(), Request{Kind: Question, Tool: "ask_user", Arguments: "{}", Detail: []byte(`{"question":"x"}`)})
	if err := r.decide(a, allow); !errors.Is(err, ErrNotFound) {
		t.Errorf("a question approved: %v", err)
	}
	r.must(r.desk.Decide(t.Context(), Question, a.ID, a.ArgsHash, Decision{Outcome: Allowed, By: ByOwner, Answer: []byte(`"yes"`)}))
	if d := done(); string(d.Answer) != `"yes"` {
		t.Errorf("%+v", d)
	}
	// What the log says and nobody knows asks.
	r.append(session.ApprovalPolicy{Policy: "whatever"})
	b, done := r.ask(t.Context(), shell("ls"))
	r.must(r.decide(b, Decision{Outcome: Rejected}))
	done()
}

func TestAForkBeginsWithoutLeave(t *testing.T) {
	r := newRig(t)
	a, done := r.ask(t.Context(), shell("git status"))
	r.must(r.decide(a, Decision{Outcome: Allowed, Scope: session.ScopeSession}))
	done()
	r.append(session.ApprovalPolicy{Policy: session.PolicyFull}, session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: session.EndCompleted}})
	fork, err := r.journal.Fork(t.Context(), "s", -1, session.Creation{Header: session.Header{ID: "f", Version: 1, CreatedAt: 1, Cwd: "/w"}})
	r.must(err)
	defer r.journal.Release(fork)
	if st := fork.State(); len(st.Grants) != 0 || PolicyOf(st) != session.PolicyAsk {
		t.Errorf("grants %v, policy %s", st.Grants, st.Policy)
	}
}

func TestRecoveryWithdraws(t *testing.T) {
	r := newRig(t)
	a, done := r.ask(t.Context(), shell("ls"))
	old := r.desk
	// The process ends without a word to the log.
	r.journal.Release(r.log)
	r.must(r.journal.Close(t.Context()))
	r.open()
	counts, err := r.journal.Recover(t.Context())
	r.must(err)
	if counts.Approvals != 1 {
		t.Errorf("withdrew %d", counts.Approvals)
	}
	log, err := r.journal.Open(t.Context(), "s")
	r.must(err)
	r.begin(log)
	var settled *SettledError
	if err := r.decide(a, allow); !errors.As(err, &settled) || settled.Outcome != Cancelled {
		t.Errorf("decided afterwards: %v", err)
	}
	if info := log.Info(); info.Pending != 0 || info.TurnOpen {
		t.Errorf("%+v", info)
	}
	// Whoever still holds the old log can't let the call run.
	if err := old.Decide(t.Context(), Approval, a.ID, a.ArgsHash, allow); err == nil {
		t.Error("a closed log was decided on")
	}
	old.Close("over")
	if done().Allowed() {
		t.Error("the call of the stopped process was allowed")
	}
}
