package session

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/model"
)

// searchedBytes bounds what the search keeps of one message, in bytes.
const searchedBytes = 64 << 10

// SearchedText is what the search finds of an event, as it was written; "" for most events. A title isn't part of it, since only the last
// one counts.
func SearchedText(e Event) string {
	switch e.Type {
	case (UserMessage{}).EventType():
		if p, err := decode[UserMessage](e.Data); err == nil {
			return searchedText(p)
		}
	case (AssistantMessage{}).EventType():
		if p, err := decode[AssistantMessage](e.Data); err == nil {
			return searchedText(p)
		}
	}
	return ""
}

func searchedText(p Payload) string {
	switch p := p.(type) {
	case UserMessage:
		if p.Source.Kind == model.SourceUser {
			return p.Text()
		}
	case AssistantMessage:
		return p.Message.Text()
	}
	return ""
}

// FoldText maps text so that a plain substring search ignores case in every script: each rune becomes the first of its case orbit. Stores
// keep folded text, and queries are folded the same way.
func FoldText(s string) string {
	if len(s) > searchedBytes {
		cut := searchedBytes
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			if 'a' <= r && r <= 'z' {
				return r - 'a' + 'A'
			}
			return r
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}
