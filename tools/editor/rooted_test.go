//go:build unix

package editor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools/editor"
)

// confined is a desk over a confined file system.
func confined(t *testing.T, mode fsys.Mode) *desk {
	t.Helper()
	d := open(t)
	var err error
	if d.tool, err = editor.New(editor.DefaultConfig(), editor.Options{Files: rooted(t, d.dir, mode), Workspace: d.dir}); err != nil {
		t.Fatal(err)
	}
	return d
}

// rooted is a confined file system over dir.
func rooted(t *testing.T, dir string, mode fsys.Mode) fsys.Provider {
	t.Helper()
	r, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: dir, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestConfinedCases runs the tests of the commands once more, over a confined file system.
func TestConfinedCases(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Replace":                 TestReplace,
		"Insert":                  TestInsert,
		"OutsideWriter":           TestOutsideWriter,
		"Arguments":               TestArguments,
		"Create":                  TestCreate,
		"CreateRace":              TestCreateRace,
		"Undo":                    TestUndo,
		"ResultsAreDeterministic": TestResultsAreDeterministic,
		"Meta":                    TestMeta,
		"Images":                  TestImages,
		"ViewFile":                TestViewFile,
		"ViewDirectory":           TestViewDirectory,
	} {
		t.Run(name, test)
	}
}

func TestConfined(t *testing.T) {
	t.Run("all commands", func(t *testing.T) {
		d := confined(t, fsys.WorkspaceWrite)
		p := d.at("a/f")
		d.ok("create", "path", p, "file_text", "one\n")
		d.ok("insert", "path", p, "insert_line", 1, "new_str", "two")
		d.ok("str_replace", "path", p, "old_str", "one", "new_str", "1")
		d.contains(d.ok("view", "path", p), "     1\t1\n     2\ttwo")
		d.contains(d.ok("view", "path", d.dir), d.at("a")+"/\n"+p)
		d.ok("undo_edit", "path", p)
		d.ok("undo_edit", "path", p)
		d.has("a/f", "one\n")
		d.ok("undo_edit", "path", p)
		d.alone("a")
	})
	t.Run("outside", func(t *testing.T) {
		d, out := confined(t, fsys.WorkspaceWrite), open(t)
		secret := out.put("secret", "s")
		if err := os.Symlink(out.dir, d.at("link")); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{secret, d.at("link/secret"), "/etc/passwd"} {
			for _, command := range []string{"view", "create", "str_replace", "insert", "undo_edit"} {
				d.fails(editor.AccessDenied, []string{"Access denied", p, "`workspace-write`"}, command, "path", p, "file_text", "x", "old_str", "s", "new_str", "b", "insert_line", 0)
			}
		}
		out.has("secret", "s")
		d.fails(editor.NotAbsolute, []string{"`/etc/passwd`"}, "view", "path", "etc/passwd")
	})
	t.Run("read-only", func(t *testing.T) {
		d := confined(t, fsys.ReadOnly)
		p := d.put("f", "one\n")
		d.ok("view", "path", p)
		d.fails(editor.NoMatch, nil, "str_replace", "path", p, "old_str", "two", "new_str", "b")
		d.fails(editor.AccessDenied, []string{"does not allow writing", "`read-only`"}, "str_replace", "path", p, "old_str", "one", "new_str", "b")
		d.fails(editor.AccessDenied, []string{"`read-only`"}, "create", "path", d.at("g"), "file_text", "b")
		d.fails(editor.NoHistory, nil, "undo_edit", "path", p)
		d.has("f", "one\n")
		d.alone("", "f")
	})
	t.Run("protected", func(t *testing.T) {
		d := confined(t, fsys.WorkspaceWrite)
		p := d.put(".git/config", "one\n")
		d.ok("view", "path", p)
		text := d.fails(editor.AccessDenied, []string{"protected"}, "insert", "path", p, "insert_line", 0, "new_str", "b")
		if strings.Contains(text, "outside") {
			t.Error(text)
		}
	})
}
