package rpc

import (
	"io"
	"sync"
)

// output is the one writer of frames. Whole frames only, in the order of the calls; a slow reader slows its writers, nothing is queued here.
type output struct {
	w    io.WriteCloser
	slot chan struct{} // one: whoever has it writes

	once sync.Once
	gone chan struct{} // closed when nothing can be written any more
}

func newOutput(w io.WriteCloser) *output {
	return &output{w: w, slot: make(chan struct{}, 1), gone: make(chan struct{})}
}

// write sends frames. False says that nobody gets them any more.
func (o *output) write(frames []byte) bool {
	select {
	case o.slot <- struct{}{}:
	case <-o.gone:
		return false
	}
	defer func() { <-o.slot }()
	select {
	case <-o.gone:
		return false
	default:
	}
	if _, err := o.w.Write(frames); err != nil {
		o.stop()
		return false
	}
	return true
}

// stop refuses further frames and ends a write that is stuck.
func (o *output) stop() {
	o.once.Do(func() {
		close(o.gone)
		_ = o.w.Close() // nobody is left to hear of it
	})
}
