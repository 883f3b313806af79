package session

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// searchedText bounds what the search keeps of one message, in bytes.
const searchedText = 64 << 10

// FoldText maps text so that a plain substring search ignores case in every script: each rune becomes the first of its case orbit. Stores
// keep folded text, and queries are folded the same way.
func FoldText(s string) string {
	if len(s) > searchedText {
		cut := searchedText
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
