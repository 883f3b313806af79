package presets

import (
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/agent"
)

func TestLimits(t *testing.T) {
	for text, want := range map[string]agent.Limits{
		"{steps: 3}":                          {Steps: 3},
		"{time: 90s, tokens: 5000, steps: 1}": {Steps: 1, Time: 90 * time.Second, Tokens: 5000},
	} {
		r, _ := user(t, map[string]string{"x": "version: 1\nrows:\n  - {id: l, use: limits, with: " + text + "}\n"})
		p := newPlane(t)
		if got := p.mount(t, "a", resolve(t, r, "x")).Limits(); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	for text, says := range map[string]string{
		"{}":            "name at least one",
		"{steps: -1}":   "positive number",
		"{time: never}": "a duration",
		"{time: -5s}":   "a duration",
		"{turns: 4}":    "turns",
	} {
		r, _ := user(t, map[string]string{"x": "version: 1\nrows:\n  - {id: l, use: limits, with: " + text + "}\n"})
		_, err := r.Resolve("x")
		wantError(t, err, says)
	}
	r, _ := user(t, map[string]string{"x": "version: 1\nrows:\n  - {id: a, use: limits, with: {steps: 1}}\n  - {id: b, use: limits, with: {steps: 2}}\n"})
	_, err := r.Resolve("x")
	wantError(t, err, "another row sets the limits")
}
