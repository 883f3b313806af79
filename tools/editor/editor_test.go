//go:build unix

package editor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/editor"
)

func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	os.Exit(m.Run())
}

// desk is one agent's editor and a directory to work in.
type desk struct {
	*testing.T
	dir  string
	tool tools.Tool
}

// confinedCases is in the names of the tests whose desks are over a confined file system; see TestConfinedCases.
const confinedCases = "ConfinedCases"

func isConfined(t *testing.T) bool { return strings.Contains(t.Name(), confinedCases) }

// open returns a desk over the bare file system, or the confined one.
func open(t *testing.T, change ...func(*editor.Config, *editor.Options)) *desk {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return openIn(t, dir, change...)
}

func openIn(t *testing.T, dir string, change ...func(*editor.Config, *editor.Options)) *desk {
	t.Helper()
	cfg, opt := editor.DefaultConfig(), editor.Options{Files: fsys.NewLocal(nil)}
	if isConfined(t) {
		opt.Files = rooted(t, dir, fsys.WorkspaceWrite)
	}
	for _, c := range change {
		c(&cfg, &opt)
	}
	tool, err := editor.New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{T: t, dir: dir, tool: tool}
}

// openQuick is open in memory, where there is a file system in memory: for thousands of files.
func openQuick(t *testing.T) *desk {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "editor")
	if err != nil {
		return open(t)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return openIn(t, dir)
}

func plain(cfg *editor.Config, _ *editor.Options) { cfg.Profile = editor.Plain }

// at is a path on the desk.
func (d *desk) at(name string) string { return filepath.Join(d.dir, name) }

// put writes a file on the desk.
func (d *desk) put(name, contents string) string {
	d.Helper()
	path := d.at(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
		d.Fatal(err)
	}
	return path
}

// has checks the exact contents of a file.
func (d *desk) has(name, want string) {
	d.Helper()
	got, err := os.ReadFile(d.at(name))
	if err != nil {
		d.Fatal(err)
	}
	if string(got) != want {
		d.Errorf("%s holds\n%q\nwant\n%q", name, got, want)
	}
}

// call runs the tool; args are names and values.
func (d *desk) call(command string, args ...any) tools.Result {
	d.Helper()
	object := map[string]any{"command": command}
	for i := 0; i < len(args); i += 2 {
		object[args[i].(string)] = args[i+1]
	}
	raw, err := json.Marshal(object)
	if err != nil {
		d.Fatal(err)
	}
	result := d.raw(string(raw))
	if n := utf8.RuneCountInString(result.Text()); n > 16000 {
		d.Errorf("result of %d characters", n)
	}
	return result
}

func (d *desk) raw(arguments string) tools.Result {
	return d.tool.Run(context.Background(), tools.Call{ID: "c", Name: d.tool.Name, Arguments: json.RawMessage(arguments)})
}

// ok is call for a call that must succeed; it returns the text.
func (d *desk) ok(command string, args ...any) string {
	d.Helper()
	r := d.call(command, args...)
	if r.IsError {
		d.Fatalf("%s failed: %s", command, r.Text())
	}
	return r.Text()
}

// fails is call for a call that must fail with a code; it returns the text, which must hold every one of words.
func (d *desk) fails(code editor.Code, words []string, command string, args ...any) string {
	d.Helper()
	r := d.call(command, args...)
	d.failed(r, code, words...)
	return r.Text()
}

func (d *desk) failed(r tools.Result, code editor.Code, words ...string) {
	d.Helper()
	if !r.IsError || r.Error == nil {
		d.Fatalf("succeeded: %s", r.Text())
	}
	if r.Error.Code != string(code) {
		d.Errorf("code %s, want %s: %s", r.Error.Code, code, r.Text())
	}
	d.contains(r.Text(), words...)
	for _, jargon := range []string{"errno", "openat", "lstat", "no such file", "EACCES", "0x", "panic", "nil", "%!"} {
		if strings.Contains(r.Text(), jargon) {
			d.Errorf("jargon %q in: %s", jargon, r.Text())
		}
	}
}

func (d *desk) contains(text string, words ...string) {
	d.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			d.Errorf("no %q in:\n%s", w, text)
		}
	}
}

func (d *desk) lacks(text string, words ...string) {
	d.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			d.Errorf("%q in:\n%s", w, text)
		}
	}
}

// numbers makes lines "line 1" to "line n".
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

func body(text string) string {
	_, rest, _ := strings.Cut(text, "\n")
	return rest
}

func TestArguments(t *testing.T) {
	t.Run("F24 relative paths", func(t *testing.T) {
		d := open(t)
		for path, suggestion := range map[string]string{"foo.txt": "`/foo.txt`", "./a": "`/a`", "~/a": "`/~/a`", "": "`/`", `C:\x`: "`/C:\\x`"} {
			for _, command := range []string{"view", "create", "str_replace", "insert", "undo_edit"} {
				d.fails(editor.NotAbsolute, []string{"not an absolute path", "must start with `/`", suggestion},
					command, "path", path, "file_text", "x", "old_str", "a", "new_str", "b", "insert_line", 0)
			}
		}
	})
	t.Run("F25 a relative path that exists in the workspace", func(t *testing.T) {
		d := open(t)
		d.put("sub/foo.txt", "x")
		d.tool, _ = editor.New(editor.DefaultConfig(), editor.Options{Files: fsys.NewLocal(nil), Workspace: d.dir})
		d.fails(editor.NotAbsolute, []string{"`" + d.at("sub/foo.txt") + "`"}, "view", "path", "sub/foo.txt")
		d.fails(editor.NotAbsolute, []string{"`" + d.at("sub/foo.txt") + "`"}, "view", "path", "./sub/foo.txt")
		d.fails(editor.NotAbsolute, []string{"`/sub/none.txt`"}, "view", "path", "sub/none.txt")
	})
	t.Run("F27 unknown command", func(t *testing.T) {
		d := open(t)
		d.fails(editor.UnknownCommand, []string{"`delete` is not recognised", "view, create, str_replace, insert, undo_edit"}, "delete", "path", "rel")
		d.failed(d.raw(`{"path":"/x"}`), editor.BadArgument, "`command` is required", "view, create")
		d.failed(d.raw(`{"command":5,"path":"/x"}`), editor.BadArgument, "`command` must be a string")
		d.failed(d.raw(`[]`), editor.BadArgument, "not a JSON object")
	})
	t.Run("undo_edit is unknown where the row says so", func(t *testing.T) {
		d := open(t, func(cfg *editor.Config, _ *editor.Options) { cfg.Undo = false })
		text := d.fails(editor.UnknownCommand, []string{"`undo_edit` is not recognised"}, "undo_edit", "path", "/x")
		d.contains(text, "view, create, str_replace, insert.")
	})
	t.Run("F30 F55 required parameters", func(t *testing.T) {
		d := open(t)
		for _, c := range []struct{ args, name, command string }{
			{`{"command":"view"}`, "path", "view"},
			{`{"command":"view","path":null}`, "path", "view"},
			{`{"command":"create","path":"/x"}`, "file_text", "create"},
			{`{"command":"create","path":"/x","file_text":null}`, "file_text", "create"},
			{`{"command":"str_replace","path":"/x"}`, "old_str", "str_replace"},
			{`{"command":"insert","path":"/x","new_str":"a"}`, "insert_line", "insert"},
			{`{"command":"insert","path":"/x","insert_line":1}`, "new_str", "insert"},
			{`{"command":"undo_edit"}`, "path", "undo_edit"},
			{`{"command":"view","Path":"/x"}`, "path", "view"},
		} {
			d.failed(d.raw(c.args), editor.BadArgument, "`"+c.name+"` is required for `"+c.command+"`")
		}
	})
	t.Run("wrong types", func(t *testing.T) {
		d := open(t)
		d.failed(d.raw(`{"command":"view","path":7}`), editor.BadArgument, "`path` must be a string")
		d.failed(d.raw(`{"command":"create","path":"/x","file_text":["a"]}`), editor.BadArgument, "`file_text` must be a string")
	})
	t.Run("unknown keys are ignored, integers come in several shapes", func(t *testing.T) {
		d := open(t)
		d.put("a", numbers(5))
		for _, r := range []string{`[2,3]`, `[2.0,3.0]`, `["2","3"]`, `["2.0", 3]`} {
			got := d.raw(fmt.Sprintf(`{"command":"view","path":%q,"view_range":%s,"reason":"x","insert_line":"ignored"}`, d.at("a"), r))
			if want := "     2\tline 2\n     3\tline 3"; body(got.Text()) != want {
				t.Errorf("%s: %q", r, got.Text())
			}
		}
	})
	t.Run("NUL in a path", func(t *testing.T) {
		open(t).fails(editor.BadArgument, []string{"NUL"}, "view", "path", "/a\x00b")
	})
	t.Run("a path that does not exist", func(t *testing.T) {
		d := open(t)
		for _, command := range []string{"view", "str_replace", "insert", "undo_edit"} {
			d.fails(editor.NotFound, []string{d.at("none"), "does not exist"}, command, "path", d.at("none"), "old_str", "a", "new_str", "b", "insert_line", 0)
		}
		d.put("f", "x")
		d.fails(editor.NotDirectory, nil, "view", "path", d.at("f/x"))
		d.fails(editor.NotDirectory, nil, "create", "path", d.at("f/x"), "file_text", "")
		d.fails(editor.BadArgument, nil, "create", "path", d.dir+"/new/", "file_text", "")
	})
	t.Run("only view works on directories", func(t *testing.T) {
		d := open(t)
		for _, command := range []string{"str_replace", "insert", "undo_edit"} {
			d.fails(editor.IsDirectory, []string{"only `view` works on directories"}, command, "path", d.dir, "old_str", "a", "new_str", "b", "insert_line", 0)
		}
	})
}

func TestCreate(t *testing.T) {
	t.Run("F28 in new directories", func(t *testing.T) {
		d := open(t)
		text := "a\r\n\tb  \nc"
		d.contains(d.ok("create", "path", d.at("x/y/z.txt"), "file_text", text), d.at("x/y/z.txt"))
		d.has("x/y/z.txt", text)
		fi, err := os.Stat(d.at("x/y/z.txt"))
		if err != nil || fi.Mode() != 0o644 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
		d.alone("x/y", "z.txt")
	})
	t.Run("F29 empty", func(t *testing.T) {
		d := open(t)
		d.ok("create", "path", d.at("e"), "file_text", "")
		d.has("e", "")
	})
	t.Run("F31 over anything that exists", func(t *testing.T) {
		d := open(t)
		d.put("file", "keep")
		d.put("dir/x", "keep")
		if err := os.Symlink("nowhere", d.at("dangling")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("file", d.at("link")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"file", "dir", "dangling", "link"} {
			d.fails(editor.AlreadyExists, []string{d.at(name), "already exists", "cannot overwrite"}, "create", "path", d.at(name), "file_text", "new")
		}
		d.has("file", "keep")
		d.alone("", "dangling", "dir", "file", "link")
	})
}

func TestCreateRace(t *testing.T) {
	t.Run("F33 one of two wins", func(t *testing.T) {
		d := open(t)
		for round := range 20 {
			name := fmt.Sprintf("new-%d/f", round)
			results := make([]tools.Result, 2)
			var both sync.WaitGroup
			for i := range results {
				both.Go(func() { results[i] = d.call("create", "path", d.at(name), "file_text", fmt.Sprint("by ", i)) })
			}
			both.Wait()
			winner := 0
			if results[0].IsError {
				winner = 1
			}
			if results[winner].IsError {
				t.Fatalf("both lost: %s", results[winner].Text())
			}
			d.failed(results[1-winner], editor.AlreadyExists, "already exists")
			d.has(name, fmt.Sprint("by ", winner))
			d.alone(filepath.Dir(name), "f")
		}
	})
}

// alone checks that a directory holds exactly these names, and so no temporary file.
func (d *desk) alone(dir string, names ...string) {
	d.Helper()
	entries, err := os.ReadDir(d.at(dir))
	if err != nil {
		d.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		d.Errorf("%s holds %v, want %v", dir, got, names)
	}
}

func TestUndo(t *testing.T) {
	t.Run("F57 three edits, three undos, a fourth", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "one\n")
		d.ok("str_replace", "path", p, "old_str", "one", "new_str", "two")
		d.ok("insert", "path", p, "insert_line", 1, "new_str", "more")
		d.ok("str_replace", "path", p, "old_str", "two\nmore\n")
		d.has("f", "")
		d.contains(d.ok("undo_edit", "path", p), "Undid the last edit of "+p, "     2\tmore")
		d.has("f", "two\nmore\n")
		d.ok("undo_edit", "path", p)
		d.has("f", "two\n")
		d.ok("undo_edit", "path", p)
		d.has("f", "one\n")
		d.fails(editor.NoHistory, []string{"no edit of " + p}, "undo_edit", "path", p)
	})
	t.Run("F58 create, undo", func(t *testing.T) {
		d := open(t)
		d.ok("create", "path", d.at("f"), "file_text", "x")
		d.ok("undo_edit", "path", d.at("f"))
		d.alone("")
		d.fails(editor.NotFound, nil, "undo_edit", "path", d.at("f"))
	})
	t.Run("F59 outside change", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "one\n")
		d.ok("str_replace", "path", p, "old_str", "one", "new_str", "two")
		d.put("f", "six\n")
		d.fails(editor.Changed, []string{"changed by another program"}, "undo_edit", "path", p)
		d.has("f", "six\n")
		d.put("f", "two\n") // back as the edit left it: the history was kept
		d.ok("undo_edit", "path", p)
		d.has("f", "one\n")
	})
	t.Run("by canonical path", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "one\n")
		if err := os.Symlink("f", d.at("link")); err != nil {
			t.Fatal(err)
		}
		d.ok("str_replace", "path", d.at("link"), "old_str", "one", "new_str", "two")
		d.ok("undo_edit", "path", p)
		d.has("f", "one\n")
	})
	t.Run("per agent", func(t *testing.T) {
		a := open(t)
		b := openIn(t, a.dir)
		p := a.put("f", "one\n")
		a.ok("str_replace", "path", p, "old_str", "one", "new_str", "two")
		b.fails(editor.NoHistory, nil, "undo_edit", "path", p)
	})
	t.Run("at least 20 steps", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "")
		want := []string{""}
		for i := range 30 {
			d.ok("insert", "path", p, "insert_line", i, "new_str", fmt.Sprint("l", i))
			got, _ := os.ReadFile(p)
			want = append(want, string(got))
		}
		for i := 29; i >= 0; i-- {
			d.ok("undo_edit", "path", p)
			d.has("f", want[i])
		}
	})
	t.Run("a new file after an outside removal begins a new history", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "one\n")
		d.ok("str_replace", "path", p, "old_str", "one", "new_str", "two")
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
		d.ok("create", "path", p, "file_text", "two\n")
		d.ok("undo_edit", "path", p)
		d.alone("")
	})
	t.Run("outside change of a created file", func(t *testing.T) {
		d := open(t)
		d.ok("create", "path", d.at("f"), "file_text", "x")
		d.put("f", "precious")
		d.fails(editor.Changed, nil, "undo_edit", "path", d.at("f"))
		d.has("f", "precious")
	})
}

func TestResultsAreDeterministic(t *testing.T) {
	d := open(t)
	p := d.put("f", numbers(30))
	for _, args := range [][]any{
		{"view", "path", p}, {"view", "path", d.dir}, {"str_replace", "path", p, "old_str", "none"}, {"str_replace", "path", p, "old_str", "line"},
	} {
		a, b := d.call(args[0].(string), args[1:]...), d.call(args[0].(string), args[1:]...)
		if a.Text() != b.Text() {
			t.Errorf("%v: two answers", args)
		}
	}
}

func TestMeta(t *testing.T) {
	d := open(t)
	p := d.put("f", numbers(20))
	r := d.call("str_replace", "path", p, "old_str", "line 10\nline 11", "new_str", "line 10\nnew\nnewer")
	meta := r.Meta.(editor.Meta)
	want := "--- " + p + "\n+++ " + p + "\n@@ -8,7 +8,8 @@\n line 8\n line 9\n line 10\n-line 11\n+new\n+newer\n line 12\n line 13\n line 14\n"
	if meta.Diff != want {
		t.Errorf("diff\n%s\nwant\n%s", meta.Diff, want)
	}
	if meta.FirstLine != 10 || meta.LastLine != 12 || meta.Added != 2 || meta.Removed != 1 || meta.Path != p || meta.Command != "str_replace" {
		t.Errorf("%+v", meta)
	}
	if _, err := json.Marshal(meta); err != nil {
		t.Error(err)
	}

	meta = d.call("create", "path", d.at("new"), "file_text", "a\nb\n").Meta.(editor.Meta)
	if want := "--- /dev/null\n+++ " + d.at("new") + "\n@@ -0,0 +1,2 @@\n+a\n+b\n"; meta.Diff != want || !meta.Created {
		t.Errorf("diff\n%q\nwant\n%q", meta.Diff, want)
	}
	meta = d.call("undo_edit", "path", d.at("new")).Meta.(editor.Meta)
	if !strings.Contains(meta.Diff, "+++ /dev/null\n") || !meta.Deleted || meta.Removed != 2 {
		t.Errorf("%+v", meta)
	}

	huge := d.put("huge", strings.Repeat("x\n", 200_000))
	meta = d.call("str_replace", "path", huge, "old_str", strings.Repeat("x\n", 200_000), "new_str", "y").Meta.(editor.Meta)
	if !meta.DiffOmitted || meta.Diff != "" {
		t.Errorf("%+v", meta)
	}
}

func TestImages(t *testing.T) {
	png := append([]byte("\x89PNG\r\n\x1a\n\x00\x00"), bytes.Repeat([]byte{1}, 20000)...)
	t.Run("F20 a model without images", func(t *testing.T) {
		d := open(t)
		p := d.put("i.bin", string(png))
		d.fails(editor.ImageRefused, []string{"image/png", "does not take images"}, "view", "path", p)
		d.fails(editor.Binary, []string{"image"}, "str_replace", "path", p, "old_str", "a", "new_str", "b")
	})
	t.Run("F20 a model with images", func(t *testing.T) {
		d := open(t, func(_ *editor.Config, o *editor.Options) { o.Images = func() bool { return true } })
		for mime, data := range map[string]string{
			"image/png": string(png), "image/jpeg": "\xff\xd8\xff\xe0....", "image/gif": "GIF89a...", "image/webp": "RIFF\x01\x02\x03\x04WEBPVP8 ",
		} {
			r := d.call("view", "path", d.put("i.bin", data))
			if r.IsError || len(r.Content) != 1 || r.Content[0].Mime != mime || string(r.Content[0].Data) != data {
				t.Errorf("%s: %+v", mime, r)
			}
		}
	})
}
