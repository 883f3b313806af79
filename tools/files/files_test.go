package files

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/editor"
)

// made returns the tools by name, over the bare file system.
func made(t *testing.T, c Config) map[string]tools.Tool {
	t.Helper()
	list, err := New(c, editor.Options{Files: fsys.NewLocal(&fsys.Locks{})})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]tools.Tool{}
	for _, tool := range list {
		out[tool.Name] = tool
	}
	return out
}

func call(t *testing.T, tool tools.Tool, args map[string]any) tools.Result {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return tool.Run(context.Background(), tools.Call{Name: tool.Name, Arguments: raw})
}

func TestFourToolsWorkOnOneFile(t *testing.T) {
	set := made(t, DefaultConfig())
	if len(set) != 4 {
		t.Fatalf("%d tools", len(set))
	}
	file := filepath.Join(t.TempDir(), "new", "a.txt")
	for _, step := range []struct {
		tool string
		args map[string]any
	}{
		{"create", map[string]any{"path": file, "file_text": "one\r\nthree <&>\r\n"}},
		{"insert", map[string]any{"path": file, "insert_line": "1", "new_str": "two"}},
		{"str_replace", map[string]any{"path": file, "old_str": "three <&>", "new_str": "3", "command": "create"}},
	} {
		if r := call(t, set[step.tool], step.args); r.IsError {
			t.Fatalf("%s: %s", step.tool, r.Text())
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != "one\r\ntwo\r\n3\r\n" {
		t.Errorf("%q %v", got, err)
	}
	if r := call(t, set["view"], map[string]any{"path": file, "view_range": []int{2, 2}}); !strings.Contains(r.Text(), "2\ttwo") || strings.Contains(r.Text(), "one") {
		t.Errorf("%s", r.Text())
	}
}

func TestRefusalsNameTheTool(t *testing.T) {
	set := made(t, DefaultConfig())
	for name, says := range map[string]string{"create": "`file_text` is required for `create`", "str_replace": "`old_str` is required for `str_replace`", "insert": "`insert_line` is required for `insert`", "view": "does not exist"} {
		r := call(t, set[name], map[string]any{"path": "/nowhere/at/all"})
		if !r.IsError || r.Error.Name != name || !strings.Contains(r.Text(), says) {
			t.Errorf("%s: %+v %s", name, r.Error, r.Text())
		}
	}
	r := set["view"].Run(context.Background(), tools.Call{Arguments: json.RawMessage(`null`)})
	if !r.IsError {
		t.Errorf("%s", r.Text())
	}
}

func TestSchemasAreWhatTheEditorReads(t *testing.T) {
	got := map[string][]string{}
	for name, tool := range made(t, DefaultConfig()) {
		var schema struct{ Required []string }
		if err := json.Unmarshal(tool.Parameters, &schema); err != nil || tool.Description == "" {
			t.Fatalf("%s: %v", name, err)
		}
		got[name] = schema.Required
	}
	want := map[string][]string{"view": {"path"}, "create": {"path", "file_text"}, "str_replace": {"path", "old_str"}, "insert": {"path", "insert_line", "new_str"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestConfig(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.MaxOutputChars, c.Profile = 1, "loud"
	if _, err := New(c, editor.Options{}); err == nil || !strings.Contains(err.Error(), "maxOutputChars") || !strings.Contains(err.Error(), "profile") {
		t.Errorf("%v", err)
	}
}

// TestGolden pins, byte for byte, what the model is told about the tools.
func TestGolden(t *testing.T) {
	all, err := New(DefaultConfig(), editor.Options{Files: fsys.NewLocal(nil)})
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, tool := range all {
		fmt.Fprintf(&told, "%s\n%s\n%s\n\n", tool.Name, tool.Description, tool.Parameters)
	}
	path := filepath.Join("testdata", "model.txt")
	if *update {
		if err := os.WriteFile(path, []byte(told.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), told.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

var update = flag.Bool("update", false, "write the golden file")
