package presets

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Each broken preset gives one clear sentence with file, line and column: in check, in the list and
// where a session would be created, and no other preset notices.
func TestBrokenPresets(t *testing.T) {
	const group = "rows:\n  - id: g\n    isolate: [fs]\n    rows:\n      - {id: f, use: fs-local}\n"
	cases := []struct{ name, text, line, says string }{
		{"yaml error", "version: 1\nrows:\n  - {id: a\n  - x\n", "", "this is not YAML"},
		{"yaml indentation", "version: 1\nname: a\n  order: 3\n", "3:3", "this is not YAML: mapping values are not allowed"},
		{"tabs", "version: 1\nrows:\n\t- id: a\n", "3:2", "this is not YAML"},
		{"empty file", "", "1:1", "the file is empty; the least it needs is version: 1"},
		{"only comments", "# nothing\n\n---\n", "1:1", "the file is empty"},
		{"null document", "null\n", "1:1", "the file is empty"},
		{"a list", "- version: 1\n", "1:1", "this must be a mapping, and is a list"},
		{"two documents", "version: 1\n---\nversion: 1\n", "2:1", "a second document begins here"},
		{"control character", "version: 1\nname: a\x01b\n", "2:8", "this is no text"},
		{"not utf-8", "version: 1\nname: \xff\xfe\n", "2:7", "this is no text"},
		{"no version", "name: x\n", "1:1", "the version is missing; write version: 1"},
		{"version text", "version: one\n", "1:10", "this must be a whole number, and is text"},
		{"newer version", "version: 2\nfuture: yes\n", "1:10", "the preset has version 2 and this program reads up to 1; it needs a newer dsh-web"},
		{"negative version", "version: -1\n", "1:10", "there is no version -1"},
		{"unknown key", "version: 1\nrow: []\n", "2:1", `unknown key "row"; it can be version, name,`},
		{"unknown row key", "version: 1\nrows:\n  - id: a\n    user: persona\n", "4:5", `unknown key "user"`},
		{"unknown setting", "version: 1\nrows:\n  - id: a\n    use: persona\n    with: {text: x, txt: y}\n", "5:21", `unknown key "txt"; it can be text, complete, runtimeContext or literal`},
		{"duplicate key", "version: 1\nname: a\nname: b\n", "3:1", `the key "name" stands there twice`},
		{"wrong type", "version: 1\norder: first\n", "2:8", "this must be a whole number, and is text"},
		{"number for text", "version: 1\nname: 7\n", "2:7", "this must be text, and is a number; put it in quotes if text is meant"},
		{"wrong type in a setting", "version: 1\nrows:\n  - id: a\n    use: persona\n    with: {text: x, complete: 1}\n", "5:31", "this must be true or false, and is a number"},
		{"rows no list", "version: 1\nrows: {id: a}\n", "2:7", "this must be a list, and is a mapping"},
		{"bad duration", "version: 1\nrows:\n  - id: b\n    use: tool-bash\n    with: {timeout: soon}\n", "5:21", `"soon" is no duration`},
		{"refused setting", "version: 1\nrows:\n  - id: b\n    use: tool-bash\n    with:\n      clip: middle\n", "6:13", `row b: clip: "middle" is none of head, headTail`},
		{"missing setting", "version: 1\nrows:\n  - {id: p, use: persona}\n", "3:10", "row p: text: a persona needs a text"},
		{"unknown row", "version: 1\nrows:\n  - {id: a, use: magic}\n", "3:18", `there is no row "magic"; use can be persona,`},
		{"no id", "version: 1\nrows:\n  - use: persona\n", "3:5", "the row has no id"},
		{"empty row", "version: 1\nrows:\n  - {}\n", "3:5", "the row has no id"},
		{"bad id", "version: 1\nrows:\n  - {id: A_b, use: fs-local}\n", "3:10", `"A_b" can't be an id`},
		{"no use", "version: 1\nrows:\n  - {id: a}\n", "3:10", "row a: it needs use, or rows if it is a group"},
		{"use and rows", "version: 1\nrows:\n  - {id: a, use: persona, rows: []}\n", "3:10", "row a: it has both use and rows"},
		{"with and rows", "version: 1\nrows:\n  - {id: a, with: {}, rows: []}\n", "3:10", "row a: it has both with and rows"},
		{"isolate on a leaf", "version: 1\nrows:\n  - {id: a, use: fs-local, isolate: [fs]}\n", "3:10", "isolate belongs to a group"},
		{"isolate unknown", "version: 1\nrows:\n  - id: a\n    isolate: [net]\n    rows: []\n", "4:15", `there is no service "net" to isolate; it can be fs or terminals`},
		{"duplicate id", "version: 1\nrows:\n  - {id: a, use: runtime-context}\n  - id: g\n    rows:\n      - {id: a, use: fs-local}\n", "6:14", "row a: the id is taken; the first row with it is at"},
		{"duplicate id side by side", "version: 1\nrows:\n  - {id: a, use: runtime-context}\n  - {id: a, use: tool-todo}\n", "4:10", "row a: the id is taken; the first row with it is at"},
		{"duplicate id in a variant", "version: 1\nextends: minimal\nrows:\n  - {id: bash, with: {timeout: 1s}}\n  - {id: bash, with: {timeout: 2s}}\n", "5:10", "row bash: the id is taken; the first row with it is at"},
		{"other os", "version: 1\nrows:\n  - {id: a, use: runtime-context, os: [plan9, darwin]}\n", "3:40", "row a needs plan9 or darwin, and this is linux"},
		{"cycle", "version: 1\nextends: test\n", "2:10", "extends goes in a circle: test, test"},
		{"unknown base", "version: 1\nextends: nothing-there\n", "2:10", `extends: there is no preset "nothing-there"; there are `},
		{"remove unknown", "version: 1\nextends: minimal\nremove: [persona, nobody]\n", "3:19", `remove: there is no row "nobody"`},
		{"two complete", "version: 1\nrows:\n  - {id: a, use: persona, with: {text: A, complete: true}}\n  - {id: b, use: persona, with: {text: B, complete: true}}\n", "4:10", "row b: it claims to be the complete system prompt, and so does row a"},
		{"two personas", "version: 1\nrows:\n  - {id: a, use: persona, with: {text: A}}\n  - {id: b, use: persona, with: {text: B}}\n", "4:10", `row b: check/agent/preset:test/b: "persona" is already added by check/agent/preset:test/a`},
		{"unknown variable", "version: 1\nrows:\n  - {id: a, use: persona, with: {text: \"{{date}}\"}}\n", "3:10", "there is no variable date"},
		{"missing need", "version: 1\nrows:\n  - {id: b, use: tool-bash}\n", "3:10", "row b: it waits for terminals, and nothing it can see provides that"},
		{"need in another realm", "version: 1\nrows:\n  - id: g\n    isolate: [terminals]\n    rows: [{id: t, use: terminals}]\n  - {id: b, use: tool-bash}\n", "6:10", "row b: it waits for terminals"},
		{"leak", "version: 1\nrows:\n  - {id: f, use: fs-local}\n", "3:10", "row f: check/agent/preset:test/f: service fs would leak into check/agent: check/agent/preset:test is bounded"},
		{"two providers", "version: 1\n" + group + "      - {id: f2, use: fs-host}\n", "7:14", "row f2: check/agent/preset:test/g/f2: fs is already provided by check/agent/preset:test/g/f"},
		{"two tools of one name", "version: 1\n" + group + "      - {id: e1, use: tool-str-replace-editor}\n      - {id: e2, use: tool-str-replace-editor}\n", "8:14", `"str_replace_editor" is already added by`},
		{"order without rest", "version: 1\nrows:\n  - id: o\n    use: tool-order\n    with:\n      tools: [bash]\n", "6:14", "it needs exactly one \"*\""},
		{"order with unknown tool", "version: 1\nrows:\n  - {id: o, use: tool-order, with: {tools: [nope, '*']}}\n", "3:10", "row o: it names tools that the agent doesn't have: nope"},
		{"alias", "version: 1\nname: &n x\ndescription: *n\n", "2:7", "anchors and aliases are not supported"},
		{"tag", "version: 1\nname: !!binary aGk=\n", "2:7", "the tag !!binary is not supported"},
		{"bomb", "version: 1\nname: [" + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "]\n", "2", "nested too deeply"},
		{"large file", "version: 1\nname: x\n#" + strings.Repeat("x", 10<<20), "1:1", "the file is too large"},
	}
	place := regexp.MustCompile(`^[^:]*/test/preset\.yml:\d+:\d+: `)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, _ := user(t, map[string]string{"test": c.text, "fine": "version: 1\n"})
			check := func(where, got string) {
				t.Helper()
				if !strings.Contains(got, c.says) || !strings.Contains(got, "/test/preset.yml:"+c.line) || !place.MatchString(got) {
					t.Errorf("%s says %q, want the place %s and %q", where, got, c.line, c.says)
				}
				if strings.Contains(got, "\n") {
					t.Errorf("%s says more than a sentence: %q", where, got)
				}
			}
			_, err := r.Check("test")
			if err == nil {
				t.Fatal("it passed")
			}
			check("check", err.Error())
			_, err = r.Resolve("test")
			check("creation", err.Error())
			var p *Problem
			if !errors.As(err, &p) {
				t.Errorf("%T is no *Problem", err)
			}
			list, err := r.List()
			must(t, err)
			healthy := 0
			for _, e := range list {
				if e.ID == "test" {
					check("list", e.Broken)
				} else if e.Broken == "" {
					healthy++
				}
			}
			if healthy != len(list)-1 {
				t.Errorf("%d of %d others are healthy: %+v", healthy, len(list)-1, list)
			}
			if err := r.Delete("test"); err != nil {
				t.Error("a broken preset can be deleted:", err)
			}
		})
	}
}

// What lies in a folder can be wrong without any text.
func TestBrokenFolders(t *testing.T) {
	outside := t.TempDir()
	put(t, outside, map[string]string{"secret": "version: 1\n"})
	make := map[string]func(dir string) error{
		"no-file": func(dir string) error { return os.Mkdir(dir, 0o755) },
		"file-out": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.Symlink(filepath.Join(outside, "secret", fileName), filepath.Join(dir, fileName)))
		},
		"folder-out":  func(dir string) error { return os.Symlink(filepath.Join(outside, "secret"), dir) },
		"dangling":    func(dir string) error { return os.Symlink("nowhere", dir) },
		"loop":        func(dir string) error { return os.Symlink("loop", dir) },
		"file-is-dir": func(dir string) error { return os.MkdirAll(filepath.Join(dir, fileName), 0o755) },
		"file-is-fifo": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), syscall.Mkfifo(filepath.Join(dir, fileName), 0o600))
		},
		"Upper Case": func(dir string) error { return os.Mkdir(dir, 0o755) },
	}
	says := map[string]string{
		"no-file": "the preset has no preset.yml", "file-out": "leads out of the presets folder", "folder-out": "leads out of the presets folder",
		"dangling": "symbolic link", "loop": "symbolic link", "file-is-dir": "not a regular file", "file-is-fifo": "not a regular file", "Upper Case": "can't be an id",
	}
	r, dir := user(t, map[string]string{"fine": "version: 1\n"})
	must(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o644), os.Mkdir(filepath.Join(dir, ".hidden"), 0o755))
	for name, f := range make {
		must(t, f(filepath.Join(dir, name)))
	}
	list, err := r.List()
	must(t, err)
	if len(list) != len(make)+3 {
		t.Errorf("%d presets listed, want %d", len(list), len(make)+3)
	}
	for _, e := range list {
		want, broken := says[e.ID]
		if !broken && e.Broken != "" || broken && !strings.Contains(e.Broken, want) {
			t.Errorf("%s: %q, want %q", e.ID, e.Broken, want)
		}
	}
	for name := range make {
		if _, err := r.Resolve(name); err == nil {
			t.Errorf("%s resolved", name)
		}
		if err := r.Delete(name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "secret", fileName)); err != nil {
		t.Error("deleting a link deleted what it led to:", err)
	}
	if list, _ := r.List(); len(list) != 3 {
		t.Errorf("%+v", list)
	}
}

func TestUnknownPreset(t *testing.T) {
	r, _ := user(t, nil)
	for _, id := range []string{"nope", "", "../minimal", "minimal/../standard", "/etc", "."} {
		_, err := r.Resolve(id)
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
		wantError(t, err, "there are minimal, standard")
	}
}
