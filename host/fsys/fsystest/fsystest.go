//go:build unix

package fsystest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/fsys"
)

// Open returns a provider and an empty directory that it may write, by its canonical path; both are released with t.
type Open func(t *testing.T) (fsys.Provider, string)

// Run runs the suite against providers that open makes.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(*bench){
		"Stat":              stat,
		"Open":              read,
		"ReadDir":           readDir,
		"Create":            create,
		"CreateRefuses":     createRefuses,
		"CreateRace":        createRace,
		"Edit":              edit,
		"EditKeeps":         editKeeps,
		"EditLater":         editLater,
		"EditRefuses":       editRefuses,
		"EditChanged":       editChanged,
		"EditParallel":      editParallel,
		"EditWaitsWithCtx":  editWaits,
		"EditLinks":         editLinks,
		"EditReadOnlyPlace": editReadOnlyPlace,
		"EditAttributes":    editAttributes,
		"Overlay":           overlay,
		"DiskFull":          diskFull,
		"Remove":            remove,
		"Special":           special,
		"Names":             names,
	} {
		t.Run(name, func(t *testing.T) {
			p, dir := open(t)
			test(&bench{T: t, Provider: p, dir: dir})
		})
	}
}

// bench is one test's provider and directory.
type bench struct {
	*testing.T
	fsys.Provider
	dir string
}

func (b *bench) at(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) put(name, contents string) string {
	b.Helper()
	p := b.at(name)
	b.must(os.MkdirAll(filepath.Dir(p), 0o755))
	b.must(os.WriteFile(p, []byte(contents), 0o644))
	return p
}

func (b *bench) has(name, want string) {
	b.Helper()
	got, err := os.ReadFile(b.at(name))
	b.must(err)
	if string(got) != want {
		b.Errorf("%s holds %.80q (%d bytes), want %.80q (%d bytes)", name, got, len(got), want, len(want))
	}
}

// alone checks that a directory holds exactly these names: in particular no temporary file.
func (b *bench) alone(dir string, want ...string) {
	b.Helper()
	entries, err := os.ReadDir(b.at(dir))
	b.must(err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		b.Errorf("directory %q holds %q, want %q", dir, got, want)
	}
}

func (b *bench) is(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("error %v, want %v", err, want)
	}
}

// to changes a whole file to contents.
func to(contents string) func([]byte, fsys.Info) (fsys.Splice, error) {
	return func(old []byte, _ fsys.Info) (fsys.Splice, error) {
		return fsys.Splice{Cut: len(old), Text: []byte(contents)}, nil
	}
}

func never(b *bench) func([]byte, fsys.Info) (fsys.Splice, error) {
	return func([]byte, fsys.Info) (fsys.Splice, error) {
		b.Error("the change was asked for")
		return fsys.Splice{}, errors.New("no")
	}
}

func stat(b *bench) {
	ctx := b.Context()
	b.put("f", "abc")
	b.must(os.Symlink("f", b.at("rel")))
	b.must(os.Symlink(b.at("f"), b.at("abs")))
	b.must(os.Symlink("nowhere", b.at("dangling")))
	b.must(os.Symlink("loop", b.at("loop")))
	b.must(os.MkdirAll(b.at("d/e"), 0o755))
	b.must(os.Symlink("../d", b.at("d/up")))
	for _, c := range []struct {
		path, canonical string
		kind            fsys.Kind
	}{
		{b.at("f"), b.at("f"), fsys.File}, {b.at("rel"), b.at("f"), fsys.File}, {b.at("abs"), b.at("f"), fsys.File},
		{b.dir, b.dir, fsys.Directory}, {b.dir + "/", b.dir, fsys.Directory}, {b.dir + "/d/", b.at("d"), fsys.Directory},
		{b.dir + "/d/up/up/e", b.at("d/e"), fsys.Directory}, {b.dir + "/d/../f", b.at("f"), fsys.File},
		{b.dir + "/d/e/../../f", b.at("f"), fsys.File}, {b.dir + "//d/./e/.", b.at("d/e"), fsys.Directory}, {b.dir + "/d/e/..", b.at("d"), fsys.Directory},
	} {
		info, err := b.Stat(ctx, c.path)
		if err != nil || info.Path != c.canonical || info.Kind != c.kind {
			b.Errorf("%s: %+v, %v", c.path, info, err)
		}
	}
	info, err := b.Stat(ctx, b.at("rel"))
	b.must(err)
	if info.Size != 3 || info.Mode != 0o644 || time.Since(info.ModTime) > time.Hour {
		b.Errorf("%+v", info)
	}
	for path, want := range map[string]error{
		b.at("none"): fs.ErrNotExist, b.at("none/x"): fs.ErrNotExist, b.at("dangling"): fs.ErrNotExist, b.at("loop"): fsys.ErrLinkLoop,
		b.at("f/x"): fsys.ErrNotDirectory, b.at("f") + "/": fsys.ErrNotDirectory, "relative": fsys.ErrNotAbsolute, "": fsys.ErrNotAbsolute, b.at("a\x00b"): fsys.ErrBadName,
		b.at(strings.Repeat("x", 300)): fsys.ErrBadName,
	} {
		_, err := b.Stat(ctx, path)
		if !errors.Is(err, want) {
			b.Errorf("%q: %v, want %v", path, err, want)
		}
	}
}

func read(b *bench) {
	ctx := b.Context()
	b.put("f", "some text")
	b.must(os.Symlink("f", b.at("link")))
	f, info, err := b.Open(ctx, b.at("link"))
	b.must(err)
	got, err := io.ReadAll(f)
	b.must(errors.Join(err, f.Close()))
	if string(got) != "some text" || info.Path != b.at("f") || info.Size != 9 {
		b.Errorf("%q, %+v", got, info)
	}
	_, _, err = b.Open(ctx, b.dir)
	b.is(err, fsys.ErrDirectory)
	_, _, err = b.Open(ctx, b.at("none"))
	b.is(err, fs.ErrNotExist)
}

func readDir(b *bench) {
	ctx := b.Context()
	b.put("d/f", "")
	b.put("d/e/x", "")
	b.put("d/.hidden", "")
	b.must(os.Symlink("f", b.at("d/l")))
	b.must(syscall.Mkfifo(b.at("d/p"), 0o644))
	b.must(os.Symlink("d", b.at("to")))
	var got []string
	b.must(b.ReadDir(ctx, b.at("to"), func(e fsys.Entry) bool {
		got = append(got, fmt.Sprint(e.Name, e.Kind))
		return true
	}))
	slices.Sort(got)
	want := []string{fmt.Sprint(".hidden", fsys.File), fmt.Sprint("e", fsys.Directory), fmt.Sprint("f", fsys.File), fmt.Sprint("l", fsys.Link), fmt.Sprint("p", fsys.Other)}
	if !slices.Equal(got, want) {
		b.Errorf("%q, want %q", got, want)
	}
	n := 0
	b.must(b.ReadDir(ctx, b.at("d"), func(fsys.Entry) bool { n++; return n < 2 }))
	if n != 2 {
		b.Errorf("visited %d after the stop", n)
	}
	b.is(b.ReadDir(ctx, b.at("d/f"), nil), fsys.ErrNotDirectory)
	b.is(b.ReadDir(ctx, b.at("none"), nil), fs.ErrNotExist)
}

func create(b *bench) {
	ctx := b.Context()
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	for _, contents := range []string{"", "x", "a\r\n\x00\xff", strings.Repeat("y", 100_000)} {
		name := fmt.Sprintf("a/b/%d/f", len(contents))
		info, err := b.Create(ctx, b.at(name), []byte(contents))
		b.must(err)
		b.has(name, contents)
		if info.Path != b.at(name) || info.Size != int64(len(contents)) || info.Kind != fsys.File {
			b.Errorf("%+v", info)
		}
		fi, err := os.Stat(b.at(name))
		b.must(err)
		if fi.Mode() != 0o644 {
			b.Errorf("mode %v", fi.Mode())
		}
		b.alone(filepath.Dir(name), "f")
	}
	b.must(os.Symlink("a", b.at("link")))
	info, err := b.Create(ctx, b.at("link/n/f"), []byte("x"))
	b.must(err)
	if info.Path != b.at("a/n/f") {
		b.Errorf("%+v", info)
	}
	b.has("a/n/f", "x")
	_, err = b.Create(ctx, b.dir+"/a/../up/f", []byte("x"))
	b.must(err)
	b.has("up/f", "x")
	info, err = b.Create(ctx, b.dir+"/none/../beside/f", []byte("x"))
	b.must(err)
	if info.Path != b.at("beside/f") {
		b.Errorf("%+v", info)
	}
	b.alone("", "a", "beside", "link", "up")
}

func createRefuses(b *bench) {
	ctx := b.Context()
	b.put("f", "keep")
	b.must(os.Mkdir(b.at("d"), 0o755))
	b.must(os.Symlink("nowhere", b.at("dangling")))
	b.must(os.Symlink("f", b.at("link")))
	b.must(syscall.Mkfifo(b.at("pipe"), 0o644))
	for _, name := range []string{"f", "d", "dangling", "link", "pipe"} {
		_, err := b.Create(ctx, b.at(name), []byte("new"))
		if !errors.Is(err, fs.ErrExist) {
			b.Errorf("%s: %v", name, err)
		}
	}
	for path, want := range map[string]error{
		b.at("f/x"): fsys.ErrNotDirectory, b.at("f/x/y"): fsys.ErrNotDirectory, b.at("dangling/x"): fsys.ErrNotDirectory, b.at("dangling/x/y"): fsys.ErrNotDirectory,
		b.dir + "/new/": fsys.ErrDirectory, b.dir + "/new/.": fsys.ErrDirectory, "new": fsys.ErrNotAbsolute,
		b.at("g/h/" + strings.Repeat("x", 300)): fsys.ErrBadName,
	} {
		_, err := b.Create(ctx, path, []byte("new"))
		if !errors.Is(err, want) {
			b.Errorf("%.100s: %v, want %v", path, err, want)
		}
	}
	b.has("f", "keep")
	b.alone("", "d", "dangling", "f", "link", "pipe") // g/h, made on the way, is gone too
}

func createRace(b *bench) {
	for round := range 20 {
		p := b.at(fmt.Sprintf("new/%d/f", round))
		var won sync.Map
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				_, err := b.Create(b.Context(), p, fmt.Append(nil, "by ", i))
				switch {
				case err == nil:
					won.Store(i, true)
				case !errors.Is(err, fs.ErrExist):
					b.Error(err)
				}
			})
		}
		all.Wait()
		n := 0
		won.Range(func(k, _ any) bool {
			n++
			b.has(fmt.Sprintf("new/%d/f", round), fmt.Sprint("by ", k))
			return true
		})
		if n != 1 {
			b.Fatalf("%d winners", n)
		}
		b.alone(fmt.Sprintf("new/%d", round), "f")
	}
}

func remove(b *bench) {
	ctx := b.Context()
	p := b.put("f", "text")
	no := errors.New("no")
	b.is(b.Remove(ctx, p, func([]byte, fsys.Info) error { return no }), no)
	b.has("f", "text")
	b.must(b.Remove(ctx, p, func(old []byte, info fsys.Info) error {
		if string(old) != "text" || info.Path != p {
			b.Errorf("%q, %+v", old, info)
		}
		return nil
	}))
	b.is(b.Remove(ctx, p, nil), fs.ErrNotExist)
	b.is(b.Remove(ctx, b.dir, nil), fsys.ErrDirectory)
	b.put("real", "x")
	b.must(os.Symlink("real", b.at("link")))
	b.must(b.Remove(ctx, b.at("link"), func([]byte, fsys.Info) error { return nil }))
	b.alone("", "link") // what it led to is gone
}

func special(b *bench) {
	ctx := b.Context()
	b.must(syscall.Mkfifo(b.at("pipe"), 0o644))
	b.must(syscall.Mknod(b.at("socket"), syscall.S_IFSOCK|0o644, 0))
	all := []string{"pipe", "socket"}
	if syscall.Mknod(b.at("null"), syscall.S_IFCHR|0o666, 1<<8|3) == nil {
		all = append(all, "null")
	}
	for _, name := range all {
		info, err := b.Stat(ctx, b.at(name))
		if err != nil || info.Kind != fsys.Other {
			b.Errorf("%s: %+v, %v", name, info, err)
		}
		_, _, err = b.Open(ctx, b.at(name))
		b.is(err, fsys.ErrNotRegular)
		_, err = b.Edit(ctx, b.at(name), never(b))
		b.is(err, fsys.ErrNotRegular)
		b.is(b.Remove(ctx, b.at(name), nil), fsys.ErrNotRegular)
	}
}

// names are odd, but only names.
func names(b *bench) {
	ctx := b.Context()
	for _, name := range []string{"a b", "-rf", "ünïcödé", "\xff\xfe", "new\nline", "*?[", `back\slash`, "...", "..x", strings.Repeat("n", 255)} {
		_, err := b.Create(ctx, b.at(name), []byte("1"))
		b.must(err)
		_, err = b.Edit(ctx, b.at(name), to("22"))
		b.must(err)
		b.has(name, "22")
		if info, err := b.Stat(ctx, b.at(name)); err != nil || info.Path != b.at(name) {
			b.Errorf("%q: %+v, %v", name, info, err)
		}
		b.must(b.Remove(ctx, b.at(name), func([]byte, fsys.Info) error { return nil }))
	}
	b.alone("")
}
