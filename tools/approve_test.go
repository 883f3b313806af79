package tools_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/tools"
)

func TestOnlyAnAllowedCallRuns(t *testing.T) {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, t.TempDir(), sqlite.Options{Synchronous: "normal"})
	if err != nil {
		t.Fatal(err)
	}
	journal := session.NewJournal(store, session.Options{})
	if err := journal.Start(ctx); err != nil {
		t.Fatal(err)
	}
	log, err := journal.Create(ctx, session.Header{ID: "s", Version: 1, CreatedAt: 1, Cwd: "/w"}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		journal.Release(log)
		if err := journal.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	desk := approval.New(func() *session.Log { return log }, nil)
	b := newBench(t)
	b.add(t, echo("named"))
	b.add(t, echo("free"))
	if err := b.registry.Guard(b.scope, "approvals", tools.Approve(desk, []string{"named"}, "/w", "{{tool}} needs leave.", 0)); err != nil {
		t.Fatal(err)
	}
	if res := b.run(ctx, "free", `{"a":1}`); res.Text() != `free{"a":1}` {
		t.Errorf("%+v", res)
	}
	for _, c := range []struct {
		d    approval.Decision
		code string
		says string
	}{
		{approval.Decision{Outcome: approval.Allowed}, "", `named{"a": 1}`},
		{approval.Decision{Outcome: approval.Rejected}, tools.CodeDenied, "The user denied this call. It was not run."},
		{approval.Decision{Outcome: approval.Rejected, Reason: "Not now."}, tools.CodeDenied, "Not now."},
		{approval.Decision{Outcome: approval.Expired, Reason: "nobody came"}, tools.CodeExpired, "nobody came"},
		{approval.Decision{}, tools.CodeUnavailable, "not run"},
	} {
		got := make(chan tools.Result, 1)
		go func() { got <- b.run(ctx, "named", `{"a": 1}`) }()
		var pending []session.ApprovalAsked
		for len(pending) == 0 {
			changed := log.Changed()
			if pending = log.State().Approvals; len(pending) == 0 {
				<-changed
			}
		}
		a := pending[0]
		if a.Arguments != `{"a": 1}` || a.Reason != "named needs leave." || a.Cwd != "/w" {
			t.Errorf("asked %+v", a)
		}
		if err := desk.Decide(ctx, approval.Approval, a.ID, a.ArgsHash, c.d); err != nil {
			t.Fatal(err)
		}
		if res := <-got; codeOf(res) != c.code || !strings.Contains(res.Text(), c.says) {
			t.Errorf("%+v: %q %q", c.d, codeOf(res), res.Text())
		}
	}
	desk.Close("the host is shutting down")
	if res := b.run(ctx, "named", "{}"); codeOf(res) != tools.CodeUnavailable {
		t.Errorf("%+v", res)
	}
	if res := tools.Refused("named", approval.Decision{Outcome: approval.Rejected, By: approval.ByPolicy, Reason: "x"}); !strings.Contains(res.Text(), "denies such calls") {
		t.Errorf("%+v", res)
	}
}
