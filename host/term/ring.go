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
	r.end += int64(len(p))
	for len(p) > 0 {
		last := len(r.pieces) - 1
		if last < 0 || len(r.pieces[last]) == pieceSize {
			r.pieces = append(r.pieces, r.pieceLocked(len(p)))
			last++
		}
		piece := r.pieces[last]
		n := min(pieceSize-len(piece), len(p))
		r.pieces[last] = append(piece, p[:n]...)
		p = p[n:]
	}
	r.trimLocked()
	r.tellLocked()
}

// pieceLocked returns an empty piece: the oldest one again when that is over the limit anyway.
func (r *ring) pieceLocked(need int) []byte {
	if len(r.pieces) > 1 && r.lenLocked() > r.limit {
		p := r.pieces[0]
		r.start += int64(len(p))
		copy(r.pieces, r.pieces[1:])
		r.pieces = r.pieces[:len(r.pieces)-1]
		return p[:0]
	}
	if len(r.pieces) == 0 && need < pieceSize {
		return make([]byte, 0, min(pieceSize, max(need, 256))) // a first piece grows by append
	}
	return make([]byte, 0, pieceSize)
}

func (r *ring) lenLocked() int {
	n := 0
	for _, p := range r.pieces {
		n += len(p)
	}
	return n
}

func (r *ring) trimLocked() {
	n := r.lenLocked()
	drop := 0
	for drop < len(r.pieces)-1 && n-len(r.pieces[drop]) >= r.limit {
		n -= len(r.pieces[drop])
		r.start += int64(len(r.pieces[drop]))
		drop++
	}
	if drop > 0 {
		kept := copy(r.pieces, r.pieces[drop:])
		clear(r.pieces[kept:])
		r.pieces = r.pieces[:kept]
	}
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
