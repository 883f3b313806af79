package bash_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/dsh-web/dsh-web/host/term"
	"github.com/dsh-web/dsh-web/tools/bash"
)

// TestDecode: a row's settings decode over the defaults, strictly.
func TestDecode(t *testing.T) {
	decode := func(text string) (bash.Config, error) {
		c := bash.DefaultConfig()
		d := yaml.NewDecoder(strings.NewReader(text))
		d.KnownFields(true)
		err := d.Decode(&c)
		return c, err
	}
	got, err := decode(`
timeout: 1m30s
maxOutputChars: 10
clip: headTail
stdin: tty
startup: bashrc
afterTimeout: reset
restore: none
description: D
env: {A: "1"}
passEnv: [B]
`)
	want := bash.Config{
		Timeout: bash.Duration(90 * time.Second), MaxOutputChars: 10, Clip: bash.ClipHeadTail, Stdin: bash.StdinTTY,
		Startup: bash.Startup{Commands: []string{term.StartupBashrc}}, AfterTimeout: bash.AfterReset, Restore: bash.RestoreNone,
		Description: "D", Env: map[string]string{"A": "1"}, PassEnv: []string{"B"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for text, startup := range map[string][]string{
		"startup: none":        nil,
		"startup: login":       {term.StartupLogin},
		"startup: [a b, 'c']":  {"a b", "c"},
		"startup: []":          {},
		"maxOutputChars: 5":    nil,
		"timeout: 10m":         nil,
		"restore: env":         nil,
		"description: 'other'": nil,
	} {
		got, err := decode(text)
		if err != nil || len(got.Startup.Commands) != len(startup) || !cmp.Equal(append([]string{}, got.Startup.Commands...), append([]string{}, startup...)) {
			t.Errorf("%s: %v %q", text, err, got.Startup.Commands)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"timeout: 300", "timeout: soon", "maxOutputChars: many", "startup: zsh", "startup: {a: 1}", "unknown: 1", "Timeout: 1s"} {
		if c, err := decode(text); err == nil && c.Validate() == nil {
			t.Errorf("%s passes: %+v", text, c)
		}
	}
}
