package editor

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxEcho is how much of a text that was not found is repeated, in characters.
const maxEcho = 2000

func refuseNoMatch(path string, data []byte, old string) *Refusal {
	if strings.ContainsRune(old, utf8.RuneError) && !utf8.Valid(data) {
		if line, ok := lineOf(shownAs(string(data)), toLF(old)); ok {
			return refuseUndecodable(path, line)
		}
	}
	echo := old
	if n := utf8.RuneCountInString(old); n > maxEcho {
		echo = fmt.Sprintf("%s [... %s]", string([]rune(old)[:maxEcho]), counted(n-maxEcho, "more character"))
	}
	return refuse(NoMatch, "`old_str` was not found in %s, so nothing was written.%s The text that was looked for:\n%s", path, why(data, old), echo)
}

// maxHinted is the largest file that is searched for what was meant, in bytes: each guess rewrites all of it.
const maxHinted = 1 << 20

// why looks for a text that old may have been meant to be, and says how they differ. All rewritings keep lines, so that a line number of
// the rewritten text is one of the file.
func why(data []byte, old string) string {
	if len(data) > maxHinted {
		return ""
	}
	text := strings.ReplaceAll(toLF(strings.TrimPrefix(string(data), bom)), "\r", "")
	plain := strings.ReplaceAll(toLF(old), "\r", "")
	for _, guess := range []struct {
		what     string
		text     string // a rewriting of text ...
		old      string // ... and of old
		possible bool
	}{
		{"Without its carriage returns", text, plain, plain != old},
		{"Without the line numbers of a view", text, unnumbered(plain), true},
		{"Apart from blanks at line ends", trimEnds(text), trimEnds(plain), true},
		{"With line breaks and TABs in place of the characters \\n and \\t", text, unescape(plain), true},
		{"", squeeze(text), squeeze(plain), true},
		{"Apart from upper and lower case", strings.ToLower(text), strings.ToLower(plain), true},
	} {
		if !guess.possible || guess.old == "" || guess.text == text && guess.old == old {
			continue
		}
		line, ok := lineOf(guess.text, guess.old)
		if !ok {
			continue
		}
		if guess.what == "" {
			guess.what = blankDifference(text, plain, line)
		}
		return fmt.Sprintf(" %s it would match on line %d.", guess.what+",", line)
	}
	return ""
}

// blankDifference says how old differs from the lines of text that begin at line, when blanks are all that differs.
func blankDifference(text, old string, line int) string {
	lines := strings.Split(text, "\n")[line-1:]
	there := strings.Join(lines[:min(len(lines), 1+strings.Count(old, "\n"))], "\n")
	switch has, wants := strings.Contains(there, "\t"), strings.Contains(old, "\t"); {
	case has && !wants:
		return "With the file's TABs in place of spaces (TAB versus space)"
	case wants && !has:
		return "With the file's spaces in place of TABs (TAB versus space)"
	}
	return "Apart from the number of blanks"
}

// lineOf is the 1-based line where want starts in text.
func lineOf(text, want string) (int, bool) {
	i := strings.Index(text, want)
	if i < 0 {
		return 0, false
	}
	return 1 + strings.Count(text[:i], "\n"), true
}

// shownAs is what a view shows of a text, so far as a match is concerned.
func shownAs(text string) string {
	var b strings.Builder
	for _, r := range toLF(text) {
		b.WriteRune(r)
	}
	return b.String()
}

func unescape(s string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(s)
}

func unnumbered(s string) string {
	return regexp.MustCompile(`(?m)^ *[0-9]+(\t|  )`).ReplaceAllString(s, "")
}

// perLine rewrites each line.
func perLine(s string, rewrite func([]byte) []byte) string {
	lines := bytes.Split([]byte(s), []byte{'\n'})
	for i, l := range lines {
		lines[i] = rewrite(l)
	}
	return string(bytes.Join(lines, []byte{'\n'}))
}

func trimEnds(s string) string {
	return perLine(s, func(l []byte) []byte { return bytes.TrimRight(l, " \t") })
}

// squeeze takes out blanks and TABs altogether.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '\t' || r == '\u00a0' {
			return -1
		}
		return r
	}, s)
}
