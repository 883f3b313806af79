package editor

import "bytes"

const (
	sampledBlocks = 16
	sampledBlock  = 256 // bytes
)

// needle is a text to look for. bytes.Index begins at a text's first bytes, which in a program are mostly blanks or the word that every
// line begins with; a needle begins at the one of its bytes that the file has least of.
type needle struct {
	text   []byte
	anchor int // offset of the rare byte
}

func newNeedle(text, data []byte) needle {
	var seen [256]uint16
	for i := range sampledBlocks {
		from := len(data) / sampledBlocks * i
		for _, b := range data[from:min(from+sampledBlock, len(data))] {
			seen[b]++
		}
	}
	n := needle{text: text}
	for i, b := range text {
		if seen[b] < seen[text[n.anchor]] {
			n.anchor = i
		}
	}
	return n
}

// index is where the text begins in data, -1 for nowhere. It looks at each byte about once, however many places begin like the text.
func (n needle) index(data []byte) int {
	misses := 0
	rare, behind := n.text[n.anchor], len(n.text)-n.anchor
	for at := n.anchor; at+behind <= len(data); at++ {
		i := bytes.IndexByte(data[at:len(data)-behind+1], rare)
		if i < 0 {
			return -1
		}
		at += i
		start := at - n.anchor
		if data[start] == n.text[0] && bytes.Equal(data[start:start+len(n.text)], n.text) {
			return start
		}
		if misses++; misses > 32+at/16 { // not so rare
			if i = bytes.Index(data[start+1:], n.text); i < 0 {
				return -1
			}
			return start + 1 + i
		}
	}
	return -1
}
