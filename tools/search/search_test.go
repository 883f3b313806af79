package search

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools"
)

// tree writes files and returns the directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, c Config, files fsys.Provider, dir, name, args string) tools.Result {
	t.Helper()
	set, err := New(c, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range set {
		if tool.Name == name {
			return tool.Run(context.Background(), tools.Call{Name: name, Arguments: json.RawMessage(strings.ReplaceAll(args, "DIR", dir))})
		}
	}
	t.Fatalf("no tool %s", name)
	return tools.Result{}
}

func local() fsys.Provider { return fsys.NewLocal(&fsys.Locks{}) }

func TestSearch(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.go":                "package a\n\nfunc Needle() {}\r\n// no newline: needle",
		"a/z.txt":             "needle in z\n",
		"a.txt":               "x\n",
		"b/deep/er/c.go":      "needle (deep)\n",
		".git/config":         "needle\n",
		"node_modules/m.js":   "needle\n",
		"x/__pycache__/c.pyc": "needle\n",
		".hidden/file.go":     "needle hidden\n",
		"bin":                 "needle\x00\n",
		"bad.txt":             "needle \xff\n",
		"long.txt":            strings.Repeat("y", 400) + "needle\n",
		"weird name [1].go":   "NEEDLE\n",
		"empty.go":            "",
		"b/deep/never.txt":    "nothing\n",
	})
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, args, want string }{
		{TextName, `{"pattern": "needle"}`, "DIR/.hidden/file.go:1: needle hidden\nDIR/a.go:4: // no newline: needle\nDIR/a/z.txt:1: needle in z\nDIR/b/deep/er/c.go:1: needle (deep)\nDIR/bad.txt:1: needle \uFFFD\nDIR/long.txt:1: " + strings.Repeat("y", 300) + " [cut]"},
		{TextName, `{"pattern": "needle", "files": "*.go", "ignore_case": true}`, "DIR/.hidden/file.go:1: needle hidden\nDIR/a.go:3: func Needle() {}\nDIR/a.go:4: // no newline: needle\nDIR/b/deep/er/c.go:1: needle (deep)\nDIR/weird name [1].go:1: NEEDLE"},
		{TextName, `{"pattern": "(deep)", "literal": true, "path": "DIR/b"}`, "DIR/b/deep/er/c.go:1: needle (deep)"},
		{TextName, `{"pattern": "^func", "path": "DIR/a.go"}`, "DIR/a.go:3: func Needle() {}"},
		{TextName, `{"pattern": "nothing at all"}`, "Nothing found."},
		{FilesName, `{"files": "*.go"}`, "DIR/.hidden/file.go\nDIR/a.go\nDIR/b/deep/er/c.go\nDIR/empty.go\nDIR/weird name [1].go"},
		{FilesName, `{"files": "b/**/*.{go,txt}"}`, "DIR/b/deep/er/c.go\nDIR/b/deep/never.txt"},
		{FilesName, `{"files": "**/c.go", "path": "DIR/b/"}`, "DIR/b/deep/er/c.go"},
	} {
		r := run(t, DefaultConfig(), local(), dir, c.tool, c.args)
		if diff := cmp.Diff(strings.ReplaceAll(c.want, "DIR", dir), r.Text()); diff != "" || r.IsError {
			t.Errorf("%s %s:\n%s", c.tool, c.args, diff)
		}
	}
	for _, c := range []struct{ tool, args, code, says string }{
		{TextName, `{}`, "BAD_ARGUMENT", "`pattern` is required"},
		{TextName, `{"pattern": "("}`, "BAD_ARGUMENT", "not a regular expression"},
		{TextName, `{"pattern": "x", "path": "b"}`, "PATH_NOT_ABSOLUTE", "Perhaps you mean `" + dir + "/b`"},
		{TextName, `{"pattern": "x", "path": "DIR/nope"}`, "NOT_FOUND", "does not exist"},
		{TextName, `{"pattern": "x", "path": "/dev/null"}`, "NOT_REGULAR", "neither a file nor a directory"},
		{TextName, `{"pattern": "x", "files": "["}`, "BAD_ARGUMENT", "not a glob: a [ without its ]"},
		{FilesName, `{}`, "BAD_ARGUMENT", "`files` is required"},
		{FilesName, `{"files": 3}`, "BAD_ARGUMENT", "do not fit"},
	} {
		r := run(t, DefaultConfig(), local(), dir, c.tool, c.args)
		if !r.IsError || r.Error.Code != c.code || !strings.Contains(r.Text(), c.says) {
			t.Errorf("%s %s: %+v %s", c.tool, c.args, r.Error, r.Text())
		}
	}
}

func TestLimits(t *testing.T) {
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("f%02d", i)] = strings.Repeat("hit "+strings.Repeat("x", 290)+"\n", 10)
	}
	dir := tree(t, files)
	r := run(t, Config{MaxResults: 3}, local(), dir, TextName, `{"pattern": "hit"}`)
	if n := strings.Count(r.Text(), ": hit"); n != 3 || !strings.HasSuffix(r.Text(), "[There is more than these 3; narrow the search.]") {
		t.Errorf("%d results: %s", n, r.Text())
	}
	r = run(t, Config{MaxResults: 10000}, local(), dir, TextName, `{"pattern": "hit"}`)
	if n := len(r.Text()); n > maxChars+100 || !strings.Contains(r.Text(), "There is more than these") {
		t.Errorf("%d bytes", n)
	}
	for _, n := range []int{0, 10001} {
		if _, err := New(Config{MaxResults: n}, local(), dir); err == nil {
			t.Errorf("maxResults %d was taken", n)
		}
	}
}

func TestConfinedSearchStaysInside(t *testing.T) {
	dir := tree(t, map[string]string{"in.txt": "needle\n"})
	out := tree(t, map[string]string{"out.txt": "needle\n"})
	if err := os.Symlink(out, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	files, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: dir, Mode: fsys.WorkspaceWrite, Locks: &fsys.Locks{}})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if r := run(t, DefaultConfig(), files, dir, TextName, `{"pattern": "needle"}`); r.Text() != dir+"/in.txt:1: needle" {
		t.Errorf("%s", r.Text())
	}
	for _, p := range []string{out, dir + "/link", "/etc/passwd"} {
		r := run(t, DefaultConfig(), files, dir, TextName, `{"pattern": "needle", "path": "`+p+`"}`)
		if !r.IsError || r.Error.Code != "ACCESS_DENIED" {
			t.Errorf("%s: %+v %s", p, r.Error, r.Text())
		}
	}
}

func TestCancelledSearchEnds(t *testing.T) {
	dir := tree(t, map[string]string{"a": "needle\n"})
	set, err := New(DefaultConfig(), local(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := set[0].Run(ctx, tools.Call{Arguments: json.RawMessage(`{"pattern": "needle"}`)}); !r.IsError {
		t.Errorf("%s", r.Text())
	}
}

func TestGlob(t *testing.T) {
	for pattern, cases := range map[string]map[string]bool{
		"*.go":         {"a.go": true, "x/y/a.go": true, "a.gob": false, "go": false},
		"a?c":          {"abc": true, "ac": false, "a/c": false},
		"src/*.c":      {"src/a.c": true, "src/x/a.c": false, "a.c": false},
		"src/**":       {"src/a": true, "src/x/y": true, "srcx/y": false},
		"**/test/*.py": {"test/a.py": true, "x/y/test/a.py": true, "xtest/a.py": false},
		"[a-c]x":       {"bx": true, "dx": false},
		"[!a]x":        {"bx": true, "ax": false},
		"{a,b*}.txt":   {"a.txt": true, "bcd.txt": true, "c.txt": false},
		"a.b+(c)":      {"a.b+(c)": true, "axb+(c)": false},
		"x,y}":         {"x,y}": true},
		"ü*":           {"über": true, "uber": false},
	} {
		match, err := glob(pattern)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for name, want := range cases {
			if match(name) != want {
				t.Errorf("%s matches %s: %v", pattern, name, !want)
			}
		}
	}
	for _, bad := range []string{"[", "[]", "{a", "[z-a]"} {
		if _, err := glob(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("**/*.{go,c}", "a/b.go")
	f.Add("[!]-]x[", "x")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if match, err := glob(pattern); err == nil {
			match(name)
		}
	})
}
