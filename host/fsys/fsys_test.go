//go:build unix

package fsys_test

import (
	"path/filepath"
	"testing"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/fsys/fsystest"
)

func room(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func rooted(t testing.TB, change ...func(*fsys.RootedConfig)) *fsys.Rooted {
	t.Helper()
	cfg := fsys.RootedConfig{Workspace: room(t), Mode: fsys.WorkspaceWrite}
	for _, c := range change {
		c(&cfg)
	}
	r, err := fsys.OpenRooted(cfg)
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

func TestLocal(t *testing.T) {
	fsystest.Run(t, func(t *testing.T) (fsys.Provider, string) { return fsys.NewLocal(nil), room(t) })
}

func TestRooted(t *testing.T) {
	t.Run("workspace", func(t *testing.T) {
		fsystest.Run(t, func(t *testing.T) (fsys.Provider, string) {
			dir := room(t)
			return rooted(t, func(c *fsys.RootedConfig) { c.Workspace = dir }), dir
		})
	})
	t.Run("temporary directory in mode read-only", func(t *testing.T) {
		fsystest.Run(t, func(t *testing.T) (fsys.Provider, string) {
			dir := room(t)
			return rooted(t, func(c *fsys.RootedConfig) { c.Temp, c.Mode = dir, fsys.ReadOnly }), dir
		})
	})
	t.Run("full access", func(t *testing.T) {
		fsystest.Run(t, func(t *testing.T) (fsys.Provider, string) {
			return rooted(t, func(c *fsys.RootedConfig) { c.Mode = fsys.DangerFullAccess }), room(t)
		})
	})
}
