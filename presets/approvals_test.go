package presets

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/approval"
)

func TestApprovals(t *testing.T) {
	text := func(with string) string {
		return "version: 1\nextends: minimal\nname: Careful\nrows:\n  - {id: leave, use: approvals, with: " + with + "}\n  - {id: ask, use: tool-ask, with: {expire: 1m}}\n"
	}
	r, _ := user(t, map[string]string{"careful": text("{tools: [bash], expire: 10m}")})
	c := resolve(t, r, "careful")
	if !c.Asks() {
		t.Error("the composition has no approvals")
	}
	decoded, err := Decode(c.Encode())
	must(t, err)
	if !decoded.Asks() {
		t.Error("a decoded composition has no approvals")
	}
	for _, id := range []string{"minimal", "standard"} {
		if resolve(t, r, id).Asks() {
			t.Errorf("%s has approvals", id)
		}
	}
	m := newPlane(t).mount(t, "a", c)
	if audit := fmt.Sprint(m.Audit()); !strings.Contains(audit, "leave: asks before bash") {
		t.Errorf("the audit tree doesn't say so:\n%s", audit)
	}
	report, err := r.Check("careful")
	must(t, err)
	if len(report.Tools) != 3 || report.Tools[0].Name != "ask_user" {
		t.Errorf("tools %+v", report.Tools)
	}

	for with, says := range map[string]string{
		"{}":                               "tools: name the tools",
		"{tools: []}":                      "tools: name the tools",
		"{tools: [bash, bash]}":            "there twice",
		"{tools: [bash], expire: soon}":    "expire: a duration",
		"{tools: [bash], expire: -1s}":     "expire: a duration",
		"{tools: [bash], never: true}":     "never",
		"{tools: [bash, format-the-disk]}": "no such tool",
	} {
		r, _ := user(t, map[string]string{"x": text(with)})
		_, err := r.Check("x")
		wantError(t, err, says)
	}

	p := newPlane(t)
	p.sv.Approvals = (*approval.Desk)(nil)
	_, err = Mount(bg, p.agent(t, "b"), c, p.sv)
	wantError(t, err, "asks nobody")
}
