//go:build unix

package editor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/tools/editor"
)

func TestViewFile(t *testing.T) {
	t.Run("F01", func(t *testing.T) {
		d := open(t)
		got := d.ok("view", "path", d.put("f", "a\nb\n"))
		if want := d.at("f") + ", numbered as by `cat -n`:\n     1\ta\n     2\tb"; got != want {
			t.Errorf("%q", got)
		}
	})
	t.Run("F01 plain", func(t *testing.T) {
		d := open(t, plain)
		if got, want := d.ok("view", "path", d.put("f", "a\nb\n")), d.at("f")+", 2 lines:\n1  a\n2  b"; got != want {
			t.Errorf("%q", got)
		}
		if got, want := d.ok("view", "path", d.put("f", numbers(5)), "view_range", []int{2, 3}), d.at("f")+", lines 2 to 3 of 5:\n2  line 2\n3  line 3"; got != want {
			t.Errorf("%q", got)
		}
	})
	t.Run("no phantom last line", func(t *testing.T) {
		d := open(t)
		for contents, want := range map[string]string{
			"a": "     1\ta", "a\n": "     1\ta", "a\n\n": "     1\ta\n     2\t", "\n": "     1\t", "a\nb": "     1\ta\n     2\tb",
		} {
			if got := body(d.ok("view", "path", d.put("f", contents))); got != want {
				t.Errorf("%q: %q", contents, got)
			}
		}
	})
	t.Run("F03 F04 F06 ranges", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(5))
		for _, c := range []struct {
			r           []int
			first, last int
			note        string
		}{
			{[]int{2, 3}, 2, 3, ""}, {[]int{2, -1}, 2, 5, ""}, {[]int{2, 99}, 2, 5, "[The file ends at line 5;"}, {[]int{5, 5}, 5, 5, ""}, {[]int{1, 5}, 1, 5, ""},
		} {
			got := body(d.ok("view", "path", p, "view_range", c.r))
			var want []string
			for i := c.first; i <= c.last; i++ {
				want = append(want, fmt.Sprintf("%6d\tline %d", i, i))
			}
			if rest, ok := strings.CutPrefix(got, strings.Join(want, "\n")); !ok || (rest == "") != (c.note == "") || !strings.Contains(rest, c.note) {
				t.Errorf("%v: %q", c.r, got)
			}
		}
	})
	t.Run("F08 what isn't two integers", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(5))
		for _, r := range []any{[]any{1}, []any{1, 2, 3}, []any{"a", 2}, []any{1.5, 2}, []any{}, "1-2", 3, map[string]int{"a": 1}, []any{nil, 2}} {
			d.fails(editor.BadArgument, []string{"`view_range` must be two integers"}, "view", "path", p, "view_range", r)
		}
	})
	t.Run("ranges that can't be", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(5))
		for _, r := range [][]int{{0, 2}, {-1, 2}, {3, 2}, {3, 0}, {3, -2}, {6, 7}, {6, -1}} {
			d.fails(editor.OutOfRange, []string{"`view_range`"}, "view", "path", p, "view_range", r)
		}
		d.fails(editor.OutOfRange, []string{"starts at line 6", "5 lines", "from 1 to 5"}, "view", "path", p, "view_range", []int{6, 6})
		d.fails(editor.OutOfRange, []string{"is empty"}, "view", "path", d.put("e", ""), "view_range", []int{1, 1})
	})
	t.Run("F10 empty", func(t *testing.T) {
		d := open(t)
		d.contains(d.ok("view", "path", d.put("e", "")), "is empty")
		d.contains(d.ok("view", "path", d.put("e", "\xef\xbb\xbf")), "is empty")
	})
	t.Run("F11 the limit", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(5000))
		got := d.ok("view", "path", p)
		lines := strings.Split(got, "\n")
		shown := len(lines) - 2
		d.contains(lines[len(lines)-1], "grep -n", fmt.Sprintf("Line %d is the first one not shown", shown+1))
		if lines[shown] != fmt.Sprintf("%6d\tline %d", shown, shown) {
			t.Errorf("last line %q", lines[shown])
		}
		if n := utf8.RuneCountInString(got); n < 15800 {
			t.Errorf("only %d characters used", n)
		}
		next := d.ok("view", "path", p, "view_range", []int{shown + 1, shown + 2})
		d.contains(next, fmt.Sprintf("\tline %d", shown+1))
		// One line of 50,000 characters is cut in the line.
		d.contains(d.ok("view", "path", d.put("g", strings.Repeat("x", 50_000))), strings.Repeat("x", 2000)+" [... 48,000 more characters]")
	})
	t.Run("the limit counts characters and always leaves room for the notice", func(t *testing.T) {
		d := open(t, func(cfg *editor.Config, _ *editor.Options) { cfg.MaxOutputChars = editor.MinOutputChars })
		for _, line := range []string{"é", strings.Repeat("é", 700), strings.Repeat("日", 49)} {
			for n := range 120 {
				got := d.ok("view", "path", d.put("f", strings.Repeat(line+"\n", n+1)))
				if c := utf8.RuneCountInString(got); c > editor.MinOutputChars {
					t.Fatalf("%d characters", c)
				}
				if shown := strings.Count(got, "\t"); shown == 0 || shown < n+1 && !strings.Contains(got, fmt.Sprintf("Line %d is the first", shown+1)) {
					t.Fatalf("%d lines: %s", n+1, got)
				}
			}
		}
	})
	t.Run("F13 TABs", func(t *testing.T) {
		d := open(t)
		d.contains(d.ok("view", "path", d.put("f", "\ta\tb \n")), "     1\t\ta\tb ")
	})
	t.Run("CRLF is hidden and noted once", func(t *testing.T) {
		d := open(t)
		got := d.ok("view", "path", d.put("f", "a\r\nb\r\nc\rd"))
		d.contains(got, "     1\ta\n     2\tb\n     3\tc\rd\n", "CRLF")
		if strings.Count(got, "end in CRLF") != 1 || strings.Count(got, "\r") != 1 {
			t.Errorf("%q", got)
		}
		// At the limit of a line.
		for n := 1998; n <= 2000; n++ {
			d.lacks(d.ok("view", "path", d.put("f", strings.Repeat("x", n)+"\r\n")), "\r", "more character")
		}
		d.contains(d.ok("view", "path", d.put("f", strings.Repeat("x", 2001)+"\r\n")), "x [... 1 more character]")
		// Across the reader's buffer.
		for n := 64<<10 - 4; n < 64<<10+4; n++ {
			got := d.ok("view", "path", d.put("f", strings.Repeat("x", n)+"\r\nb\r\n"))
			d.contains(got, fmt.Sprintf("[... %d,%03d more characters]\n     2\tb\n", (n-2000)/1000, (n-2000)%1000))
			d.lacks(got, "\r")
		}
	})
	t.Run("BOM is hidden", func(t *testing.T) {
		d := open(t)
		if got := body(d.ok("view", "path", d.put("f", "\xef\xbb\xbfa\n"))); got != "     1\ta" {
			t.Errorf("%q", got)
		}
	})
	t.Run("invalid bytes are shown as U+FFFD with a note", func(t *testing.T) {
		d := open(t)
		got := d.ok("view", "path", d.put("f", "caf\xe9 x\nb\n"))
		d.contains(got, "     1\tcaf\ufffd x\n     2\tb\n[Bytes that are not UTF-8")
		if !utf8.ValidString(got) {
			t.Error("not UTF-8")
		}
	})
	t.Run("a large file", func(t *testing.T) {
		d := open(t)
		p := d.put("f", strings.Repeat("0123456789abcde\n", 1<<20))
		got := d.ok("view", "path", p, "view_range", []int{1 << 20, -1})
		if body(got) != "1048576\t0123456789abcde" {
			t.Errorf("%q", got)
		}
		d.contains(d.ok("view", "path", p), "grep -n")
		d.fails(editor.OutOfRange, []string{"1048576 lines"}, "view", "path", p, "view_range", []int{1<<20 + 1, -1})
	})
	t.Run("F21 F48 binary and wide encodings", func(t *testing.T) {
		d := open(t)
		for contents, code := range map[string]editor.Code{
			"abc\x00def": editor.Binary, strings.Repeat("x", 8191) + "\x00": editor.Binary,
			"\xff\xfea\x00b\x00\n\x00": editor.Encoding, "\xfe\xff\x00a\x00b": editor.Encoding, "\xff\xfe\x00\x00a\x00\x00\x00": editor.Encoding,
			"h\x00e\x00l\x00l\x00o\x00 \x00t\x00h\x00e\x00r\x00e\x00": editor.Encoding, "\x00h\x00e\x00l\x00l\x00o\x00 \x00w\x00o": editor.Encoding,
		} {
			p := d.put("f", contents)
			word := map[editor.Code]string{editor.Binary: "binary", editor.Encoding: "UTF-"}[code]
			d.fails(code, []string{word}, "view", "path", p)
			d.fails(code, []string{word}, "str_replace", "path", p, "old_str", "a", "new_str", "b")
			d.fails(code, []string{word}, "insert", "path", p, "insert_line", 0, "new_str", "b")
			d.has("f", contents)
		}
		d.contains(d.ok("view", "path", d.put("f", strings.Repeat("x\n", 4096)+"\x00"), "view_range", []int{1, 1}), "     1\tx")
	})
	t.Run("F22 pipes and devices", func(t *testing.T) {
		d := open(t)
		if err := syscall.Mkfifo(d.at("pipe"), 0o644); err != nil {
			t.Fatal(err)
		}
		special := []string{d.at("pipe")}
		if !isConfined(t) {
			special = append(special, "/dev/zero", "/dev/null")
		}
		for _, p := range special {
			for _, command := range []string{"view", "str_replace", "insert", "undo_edit"} {
				d.fails(editor.NotRegular, []string{p, "not a regular file"}, command, "path", p, "old_str", "a", "new_str", "b", "insert_line", 0)
			}
		}
	})
}

func TestViewDirectory(t *testing.T) {
	t.Run("F14 two levels", func(t *testing.T) {
		d := open(t)
		for _, name := range []string{"b.txt", "a/x", "a/deep/z", "a/.hid", ".git/config", ".env", "node_modules/m/i.js", "__pycache__/c.pyc", "a.txt", "a-b", "B"} {
			d.put(name, "")
		}
		if err := os.Symlink("a", d.at("link")); err != nil {
			t.Fatal(err)
		}
		got := d.ok("view", "path", d.dir)
		want := []string{"/", "/B", "/__pycache__/", "/a-b", "/a.txt", "/a/", "/a/deep/", "/a/x", "/b.txt", "/link", "/node_modules/"}
		for i, w := range want {
			want[i] = d.dir + w
		}
		listed, notes, _ := strings.Cut(body(got), "\n[")
		if listed != strings.Join(want, "\n") {
			t.Errorf("%s", got)
		}
		d.contains(notes, "3 hidden entries left out", "`__pycache__`, `node_modules`")
		d.lacks(got, "config", "i.js", "c.pyc", "deep/z")
	})
	t.Run("a hidden root, a linked root, the slash", func(t *testing.T) {
		d := open(t)
		d.put(".git/config", "")
		d.contains(d.ok("view", "path", d.at(".git")), "\n"+d.at(".git/config"))
		if err := os.Symlink(".git", d.at("link")); err != nil {
			t.Fatal(err)
		}
		d.contains(d.ok("view", "path", d.at("link")), "\n"+d.at("link")+"/\n"+d.at("link/config"))
		d.contains(d.ok("view", "path", d.at("link")+"/"), "\n"+d.at("link")+"/\n"+d.at("link/config"))
		if !isConfined(t) {
			d.contains(d.ok("view", "path", "/"), "\n/\n", "\n/etc/\n")
		}
	})
	t.Run("empty", func(t *testing.T) {
		d := open(t)
		if got := body(d.ok("view", "path", d.dir)); got != d.dir+"/" {
			t.Errorf("%q", got)
		}
	})
	t.Run("F09 a range", func(t *testing.T) {
		d := open(t)
		d.fails(editor.BadArgument, []string{"not allowed for a directory"}, "view", "path", d.dir, "view_range", []int{1, 2})
	})
	t.Run("F17 2,000 files", func(t *testing.T) {
		d := openQuick(t)
		for i := range 2000 {
			d.put(fmt.Sprintf("file-%04d", i), "")
		}
		got := d.ok("view", "path", d.dir)
		shown := strings.Count(got, "/file-")
		d.contains(got, fmt.Sprintf("%s more entries not shown", comma(2000-shown)))
		for i := range shown {
			d.contains(got, fmt.Sprintf("/file-%04d\n", i))
		}
		if n := utf8.RuneCountInString(got); n < 15000 {
			t.Errorf("only %d characters used", n)
		}
	})
	t.Run("a cut counts what is below the directories it shows", func(t *testing.T) {
		d := openQuick(t)
		for i := range 600 {
			d.put(fmt.Sprintf("a/file-%04d", i), "")
			d.put(fmt.Sprintf("b-%04d", i), "")
		}
		got := d.ok("view", "path", d.dir)
		shown := strings.Count(got, "\n"+d.dir) - 1
		d.contains(got, fmt.Sprintf("[Cut here: %s more entries not shown", comma(1201-shown)))
	})
	t.Run("names that would break a line", func(t *testing.T) {
		d := open(t)
		d.put("a\nb", "")
		d.put("c\xff", "")
		d.contains(d.ok("view", "path", d.dir), `/a\nb`, "/c\ufffd")
	})
	t.Run("F18 unreadable", func(t *testing.T) {
		d := open(t)
		d.put("ok/x", "")
		d.put("secret/x", "")
		asNobody(t, func() {
			if _, err := os.Stat(d.dir); err != nil {
				t.Skip("an ordinary user can't reach the directory: ", err)
			}
			got := d.ok("view", "path", d.dir)
			d.contains(got, d.dir+"/ok/x", d.dir+"/secret/", "[Could not be read: "+d.dir+"/secret/.]")
			d.lacks(got, "secret/x")
			d.fails(editor.NoPermission, []string{"permission denied"}, "view", "path", d.at("secret"))
		}, func() {
			for dir := d.dir; dir != "/"; dir = filepath.Dir(dir) {
				if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&5 != 5 {
					if err := os.Chmod(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := os.Chmod(d.at("secret"), 0o700); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func comma(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
