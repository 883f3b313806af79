package presets

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrecedenceAndOrder(t *testing.T) {
	one, two, own := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, one, map[string]string{"minimal": "version: 1\nname: fake\n", "house": "version: 1\nname: one\norder: 2\n"})
	put(t, two, map[string]string{"house": "version: 1\nname: two\n", "zz": "version: 1\norder: -1\n"})
	put(t, own, map[string]string{"house": "version: 1\nname: own\n", "mine": "version: 1\norder: 2\n", "standard": "broken"})
	r := NewRoster([]string{one, two}, own)
	list, err := r.List()
	must(t, err)
	type line struct {
		ID, Name string
		Order    int
		Origin   Origin
	}
	var got []line
	for _, e := range list {
		got = append(got, line{e.ID, e.Name, e.Order, e.Origin})
		if e.Broken != "" {
			t.Errorf("%s: %s", e.ID, e.Broken)
		}
	}
	want := []line{{"zz", "zz", -1, Configured}, {"standard", "Standard", 1, Shipped}, {"house", "one", 2, Configured}, {"mine", "mine", 2, User}, {"minimal", "Minimal", 3, Shipped}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	put(t, own, map[string]string{"mine": "version: 1\nname: changed\n"})
	if c := resolve(t, r, "mine"); c.Name != "changed" {
		t.Error("a file is read again each time")
	}
}

// What was checked once is not taken for checked when something it builds on has changed.
func TestVariantFollowsItsBase(t *testing.T) {
	r, dir := user(t, map[string]string{"base": base, "variant": "version: 1\nextends: base\n"})
	before := resolve(t, r, "variant").Hash
	put(t, dir, map[string]string{"base": strings.Replace(base, "300s", "9s", 1)})
	if after := resolve(t, r, "variant").Hash; after == before || after != resolve(t, r, "base").Hash {
		t.Errorf("hash %s, before %s", after, before)
	}
	put(t, dir, map[string]string{"base": "version: 2\n"})
	_, err := r.Resolve("variant")
	wantError(t, err, filepath.Join("base", fileName)+":1:10: the preset has version 2")
}

func TestRootThatCannotBeRead(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	list, err := NewRoster([]string{gone}, filepath.Join(gone, "own")).List()
	wantError(t, err, "presets folder", "gone")
	if len(list) != 2 {
		t.Errorf("the other roots are listed all the same: %+v", list)
	}
	_, err = NewRoster([]string{gone}, "").Resolve("x")
	if !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if list, err := NewRoster(nil, gone).List(); err != nil || len(list) != 2 {
		t.Errorf("the user's folder need not exist: %v", err)
	}
}

func TestWriteAndDelete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "presets") // made when needed
	r := NewRoster(nil, dir)
	must(t, r.Write("mine", []byte("version: 1\nname: first\n")))
	must(t, r.Write("mine", []byte("version: 1\nname: second\n")))
	if text, err := r.Text("mine"); err != nil || string(text) != "version: 1\nname: second\n" {
		t.Errorf("%q %v", text, err)
	}
	for _, p := range []string{dir, filepath.Join(dir, "mine"), filepath.Join(dir, "mine", fileName)} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", p, info.Mode(), err)
		}
	}
	err := r.Write("mine", []byte("version: 1\nrows:\n  - {id: b, use: tool-bash}\n"))
	wantError(t, err, "preset.yml:3:10: row b: it waits for terminals")
	if text, _ := r.Text("mine"); string(text) != "version: 1\nname: second\n" {
		t.Errorf("a refused text was written: %q", text)
	}
	wantError(t, r.Write("mine", []byte("version: 1\nextends: mine\n")), "circle")
	for _, id := range []string{"", "../x", "a/b", "A", "-a", ".hidden", strings.Repeat("a", 65)} {
		if err := r.Write(id, []byte("version: 1\n")); !errors.Is(err, ErrInvalidID) {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, err := range []error{r.Write("minimal", []byte("version: 1\n")), r.Delete("minimal"), r.Copy("standard", "minimal"), NewRoster(nil, "").Write("x", []byte("version: 1\n"))} {
		if !errors.Is(err, ErrReadOnly) {
			t.Error(err)
		}
	}
	must(t, r.Delete("mine"))
	if err := r.Delete("mine"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if left := tree(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// tree lists what lies below dir.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if p != dir {
			out = append(out, strings.TrimPrefix(p, dir+"/"))
		}
		return err
	}))
	return out
}

func TestCopy(t *testing.T) {
	house, own := t.TempDir(), t.TempDir()
	text := "# about\nversion: 1\nname: >-\n  House\n  style\n# of rows\nrows:\n  - {id: a, use: runtime-context} # kept\norder: 4\n"
	put(t, house, map[string]string{"house": text})
	must(t, os.MkdirAll(filepath.Join(house, "house", "notes", "deep"), 0o777), os.WriteFile(filepath.Join(house, "shared.txt"), []byte("shared"), 0o666),
		os.Symlink("../../../shared.txt", filepath.Join(house, "house", "notes", "deep", "link")), os.WriteFile(filepath.Join(house, "house", "run.sh"), nil, 0o777))
	r := NewRoster([]string{house}, own)
	must(t, r.Copy("mine", "house"))
	if diff := cmp.Diff([]string{"mine", "mine/notes", "mine/notes/deep", "mine/notes/deep/link", "mine/preset.yml", "mine/run.sh"}, tree(t, own)); diff != "" {
		t.Error(diff)
	}
	got, err := r.Text("mine")
	must(t, err)
	if diff := cmp.Diff("# about\nversion: 1\n# of rows\nrows:\n  - {id: a, use: runtime-context} # kept\n", string(got)); diff != "" {
		t.Error(diff)
	}
	link, err := os.Lstat(filepath.Join(own, "mine", "notes", "deep", "link"))
	if err != nil || !link.Mode().IsRegular() || link.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", link, err)
	}
	if info, _ := os.Stat(filepath.Join(own, "mine", "run.sh")); info.Mode().Perm() != 0o600 {
		t.Errorf("%v", info.Mode())
	}
	if a, b := resolve(t, r, "mine"), resolve(t, r, "house"); a.Hash != b.Hash || a.Name != "mine" || a.Order != 0 {
		t.Errorf("%+v", a)
	}
	if err := r.Copy("mine", "house"); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	must(t, r.Copy("min2", "minimal"))
}

func TestFailedCopyLeavesNothing(t *testing.T) {
	house, own, outside := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, house, map[string]string{"leaky": "version: 1\n", "big": "version: 1\n", "broken": "version: 2\n"})
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600), os.Symlink(filepath.Join(outside, "secret"), filepath.Join(house, "leaky", "z")),
		os.WriteFile(filepath.Join(house, "big", "blob"), make([]byte, maxCopyBytes+1), 0o600))
	r := NewRoster([]string{house}, own)
	wantError(t, r.Copy("a", "leaky"), "copy preset leaky", "escapes")
	wantError(t, r.Copy("a", "big"), "too large")
	wantError(t, r.Copy("a", "broken"), "version 2")
	wantError(t, r.Copy("a", "nobody"), "there is no preset")
	if left := tree(t, own); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCopiesRace(t *testing.T) {
	own := t.TempDir()
	r := NewRoster(nil, own)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = r.Copy("mine", "minimal") })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		}
	}
	if won != 1 || !cmp.Equal(tree(t, own), []string{"mine", "mine/preset.yml"}) {
		t.Errorf("%d copies won: %v %v", won, errs, tree(t, own))
	}
}

func TestWithoutKeepsTheRest(t *testing.T) {
	for in, want := range map[string]string{
		"name: x\nversion: 1\norder: 3":             "version: 1\n",
		"version: 1\nname: |\n  a\n\n  b\nrows: []": "version: 1\nrows: []",
		"{version: 1, name: x, order: 2}\n":         "{version: 1}\n",
		"version: 1\n\n# end\n":                     "version: 1\n\n# end\n",
	} {
		got, err := without([]byte(in), "name", "order")
		if err != nil || string(got) != want {
			t.Errorf("%q became %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestCheckReport(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the golden files are of Linux")
	}
	r, _ := user(t, nil)
	for _, id := range []string{"minimal", "standard"} {
		report, err := r.Check(id)
		must(t, err)
		text, err := report.render()
		must(t, err)
		golden(t, id+".yml", text)
		if report.Hash == "" || report.Tokens < 50 || report.Composition.Hash == "" {
			t.Errorf("%s: %+v", id, report)
		}
	}
	if report, err := r.CheckText([]byte("version: 1\nextends: minimal\nremove: [bash, pty]\n")); err != nil || len(report.Tools) != 1 {
		t.Errorf("%+v %v", report, err)
	}
}

func TestDiff(t *testing.T) {
	r, _ := user(t, map[string]string{"slow": "version: 1\nextends: minimal\nrows:\n  - {id: bash, use: tool-bash, os: [linux, darwin], with: {timeout: 900s}}\n"})
	got, err := r.Diff("minimal", "slow")
	must(t, err)
	var changed []string
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ") {
			changed = append(changed, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff([]string{"-          timeout: 300s", "+          timeout: 900s"}, changed); diff != "" {
		t.Errorf("%s\n%s", diff, got)
	}
	if got, err := r.Diff("minimal", "minimal"); got != "" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	_, err = r.Diff("minimal", "nope")
	wantError(t, err, "diff: preset nope: there is no preset")
}
