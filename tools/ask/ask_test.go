package ask

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/approval"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/tools"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is the tool over a real log.
type rig struct {
	log  *session.Log
	desk *approval.Desk
	tool tools.Tool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx := context.Background()
	store, err := sqlite.Open(ctx, t.TempDir(), sqlite.Options{Synchronous: "normal"})
	must(t, err)
	journal := session.NewJournal(store, session.Options{Checked: true})
	must(t, journal.Start(ctx))
	log, err := journal.Create(ctx, session.Header{ID: "s", Version: 1, CreatedAt: 1, Cwd: "/w"}, nil, session.Draft{Payload: session.TurnStart{Turn: 1}})
	must(t, err)
	r := &rig{log: log, desk: approval.New(func() *session.Log { return log }, nil)}
	r.tool, err = New(r.desk, time.Hour)
	must(t, err)
	t.Cleanup(func() {
		journal.Release(log)
		must(t, journal.Close(ctx))
	})
	return r
}

// call runs the tool and lets answer settle what it asks.
func (r *rig) call(t *testing.T, arguments string, answer func(session.ApprovalAsked)) tools.Result {
	t.Helper()
	got := make(chan tools.Result, 1)
	go func() {
		got <- r.tool.Run(context.Background(), tools.Call{ID: "c1", Name: Name, Arguments: json.RawMessage(arguments)})
	}()
	for {
		changed := r.log.Changed()
		if all := r.log.State().Approvals; len(all) > 0 {
			answer(all[0])
			return <-got
		}
		select {
		case <-changed:
		case res := <-got:
			return res
		}
	}
}

func TestTheModelSeesThis(t *testing.T) {
	tool, err := New(approval.New(nil, nil), 0)
	must(t, err)
	got := tool.Name + "\n\n" + tool.Description + "\n\n" + string(tool.Parameters) + "\n"
	for _, d := range []approval.Decision{
		{}, {Outcome: approval.Rejected}, {Outcome: approval.Rejected, Reason: "Find out."}, {Outcome: approval.Cancelled, Reason: "the host is shutting down"},
		{Outcome: approval.Expired, Reason: "nobody answered within 1h"}, {Outcome: approval.Unavailable, Reason: "nobody can be asked now"},
	} {
		res := unanswered(d)
		got += "\n" + res.Error.Code + ": " + res.Text() + "\n"
	}
	const file = "testdata/model.txt"
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run with -update if this is meant:\n%s", diff)
	}
}

func TestTheAnswerIsTheResult(t *testing.T) {
	r := newRig(t)
	var asked session.ApprovalAsked
	res := r.call(t, `{"question":"Which one?","options":["a","b"],"more":1}`, func(a session.ApprovalAsked) {
		asked = a
		must(t, r.desk.Decide(t.Context(), approval.Question, a.ID, a.ArgsHash, approval.Decision{Outcome: approval.Allowed, By: approval.ByOwner, Answer: []byte(`"neither: \"c\""`)}))
	})
	if res.IsError || res.Text() != `neither: "c"` {
		t.Errorf("%+v", res)
	}
	if asked.Kind != approval.Question || asked.Tool != Name || asked.CallID != "c1" || string(asked.Detail) != `{"question":"Which one?","options":["a","b"]}` {
		t.Errorf("%+v", asked)
	}
	res = r.call(t, `{"question":"Which one?"}`, func(a session.ApprovalAsked) {
		must(t, r.desk.Decide(t.Context(), approval.Question, a.ID, a.ArgsHash, approval.Decision{Outcome: approval.Rejected, By: approval.ByOwner, Reason: "Look."}))
	})
	if !res.IsError || res.Text() != "The user doesn't want to answer: Look." {
		t.Errorf("%+v", res)
	}
}

func TestAQuestionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		res := r.call(t, `{"question":"Anybody?"}`, func(session.ApprovalAsked) {})
		if !res.IsError || res.Error.Code != tools.CodeExpired || !strings.Contains(res.Text(), "nobody answered within 1h") {
			t.Errorf("%+v", res)
		}
	})
}

func TestWhatIsntAsked(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x", maxQuestion+1)
	for arguments, says := range map[string]string{
		`{}`:                                   "`question` is required",
		`{"question":" "}`:                     "`question` is required",
		`{"question":1}`:                       "do not fit",
		`{"question":"` + long + `"}`:          "at most 4000",
		`{"question":"x","options":["a",""]}`:  "Option 2 is empty",
		`{"question":"x","options":["a","a"]}`: "Option 2 is there twice",
		`{"question":"x","options":["` + long[:maxOption+1] + `"]}`:                  "at most 200",
		`{"question":"x","options":["1","2","3","4","5","6","7","8","9","10","11"]}`: "at most 10",
	} {
		res := r.call(t, arguments, func(session.ApprovalAsked) { t.Errorf("%.60s is asked", arguments) })
		if !res.IsError || !strings.Contains(res.Text(), says) || !strings.HasSuffix(res.Text(), "Nothing was asked.") {
			t.Errorf("%.60s: %s", arguments, res.Text())
		}
	}
}

// Names in another case are names that the tool doesn't know.
func TestTheQuestionIsNamedExactly(t *testing.T) {
	r := newRig(t)
	res := r.call(t, `{"Question":"Which one?"}`, func(session.ApprovalAsked) { t.Fatal("it was asked") })
	if !res.IsError || !strings.Contains(res.Text(), "`question` is required") {
		t.Errorf("%+v", res)
	}
	res = r.call(t, `{"question":"Which one?","Question":"Another?","OPTIONS":["x"]}`, func(a session.ApprovalAsked) {
		if string(a.Detail) != `{"question":"Which one?"}` {
			t.Errorf("asked: %s", a.Detail)
		}
		must(t, r.desk.Decide(t.Context(), approval.Question, a.ID, a.ArgsHash, approval.Decision{Outcome: approval.Allowed, By: approval.ByOwner, Answer: []byte(`"this"`)}))
	})
	if res.IsError || res.Text() != "this" {
		t.Errorf("%+v", res)
	}
}
