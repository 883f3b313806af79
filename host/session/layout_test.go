package session

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestFileName(t *testing.T) {
	ids := []string{
		"../../etc/x", "a/b", "~", ".", "..", "a", "A", "a%2Fb", "%", "x y", "x\x00y", "\xff", "é", "😀", strings.Repeat("a", 200), strings.Repeat("a", 201),
		strings.Repeat("a", 300), strings.Repeat("😀", 75), strings.Repeat("😀", 76), "a..b", ".hidden", `a\b`, "C:x", "-rf", strings.Repeat("x", 1024),
	}
	seen := map[string]string{}
	for _, id := range ids {
		name, err := FileName(id)
		if err != nil {
			t.Errorf("%q: %v", id, err)
			continue
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q share %q", id, other, name)
		}
		seen[name] = id
		if len(name) > 200 || strings.ContainsAny(name, "/\\:\x00") || strings.HasPrefix(name, ".") || !filepath.IsLocal(name) {
			t.Errorf("%q has the name %q", id, name)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 1025)} {
		if _, err := FileName(id); err == nil {
			t.Errorf("an id of %d bytes was accepted", len(id))
		}
	}
}

func TestHeaderLine(t *testing.T) {
	h := Header{ID: "a<b", CreatedAt: 5, Cwd: "/w", AgentPreset: PresetRef{ID: "minimal", Hash: "h"}, Labels: map[string]string{"k": "v"}, Attempt: 2}
	line, err := HeaderLine(h)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(line), `{"type":"session"`) || !strings.Contains(string(line), `"delegationDepth":0`) || !strings.Contains(string(line), `"version":0`) {
		t.Errorf("%s", line)
	}
	got, err := ParseHeaderLine(line)
	if err != nil || got.ID != h.ID || got.Cwd != h.Cwd || got.Labels["k"] != "v" || got.Attempt != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"type":"session"}`, `{"type":"x","id":"a"}`, "[]"} {
		if _, err := ParseHeaderLine([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
