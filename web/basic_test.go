package web_test

import (
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/model/script"
)

func TestSmoke(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{script.Text("hello")})})
	t.Log(string(r.want(200, "GET", "/host", nil, nil).body))
	t.Log(string(r.want(200, "GET", "/presets", nil, nil).body))
	t.Log(string(r.want(200, "GET", "/models", nil, nil).body))
	s := r.create(map[string]any{"id": "one"})
	t.Logf("%+v", s)
	t.Logf("%+v", r.say("one", "hi"))
	t.Log(eventTypes(r.log("one")))
	t.Log(strings.Join(nil, ""))
}
