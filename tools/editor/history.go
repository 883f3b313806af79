package editor

import (
	"slices"
	"sync"
)

const (
	// maxSteps and maxHistoryBytes bound one agent's history; the oldest steps go first.
	maxSteps        = 1000
	maxHistoryBytes = 64 << 20
	stepOverhead    = 256 // about what a step costs beside its bytes
)

// step undoes one edit: it finds the edit's result by its hash and puts back the bytes that the edit took.
type step struct {
	path    string // canonical
	created bool   // the edit made the file
	splice         // from the result back to what was before
	size    int    // of the result
	hash    uint64 // of the result
	seq     uint64 // order of edits, true within one file
}

// history holds an agent's steps, oldest first.
type history struct {
	mu    sync.Mutex // a leaf; guards what follows
	steps []step
	bytes int
	seq   uint64
}

// next numbers an edit. It is called inside the file's critical section, so the numbers of one file are in the order of its edits.
func (h *history) next() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	return h.seq
}

// add files a step in its place and drops the oldest over the bounds.
func (h *history) add(s step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.created { // what was there before is gone for good
		h.steps = slices.DeleteFunc(h.steps, func(o step) bool {
			gone := o.path == s.path && o.seq < s.seq
			if gone {
				h.bytes -= o.cost()
			}
			return gone
		})
	}
	i := len(h.steps)
	for i > 0 && h.steps[i-1].seq > s.seq {
		i--
	}
	h.steps = slices.Insert(h.steps, i, s)
	h.bytes += s.cost()
	for len(h.steps) > maxSteps || h.bytes > maxHistoryBytes {
		h.bytes -= h.steps[0].cost()
		h.steps[0] = step{}   // its bytes are wanted back
		h.steps = h.steps[1:] // moved to the front when there is no more room behind
	}
}

// last is the newest step of a file.
func (h *history) last(path string) (step, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.lastLocked(path)
	if i < 0 {
		return step{}, false
	}
	return h.steps[i], true
}

// take removes and returns the newest step of a file, if accept likes it.
func (h *history) take(path string, accept func(step) bool) (step, bool) {
	s, ok := h.last(path)
	if !ok || !accept(s) {
		return s, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.lastLocked(path)
	if i < 0 || h.steps[i].seq != s.seq {
		return s, false
	}
	h.steps = slices.Delete(h.steps, i, i+1)
	h.bytes -= s.cost()
	return s, true
}

func (h *history) lastLocked(path string) int {
	for i := len(h.steps) - 1; i >= 0; i-- {
		if h.steps[i].path == path {
			return i
		}
	}
	return -1
}

func (s step) cost() int { return len(s.text) + len(s.path) + stepOverhead }
