package bash

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed notices.md
var noticesText string

// notices are the texts of notices.md by heading.
type notices map[string]string

func parseNotices(text string) notices {
	n := notices{}
	for i, part := range strings.Split(text, "\n## ") {
		if i == 0 {
			continue
		}
		name, body, _ := strings.Cut(part, "\n")
		n[name] = strings.TrimSpace(body)
	}
	return n
}

// text is a notice with its values: name, value, name, value. What is inserted isn't read again.
func (n notices) text(name string, values ...any) string {
	pairs := make([]string, 0, len(values))
	for i := 0; i+1 < len(values); i += 2 {
		pairs = append(pairs, fmt.Sprintf("{{%v}}", values[i]), fmt.Sprint(values[i+1]))
	}
	return strings.NewReplacer(pairs...).Replace(n[name])
}
