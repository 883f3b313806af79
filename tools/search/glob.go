package search

import (
	"errors"
	"path"
	"regexp"
	"strings"
)

// glob makes a matcher of paths below the top. * and ? stay within a name, ** does not, [...] is one of some characters, {a,b} one of
// some texts. Without a slash only the name counts. An empty glob matches everything.
func glob(pattern string) (func(string) bool, error) {
	if pattern == "" {
		return func(string) bool { return true }, nil
	}
	nameOnly := !strings.Contains(pattern, "/")
	var out strings.Builder
	out.WriteString("^")
	depth := 0
	for rest := strings.TrimPrefix(pattern, "/"); rest != ""; {
		n := 1
		switch {
		case strings.HasPrefix(rest, "**/"):
			out.WriteString("(?:.*/)?")
			n = 3
		case strings.HasPrefix(rest, "**"):
			out.WriteString(".*")
			n = 2
		case rest[0] == '*':
			out.WriteString("[^/]*")
		case rest[0] == '?':
			out.WriteString("[^/]")
		case rest[0] == '[':
			end := strings.IndexByte(rest[1:], ']')
			if end < 1 {
				return nil, errors.New("a [ without its ]")
			}
			set := strings.NewReplacer(`\`, `\\`, "[", `\[`).Replace(rest[1 : end+1])
			if set[0] == '!' {
				set = "^/" + set[1:]
			}
			out.WriteString("[" + set + "]")
			n = end + 2
		case rest[0] == '{':
			depth++
			out.WriteString("(?:")
		case rest[0] == '}' && depth > 0:
			depth--
			out.WriteString(")")
		case rest[0] == ',' && depth > 0:
			out.WriteString("|")
		default:
			for n < len(rest) && !strings.ContainsRune(`*?[{},`, rune(rest[n])) {
				n++
			}
			out.WriteString(regexp.QuoteMeta(rest[:n]))
		}
		rest = rest[n:]
	}
	if depth > 0 {
		return nil, errors.New("a { without its }")
	}
	out.WriteString("$")
	re, err := regexp.Compile(out.String())
	if err != nil {
		return nil, errors.New("its [...] can't be read")
	}
	return func(below string) bool {
		if nameOnly {
			below = path.Base(below)
		}
		return re.MatchString(below)
	}, nil
}
