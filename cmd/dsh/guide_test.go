//go:build unix

package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestGuide: the guide's example works, and the guide names every method, notification and variable there is.
func TestGuide(t *testing.T) {
	raw, err := os.ReadFile("../../docs/guide/stdio.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(raw)
	c := newRig(t, say("unused")).start()
	lines := regexp.MustCompile(`(?m)^  echo '(.*)'$`).FindAllStringSubmatch(guide, -1)
	if len(lines) != 2 {
		t.Fatalf("%d requests in the example", len(lines))
	}
	for _, l := range lines {
		c.write(l[1] + "\n")
	}
	var hello struct {
		Capabilities struct{ Methods, Notifications []string }
	}
	if err := json.Unmarshal(c.reply(1).Result, &hello); err != nil {
		t.Fatal(err)
	}
	end := c.until("the end", func(f frame) bool { return f.event("turn/end") })
	if end.reason().Kind != "completed" {
		t.Errorf("end %+v", end.reason())
	}
	names := append(hello.Capabilities.Methods, hello.Capabilities.Notifications...)
	names = append(names, regexp.MustCompile(`(?m)^  ([A-Z]+_[A-Z_]+) `).FindAllString(usage, -1)...)
	if len(names) < 9+6 {
		t.Fatalf("names %q", names)
	}
	for _, name := range names {
		if name = strings.TrimSpace(name); !strings.Contains(guide, "`"+name+"`") {
			t.Errorf("the guide doesn't name %s", name)
		}
	}
}
