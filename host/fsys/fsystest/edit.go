//go:build unix

package fsystest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/fsys"
)

func edit(b *bench) {
	ctx := b.Context()
	p := b.put("f", "old")
	info, err := b.Edit(ctx, p, func(old []byte, info fsys.Info) (fsys.Splice, error) {
		if string(old) != "old" || info.Path != p || info.Size != 3 {
			b.Errorf("%q, %+v", old, info)
		}
		return fsys.Splice{Cut: len(old), Text: []byte("new text")}, nil
	})
	b.must(err)
	if info.Path != p || info.Size != 8 {
		b.Errorf("%+v", info)
	}
	b.has("f", "new text")
	no := errors.New("no")
	_, err = b.Edit(ctx, p, func([]byte, fsys.Info) (fsys.Splice, error) { return fsys.Splice{Text: []byte("x")}, no })
	b.is(err, no)
	b.has("f", "new text")

	past := time.Unix(1e9, 0)
	b.must(os.Chtimes(p, past, past))
	_, err = b.Edit(ctx, p, to("new text"))
	b.must(err)
	if fi, err := os.Stat(p); err != nil || !fi.ModTime().Equal(past) {
		b.Error("equal bytes were written")
	}
	_, err = b.Edit(ctx, p, to(""))
	b.must(err)
	b.has("f", "")
	b.alone("", "f")
}

func editKeeps(b *bench) {
	ctx := b.Context()
	p := b.put("f", "old")
	for _, mode := range []fs.FileMode{0o755, 0o600, 0o640 | fs.ModeSetuid, 0o444} {
		b.must(os.Chmod(p, mode))
		if os.Getuid() != 0 && mode&0o200 == 0 {
			continue
		}
		_, err := b.Edit(ctx, p, to(fmt.Sprint("mode ", mode)))
		b.must(err)
		fi, err := os.Stat(p)
		b.must(err)
		if fi.Mode() != mode {
			b.Errorf("mode %v, want %v", fi.Mode(), mode)
		}
	}
	if os.Getuid() == 0 {
		b.must(os.Chmod(p, 0o755))
		b.must(os.Chown(p, 1234, 2345))
		b.must(os.Chmod(p, 0o755|fs.ModeSetgid))
		_, err := b.Edit(ctx, p, to("owned"))
		b.must(err)
		fi, err := os.Stat(p)
		b.must(err)
		if st := fi.Sys().(*syscall.Stat_t); st.Uid != 1234 || st.Gid != 2345 || fi.Mode() != 0o755|fs.ModeSetgid {
			b.Errorf("owner %d:%d, mode %v", st.Uid, st.Gid, fi.Mode())
		}
	}
}

// editLater leaves the giving back of the old contents until other edits stand.
func editLater(b *bench) {
	ctx := b.Context()
	p := b.put("f", "old")
	var settle []func()
	for _, contents := range []string{"first", "second"} {
		_, err := b.Edit(ctx, p, func(old []byte, _ fsys.Info) (fsys.Splice, error) {
			return fsys.Splice{Cut: len(old), Text: []byte(contents), Later: func(do func()) { settle = append(settle, do) }}, nil
		})
		b.must(err)
		b.has("f", contents)
		b.alone("", "f")
	}
	for _, do := range settle {
		do()
	}
	if len(settle) != 2 {
		b.Errorf("%d left to do", len(settle))
	}
	no := errors.New("no")
	for name, c := range map[string]struct {
		contents string
		err      error
	}{"refused": {"third", no}, "equal": {"second", nil}} {
		_, err := b.Edit(ctx, p, func(old []byte, _ fsys.Info) (fsys.Splice, error) {
			return fsys.Splice{Cut: len(old), Text: []byte(c.contents), Later: func(func()) { b.Errorf("%s: something is left to do", name) }}, c.err
		})
		b.is(err, c.err)
	}
	b.has("f", "second")
}

func editRefuses(b *bench) {
	ctx := b.Context()
	b.put("f", "x")
	for path, want := range map[string]error{b.dir: fsys.ErrDirectory, b.at("none"): fs.ErrNotExist, b.at("f/x"): fsys.ErrNotDirectory, "f": fsys.ErrNotAbsolute} {
		_, err := b.Edit(ctx, path, never(b))
		if !errors.Is(err, want) {
			b.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	b.must(os.Truncate(b.at("f"), fsys.MaxEdit+1))
	_, err := b.Edit(ctx, b.at("f"), never(b))
	b.is(err, fsys.ErrTooLarge)
	b.must(os.Truncate(b.at("f"), fsys.MaxEdit))
	_, err = b.Edit(ctx, b.at("f"), to("small"))
	b.must(err)
	b.has("f", "small")
}

// editChanged lets somebody else touch the file between our reading and our writing.
func editChanged(b *bench) {
	ctx := b.Context()
	for name, c := range map[string]struct {
		touch func(p string) error
		want  string
	}{
		"appended": {func(p string) error { return os.WriteFile(p, []byte("old more"), 0o644) }, "old more"},
		"same size, same time": {func(p string) error {
			return sameTime(p, func() error { return os.WriteFile(p, []byte("OLD"), 0o644) })
		}, "OLD"},
		"replaced": {func(p string) error {
			return errors.Join(os.WriteFile(p+".other", []byte("old"), 0o644), os.Rename(p+".other", p))
		}, "old"},
		"mode":    {func(p string) error { return os.Chmod(p, 0o600) }, "old"},
		"a link":  {func(p string) error { return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p)) }, "old"},
		"removed": {os.Remove, ""},
	} {
		for _, links := range []int{1, 2} {
			b.T.Run(fmt.Sprint(name, links), func(t *testing.T) {
				b := &bench{T: t, Provider: b.Provider, dir: b.at(fmt.Sprint(name, links))}
				p := b.put("f", "old")
				if links == 2 {
					b.must(os.Link(p, b.at("zz")))
				}
				_, err := b.Edit(ctx, p, func(old []byte, _ fsys.Info) (fsys.Splice, error) {
					b.must(c.touch(p))
					return fsys.Splice{Cut: len(old), Text: []byte("ours")}, nil
				})
				b.is(err, fsys.ErrChanged)
				if c.want != "" {
					b.has("f", c.want)
				}
				err = b.Remove(ctx, b.put("g", "old"), func([]byte, fsys.Info) error { return c.touch(b.at("g")) })
				b.is(err, fsys.ErrChanged)
				entries, err := os.ReadDir(b.dir)
				b.must(err)
				for _, e := range entries {
					if strings.HasPrefix(e.Name(), ".") {
						b.Errorf("left %s", e.Name())
					}
				}
			})
		}
	}
}

// sameTime runs write and puts back the file's time of writing.
func sameTime(p string, write func() error) error {
	fi, err := os.Stat(p)
	if err != nil {
		return err
	}
	return errors.Join(write(), os.Chtimes(p, time.Time{}, fi.ModTime()))
}

func editParallel(b *bench) {
	ctx := b.Context()
	p := b.put("f", "")
	b.must(os.Symlink("f", b.at("link")))
	const n = 20
	var all sync.WaitGroup
	for i := range n {
		path := []string{p, b.at("link"), b.dir + "/./f"}[i%3]
		all.Go(func() {
			_, err := b.Edit(ctx, path, func(old []byte, _ fsys.Info) (fsys.Splice, error) {
				return fsys.Splice{Off: len(old), Text: fmt.Append(nil, i, "\n")}, nil
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(p)
	b.must(err)
	lines := strings.Fields(string(got))
	slices.Sort(lines)
	if len(slices.Compact(lines)) != n {
		b.Errorf("%d of %d edits landed: %q", len(lines), n, got)
	}
	b.alone("", "f", "link")
}

func editWaits(b *bench) {
	p := b.put("f", "old")
	_, err := b.Edit(b.Context(), p, func(old []byte, _ fsys.Info) (fsys.Splice, error) {
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		_, err := b.Edit(ctx, p, never(b)) // must not wait for itself for ever
		b.is(err, context.Canceled)
		return fsys.Splice{Cut: len(old), Text: []byte("new")}, nil
	})
	b.must(err)
	b.has("f", "new")
}

func editLinks(b *bench) {
	ctx := b.Context()
	p := b.put("d/f", "old text")
	b.must(os.Symlink("d/f", b.at("soft")))
	b.must(os.Symlink(b.at("soft"), b.at("softer")))
	b.must(os.Symlink("d", b.at("dir")))
	for _, path := range []string{b.at("soft"), b.at("softer"), b.at("dir/f")} {
		_, err := b.Edit(ctx, path, to("via "+path))
		b.must(err)
		b.has("d/f", "via "+path)
	}
	for name, want := range map[string]string{"soft": "d/f", "softer": b.at("soft"), "dir": "d"} {
		if got, err := os.Readlink(b.at(name)); got != want {
			b.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
	b.must(os.Link(p, b.at("hard")))
	for _, contents := range []string{"a longer text than before, as it happens, and some more", "short", ""} {
		_, err := b.Edit(ctx, b.at("hard"), to(contents))
		b.must(err)
		b.has("hard", contents)
		b.has("d/f", contents)
	}
	b.alone("d", "f")
}
