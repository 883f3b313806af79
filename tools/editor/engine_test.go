package editor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools/editor"
)

func code(err error) editor.Code {
	var r *editor.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

// TestEngineWrite overwrites, which no command of the tool does.
func TestEngineWrite(t *testing.T) {
	s := newShelf(t, editor.Plain)
	ctx := t.Context()
	for _, text := range []string{"one\n", "two\r\n", ""} {
		out, err := s.engine.Write(ctx, s.path, text)
		if !s.check(t, out, err) || string(s.get(t)) != text {
			t.Fatalf("%q: %v", text, err)
		}
	}
	if _, err := s.engine.Write(ctx, s.path, ""); code(err) != editor.NoChange {
		t.Error(err)
	}
	s.undo(t, []byte("two\r\n"))
	s.undo(t, []byte("one\n"))
	if _, err := s.engine.Undo(ctx, s.path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(s.path); !os.IsNotExist(err) {
		t.Error(err)
	}
	s.put(t, []byte{0})
	if _, err := s.engine.Write(ctx, s.path, "text"); code(err) != editor.Binary {
		t.Error(err)
	}
	if _, err := s.engine.Write(ctx, filepath.Dir(s.path), "text"); code(err) != editor.IsDirectory {
		t.Error(err)
	}
}

// TestEngineCancelled ends in words when the caller is gone.
func TestEngineCancelled(t *testing.T) {
	s := newShelf(t, editor.ClaudeSWE)
	s.put(t, []byte("a\n"))
	ctx, cancel := context.WithCancel(t.Context())
	files := fsys.NewLocal(nil)
	if _, err := files.Edit(t.Context(), s.path, func(old []byte, _ fsys.Info) ([]byte, error) {
		waiting := editor.NewEngine(editor.EngineConfig{Files: files, Profile: editor.Plain, MaxOutputChars: 2000})
		cancel()
		if _, err := waiting.Replace(ctx, s.path, "a", "b"); code(err) != editor.Cancelled {
			t.Error(err)
		}
		return old, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestHistoryBound keeps an agent's history under 64 MiB and gives up the oldest steps first.
func TestHistoryBound(t *testing.T) {
	s := newShelf(t, editor.Plain)
	big := make([]byte, 8<<20)
	for i := range big {
		big[i] = 'a'
	}
	s.put(t, big)
	const edits = 12
	for i := range edits {
		for j := range big {
			big[j] = 'b' + byte(i)
		}
		if _, err := s.engine.Write(t.Context(), s.path, string(big)); err != nil {
			t.Fatal(err)
		}
	}
	undone := 0
	for {
		_, err := s.engine.Undo(t.Context(), s.path)
		if err != nil {
			if code(err) != editor.NoHistory {
				t.Fatal(err)
			}
			break
		}
		undone++
	}
	if undone != 7 { // 64 MiB hold seven pieces of 8 MiB and what belongs to them
		t.Errorf("%d steps were kept", undone)
	}
}
