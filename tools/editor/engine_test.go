package editor_test

import (
	"context"
	"errors"
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

// TestEngineCancelled ends in words when the caller is gone.
func TestEngineCancelled(t *testing.T) {
	s := newShelf(t, editor.ClaudeSWE)
	s.put(t, []byte("a\n"))
	ctx, cancel := context.WithCancel(t.Context())
	files := fsys.NewLocal(nil)
	if _, err := files.Edit(t.Context(), s.path, func([]byte, fsys.Info) (fsys.Splice, error) {
		waiting := editor.NewEngine(editor.EngineConfig{Files: files, Profile: editor.Plain, MaxOutputChars: 2000})
		cancel()
		if _, err := waiting.Replace(ctx, s.path, "a", "b"); code(err) != editor.Cancelled {
			t.Error(err)
		}
		return fsys.Splice{}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSettle leaves the giving back of old bytes to the caller, who may take its time.
func TestSettle(t *testing.T) {
	s := newShelf(t, editor.ClaudeSWE)
	s.put(t, []byte("a\n"))
	e := editor.NewEngine(editor.EngineConfig{Files: fsys.NewLocal(nil), Profile: editor.Plain, MaxOutputChars: 2000})
	var settle []func()
	for _, c := range [][2]string{{"a", "b"}, {"b", "c"}} {
		out, err := e.Replace(t.Context(), s.path, c[0], c[1])
		if err != nil || out.Settle == nil {
			t.Fatal("nothing was left to do, or it failed: ", err)
		}
		settle = append(settle, out.Settle)
	}
	for _, do := range settle {
		do()
	}
	if _, err := e.Replace(t.Context(), s.path, "a", "b"); code(err) != editor.NoMatch {
		t.Error(err)
	}
	out, err := e.Undo(t.Context(), s.path)
	if err != nil || out.Settle == nil {
		t.Fatal(err)
	}
	out.Settle()
}
