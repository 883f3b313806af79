package presets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const base = `version: 1
name: Base
description: d
order: 7
rows:
  - id: persona
    use: persona
    with: {text: Base text., runtimeContext: false}
  - id: shell
    isolate: [terminals]
    rows:
      - {id: pty, use: terminals}
      - id: bash
        use: tool-bash
        os: [linux]
        with: {timeout: 300s, maxOutputChars: 16000, description: trained}
  - id: files
    isolate: [fs]
    rows:
      - {id: fs-local, use: fs-local}
`

func TestExtends(t *testing.T) {
	r, _ := user(t, map[string]string{
		"base": base,
		"variant": `version: 1
extends: base
remove: [fs-local]
rows:
  - {id: bash, with: {timeout: 60s}}
  - {id: more, use: prompt-section, with: {text: more}}
`,
		"grandchild": `version: 1
extends: variant
rows:
  - {id: persona, use: prompt-section, with: {text: no settings of the other use are kept}}
  - {id: bash, use: tool-bash, with: {maxOutputChars: 9}}
`,
		"regroup": `version: 1
extends: base
remove: [files]
rows:
  - id: shell
    isolate: [terminals]
    rows:
      - {id: bash, with: {clip: headTail}}
      - {id: pty2, use: terminals}
`,
	})
	c := resolve(t, r, "variant")
	want := []Row{
		{ID: "persona", Use: "persona", With: map[string]any{"text": "Base text.", "runtimeContext": false}},
		{ID: "shell", Isolate: []string{"terminals"}, Rows: []Row{
			{ID: "pty", Use: "terminals"},
			{ID: "bash", Use: "tool-bash", With: map[string]any{"timeout": "60s", "maxOutputChars": 16000, "description": "trained"}},
		}},
		{ID: "files", Isolate: []string{"fs"}, Rows: []Row{}},
		{ID: "more", Use: "prompt-section", With: map[string]any{"text": "more"}},
	}
	if diff := cmp.Diff(want, c.Rows()); diff != "" {
		t.Error(diff)
	}
	if c.Name != "variant" || c.Description != "" || c.Order != 0 {
		t.Errorf("name, description and order are not inherited: %q %q %d", c.Name, c.Description, c.Order)
	}
	g := resolve(t, r, "grandchild").Rows()
	if diff := cmp.Diff(map[string]any{"timeout": "60s", "maxOutputChars": 9, "description": "trained"}, g[1].Rows[1].With); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Row{ID: "persona", Use: "prompt-section", With: map[string]any{"text": "no settings of the other use are kept"}}, g[0]); diff != "" {
		t.Error(diff)
	}
	s := resolve(t, r, "regroup").Rows()[1]
	if diff := cmp.Diff([]Row{
		{ID: "bash", Use: "tool-bash", With: map[string]any{"timeout": "300s", "maxOutputChars": 16000, "description": "trained", "clip": "headTail"}},
		{ID: "pty2", Use: "terminals"},
	}, s.Rows); diff != "" {
		t.Error(diff)
	}
	if got := resolve(t, r, "base").Rows()[1].Rows[1].With["timeout"]; got != "300s" {
		t.Errorf("a variant changed its base: %v", got)
	}
}

func TestMistakesInAVariantPointIntoTheRightFile(t *testing.T) {
	r, dir := user(t, map[string]string{
		"base":  base,
		"a":     "version: 1\nextends: b\n",
		"b":     "version: 1\nextends: a\n",
		"twice": "version: 1\nextends: base\nrows:\n  - id: g\n    rows:\n      - {id: pty, use: terminals}\n",
		"child": "version: 1\nextends: bad\n",
		"bad":   "version: 1\nrows:\n  - {id: x, use: persona, with: {text: 3}}\n",
		"typo":  "version: 1\nextends: base\nrows:\n  - {id: bash, with: {timeuot: 1s}}\n",
	})
	for id, want := range map[string]string{
		"a":     filepath.Join(dir, "b", fileName) + ":2:10: extends goes in a circle: a, b, a",
		"twice": filepath.Join(dir, "twice", fileName) + ":6:14: row pty: the id is taken; the first row with it is at " + filepath.Join(dir, "base", fileName) + ":12:",
		"child": filepath.Join(dir, "bad", fileName) + ":3:40: this must be text",
		"typo":  filepath.Join(dir, "typo", fileName) + `:4:23: unknown key "timeuot"`,
	} {
		_, err := r.Resolve(id)
		wantError(t, err, want)
	}
}

func TestOlderVersionIsMigratedWithAWarning(t *testing.T) {
	text := "version: 0\nplugins:\n  - id: g\n    isolate: [fs]\n    plugins:\n      - {id: fs, type: fs-local}\n      - {id: ed, type: tool-str-replace-editor, config: {undo: false}}\n"
	r, dir := user(t, map[string]string{"old": text, "variant": "version: 1\nextends: old\n"})
	for _, id := range []string{"old", "variant"} {
		c := resolve(t, r, id)
		if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "old/preset.yml:1:10: the preset has the old version 0") {
			t.Errorf("%s: %q", id, c.Warnings)
		}
		if c.Rows()[0].Rows[1].With["undo"] != false {
			t.Errorf("%+v", c.Rows())
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "old", fileName)); err != nil || string(got) != text {
		t.Error("the file was written back")
	}
}

func TestHashIsOfWhatIsMounted(t *testing.T) {
	r, _ := user(t, map[string]string{
		"base":    base,
		"copy":    "# a comment\n" + strings.Replace(strings.Replace(base, "Base", "Other", 1), "order: 7", "order: 1", 1),
		"reorder": strings.Replace(base, "{text: Base text., runtimeContext: false}", "{runtimeContext: false, text: 'Base text.'}", 1),
		"variant": "version: 1\nextends: base\n",
		"changed": strings.Replace(base, "300s", "301s", 1),
	})
	want := resolve(t, r, "base").Hash
	for id, same := range map[string]bool{"copy": true, "reorder": true, "variant": true, "changed": false} {
		if got := resolve(t, r, id).Hash; (got == want) != same {
			t.Errorf("%s: same hash %v, want %v", id, got == want, same)
		}
	}
}

func TestRecordedCompositionIsEnough(t *testing.T) {
	r, dir := user(t, map[string]string{"base": base, "variant": "version: 1\nname: Größe <&>\u2028\nextends: base\nrows:\n  - id: bash\n    with:\n      startup: [\"echo \\x01 \\x7f \\u0085\"]\n      env: {A: \"1\"}\n"})
	c := resolve(t, r, "variant")
	kept := c.Encode()
	must(t, os.RemoveAll(filepath.Join(dir, "base")), os.RemoveAll(filepath.Join(dir, "variant")))
	d, err := Decode(kept)
	must(t, err)
	if diff := cmp.Diff(c.Rows(), d.Rows()); diff != "" || d.Hash != c.Hash || d.Name != c.Name {
		t.Errorf("hash %s, want %s; name %q\n%s", d.Hash, c.Hash, d.Name, diff)
	}
	if diff := cmp.Diff(kept, d.Encode()); diff != "" {
		t.Error(diff)
	}
	newPlane(t).mount(t, "s1", d)

	for text, says := range map[string]string{
		"":                       "recorded composition: EOF",
		"{":                      "recorded composition",
		`{"version":9,"id":"x"}`: "recorded composition of preset x: it has version 9",
		`{"version":1,"id":"x","rows":[{"id":"a","use":"gone"}]}`: `recorded composition of preset x:1:1: there is no row "gone"`,
	} {
		_, err := Decode([]byte(text))
		wantError(t, err, says)
	}
}

// No text, however odd, changes on its way into a record and out again.
func TestRecordKeepsEveryText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		n := rapid.Int32().Draw(t, "order")
		doc := rowDoc{ID: value{nodeOf("a"), "f"}, Use: value{nodeOf("prompt-section"), "f"}, With: value{nodeOf(map[string]any{"text": "x" + text, "name": "y" + text}), "f"}}
		c, err := resolver{goos: "linux"}.resolve("p", &document{file: "f", Name: text, Order: int(n), Rows: []rowDoc{doc}})
		if err != nil {
			t.Fatal(err)
		}
		d, err := Decode(c.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if d.Hash != c.Hash || d.Order != int(n) || !cmp.Equal(c.Rows(), d.Rows()) {
			t.Fatalf("%q came back as %+v", text, d.Rows())
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte("version: 0\nplugins: [{id: a, type: persona, config: {text: x}}]\n"))
	f.Add([]byte("version: 1\nextends: minimal\nremove: [bash]\n"))
	f.Add([]byte("{\"version\": 1, \"rows\": [{\"id\": \"g\", \"rows\": []}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := parse("f", text)
		if err != nil {
			if p, ok := err.(*Problem); !ok || p.Line < 1 || p.Column < 1 {
				t.Fatalf("%T %v has no place", err, err)
			}
			return
		}
		c, err := resolver{goos: "linux", base: func(string) (*document, error) { return nil, ErrNotFound }}.resolve("p", doc)
		if err != nil {
			return
		}
		if d, err := Decode(c.Encode()); err != nil || d.Hash != c.Hash {
			t.Fatalf("recorded and read back: %v", err)
		}
	})
}
