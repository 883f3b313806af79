package web

import (
	"encoding/json"
	"math"
	"sync"
	"weak"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web/socket"
)

// framesBytes is how much goes out in one write: many small events, or one of any size.
const framesBytes = 32 << 10

// runBytes is how much is read at first; each further read of one catching up takes twice as much, up to a page. Who comes back every moment
// throws away most of what was read for it.
const runBytes = 64 << 10

// framed is a run of events as the stream sends them. It is made once and sent to all who stand at its cursor; nobody changes it.
type framed struct {
	after  int64
	pieces []piece
	// turn and step are the last whose message is in it; live text up to it is of the past. Zero says nothing.
	turn, step int
}

// piece is some whole frames for one write, up to the event last.
type piece struct {
	frames []byte
	last   int64
}

// newFramed encodes a page that isn't empty.
func newFramed(id string, after int64, page session.Page) *framed {
	head := append(appendString([]byte(`{"type":"event","session":`), id), `,"event":`...)
	f := &framed{after: after}
	for from := 0; from < len(page.Events); {
		size, to := 0, from
		for to < len(page.Events) && (to == from || size+len(page.Encoded[to]) <= framesBytes) {
			size += len(page.Encoded[to]) + len(head) + 16
			to++
		}
		b := make([]byte, 0, size)
		for _, e := range page.Encoded[from:to] {
			b = socket.AppendHeader(b, false, len(head)+len(e)+1)
			b = append(append(append(b, head...), e...), '}')
		}
		f.pieces = append(f.pieces, piece{frames: b, last: page.Events[to-1].Seq})
		from = to
	}
	for i := len(page.Events) - 1; i >= 0; i-- { // only the last one counts
		e := page.Events[i]
		if e.Type != (session.AssistantMessage{}).EventType() && e.Type != (session.TurnEnd{}).EventType() {
			continue
		}
		var at struct {
			Turn int `json:"turn"`
			Step int `json:"step"`
		}
		if json.Unmarshal(e.Data, &at) == nil {
			if at.Step == 0 { // the end of a turn settles all its steps
				at.Step = math.MaxInt
			}
			f.turn, f.step = at.Turn, at.Step
		}
		break
	}
	return f
}

// shelf keeps for each session that is followed the newest run of events that was framed, as long as somebody sends it. What it gives is a
// beginning: whoever finds nothing on it reads the log.
type shelf struct {
	mu       sync.Mutex
	sessions map[*session.Log]*shelved // by log: an id may be given again
}

// shelved is guarded by the shelf's mutex.
type shelved struct {
	followers int
	after     int64
	newest    weak.Pointer[framed]
}

// follow counts a follower in until leave is called.
func (s *shelf) follow(log *session.Log) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		s.sessions = map[*session.Log]*shelved{}
	}
	if s.sessions[log] == nil {
		s.sessions[log] = &shelved{after: -1}
	}
	s.sessions[log].followers++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sessions[log].followers--; s.sessions[log].followers == 0 {
			delete(s.sessions, log)
		}
	}
}

// at gives the run that begins after a cursor, or nil. Only followers ask.
func (s *shelf) at(log *session.Log, after int64) *framed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.sessions[log]; k.after == after {
		return k.newest.Value()
	}
	return nil
}

// put offers a run to the others.
func (s *shelf) put(log *session.Log, f *framed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.sessions[log]; f.after >= k.after {
		k.after, k.newest = f.after, weak.Make(f)
	}
}
