package host_test

import (
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
)

// The key that a session was created with is a secret of its tools like the host's own.
func TestASessionsOwnKeyLeavesNoTool(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{bash("c1", "printf 'own %s-%s host %s-%s' sk own-0123456789 sk test-0123456789")}, script.Turn{script.Text("done")})})
	_, _, err := r.host.Create(r.ctx(), host.Spec{ID: "s", Preset: "minimal", Workspace: r.ws, Model: model.Selection{
		Provider: "deepseek", Model: "any", BaseURL: r.server.URL, APIKey: "sk-own-0123456789",
	}})
	r.must(err)
	r.say("s", "go")
	got := results(t, r.events("s"))
	if len(got) != 1 || strings.Contains(got[0], "0123456789") || strings.Count(got[0], "[redacted]") != 2 {
		t.Errorf("the model was shown %q", got)
	}
}
