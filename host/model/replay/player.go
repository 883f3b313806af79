package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of playing.
type Options struct {
	// Lenient answers a request that differs from the recorded one all the same; Drifts tells.
	Lenient bool
	// Timed keeps the recorded times between pieces; else everything is played at once.
	Timed bool
	// Report hears of every *DriftError, also one that is let pass, and every *ExtraCallError, when it is met. Nil drops them.
	Report func(error)
}

// Player answers requests from a recording, each session's in the order in which they were recorded. It is safe for concurrent use.
type Player struct {
	options Options
	lines   []Line
	byKey   map[Key]Line

	mu     sync.Mutex
	next   map[string]int // by session: the call that answers its next request; 0 before its first answer
	met    map[Key]bool   // asked for, answered or not, or passed over
	drifts []*DriftError
}

// NewPlayer reads a recording. Every line must be whole: of this version, with the digest of its request, and the only one of its call.
func NewPlayer(r io.Reader, o Options) (*Player, error) {
	lines, err := readLines(r)
	if err != nil {
		return nil, err
	}
	p := &Player{options: o, lines: lines, byKey: map[Key]Line{}, next: map[string]int{}, met: map[Key]bool{}}
	for _, line := range lines {
		p.byKey[line.Key] = line
	}
	return p, nil
}

// Lines lists the recorded calls in the order of the file.
func (p *Player) Lines() []Line { return slices.Clone(p.lines) }

// URL is where the first recorded call went. An adapter that takes it for its base URL speaks the dialect that was recorded.
func (p *Player) URL() string { return p.lines[0].URL }

// Sessions lists the recorded sessions in the order of their first call.
func (p *Player) Sessions() []string {
	var out []string
	for _, line := range p.lines {
		if !slices.Contains(out, line.Session) {
			out = append(out, line.Session)
		}
	}
	return out
}

// RoundTrip answers from the recording. A request that differs is a *DriftError, one more than recorded an *ExtraCallError.
func (p *Player) RoundTrip(r *http.Request) (*http.Response, error) {
	r, body, err := withBody(r)
	if err != nil {
		return nil, err
	}
	sent := newLine(Key{Session: sessionOf(r)}, r, body)
	line, drift, err := p.take(sent)
	if p.options.Report != nil && (drift != nil || err != nil) {
		if err == nil {
			p.options.Report(drift)
		} else {
			p.options.Report(err)
		}
	}
	if err != nil {
		return nil, err
	}
	if line.Status == 0 {
		return nil, errors.New(line.Error)
	}
	played := &playing{ctx: r.Context(), began: time.Now(), timed: p.options.Timed, pieces: line.Pieces, end: io.EOF}
	if line.Error != "" || line.Closed {
		played.end = io.ErrUnexpectedEOF
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", line.Status, http.StatusText(line.Status)), StatusCode: line.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header(line.Header).Clone(), Body: played, ContentLength: -1, Request: r,
	}, nil
}

// take gives the recorded call that answers sent, and in which way the two differ where that is let pass. A request that isn't answered keeps
// its place: the session's next one is compared with the same call.
func (p *Player) take(sent Line) (line Line, drift *DriftError, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := Key{sent.Session, max(1, p.next[sent.Session])}
	if p.next[sent.Session] == 0 {
		key.Call = p.begin(sent)
	}
	line, ok := p.byKey[key]
	if !ok {
		return Line{}, nil, &ExtraCallError{key}
	}
	p.met[key] = true
	if line.Digest != sent.Digest {
		drift = &DriftError{Key: key, Fields: Diff(line.Request, sent.Request)}
		if !p.options.Lenient {
			return Line{}, nil, drift
		}
		p.drifts = append(p.drifts, drift)
	}
	p.next[key.Session] = key.Call + 1
	return line, drift, nil
}

// begin finds the call that a session's first request is: the first one, unless a later one was exactly this request. Then the session is one
// that another process has played so far, and what comes before was made there.
func (p *Player) begin(sent Line) int {
	first := 0
	for key, line := range p.byKey {
		if key.Session == sent.Session && line.Digest == sent.Digest && (first == 0 || key.Call < first) {
			first = key.Call
		}
	}
	for call := 1; call < first; call++ {
		p.met[Key{sent.Session, call}] = true
	}
	return max(1, first)
}

// Finish reports calls that were recorded and not asked for, as a *MissingCallsError.
func (p *Player) Finish() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var missing []Key
	for _, line := range p.lines {
		if !p.met[line.Key] {
			missing = append(missing, line.Key)
		}
	}
	if missing == nil {
		return nil
	}
	return &MissingCallsError{missing}
}

// Drifts lists the differences that a lenient player let pass.
func (p *Player) Drifts() []*DriftError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.drifts)
}

// DriftError is a request that differs from the recorded one.
type DriftError struct {
	Key
	// Fields lists what differs, as "path: recorded -> sent".
	Fields []string
}

// Error names the call and what differs.
func (e *DriftError) Error() string {
	return fmt.Sprintf("replay: %s differs from the recording:\n  %s", e.Key, strings.Join(e.Fields, "\n  "))
}

// Permanent says that another attempt would end alike, so that adapters don't have it retried.
func (e *DriftError) Permanent() bool { return true }

// ExtraCallError is a call that the recording doesn't hold.
type ExtraCallError struct{ Key }

// Error names call and session.
func (e *ExtraCallError) Error() string {
	return fmt.Sprintf("replay: %s isn't in the recording", e.Key)
}

// Permanent says that another attempt would end alike.
func (e *ExtraCallError) Permanent() bool { return true }

// MissingCallsError lists recorded calls that nobody made.
type MissingCallsError struct{ Calls []Key }

// Error lists them.
func (e *MissingCallsError) Error() string {
	names := make([]string, len(e.Calls))
	for i, k := range e.Calls {
		names[i] = k.String()
	}
	counted := "1 recorded call was"
	if len(names) != 1 {
		counted = fmt.Sprintf("%d recorded calls were", len(names))
	}
	return fmt.Sprintf("replay: %s never made: %s", counted, strings.Join(names, "; "))
}

// String names the call and its session.
func (k Key) String() string { return fmt.Sprintf("call %d of session %q", k.Call, k.Session) }

// playing is the body of a played response. A read gives at most one piece, so borders are as recorded.
type playing struct {
	ctx    context.Context // the request's
	began  time.Time
	timed  bool
	pieces []Piece
	rest   []byte
	end    error
}

func (b *playing) Read(dst []byte) (int, error) {
	for len(b.rest) == 0 {
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		if len(b.pieces) == 0 {
			return 0, b.end
		}
		if err := b.wait(b.pieces[0].Ms); err != nil {
			return 0, err
		}
		b.rest, b.pieces = b.pieces[0].bytes(), b.pieces[1:]
	}
	n := copy(dst, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *playing) wait(ms float64) error {
	if !b.timed {
		return nil
	}
	timer := time.NewTimer(time.Duration(ms*float64(time.Millisecond)) - time.Since(b.began))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

func (b *playing) Close() error { return nil }
