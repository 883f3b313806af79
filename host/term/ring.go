package term

import "sync"

const (
	pieceSize = 4 << 10
	ringBusy  = 256 << 10 // bytes kept while a call runs or somebody watches
	ringIdle  = 32 << 10
)

// ring keeps the newest output for viewers under absolute offsets. It grows by pieces, so a shell that printed little costs little.
type ring struct {
	mu     sync.Mutex
	pieces [][]byte // all full but the last
	start  int64    // offset of the first byte of pieces
	end    int64
	limit  int
	news   chan struct{} // closed at the next change; nil while nobody asked
}

// write appends p and drops what is over the limit.
func (r *ring) write(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if over := len(p) - r.limit; over > 0 {
		r.pieces, r.start, r.end = nil, r.end+int64(over), r.end+int64(over)
		p = p[over:]
	}
	for len(p) > 0 {
		if n := len(r.pieces); n == 0 || len(r.pieces[n-1]) == pieceSize {
			r.pieces = append(r.pieces, r.pieceLocked(len(p)))
		}
		last := &r.pieces[len(r.pieces)-1]
		n := min(pieceSize-len(*last), len(p))
		*last = append(*last, p[:n]...)
		r.end += int64(n)
		p = p[n:]
	}
	r.trimLocked()
	r.tellLocked()
}

// pieceLocked returns an empty piece: the oldest one again when the ring does without it.
func (r *ring) pieceLocked(need int) []byte {
	if len(r.pieces) == 0 {
		return make([]byte, 0, min(pieceSize, max(need, 256))) // a first piece grows by append
	}
	if p := r.pieces[0]; cap(p) == pieceSize && r.end-r.start-int64(len(p)) >= int64(r.limit) {
		r.dropLocked(1)
		return p[:0]
	}
	return make([]byte, 0, pieceSize)
}

func (r *ring) trimLocked() {
	n, drop := r.end-r.start, 0
	for drop < len(r.pieces)-1 && n-int64(len(r.pieces[drop])) >= int64(r.limit) {
		n -= int64(len(r.pieces[drop]))
		drop++
	}
	r.dropLocked(drop)
}

// dropLocked forgets the oldest pieces.
func (r *ring) dropLocked(count int) {
	for _, p := range r.pieces[:count] {
		r.start += int64(len(p))
	}
	kept := copy(r.pieces, r.pieces[count:])
	clear(r.pieces[kept:])
	r.pieces = r.pieces[:kept]
}

func (r *ring) tellLocked() {
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// tell wakes the watchers without output: something else about the shell changed.
func (r *ring) tell() {
	r.mu.Lock()
	r.tellLocked()
	r.mu.Unlock()
}

func (r *ring) resize(limit int) {
	r.mu.Lock()
	r.limit = limit
	r.trimLocked()
	r.mu.Unlock()
}

func (r *ring) changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return r.news
}

func (r *ring) readAt(offset int64, p []byte) (n int, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at = min(max(offset, r.start), r.end)
	skip := at - r.start
	for _, piece := range r.pieces {
		if skip >= int64(len(piece)) {
			skip -= int64(len(piece))
			continue
		}
		n += copy(p[n:], piece[skip:])
		skip = 0
		if n == len(p) {
			break
		}
	}
	return n, at
}

func (r *ring) offset() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}
