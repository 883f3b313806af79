package proc

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// Tag marks the processes of one agent. Its highest bit says how deeply hosts are nested in each other, the bits above agentBits name the
// host process, the rest one agent of it. The zero Tag marks nothing.
type Tag uint64

const (
	agentBits = 24
	// topBit is the level of a host that no other host started; a host inside an agent's shell takes the next lower bit, since a hard limit
	// can only be lowered. Eight levels still leave 31 bits for the instance.
	topBit    = 62
	lowestBit = topBit - 7
	// infinity is the limit of a process that nobody tagged.
	infinity = ^uint64(0)
)

// space is the set of tags of one instance: all values from base to base|agent mask.
type space struct {
	base Tag
}

func newSpace(top int) (space, error) {
	if top < lowestBit {
		return space{}, fmt.Errorf("choose process tags: hosts are nested too deeply, at most %d levels", topBit-lowestBit+1)
	}
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return space{}, fmt.Errorf("choose process tags: %w", err)
	}
	id := binary.LittleEndian.Uint64(raw[:]) & (1<<(top-agentBits) - 1)
	return space{base: Tag(1)<<top | Tag(id)<<agentBits}, nil
}

// topFor is the level to use for a host whose own hard limit is limit.
func topFor(limit uint64) (int, error) {
	if limit == infinity || limit > 1<<63 {
		return topBit, nil
	}
	if t := Tag(limit); t.valid() {
		return t.top() - 1, nil
	}
	if limit >= 1<<(topBit+1) {
		return topBit, nil
	}
	return 0, fmt.Errorf("choose process tags: the limit of file locks is %d; tags need it to be unlimited (ulimit -x)", limit)
}

func (s space) has(t Tag) bool { return s.base != 0 && t&^(1<<agentBits-1) == s.base }

func (s space) agent(n uint32) Tag { return s.base | Tag(n) }

func (s space) String() string { return strconv.FormatUint(uint64(s.base), 10) }

func parseSpace(text string) (space, error) {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return space{}, fmt.Errorf("read process tags: %w", err)
	}
	s := space{base: Tag(v)}
	if !s.base.valid() || v&(1<<agentBits-1) != 0 {
		return space{}, fmt.Errorf("read process tags: %d is none", v)
	}
	return s, nil
}

// top is the position of the highest bit.
func (t Tag) top() int { return bits.Len64(uint64(t)) - 1 }

func (t Tag) valid() bool { return t.top() >= lowestBit && t.top() <= topBit }

func (t Tag) space() space { return space{base: t &^ (1<<agentBits - 1)} }

// String is t as `ulimit -x` takes it.
func (t Tag) String() string { return strconv.FormatUint(uint64(t), 10) }

// Wrap returns argv behind a bash that tags itself and then becomes argv: for one-shot commands, which could fork before their starter
// gets to Apply. Nothing of argv is read by that shell.
func (t Tag) Wrap(argv []string) []string {
	head := []string{"/bin/bash", "--noprofile", "--norc", "-c", `ulimit -x ` + t.String() + ` || exit 126; exec -- "$@"`, "bash"}
	return append(head, argv...)
}
