//go:build unix

package fsys_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-web/dsh-web/host/fsys"
)

func put(t testing.TB, path, contents string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func symlink(t testing.TB, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func text(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func to(s string) func([]byte, fsys.Info) (fsys.Splice, error) {
	return func(old []byte, _ fsys.Info) (fsys.Splice, error) {
		return fsys.Splice{Cut: len(old), Text: []byte(s)}, nil
	}
}

func yes([]byte, fsys.Info) error { return nil }

// tries makes every kind of access to path and gives the errors by name.
func tries(ctx context.Context, p fsys.Provider, path string) map[string]error {
	_, statErr := p.Stat(ctx, path)
	f, _, openErr := p.Open(ctx, path)
	if openErr == nil {
		openErr = f.Close()
	}
	_, editErr := p.Edit(ctx, path, to("escaped"))
	removeErr := p.Remove(ctx, path, yes)
	_, createErr := p.Create(ctx, path, []byte("escaped"))
	return map[string]error{"stat": statErr, "open": openErr, "edit": editErr, "remove": removeErr, "create": createErr}
}

func isDenied(err error, reason fsys.Reason, mode fsys.Mode) bool {
	var denied *fsys.DeniedError
	return errors.As(err, &denied) && denied.Reason == reason && denied.Mode == mode
}

func TestRootedOutside(t *testing.T) {
	ws, out := room(t), room(t)
	secret := put(t, out+"/secret", "s")
	symlink(t, out, ws+"/dir")
	symlink(t, secret, ws+"/file")
	symlink(t, "../../../../../../../../../.."+secret, ws+"/rel")
	symlink(t, "dir", ws+"/chain")
	symlink(t, "/etc", ws+"/etc")
	r := rooted(t, func(c *fsys.RootedConfig) { c.Workspace = ws })
	for _, path := range []string{
		secret, out + "/new", ws + "/dir/secret", ws + "/dir/new", ws + "/file", ws + "/rel", ws + "/chain/secret", ws + "/etc/passwd",
		ws + "/../" + filepath.Base(filepath.Dir(out)) + "/x", ws + "-sibling", filepath.Dir(ws), "/", "/etc/passwd", "/proc/self/environ", ws + "/dir/../x",
	} {
		for what, err := range tries(t.Context(), r, path) {
			if what == "create" && (path == ws+"/file" || path == ws+"/rel") {
				if !errors.Is(err, fs.ErrExist) { // the link itself is in the way
					t.Errorf("create %s: %v", path, err)
				}
				continue
			}
			if what == "create" && strings.HasSuffix(path, "/") {
				continue
			}
			if !isDenied(err, fsys.Outside, fsys.WorkspaceWrite) {
				t.Errorf("%s %s: %v", what, path, err)
			}
		}
	}
	if err := r.ReadDir(t.Context(), ws+"/dir", func(fsys.Entry) bool { t.Error("visited"); return true }); !isDenied(err, fsys.Outside, fsys.WorkspaceWrite) {
		t.Error(err)
	}
	if text(t, secret) != "s" {
		t.Error("the secret was changed")
	}
}

func TestRootedInside(t *testing.T) {
	ws, tmp := room(t), room(t)
	put(t, ws+"/d/f", "x")
	put(t, tmp+"/t", "x")
	symlink(t, ws+"/d/f", ws+"/abs")
	symlink(t, ws+"/d", ws+"/absdir")
	symlink(t, "../"+filepath.Base(ws)+"/d/f", ws+"/round")
	symlink(t, tmp+"/t", ws+"/temp")
	alias := room(t) + "/alias"
	symlink(t, ws, alias)
	r := rooted(t, func(c *fsys.RootedConfig) { c.Workspace, c.Temp, c.TempAs = alias, tmp, "/tmp" })
	for path, canonical := range map[string]string{
		alias + "/abs": alias + "/d/f", alias + "/absdir/f": alias + "/d/f", alias + "/round": alias + "/d/f", ws + "/d/f": alias + "/d/f",
		alias + "/temp": "/tmp/t", "/tmp/t": "/tmp/t", tmp + "/t": "/tmp/t", "/tmp//./t": "/tmp/t",
		"/etc/../" + alias + "/d/f": alias + "/d/f", alias: alias, "/tmp": "/tmp", "/tmp/": "/tmp",
	} {
		info, err := r.Stat(t.Context(), path)
		if err != nil || info.Path != canonical {
			t.Errorf("%s: %+v, %v", path, info, err)
		}
	}
	if _, err := r.Create(t.Context(), "/tmp/new/f", []byte("x")); err != nil || text(t, tmp+"/new/f") != "x" {
		t.Error(err)
	}
	// The workspace is held by a handle, so it may move.
	if err := os.Rename(ws, ws+".moved"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Edit(t.Context(), alias+"/d/f", to("moved")); err != nil || text(t, ws+".moved/d/f") != "moved" {
		t.Error(err)
	}
}

func TestRootedModes(t *testing.T) {
	ws, tmp, out := room(t), room(t), room(t)
	put(t, ws+"/f", "x")
	put(t, out+"/f", "x")
	r := rooted(t, func(c *fsys.RootedConfig) { c.Workspace, c.Temp, c.Mode = ws, tmp, fsys.ReadOnly })
	if mode, ok := r.Sandbox(); mode != fsys.ReadOnly || !ok {
		t.Errorf("%s, %v", mode, ok)
	}
	if mode, ok := fsys.NewLocal(nil).Sandbox(); mode != "" || ok {
		t.Errorf("local: %s, %v", mode, ok)
	}
	ctx := t.Context()
	errs := tries(ctx, r, ws+"/f")
	if errs["stat"] != nil || errs["open"] != nil || !isDenied(errs["edit"], fsys.Unwritten, fsys.ReadOnly) || !isDenied(errs["remove"], fsys.Unwritten, fsys.ReadOnly) ||
		!errors.Is(errs["create"], fs.ErrExist) {
		t.Errorf("%v", errs)
	}
	for _, name := range []string{"/new", "/new/dir/f"} {
		if _, err := r.Create(ctx, ws+name, nil); !isDenied(err, fsys.Unwritten, fsys.ReadOnly) {
			t.Error(err)
		}
	}
	if _, err := r.Create(ctx, tmp+"/new", nil); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(ws); len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := r.SetMode(fsys.DangerFullAccess); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Edit(ctx, out+"/f", to("full")); err != nil || text(t, out+"/f") != "full" {
		t.Error(err)
	}
	if err := r.SetMode(fsys.WorkspaceWrite); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Edit(ctx, out+"/f", to("y")); !isDenied(err, fsys.Outside, fsys.WorkspaceWrite) {
		t.Error(err)
	}
	if _, err := r.Edit(ctx, ws+"/f", to("y")); err != nil {
		t.Error(err)
	}
	if r.SetMode("") == nil || r.SetMode("open") == nil {
		t.Error("took a mode that isn't one")
	}
	if _, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: ws}); err == nil {
		t.Error("the zero mode must not open")
	}
	if _, err := fsys.OpenRooted(fsys.RootedConfig{Workspace: ws + "/none", Mode: fsys.ReadOnly}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestRootedProtected(t *testing.T) {
	ws := room(t)
	put(t, ws+"/.git/config", "keep")
	put(t, ws+"/sub/.git/hooks/x", "keep")
	put(t, ws+"/.mcp.json", "keep")
	put(t, ws+"/real/config", "keep")
	symlink(t, ".git", ws+"/link")
	symlink(t, "real", ws+"/.vscode")
	if err := os.Link(ws+"/.mcp.json", ws+"/other.json"); err != nil {
		t.Fatal(err)
	}
	r := rooted(t, func(c *fsys.RootedConfig) { c.Workspace = ws })
	ctx := t.Context()
	for _, name := range []string{"/.git/config", "/link/config", "/sub/.git/hooks/x", "/.mcp.json", "/other.json", "/.vscode/config", "/real/config"} {
		if _, _, err := r.Open(ctx, ws+name); err != nil {
			t.Errorf("read %s: %v", name, err)
		}
		if _, err := r.Edit(ctx, ws+name, to("x")); !isDenied(err, fsys.Protected, fsys.WorkspaceWrite) {
			t.Errorf("edit %s: %v", name, err)
		}
		if err := r.Remove(ctx, ws+name, yes); !isDenied(err, fsys.Protected, fsys.WorkspaceWrite) {
			t.Errorf("remove %s: %v", name, err)
		}
		if text(t, ws+name) != "keep" {
			t.Errorf("%s was changed", name)
		}
	}
	for _, name := range []string{"/.git/new", "/.GIT/new", "/.Git/a/b", "/link/new", "/deep/er/.git/x", "/.idea/x", "/.claude", "/real/new", "/new/.git"} {
		if _, err := r.Create(ctx, ws+name, nil); !isDenied(err, fsys.Protected, fsys.WorkspaceWrite) {
			t.Errorf("create %s: %v", name, err)
		}
	}
	for _, name := range []string{"deep", "new", ".GIT", ".Git", ".idea"} {
		if _, err := os.Lstat(ws + "/" + name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	for _, name := range []string{"/.gitignore", "/.github/x", "/sub/git/x"} {
		if _, err := r.Create(ctx, ws+name, nil); err != nil {
			t.Errorf("create %s: %v", name, err)
		}
	}
}

// quick is a directory in memory where there is one: renaming all the time is slow on a disk.
func quick(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "fsys")
	if err != nil {
		return room(t)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestRootedSwapper writes through paths whose parts somebody else keeps turning into links that lead out, and back.
func TestRootedSwapper(t *testing.T) {
	writes := 20_000
	if testing.Short() {
		writes = 2_000
	}
	ws, out := quick(t), quick(t)
	put(t, out+"/f", "outside")
	put(t, out+"/keep", "outside")
	put(t, ws+"/d/f", "inside")
	put(t, ws+"/n/git/f", "inside")
	put(t, ws+"/n/.git/f", "protected")
	r := rooted(t, func(c *fsys.RootedConfig) { c.Workspace = ws })
	stop := make(chan struct{})
	var swappers sync.WaitGroup
	swap := func(path, target string) {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// The real one steps aside for a link, then comes back.
			if os.Rename(path, path+".aside") == nil {
				_ = os.Symlink(target, path)
				_ = os.Remove(path)
				_ = os.Rename(path+".aside", path)
			}
		}
	}
	swappers.Go(func() { swap(ws+"/d", out) })
	swappers.Go(func() { swap(ws+"/n/git", ".git") })
	landed, refused := 0, 0
	for i := range writes {
		var err error
		switch i % 4 {
		case 0:
			_, err = r.Edit(t.Context(), ws+"/d/f", to(fmt.Sprint("escaped ", i)))
		case 1:
			_, err = r.Create(t.Context(), fmt.Sprint(ws, "/d/new", i), []byte("escaped"))
		case 2:
			_, err = r.Edit(t.Context(), ws+"/n/git/f", to(fmt.Sprint("escaped ", i)))
		case 3:
			err = r.Remove(t.Context(), ws+"/d/keep", yes)
		}
		if err == nil {
			landed++
		} else {
			refused++
		}
	}
	close(stop)
	swappers.Wait()
	if landed == 0 || refused == 0 {
		t.Errorf("%d landed, %d refused: no race was run", landed, refused)
	}
	t.Logf("%d landed, %d refused", landed, refused)
	if got := text(t, out+"/f"); got != "outside" {
		t.Errorf("escaped: %q", got)
	}
	if got := text(t, ws+"/n/.git/f"); got != "protected" {
		t.Errorf("protected file was written: %q", got)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 2 {
		t.Errorf("escaped: %v, %v", entries, err)
	}
}

// TestSharedLocks has two providers in one file.
func TestSharedLocks(t *testing.T) {
	ws, locks := room(t), new(fsys.Locks)
	p := put(t, ws+"/f", "")
	providers := []fsys.Provider{fsys.NewLocal(locks), rooted(t, func(c *fsys.RootedConfig) { c.Workspace, c.Locks = ws, locks })}
	const n = 200
	var all sync.WaitGroup
	for _, provider := range providers {
		all.Go(func() {
			for range n {
				if _, err := provider.Edit(t.Context(), p, func(old []byte, _ fsys.Info) (fsys.Splice, error) {
					return fsys.Splice{Off: len(old), Text: []byte{'.'}}, nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := len(text(t, p)); got != 2*n {
		t.Errorf("%d of %d edits landed", got, 2*n)
	}
}

// TestRootedHandles checks that nothing stays open.
func TestRootedHandles(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	ws := room(t)
	put(t, ws+"/a/b/c/f", "x")
	symlink(t, "../../a/b/c/f", ws+"/a/b/link")
	r := rooted(t, func(c *fsys.RootedConfig) { c.Workspace = ws })
	before := count()
	for i := range 50 {
		for _, path := range []string{"/a/b/c/f", "/a/b/link", "/a/../a/b/../b/c/f", "/none/x", "/a/b/c/f/x", fmt.Sprint("/a/new", i, "/x"), "/../../etc/passwd"} {
			tries(t.Context(), r, ws+path)
			_ = r.ReadDir(t.Context(), ws+filepath.Dir(path), func(fsys.Entry) bool { return true })
		}
		if i == 0 {
			put(t, ws+"/a/b/c/f", "x")
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
