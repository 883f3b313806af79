package editor

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestHistoryBounds keeps an agent's history within its bounds and gives up the oldest steps first.
func TestHistoryBounds(t *testing.T) {
	big := make([]byte, 8<<20)
	count := func(h *history, path string) (n int) {
		for last := h.seq + 1; ; n++ {
			s, ok := h.take(path, func(step) bool { return true })
			if !ok {
				return n
			}
			if s.seq >= last {
				t.Errorf("step %d after step %d", s.seq, last)
			}
			last = s.seq
		}
	}
	var h history
	for range 12 {
		h.add(step{path: "/f", splice: splice{text: big}, seq: h.next()})
	}
	if n := count(&h, "/f"); n != 7 { // 64 MiB hold seven pieces of 8 MiB and what belongs to them
		t.Errorf("%d large steps", n)
	}
	for i := range 2 * maxSteps {
		h.add(step{path: fmt.Sprint("/", i%2), seq: h.next()})
	}
	if a, b := count(&h, "/0"), count(&h, "/1"); a+b != maxSteps || a != b {
		t.Errorf("%d and %d small steps", a, b)
	}
	if h.bytes != 0 || len(h.steps) != 0 {
		t.Errorf("%d bytes, %d steps left", h.bytes, len(h.steps))
	}
}

// TestHistoryOrder files steps in the order of their edits, however late they are filed.
func TestHistoryOrder(t *testing.T) {
	var h history
	const n = 50
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		h.add(step{path: "/f", seq: uint64(i)})
	}
	for i := n - 1; i >= 0; i-- {
		if _, ok := h.take("/f", func(s step) bool { return s.seq == 999 }); ok {
			t.Fatal("took what was not accepted")
		}
		if s, ok := h.take("/f", func(step) bool { return true }); !ok || s.seq != uint64(i) {
			t.Fatalf("step %d, want %d", s.seq, i)
		}
	}
}

// TestHistoryCreated forgets what came before a file was made, and only that.
func TestHistoryCreated(t *testing.T) {
	var h history
	h.add(step{path: "/f", seq: 1})
	h.add(step{path: "/g", seq: 2})
	h.add(step{path: "/f", seq: 4})
	h.add(step{path: "/f", created: true, seq: 3})
	for _, want := range []uint64{4, 3} {
		if s, ok := h.take("/f", func(step) bool { return true }); !ok || s.seq != want {
			t.Errorf("step %d, %v", s.seq, ok)
		}
	}
	if s, ok := h.last("/f"); ok {
		t.Errorf("step %d is left", s.seq)
	}
	if s, ok := h.last("/g"); !ok || s.seq != 2 {
		t.Errorf("step %d, %v", s.seq, ok)
	}
}
