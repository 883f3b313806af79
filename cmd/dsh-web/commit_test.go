package main

import (
	"runtime/debug"
	"testing"
)

func TestRevision(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"":     {{Key: "GOOS", Value: "linux"}, {Key: "vcs.modified", Value: "true"}},
		"abc":  {{Key: "vcs.modified", Value: "false"}, {Key: "vcs.revision", Value: "abc"}},
		"abc+": {{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	} {
		if got := revision(settings); got != want {
			t.Errorf("%v: %q, want %q", settings, got, want)
		}
	}
}
