package jsonl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
)

func open(t *testing.T, root string) *session.Journal {
	t.Helper()
	s, err := jsonl.Open(root, jsonl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := session.NewJournal(s, session.Options{Checked: true})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return j
}

func title(t *testing.T, l *session.Log, title string) error {
	t.Helper()
	_, err := l.Update(t.Context(), func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.Title{Title: title}}}, nil
	})
	return err
}

func TestProjectName(t *testing.T) {
	for cwd, want := range map[string]string{
		"/home/me/work": "--home-me-work--", "": "--_no-cwd--", "/": "--_no-cwd--", `C:\Users\me`: "--C-Users-me--", "//a///b": "--a-b--", "-/-x": "--x--",
		"/a b": "--a b--", "/..": "--..--", "/" + strings.Repeat("x", 300): "--" + strings.Repeat("x", 251) + "--",
	} {
		if got := jsonl.ProjectName(cwd); got != want {
			t.Errorf("%q: %q, want %q", cwd, got, want)
		}
	}
	if got := jsonl.ProjectName("/" + strings.Repeat("é", 300)); len(got) > 255 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestLayout(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sessions")
	j := open(t, root)
	for _, id := range []string{"../../etc/x", "a/b", "~", ".", strings.Repeat("z", 300), "😀", "plain"} {
		l, err := j.Create(t.Context(), session.Header{ID: id, Cwd: "/home/me"}, session.Pin("pin"))
		if err != nil {
			t.Fatalf("%q: %v", id, err)
		}
		if err := title(t, l, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Create(t.Context(), session.Header{ID: ""}, nil); err == nil {
		t.Error("an empty id was accepted")
	}
	err := filepath.WalkDir(filepath.Dir(root), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if path == filepath.Dir(root) {
			return nil
		}
		if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if rel, err := filepath.Rel(root, path); err != nil || strings.HasPrefix(rel, "..") {
			t.Errorf("%s is outside the root", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "--home-me--", "plain", "session.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], `{"type":"session","delegationDepth":0,"id":"plain","version":0`) || !strings.HasPrefix(lines[1], `{"seq":0,"time":`) || lines[2] != "" {
		t.Errorf("%q", lines)
	}
}

// edit changes the log file of session a on disk.
func edit(t *testing.T, root string, f func([]byte) []byte) (before []byte, path string) {
	t.Helper()
	path = filepath.Join(root, "--_no-cwd--", "a", "session.jsonl")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before = f(before)
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	return before, path
}

func prepare(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	j := open(t, root)
	l, err := j.Create(t.Context(), session.Header{ID: "a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if err := title(t, l, fmt.Sprint("title ", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestTornLastLine(t *testing.T) {
	for _, cut := range []int{1, 2, 30, 90} {
		root := prepare(t)
		edit(t, root, func(b []byte) []byte { return b[:len(b)-cut] })
		j := open(t, root)
		l, err := j.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if st := l.State(); st.LastSeq != 3 || st.Title != "title 3" || st.Damage != "" {
			t.Errorf("cut %d: %+v", cut, st)
		}
		if err := title(t, l, "again"); err != nil {
			t.Error(err)
		}
		if err := j.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		j = open(t, root)
		if l, err = j.Open(t.Context(), "a"); err != nil || l.State().LastSeq != 4 || l.State().Title != "again" {
			t.Errorf("cut %d: after an append: %+v, %v", cut, l.State(), err)
		}
	}
}

func TestDamagedMiddleLine(t *testing.T) {
	root := prepare(t)
	content, path := edit(t, root, func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{"title":"title 2"}`), []byte(`{"title":"title`), 1)
	})
	j := open(t, root)
	l, err := j.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	damage := l.State().Damage
	if l.State().LastSeq != 1 || !strings.Contains(damage, "line 4 of "+path) {
		t.Errorf("ends at %d, damage %q", l.State().LastSeq, damage)
	}
	if err := title(t, l, "x"); !errors.Is(err, session.ErrReadOnly) || !strings.Contains(err.Error(), "line 4") {
		t.Error("append:", err)
	}
	page, err := l.Read(t.Context(), -1, 0, 0)
	if err != nil || len(page.Events) != 2 {
		t.Errorf("%d events before the damage, %v", len(page.Events), err)
	}
	if list, err := j.List(t.Context(), session.Query{Status: session.StatusDamaged}); err != nil || len(list.Sessions) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
		t.Error("the damaged file was touched:", err)
	}
}

func TestDamagedHeader(t *testing.T) {
	root := prepare(t)
	edit(t, root, func(b []byte) []byte { return b[5:] })
	j := open(t, root)
	list, err := j.List(t.Context(), session.Query{})
	if err != nil || len(list.Sessions) != 1 || list.Sessions[0].ID != "a" || !strings.Contains(list.Sessions[0].Damage, "line 1") {
		t.Errorf("%+v, %v", list, err)
	}
	l, err := j.Open(t.Context(), "a")
	if err != nil || !strings.Contains(l.State().Damage, "line 1") {
		t.Fatal(err)
	}
	if err := title(t, l, "x"); !errors.Is(err, session.ErrReadOnly) {
		t.Error(err)
	}
}

// TestOneWriterPerSession: two owners share a root, but not a session.
func TestOneWriterPerSession(t *testing.T) {
	root := t.TempDir()
	one, two := open(t, root), open(t, root)
	l, err := one.Create(t.Context(), session.Header{ID: "a"}, nil, session.Draft{Payload: session.Title{Title: "first"}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := two.Open(t.Context(), "a")
	if err != nil || other.State().Title != "first" {
		t.Fatal(other, err)
	}
	var locked *session.LockedError
	if err := title(t, other, "x"); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Error("second writer:", err)
	}
	if _, err := two.Create(t.Context(), session.Header{ID: "a"}, nil); !errors.Is(err, session.ErrExists) {
		t.Error("second creation:", err)
	}
	if _, err := two.Create(t.Context(), session.Header{ID: "b"}, nil); err != nil {
		t.Error("another session:", err)
	}
	if err := title(t, l, "second"); err != nil {
		t.Error(err)
	}
	two.Release(other)
	if info, err := two.Info(t.Context(), "a"); err != nil || info.Title != "second" {
		t.Errorf("the other owner reads %q, %v", info.Title, err)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if other, err = two.Open(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := title(t, other, "third"); err != nil {
		t.Error("after the first owner went:", err)
	}
}

func TestReadOnly(t *testing.T) {
	root := prepare(t)
	s, err := jsonl.Open(root, jsonl.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(epoch, []session.Change{{ID: "a", Delete: true}}); !errors.Is(err, session.ErrReadOnly) {
		t.Error(err)
	}
	if _, err := jsonl.Open(filepath.Join(root, "nowhere"), jsonl.Options{ReadOnly: true}); err == nil {
		t.Error("a missing root was opened")
	}
}
