// Package replay records model traffic and plays it back. Both are round trippers under any HTTP provider.
//
// A recording is a file of JSON lines, one per call, each with the canonical digest and body of the request and the exact bytes of the
// response with their times. It holds no credential: request headers aren't recorded.
package replay

import (
	"errors"
	"io"
	"net/http"
)

// Annotate marks a request with its session and call. Give it to an adapter whose transport is a Recorder or a Player.
func Annotate(r *http.Request, session string, call int) *http.Request { return r }

// Recorder passes requests on and writes each finished call to a writer.
type Recorder struct{}

// NewRecorder records what goes through next to w, one line a call. Writes are serialised.
func NewRecorder(next http.RoundTripper, w io.Writer) *Recorder { return &Recorder{} }

// RoundTrip implements http.RoundTripper.
func (rec *Recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, errors.New("replay: not written yet")
}

// Options of playing.
type Options struct {
	// Lenient answers a request that differs from the recorded one all the same; Drifts tells.
	Lenient bool
	// Timed keeps the recorded times between pieces; else everything is played at once.
	Timed bool
}

// Player answers requests from a recording.
type Player struct{}

// NewPlayer reads a recording.
func NewPlayer(r io.Reader, o Options) (*Player, error) { return &Player{}, nil }

// RoundTrip answers from the recording. A request that differs is a *DriftError, one more than recorded a *ExtraCallError.
func (p *Player) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, errors.New("replay: not written yet")
}

// Finish reports calls that were recorded and not asked for, as a *MissingCallsError.
func (p *Player) Finish() error { return nil }

// Drifts lists the differences that a lenient player let pass.
func (p *Player) Drifts() []*DriftError { return nil }

// DriftError is a request that differs from the recorded one.
type DriftError struct {
	Session string
	Call    int
	// Fields lists what differs, as "path: recorded -> sent".
	Fields []string
}

// Error names the call and the first differences.
func (e *DriftError) Error() string { return "" }

// ExtraCallError is a call that the recording doesn't hold.
type ExtraCallError struct {
	Session string
	Call    int
}

// Error names call and session.
func (e *ExtraCallError) Error() string { return "" }

// MissingCallsError lists recorded calls that nobody made.
type MissingCallsError struct{ Calls []string }

// Error lists them.
func (e *MissingCallsError) Error() string { return "" }
