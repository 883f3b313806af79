package fsystest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/dsh-web/dsh-web/host/fsys"
	"golang.org/x/sys/unix"
)

// editReadOnlyPlace edits, as an ordinary user, files that may be written in a directory that may not.
func editReadOnlyPlace(b *bench) {
	ctx := b.Context()
	p := b.put("d/f", "old")
	b.put("d/locked", "old")
	b.must(os.Chmod(p, 0o666))
	nobody := func(do func()) {
		if os.Getuid() != 0 {
			b.must(os.Chmod(b.at("d"), 0o555))
			do()
			b.must(os.Chmod(b.at("d"), 0o755))
			return
		}
		reachable(b)
		// The rights are the thread's, so do must not leave it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, err := unix.SetfsuidRetUid(65534)
		b.must(err)
		defer func() {
			_, err = unix.SetfsuidRetUid(0)
			b.must(err)
		}()
		do()
	}
	nobody(func() {
		if _, err := os.Stat(p); err != nil {
			b.Skip("an ordinary user can't reach the directory: ", err)
		}
		for _, contents := range []string{"longer than it was", "short"} {
			_, err := b.Edit(ctx, p, to(contents))
			b.must(err)
			b.has("d/f", contents)
		}
		_, err := b.Create(ctx, b.at("d/new"), []byte("x"))
		b.is(err, fs.ErrPermission)
		_, err = b.Create(ctx, b.at("d/new/er"), []byte("x"))
		b.is(err, fs.ErrPermission)
		b.is(b.Remove(ctx, p, func([]byte, fsys.Info) error { return nil }), fs.ErrPermission)
	})
	b.must(os.Chmod(b.at("d"), 0o777))
	if os.Getuid() == 0 {
		nobody(func() { // a new file would be allowed here, but would be another's
			_, err := b.Edit(ctx, p, to("by another"))
			b.must(err)
			b.has("d/f", "by another")
			fi, err := os.Stat(p)
			b.must(err)
			if st := fi.Sys().(*syscall.Stat_t); st.Uid != 0 || fi.Mode() != 0o666 {
				b.Errorf("owner %d, mode %v", st.Uid, fi.Mode())
			}
			_, err = b.Edit(ctx, p, to("short"))
			b.must(err)
		})
		nobody(func() { // a rename would be allowed here, but the file is not ours to write
			_, err := b.Edit(ctx, b.at("d/locked"), to("new"))
			b.is(err, fs.ErrPermission)
		})
	}
	b.has("d/locked", "old")
	b.has("d/f", "short")
	b.alone("d", "f", "locked")
}

// reachable opens the way to the test's directory, which testing keeps closed to others.
func reachable(b *bench) {
	for dir := b.dir; dir != "/"; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		b.must(err)
		if fi.Mode().Perm()&0o5 != 0o5 {
			b.must(os.Chmod(dir, fi.Mode().Perm()|0o55))
		}
	}
}

// editAttributes edits files that a plain new file couldn't replace, or could only be replaced.
func editAttributes(b *bench) {
	ctx := b.Context()
	p := b.put("f", "old")
	if err := unix.Setxattr(p, "user.note", []byte("kept"), 0); err != nil {
		b.Log("no extended attributes here: ", err)
	} else {
		_, err := b.Edit(ctx, p, to("new"))
		b.must(err)
		b.has("f", "new")
		value := make([]byte, 10)
		if n, err := unix.Getxattr(p, "user.note", value); err != nil || string(value[:n]) != "kept" {
			b.Errorf("attribute %q, %v", value, err)
		}
	}

	program, err := os.ReadFile("/bin/sleep")
	b.must(err)
	b.must(os.WriteFile(b.at("program"), program, 0o755))
	run := exec.CommandContext(ctx, b.at("program"), "1000")
	b.must(run.Start())
	_, err = b.Edit(ctx, b.at("program"), to("#!/bin/true\n"))
	b.must(err)
	b.has("program", "#!/bin/true\n")
	b.must(run.Process.Kill())
	_ = run.Wait() // killed, as it should be
	b.alone("", "f", "program")
}

// overlay edits files of a container's lower layer, where the first write copies the file.
func overlay(b *bench) {
	ctx := b.Context()
	for _, d := range []string{"lower/d", "upper", "work", "merged"} {
		b.must(os.MkdirAll(b.at(d), 0o755))
	}
	b.put("lower/f", "old")
	b.put("lower/d/f", "old")
	b.must(os.Link(b.put("lower/one", "old"), b.at("lower/two")))
	if err := unix.Mount("overlay", b.at("merged"), "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", b.at("lower"), b.at("upper"), b.at("work"))); err != nil {
		b.Skip("can't mount layers: ", err)
	}
	b.Cleanup(func() { b.must(unix.Unmount(b.at("merged"), 0)) })
	for _, name := range []string{"merged/f", "merged/d/f", "merged/one"} {
		for _, contents := range []string{"new and longer", "newer"} {
			_, err := b.Edit(ctx, b.at(name), to(contents))
			b.must(err)
			b.has(name, contents)
		}
	}
	b.has("lower/f", "old")
	_, err := b.Create(ctx, b.at("merged/d/new"), []byte("x"))
	b.must(err)
	b.must(b.Remove(ctx, b.at("merged/d/new"), func([]byte, fsys.Info) error { return nil }))
	b.alone("merged/d", "f")
}

// diskFull works on a file system of 128 KiB.
func diskFull(b *bench) {
	ctx := b.Context()
	disk := b.at("disk")
	b.must(os.Mkdir(disk, 0o755))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128k"); err != nil {
		b.Skip("can't mount a small file system: ", err)
	}
	b.Cleanup(func() { b.must(unix.Unmount(disk, 0)) })
	original := strings.Repeat("o", 70_000)
	p := b.put("disk/f", original)
	_, err := b.Edit(ctx, p, to(strings.Repeat("n", 70_001))) // no room for a second copy
	b.is(err, fsys.ErrNoSpace)
	b.has("disk/f", original)
	b.must(os.Link(p, b.at("disk/g"))) // written in place, where the growth has no room
	_, err = b.Edit(ctx, p, to(strings.Repeat("n", 200_000)))
	b.is(err, fsys.ErrNoSpace)
	b.has("disk/f", original)
	_, err = b.Edit(ctx, p, to(strings.Repeat("n", 80_000)))
	b.must(err)
	b.has("disk/g", strings.Repeat("n", 80_000))
	_, err = b.Create(ctx, b.at("disk/x/y/new"), []byte(original))
	b.is(err, fsys.ErrNoSpace)
	b.alone("disk", "f", "g")

	b.must(unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, err = b.Edit(ctx, p, to("x"))
	b.is(err, fsys.ErrReadOnly)
	_, err = b.Create(ctx, b.at("disk/new"), []byte("x"))
	b.is(err, fsys.ErrReadOnly)
}
