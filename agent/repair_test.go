package agent_test

import (
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
)

func TestL21UnknownToolGetsAResultAndTheLoopGoesOn(t *testing.T) {
	r := newRig(t, script.ByHistory(script.Turn{script.Call("c1", "no_such_tool", "{}")}, script.Turn{script.Text("sorry")}))
	r.tool("echo", false, echo)
	r.send("m1", "go", false)
	r.idle(1)
	res := decode[session.ToolResult](r)
	if len(res) != 1 || res[0].Error == nil || res[0].Error.Code != "UNKNOWN_TOOL" || !strings.Contains(model.JoinText(res[0].Message.Content[0].Content), "echo") {
		t.Errorf("results: %+v", res)
	}
	if m := decode[session.AssistantMessage](r); len(m) != 2 || m[1].Message.Text() != "sorry" {
		t.Errorf("messages: %+v", m)
	}
}

func TestL42ReasoningFormIsRepairedOnce(t *testing.T) {
	refusal := func() script.Turn {
		return script.Turn{script.Fail(&model.Error{Code: model.CodeInvalidRequest, Status: 400, Message: "reasoning_content", ReasoningForm: true})}
	}
	t.Run("the other form is taken", func(t *testing.T) {
		r := newRig(t, script.Sequence(refusal(), script.Turn{script.Text("ok")}))
		r.send("m1", "go", false)
		r.idle(1)
		if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndCompleted {
			t.Errorf("end: %+v", end)
		}
		sent := decode[session.RequestSent](r)
		if len(sent) != 2 || sent[1].Attempt != 2 || !r.requests[1].RepairReasoning || len(decode[session.Retry](r)) != 0 {
			t.Errorf("sent: %+v; requests: %+v", sent, r.requests)
		}
	})
	t.Run("a second refusal ends the turn", func(t *testing.T) {
		r := newRig(t, script.Sequence(refusal(), refusal()))
		r.send("m1", "go", false)
		r.idle(1)
		if end := decode[session.TurnEnd](r)[0].Reason; end.Kind != session.EndError || end.Status != 400 {
			t.Errorf("end: %+v", end)
		}
	})
}
