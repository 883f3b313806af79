package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
)

// Opening is the part of a body that a session's later requests begin with too, hashed once for all of them.
type Opening struct {
	bytes, messages int
	body, chain     hash.Cloner // over the bytes, and over the messages as prefix hashes take them
}

// Open says that later requests will begin with the first bytes of p's body, which hold its first messages, as p itself begins with earlier (nil:
// with nothing). p must be complete. Its hashes, and those of requests that go on from it, then cost what is new.
func (p *Prepared) Open(earlier *Opening, bytes, messages int) *Opening {
	if p.openings[0] = earlier; earlier == nil {
		p.openings[0] = &Opening{body: newHash(), chain: newHash()}
		write(p.openings[0].chain, `{"messages":[`)
	}
	p.openings[1] = p.openings[0]
	o := &Opening{bytes: bytes, messages: messages, body: p.bodyHash(bytes), chain: p.chainHash(messages)}
	p.openings[1] = o
	return o
}

// bodyHash is the state after the first n bytes of the body.
func (p *Prepared) bodyHash(n int) hash.Cloner {
	from, h := 0, newHash()
	for _, o := range p.openings {
		if o != nil && o.bytes <= n {
			from, h = o.bytes, o.body
		}
	}
	h = clone(h)
	h.Write(p.Body[from:n])
	return h
}

// chainHash is the state after the first n messages.
func (p *Prepared) chainHash(n int) hash.Cloner {
	from, h := 0, newHash()
	write(h, `{"messages":[`)
	for _, o := range p.openings {
		if o != nil && o.messages <= n {
			from, h = o.messages, o.chain
		}
	}
	h = clone(h)
	for i, m := range p.Messages[from:n] {
		if from+i > 0 {
			write(h, ",")
		}
		h.Write(m)
	}
	return h
}

func newHash() hash.Cloner { return sha256.New().(hash.Cloner) }

func clone(h hash.Cloner) hash.Cloner {
	c, err := h.Clone()
	if err != nil {
		panic(err) // SHA-256 can be cloned
	}
	return c
}

// Kept is what a session keeps of a request that has left: all but the body and what it was made from.
func (p *Prepared) Kept() *Prepared {
	kept := *p
	kept.Body, kept.Request = nil, Request{}
	return &kept
}

// BodySHA256 is the lower-case hex digest of the exact body.
func (p *Prepared) BodySHA256() string {
	return hex.EncodeToString(p.bodyHash(len(p.Body)).Sum(nil))
}

// PrefixSHA256 is the lower-case hex digest of canonical {system, tools, messages[:n]}. n is clamped to the number of messages. A request
// extends an earlier one of n messages exactly if PrefixSHA256(n) equals the earlier one's PrefixSHA256(n).
func (p *Prepared) PrefixSHA256(n int) string {
	n = max(0, min(n, len(p.Messages)))
	h := p.chainHash(n)
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

// CallIDs keeps the ids of calls apart. The zero value knows none.
type CallIDs struct {
	before  []string  // in the order in which they came
	history []Message // the ids of whose calls are taken too
	own     map[string]struct{}
	order   []string // of own
}

// CallIDsOf knows the ids of the calls in a history.
func CallIDsOf(history []Message) *CallIDs { return &CallIDs{history: history} }

// CallIDsAfter knows the ids that an earlier one gave.
func CallIDsAfter(given []string) *CallIDs { return &CallIDs{before: given} }

// Unique returns id, or a variant of it that isn't known, and knows it from then on. An empty id becomes "call".
func (c *CallIDs) Unique(id string) string {
	if id == "" {
		id = "call"
	}
	candidate := id
	for n := 2; c.knows(candidate); n++ {
		candidate = fmt.Sprintf("%s-%d", id, n)
	}
	if c.own == nil {
		c.own = map[string]struct{}{}
	}
	c.own[candidate] = struct{}{}
	c.order = append(c.order, candidate)
	return candidate
}

// Len counts the ids that were given, those before included.
func (c *CallIDs) Len() int { return len(c.before) + len(c.order) }

// First lists the first n of them, in order.
func (c *CallIDs) First(n int) []string {
	if n <= len(c.before) {
		return c.before[:n:n]
	}
	return slices.Concat(c.before, c.order[:n-len(c.before)])
}

func (c *CallIDs) knows(id string) bool {
	if _, ok := c.own[id]; ok || slices.Contains(c.before, id) {
		return true
	}
	for _, m := range c.history {
		for _, b := range m.Content {
			if b.Type == BlockToolCall && b.ID == id {
				return true
			}
		}
	}
	return false
}
