//go:build unix

package fsys_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/fsys"
	"pgregory.net/rapid"
)

// TestRootedAgreesWithKernel draws trees full of links and paths through them. Where a Rooted finds something, it is what the system
// finds, inside; where the system stays inside all the way, a Rooted finds it too.
func TestRootedAgreesWithKernel(t *testing.T) {
	top := quick(t)
	ws := filepath.Join(top, "ws")
	// The tree is made through a root of its own: some of its links lead out of the test's directory.
	pen, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer pen.Close()
	r := func() *fsys.Rooted {
		if err := os.Mkdir(ws, 0o755); err != nil {
			t.Fatal(err)
		}
		return rooted(t, func(c *fsys.RootedConfig) { c.Workspace = ws })
	}()
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		clear := func(dir string) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if p := filepath.Join(dir, e.Name()); p != ws {
					if err := os.RemoveAll(p); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		clear(ws)
		clear(top)
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		step := rapid.SampledFrom([]string{"a", "b", "c", "a", "b", "c", "..", ".", ""})
		walk := rapid.Map(rapid.SliceOfN(step, 1, 5), func(s []string) string { return strings.Join(s, "/") })
		target := rapid.Custom(func(t *rapid.T) string {
			prefix := rapid.SampledFrom([]string{"", "", "", ws + "/", top + "/", "../ws/"}).Draw(t, "prefix")
			if p := prefix + walk.Draw(t, "walk"); p != "" {
				return p
			}
			return "."
		})
		for i := range rapid.IntRange(1, 10).Draw(t, "objects") {
			dir := "ws"
			if rapid.IntRange(0, 4).Draw(t, "outside") == 0 {
				dir = "."
			}
			p := filepath.Join(append([]string{dir}, rapid.SliceOfN(name, 1, 3).Draw(t, "path")...)...)
			if pen.MkdirAll(filepath.Dir(p), 0o755) != nil {
				continue
			}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				_ = pen.WriteFile(p, []byte(p), 0o644)
			case 1:
				_ = pen.Mkdir(p, 0o755)
			default:
				_ = pen.Symlink(target.Draw(t, fmt.Sprint("target", i)), p)
			}
		}
		for range 20 {
			path := ws + "/" + walk.Draw(t, "asked")
			info, err := r.Stat(t.Context(), path)
			real, realErr := filepath.EvalSymlinks(path)
			if err == nil {
				found++
				if realErr != nil || info.Path != real {
					t.Fatalf("%s: found %s, the system %s, %v", path, info.Path, real, realErr)
				}
			}
			if info.Path != "" && info.Path != ws && !strings.HasPrefix(info.Path, ws+"/") {
				t.Fatalf("%s: escaped to %s", path, info.Path)
			}
			var denied *fsys.DeniedError
			switch {
			case err == nil, errors.As(err, &denied):
			case realErr == nil && inside(ws, path):
				t.Fatalf("%s: %v, the system found %s", path, err, real)
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, fsys.ErrNotDirectory), errors.Is(err, fsys.ErrLinkLoop):
			default:
				t.Fatalf("%s: %v", path, err)
			}
			if denied != nil && realErr == nil && inside(ws, path) {
				t.Fatalf("%s: denied, but it never leaves", path)
			}
		}
	})
	if found == 0 {
		t.Error("nothing was ever found")
	}
}

// inside says whether the system stays in ws all the way along path: it follows the path as the system does, one name at a time.
func inside(ws, path string) bool {
	at, todo := "/", strings.Split(path, "/")
	entered := false
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
		default:
			next := filepath.Join(at, name)
			target, err := os.Readlink(next)
			if err != nil {
				at = next
				break
			}
			if links++; links > 40 || at != ws && !strings.HasPrefix(at, ws+"/") {
				return false // for ever round, or through a link outside
			}
			if strings.HasPrefix(target, "/") {
				at, entered = "/", false
			}
			todo = append(strings.Split(target, "/"), todo...)
			continue
		}
		in := at == ws || strings.HasPrefix(at, ws+"/")
		if entered && !in {
			return false
		}
		entered = entered || in
	}
	return entered
}
