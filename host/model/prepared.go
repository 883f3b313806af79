package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// BodySHA256 is the lower-case hex digest of the exact body.
func (p *Prepared) BodySHA256() string {
	sum := sha256.Sum256(p.Body)
	return hex.EncodeToString(sum[:])
}

// PrefixSHA256 is the lower-case hex digest of canonical {system, tools, messages[:n]}. n is clamped to the number of messages. A request
// extends an earlier one of n messages exactly if PrefixSHA256(n) equals the earlier one's PrefixSHA256(n).
func (p *Prepared) PrefixSHA256(n int) string {
	n = max(0, min(n, len(p.Messages)))
	h := sha256.New()
	write(h, `{"messages":[`)
	for i, m := range p.Messages[:n] {
		if i > 0 {
			write(h, ",")
		}
		h.Write(m)
	}
	write(h, `],"system":`)
	h.Write(orNull(p.System))
	write(h, `,"tools":`)
	h.Write(orNull(p.Tools))
	write(h, "}")
	return hex.EncodeToString(h.Sum(nil))
}

func write(h hash.Hash, s string) { h.Write([]byte(s)) }

func orNull(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("null")
	}
	return raw
}

// Extends says whether p's prompt begins with all of prev's, and if not, where it first differs: "encoder", "system", "tools", or
// "messages[i]". A first request (prev nil) extends nothing and everything: it is true.
func (p *Prepared) Extends(prev *Prepared) (ok bool, divergesAt string) {
	switch {
	case prev == nil:
		return true, ""
	case p.Encoder != prev.Encoder:
		return false, "encoder"
	case !bytes.Equal(p.System, prev.System):
		return false, "system"
	case !bytes.Equal(p.Tools, prev.Tools):
		return false, "tools"
	}
	for i, m := range prev.Messages {
		if i >= len(p.Messages) || !bytes.Equal(m, p.Messages[i]) {
			return false, fmt.Sprintf("messages[%d]", i)
		}
	}
	return true, ""
}

// UniqueCallID returns id, or a variant of it that isn't in used, and adds it there. An empty id becomes "call".
func UniqueCallID(id string, used map[string]struct{}) string {
	if id == "" {
		id = "call"
	}
	candidate := id
	for n := 2; ; n++ {
		if _, taken := used[candidate]; !taken {
			used[candidate] = struct{}{}
			return candidate
		}
		candidate = fmt.Sprintf("%s-%d", id, n)
	}
}

// CallIDs collects the ids of the calls in a history, so that new ones can be kept apart from them.
func CallIDs(messages []Message) map[string]struct{} {
	used := map[string]struct{}{}
	for _, m := range messages {
		for _, b := range m.Content {
			if b.Type == BlockToolCall {
				used[b.ID] = struct{}{}
			}
		}
	}
	return used
}
