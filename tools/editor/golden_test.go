//go:build unix

package editor_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools/editor"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestGolden pins, byte for byte, what the model is told about the tool.
func TestGolden(t *testing.T) {
	for name, undo := range map[string]bool{"undo": true, "no-undo": false} {
		cfg := editor.DefaultConfig()
		cfg.Undo = undo
		tool, err := editor.New(cfg, editor.Options{Files: fsys.NewLocal(nil)})
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".description.md", []byte(tool.Description+"\n"))
		golden(t, name+".schema.json", append(bytes.Clone(tool.Parameters), '\n'))
		if !json.Valid(tool.Parameters) || strings.Contains(string(tool.Parameters)+tool.Description, "undo") != undo {
			t.Errorf("%s: %s", name, tool.Parameters)
		}
	}
}

func TestConfig(t *testing.T) {
	cfg := editor.DefaultConfig()
	want := editor.Config{Name: "str_replace_editor", MaxOutputChars: 16000, Undo: true, Profile: "claude-swe"}
	if cfg != want {
		t.Errorf("%+v", cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	bad := editor.Config{Name: "a b", MaxOutputChars: 10, Profile: "fancy"}
	err := bad.Validate()
	for _, word := range []string{"name: ", "maxOutputChars: ", "profile: "} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("no %q in %v", word, err)
		}
	}
	if _, err := editor.New(bad, editor.Options{}); err == nil {
		t.Error("took a bad row")
	}
	cfg.Name, cfg.Description = "str_replace_based_edit_tool", "Mine."
	tool, err := editor.New(cfg, editor.Options{Files: fsys.NewLocal(nil)})
	if err != nil || tool.Name != "str_replace_based_edit_tool" || tool.Description != "Mine." || !tool.Parallel {
		t.Errorf("%+v, %v", tool, err)
	}
	d := &desk{T: t, dir: t.TempDir(), tool: tool}
	if r := d.call("view", "path", "x"); r.Error.Name != "str_replace_based_edit_tool" {
		t.Errorf("%+v", r.Error)
	}
}
