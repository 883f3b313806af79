package editor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/editor"
)

// shelf is an engine and one file.
type shelf struct {
	engine *editor.Engine
	path   string
}

func newShelf(f testing.TB, profile editor.Profile) shelf {
	return shelf{
		engine: editor.NewEngine(editor.EngineConfig{Files: fsys.NewLocal(nil), Profile: profile, MaxOutputChars: 2000}),
		path:   filepath.Join(f.TempDir(), "f"),
	}
}

func (s shelf) put(t *testing.T, data []byte) {
	if err := os.WriteFile(s.path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s shelf) get(t *testing.T) []byte {
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// check checks what holds for every outcome.
func (s shelf) check(t *testing.T, out editor.Outcome, err error) bool {
	text := out.Text
	if err != nil {
		refusal, ok := err.(*editor.Refusal) //nolint:errorlint // nothing wraps it
		if !ok {
			t.Fatalf("not a refusal: %v", err)
		}
		text = refusal.Text
	} else if utf8.RuneCountInString(text) > 2000 {
		t.Errorf("%d characters", utf8.RuneCountInString(text))
	}
	if text == "" || !utf8.ValidString(text) {
		t.Errorf("text %q", text)
	}
	if !utf8.ValidString(out.Meta.Diff) {
		t.Errorf("diff %q", out.Meta.Diff)
	}
	return err == nil
}

// undo checks that an undo gives back exactly data.
func (s shelf) undo(t *testing.T, data []byte) {
	out, err := s.engine.Undo(context.Background(), s.path)
	s.check(t, out, err)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.get(t); !bytes.Equal(got, data) {
		t.Errorf("undone: %q\nwant: %q", got, data)
	}
}

func seeds() []string {
	return []string{
		"", "a", "a\n", "one\ntwo", "one\r\ntwo\r\nthree\r\n", "\xef\xbb\xbfa\nb\n", "caf\xe9\r\n\xff\xfe\n", "\n\n\n", "\r\n\r", "a\nb\r\nc\nd\r\n", "\r\r\n\n",
		"日本語\nテキスト\n", "\t\tx = 1\n\n\ty", strings.Repeat("line\n", 300), strings.Repeat("x", 5000) + "\n" + strings.Repeat("é", 3000), "# \xd6\xd0\xce\xc4\nname = 1\n",
	}
}

// FuzzReplace replaces a piece of a file by a text: all else stays as it was, and an undo restores the piece.
func FuzzReplace(f *testing.F) {
	for i, s := range seeds() {
		f.Add([]byte(s), uint(i), uint(3), "new\ntext", i%2 == 0)
		f.Add([]byte(s), uint(0), uint(len(s)), "", false)
	}
	s := newShelf(f, editor.ClaudeSWE)
	f.Fuzz(func(t *testing.T, data []byte, at, size uint, text string, lf bool) {
		if len(data) == 0 {
			return
		}
		start := int(at % uint(len(data)))
		end := start + int(size%uint(len(data)-start+1))
		old := string(data[start:end])
		if lf {
			old = strings.ReplaceAll(old, "\r\n", "\n")
		}
		s.put(t, data)
		out, err := s.engine.Replace(t.Context(), s.path, old, text)
		got := s.get(t)
		if !s.check(t, out, err) {
			if !bytes.Equal(got, data) {
				t.Fatalf("a failed edit changed the file: %q", got)
			}
			if r := err.(*editor.Refusal); r.Code == editor.NoMatch && !lf && !strings.HasPrefix(old, "\n") { //nolint:errorlint // nothing wraps it
				t.Fatalf("%q was not found in %q", old, data)
			}
			return
		}
		// Wherever it was found, it was one place, and what is around it is whole.
		fits := slices.ContainsFunc(spans(data, old), func(sp [2]int) bool {
			head, tail := data[:sp[0]], data[sp[1]:]
			if len(got) < len(head)+len(tail) || !bytes.HasPrefix(got, head) || !bytes.HasSuffix(got, tail) {
				return false
			}
			middle := string(got[len(head) : len(got)-len(tail)])
			return middle == text || strings.ReplaceAll(middle, "\r\n", "\n") == strings.ReplaceAll(text, "\r\n", "\n")
		})
		if !fits {
			t.Errorf("%q, %q by %q gave %q", data, old, text, got)
		}
		s.undo(t, data)
	})
}

// spans gives every place in data that is old, with LF like CRLF. It is slow and plainly right.
func spans(data []byte, old string) (found [][2]int) {
	want := strings.ReplaceAll(old, "\r\n", "\n")
	for i := range data {
		for j := i + len(want); j <= min(len(data), i+2*len(want)); j++ {
			if strings.ReplaceAll(string(data[i:j]), "\r\n", "\n") == want {
				found = append(found, [2]int{i, j})
			}
		}
	}
	return found
}

// FuzzInsert inserts a text behind any line.
func FuzzInsert(f *testing.F) {
	for i, s := range seeds() {
		f.Add([]byte(s), i%4, "new\r\ntext\n")
		f.Add([]byte(s), 1, "x")
	}
	s := newShelf(f, editor.Plain)
	f.Fuzz(func(t *testing.T, data []byte, after int, text string) {
		s.put(t, data)
		out, err := s.engine.Insert(t.Context(), s.path, after, text)
		got := s.get(t)
		if !s.check(t, out, err) {
			if !bytes.Equal(got, data) {
				t.Fatalf("a failed edit changed the file: %q", got)
			}
			return
		}
		rest := data
		head := 0
		if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
			head, rest = 3, data[3:]
		}
		for range after {
			i := bytes.IndexByte(rest, '\n') + 1
			if i == 0 {
				i = len(rest)
			}
			head, rest = head+i, rest[i:]
		}
		if !bytes.HasPrefix(got, data[:head]) || !bytes.HasSuffix(got, rest) {
			t.Fatalf("%q gave %q", data, got)
		}
		added, want := string(got[head:len(got)-len(rest)]), text
		switch {
		case head > 0 && len(rest) == 0 && data[head-1] != '\n' && !bytes.Equal(data, []byte("\xef\xbb\xbf")):
			want = "\n" + want
		case !strings.HasSuffix(want, "\n"):
			want += "\n"
		}
		// Apart from line endings, which follow the file.
		if strings.ReplaceAll(added, "\r", "") != strings.ReplaceAll(want, "\r", "") {
			t.Errorf("%q + %q at %d added %q", data, text, after, added)
		}
		s.undo(t, data)
	})
}

// FuzzView shows anything as text within the limit.
func FuzzView(f *testing.F) {
	for i, s := range seeds() {
		f.Add([]byte(s), i, -1, i%2 == 0)
		f.Add([]byte(s), 1, i, i%2 == 0)
	}
	both := []shelf{newShelf(f, editor.ClaudeSWE), newShelf(f, editor.Plain)}
	f.Fuzz(func(t *testing.T, data []byte, first, last int, all bool) {
		for _, s := range both {
			s.put(t, data)
			r := &editor.Range{First: first, Last: last}
			if all {
				r = nil
			}
			out, err := s.engine.View(t.Context(), s.path, r)
			s.check(t, out, err)
		}
	})
}

// FuzzArguments gives the tool any arguments: each call has a result, and the result has a text.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{
		`{"command":"view","path":"/nowhere","view_range":[1,"2"]}`, `{"command":"insert","path":"/nowhere","insert_line":1e400,"new_str":"\ud800"}`, `null`, `[]`, `{"command":{}}`, `{"path":"\u0000"}`,
		`{"command":"str_replace","path":"/nowhere/x/../y","old_str":"a"}`, `{"command":"undo_edit","path":"//"}`, `{`,
	} {
		f.Add([]byte(s))
	}
	// Confined, because what is asked for is done.
	files, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: f.TempDir(), Mode: fsys.WorkspaceWrite})
	if err != nil {
		f.Fatal(err)
	}
	defer files.Close()
	tool, err := editor.New(editor.DefaultConfig(), editor.Options{Files: files})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := tool.Run(t.Context(), tools.Call{Arguments: json.RawMessage(raw)})
		if r.Text() == "" || !utf8.ValidString(r.Text()) || r.IsError != (r.Error != nil) {
			t.Errorf("%s: %+v", raw, r)
		}
	})
}
