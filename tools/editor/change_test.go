//go:build unix

package editor_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/tools/editor"
)

func TestReplace(t *testing.T) {
	t.Run("F34 the snippet has true numbers", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(30))
		got := d.ok("str_replace", "path", p, "old_str", "line 15\n", "new_str", "fifteen\nand a half\n")
		want := "Edited " + p + ". Here are lines 11 to 20 as they are now, numbered as by `cat -n`:\n" +
			"    11\tline 11\n    12\tline 12\n    13\tline 13\n    14\tline 14\n    15\tfifteen\n    16\tand a half\n    17\tline 16\n    18\tline 17\n    19\tline 18\n    20\tline 19"
		if got != want {
			t.Errorf("%s", got)
		}
		d.has("f", strings.Replace(numbers(30), "line 15\n", "fifteen\nand a half\n", 1))
		d.alone("", "f")
	})
	t.Run("F34 plain", func(t *testing.T) {
		d := open(t, plain)
		p := d.put("f", numbers(30))
		if got, want := d.ok("str_replace", "path", p, "old_str", "line 15\n", "new_str", "a\nb\n"), "Edited "+p+", lines 15 to 16."; got != want {
			t.Errorf("%q", got)
		}
		if got, want := d.ok("insert", "path", p, "insert_line", 0, "new_str", "a"), "Edited "+p+", line 1."; got != want {
			t.Errorf("%q", got)
		}
		if got, want := d.ok("undo_edit", "path", p), "Undid the last edit of "+p+", line 1."; got != want {
			t.Errorf("%q", got)
		}
	})
	t.Run("F36 no match", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "a\nb\n")
		old := time.Unix(1_000_000_000, 0)
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
		d.fails(editor.NoMatch, []string{"`old_str` was not found in " + p, "\nzebra $1"}, "str_replace", "path", p, "old_str", "zebra $1", "new_str", "x")
		d.has("f", "a\nb\n")
		if fi, _ := os.Stat(p); !fi.ModTime().Equal(old) {
			t.Error("mtime changed")
		}
		long := strings.Repeat("é", 20_000)
		d.fails(editor.NoMatch, []string{"éé [... 18,000 more characters]"}, "str_replace", "path", p, "old_str", long, "new_str", "x")
		d.fails(editor.NoHistory, nil, "undo_edit", "path", p)
	})
	t.Run("F36 why", func(t *testing.T) {
		d := open(t)
		for _, c := range []struct{ file, old, why string }{
			{"x\nfoo  \nbar\n", "foo\nbar", "blanks at line ends, it would match on line 2"},
			{"x\nfoo\nbar\n", "foo \nbar", "blanks at line ends, it would match on line 2"},
			{"x\n\tfoo\n", "    foo", "TAB versus space), it would match on line 2"},
			{"x\n    foo\n", "\tfoo", "TAB versus space), it would match on line 2"},
			{"x\n  foo\n", "    foo", "number of blanks, it would match on line 2"},
			{"x\nfoo\nbar\n", "     2\tfoo\n     3\tbar", "line numbers of a view, it would match on line 2"},
			{"x\nfoo\nbar\n", "2  foo\n3  bar", "line numbers of a view, it would match on line 2"},
			{"x\nfoo bar\n", "foo\r bar", "carriage returns, it would match on line 2"},
			{"x\nfoo\nbar\n", `foo\nbar`, "in place of the characters \\n and \\t, it would match on line 2"},
			{"x\nFoo\n", "foo", "upper and lower case, it would match on line 2"},
			{"x\nFoo\n", "other", "so nothing was written. The text that was looked for:"},
			{"", " ", "so nothing was written. The text that was looked for:"},
		} {
			p := d.put("f", c.file)
			d.fails(editor.NoMatch, []string{c.why, "\n" + c.old}, "str_replace", "path", p, "old_str", c.old, "new_str", "new")
			d.has("f", c.file)
		}
	})
	t.Run("F37 several matches", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "a\nfoo\nb\nc\nfoo\n")
		d.fails(editor.ManyMatches, []string{"more than once", "lines 2, 5."}, "str_replace", "path", p, "old_str", "foo", "new_str", "x")
		d.has("f", "a\nfoo\nb\nc\nfoo\n")
		p = d.put("f", strings.Repeat("foo\n", 60))
		got := d.fails(editor.ManyMatches, []string{"lines 1, 2, 3,", "49, 50 and more."}, "str_replace", "path", p, "old_str", "foo", "new_str", "x")
		d.lacks(got, ", 51")
		d.fails(editor.ManyMatches, []string{"lines 1, 1."}, "str_replace", "path", d.put("f", "aaa\n"), "old_str", "aa", "new_str", "b")
		d.fails(editor.ManyMatches, []string{"lines 1, 3."}, "str_replace", "path", d.put("f", "a\r\nb\r\na\r\nb\r\n"), "old_str", "a\nb", "new_str", "b")
	})
	t.Run("F39 F40 F41 empty, missing, same", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "abc\n")
		d.fails(editor.BadArgument, []string{"`old_str` must not be empty"}, "str_replace", "path", p, "old_str", "", "new_str", "x")
		d.fails(editor.NoChange, nil, "str_replace", "path", p, "old_str", "b", "new_str", "b")
		d.fails(editor.NoHistory, nil, "undo_edit", "path", p)
		d.ok("str_replace", "path", p, "old_str", "b")
		d.has("f", "ac\n")
		d.ok("str_replace", "path", p, "old_str", "c", "new_str", "")
		d.has("f", "a\n")
		d.ok("str_replace", "path", p, "old_str", "a", "new_str", nil)
		d.has("f", "\n")
		d.contains(d.ok("str_replace", "path", p, "old_str", "\n"), "It is empty now.")
		d.has("f", "")
		d.fails(editor.NoChange, nil, "str_replace", "path", d.put("g", "a\r\nb\r\n"), "old_str", "a\nb", "new_str", "a\r\nb")
	})
	t.Run("F42 literal text", func(t *testing.T) {
		d := open(t)
		for _, s := range []string{"$&", "$1", `\1`, `\\n`, `\n`, "%s", "%!d(", "${x}", "&", "{{.}}", "\u2028", "\u0000x"} {
			p := d.put("f", "a X b\n")
			d.ok("str_replace", "path", p, "old_str", "X", "new_str", s)
			d.has("f", "a "+s+" b\n")
			if strings.Contains(s, "\x00") {
				continue
			}
			d.ok("str_replace", "path", p, "old_str", s, "new_str", "(.*)")
			d.has("f", "a (.*) b\n")
		}
		d.fails(editor.NoMatch, nil, "str_replace", "path", d.put("f", "abc"), "old_str", "a.c", "new_str", "x")
	})
	t.Run("F43 TABs of other lines", func(t *testing.T) {
		d := open(t)
		p := d.put("Makefile", "all: x\n\tcc -o x  x.c \t\n\n.PHONY: all\n")
		d.ok("str_replace", "path", p, "old_str", "all: x", "new_str", "all: y")
		d.has("Makefile", "all: y\n\tcc -o x  x.c \t\n\n.PHONY: all\n")
	})
	t.Run("F44 CRLF", func(t *testing.T) {
		d := open(t)
		for _, c := range []struct{ file, old, text, want string }{
			{"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", "x\r\ny\r\nc\r\n"},
			{"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"},
			{"a\r\nb\r\nc\r\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\r\n"},       // one line matches exactly, its line is CRLF
			{"a\r\nb\r\nc", "c", "x\ny", "a\r\nb\r\nx\r\ny"},               // a last line without an end is like the one before
			{"a\r\nb\nc\nd\r\n", "b\nc", "x\ny\nz", "a\r\nx\ny\nz\nd\r\n"}, // mixed: exact
			{"a\r\nb\nc\r\nd\n", "a\nb\nc", "x\ny\nz", "x\r\ny\nz\r\nd\n"}, // mixed: each its own ending
			{"a\r\nb\r\nc\r\n", "a\r\nb", "x\ny", "x\ny\r\nc\r\n"},         // exact with explicit CR: literal
			{"a\nb\nc\n", "a\r\nb", "x\r\ny", "x\ny\nc\n"},
			{"a\r\n\r\nb\r\n", "a\n\nb", "ab", "ab\r\n"},
			{"a\r\nb\r\n", "\nb", "", "a\r\n"},
			{"a\r\nb\r\n", "a\n", "", "b\r\n"},
		} {
			p := d.put("f", c.file)
			d.ok("str_replace", "path", p, "old_str", c.old, "new_str", c.text)
			d.has("f", c.want)
			d.ok("undo_edit", "path", p)
			d.has("f", c.file)
		}
	})
	t.Run("F46 BOM", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "\xef\xbb\xbfa\nb\n")
		d.contains(d.ok("str_replace", "path", p, "old_str", "a\n", "new_str", "x\n"), "     1\tx\n     2\tb")
		d.has("f", "\xef\xbb\xbfx\nb\n")
	})
	t.Run("F48 other encodings", func(t *testing.T) {
		d := open(t)
		gbk := "# \xd6\xd0\xce\xc4\nname = 1\n\xb1\xe0\n"
		p := d.put("f", gbk)
		d.ok("str_replace", "path", p, "old_str", "name = 1", "new_str", "name = 2")
		d.has("f", strings.Replace(gbk, "1", "2", 1))
		p = d.put("f", "x\ncaf\xe9 au lait\n")
		d.fails(editor.Undecodable, []string{"line 2", "not UTF-8"}, "str_replace", "path", p, "old_str", "caf\ufffd au", "new_str", "the")
		d.has("f", "x\ncaf\xe9 au lait\n")
	})
	t.Run("F23 too large", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "")
		if err := os.Truncate(p, 11<<20); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"str_replace", "insert", "undo_edit"} {
			d.fails(editor.TooLarge, []string{"too large", "bash"}, command, "path", p, "old_str", "a", "new_str", "b", "insert_line", 0)
		}
		p = d.put("g", strings.Repeat("x", fsys.MaxEdit-2)+"ab")
		d.fails(editor.TooLarge, []string{"would become too large"}, "str_replace", "path", p, "old_str", "ab", "new_str", "abc")
		d.ok("str_replace", "path", p, "old_str", "ab", "new_str", "ac")
	})
	t.Run("F49 F50 links and modes", func(t *testing.T) {
		d := open(t)
		p := d.put("f", "a\n")
		if err := os.Symlink("f", d.at("link")); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []os.FileMode{0o755, 0o600, 0o444 | os.ModeSetuid} {
			if err := os.Chmod(p, mode); err != nil {
				t.Fatal(err)
			}
			d.ok("insert", "path", d.at("link"), "insert_line", 0, "new_str", "x")
			if fi, err := os.Stat(p); err != nil || fi.Mode() != mode {
				t.Errorf("mode %v, want %v", fi.Mode(), mode)
			}
		}
		if to, err := os.Readlink(d.at("link")); to != "f" {
			t.Errorf("link is %q, %v", to, err)
		}
		d.has("f", "x\nx\nx\na\n")
	})
	t.Run("F52 parallel edits", func(t *testing.T) {
		d := open(t)
		var file, want strings.Builder
		for i := range 20 {
			fmt.Fprintf(&file, "anchor-%02d.\n", i)
			fmt.Fprintf(&want, "landed-%02d.\n", i)
		}
		p := d.put("f", file.String())
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if r := d.call("str_replace", "path", p, "old_str", fmt.Sprintf("anchor-%02d.", i), "new_str", fmt.Sprintf("landed-%02d.", i)); r.IsError {
					t.Error(r.Text())
				}
			})
		}
		all.Wait()
		d.has("f", want.String())
		d.alone("", "f")
		for range 20 {
			d.ok("undo_edit", "path", p)
		}
		d.has("f", file.String())
	})
	t.Run("a long snippet keeps the limit", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(10))
		d.contains(d.ok("insert", "path", p, "insert_line", 5, "new_str", numbers(5000)), "grep -n", "     6\tline 1\n")
	})
}

func TestInsert(t *testing.T) {
	t.Run("F53 exact contents", func(t *testing.T) {
		d := open(t)
		for _, c := range []struct {
			file  string
			after int
			text  string
			want  string
		}{
			{"one\ntwo", 2, "three", "one\ntwo\nthree"},
			{"one\ntwo\n", 2, "three", "one\ntwo\nthree\n"},
			{"one\ntwo\n", 2, "three\n", "one\ntwo\nthree\n"},
			{"one\ntwo\n", 0, "zero", "zero\none\ntwo\n"},
			{"one\ntwo\n", 0, "zero\n", "zero\none\ntwo\n"},
			{"one\ntwo\n", 1, "x\ny", "one\nx\ny\ntwo\n"},
			{"one\ntwo", 1, "x\n", "one\nx\ntwo"},
			{"one\ntwo", 0, "x", "x\none\ntwo"},
			{"one\ntwo\n", 1, "", "one\n\ntwo\n"},
			{"one\ntwo\n", 1, "\n", "one\n\ntwo\n"},
			{"", 0, "x", "x\n"},
			{"", 0, "x\n", "x\n"},
			{"one", 0, "x", "x\none"},
			{"one\r\ntwo\r\n", 1, "x\ny", "one\r\nx\r\ny\r\ntwo\r\n"},
			{"one\r\ntwo", 2, "x\ny", "one\r\ntwo\r\nx\r\ny"},
			{"one\ntwo\n", 1, "x\r\ny", "one\nx\ny\ntwo\n"},
			{"\xef\xbb\xbfone\n", 0, "x", "\xef\xbb\xbfx\none\n"},
			{"\xef\xbb\xbf", 0, "x", "\xef\xbb\xbfx\n"},
			{"\n\n", 2, "x", "\n\nx\n"},
			{"\xff\n\xfe", 1, "x", "\xff\nx\n\xfe"},
		} {
			p := d.put("f", c.file)
			d.ok("insert", "path", p, "insert_line", c.after, "new_str", c.text)
			d.has("f", c.want)
			d.ok("undo_edit", "path", p)
			d.has("f", c.file)
		}
	})
	t.Run("F54 where it can't be", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(3))
		for _, n := range []any{-1, 4, 5, 1 << 40} {
			d.fails(editor.OutOfRange, []string{"`insert_line`", "3 lines", "from 0 to 3"}, "insert", "path", p, "insert_line", n, "new_str", "x")
		}
		for _, n := range []any{"x", 1.5, true, []int{1}, ""} {
			d.fails(editor.BadArgument, []string{"`insert_line` must be an integer"}, "insert", "path", p, "insert_line", n, "new_str", "x")
		}
		d.has("f", numbers(3))
	})
	t.Run("the snippet", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(20))
		got := d.ok("insert", "path", p, "insert_line", 10, "new_str", "new")
		d.contains(got, "Here are lines 7 to 15 as they are now,", "    10\tline 10\n    11\tnew\n    12\tline 11\n", "    15\tline 14")
	})
}

func TestOutsideWriter(t *testing.T) {
	t.Run("an edit that loses the race", func(t *testing.T) {
		d := open(t)
		p := d.put("f", numbers(10))
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				tmp := d.at("outside")
				if os.WriteFile(tmp, fmt.Appendf(nil, "%soutside %d\n", numbers(10), n), 0o644) != nil || os.Rename(tmp, p) != nil {
					return
				}
			}
		})
		for range 200 {
			if r := d.call("str_replace", "path", p, "old_str", "line 5\n", "new_str", "line 5 \n"); r.IsError {
				switch editor.Code(r.Error.Code) {
				case editor.Changed, editor.NoMatch, editor.NotFound:
				default:
					t.Errorf("%s: %s", r.Error.Code, r.Text())
				}
			}
		}
		close(stop)
		writer.Wait()
		d.alone("", "f")
	})
}
