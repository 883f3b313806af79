// Package replay records model traffic and plays it back. Both are round trippers under any HTTP provider. A provider that isn't one, like the
// demo's script, leaves nothing to record.
//
// A recording is a file of JSON lines, one per call, in the order in which the calls ended: the session and call it belongs to, the canonical
// body of the request with its digest, and the exact bytes of the response in the pieces and at the times in which they came. It holds no
// credential: no request header and no query is recorded.
package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// sessionKey files the session of a request in its context. An HTTP request has no other place that doesn't go over the wire.
type sessionKey struct{}

// Key names a call.
type Key struct {
	Session string `json:"session"`
	Call    int    `json:"call"` // of the session, from 1 in the order in which the calls began
}

// Annotate marks a request with its session. Give it to an adapter whose transport is a Recorder or a Player. Those number a session's requests
// themselves, from 1 in order of arrival: the caller's number begins anew whenever its agent does. Requests without a mark belong to a session
// without a name.
func Annotate(r *http.Request, session string, _ int) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), sessionKey{}, session))
}

func sessionOf(r *http.Request) string {
	session, _ := r.Context().Value(sessionKey{}).(string)
	return session
}

// Line is one recorded call.
type Line struct {
	Version int `json:"v"`
	Key
	Method string `json:"method"`
	URL    string `json:"url"` // without user, query and fragment
	// Digest is the lower-case hex SHA-256 of Request.
	Digest string `json:"digest"`
	// Request is the canonical body: keys sorted, no white space. A body that isn't JSON is a JSON string of its bytes.
	Request json.RawMessage     `json:"request"`
	Status  int                 `json:"status,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Pieces  []Piece             `json:"pieces,omitempty"`
	// Error is how the connection failed: before the headers when Status is 0, else after the pieces.
	Error string `json:"error,omitempty"`
	// Closed says that the reader stopped before the end.
	Closed bool `json:"closed,omitempty"`
}

// Piece is what one read gave.
type Piece struct {
	Ms   float64 `json:"ms"` // since the request was sent
	Text string  `json:"text,omitempty"`
	Data []byte  `json:"data,omitempty"` // base64, where the piece isn't UTF-8
}

func (p Piece) bytes() []byte {
	if p.Data != nil {
		return p.Data
	}
	return []byte(p.Text)
}

const version = 1

// kept are the response headers that adapters look at.
func kept(name string) bool {
	return slices.Contains([]string{"Content-Type", "Retry-After", "Retry-After-Ms", "X-Request-Id", "Request-Id", "Location"}, name)
}

// Recorder passes requests on and writes each finished call to a writer. It is safe for concurrent use.
type Recorder struct {
	next http.RoundTripper
	keys numbering

	mu      sync.Mutex
	out     io.Writer
	written int // calls
	err     error
}

// NewRecorder records what goes through next to w, one line and one write a call. Writes are serialised. A call is recorded when its response
// is read to the end or closed.
func NewRecorder(next http.RoundTripper, w io.Writer) *Recorder { return &Recorder{next: next, out: w} }

// Err is the first failure of the writer. Calls go on after one, unrecorded.
func (rec *Recorder) Err() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.err
}

// Written counts the calls that were written.
func (rec *Recorder) Written() int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.written
}

// RoundTrip implements http.RoundTripper.
func (rec *Recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	r, body, err := withBody(r)
	if err != nil {
		return nil, err
	}
	line := newLine(rec.keys.of(r), r, body)
	began := time.Now()
	resp, err := rec.next.RoundTrip(r)
	if err != nil {
		line.Error = err.Error()
		rec.write(line)
		return nil, err
	}
	line.Status = resp.StatusCode
	for name, values := range resp.Header {
		if kept(name) {
			if line.Header == nil {
				line.Header = map[string][]string{}
			}
			line.Header[name] = values
		}
	}
	resp.Body = &recording{rec: rec, line: line, src: resp.Body, began: began}
	return resp, nil
}

func (rec *Recorder) write(line Line) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(line)
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.err != nil {
		return
	}
	if err == nil {
		_, err = rec.out.Write(buf.Bytes())
	}
	if err != nil {
		rec.err = fmt.Errorf("record model call: %w", err)
		return
	}
	rec.written++
}

// recording is a response body that notes what is read from it.
type recording struct {
	rec   *Recorder
	line  Line
	src   io.ReadCloser
	began time.Time
	done  bool
}

func (b *recording) Read(p []byte) (int, error) {
	n, err := b.src.Read(p)
	if n > 0 {
		piece := Piece{Ms: float64(time.Since(b.began).Microseconds()) / 1000}
		if utf8.Valid(p[:n]) {
			piece.Text = string(p[:n])
		} else {
			piece.Data = bytes.Clone(p[:n])
		}
		b.line.Pieces = append(b.line.Pieces, piece)
	}
	if err != nil {
		if err != io.EOF {
			b.line.Error = err.Error()
		}
		b.finish()
	}
	return n, err
}

func (b *recording) Close() error {
	if !b.done {
		b.line.Closed = true
	}
	b.finish()
	return b.src.Close()
}

func (b *recording) finish() {
	if !b.done {
		b.done = true
		b.rec.write(b.line)
	}
}

// withBody reads the request's body and puts it back.
func withBody(r *http.Request) (*http.Request, []byte, error) {
	if r.Body == nil {
		return r, nil, nil
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("read request body: %w", err)
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return r, body, nil
}

func newLine(k Key, r *http.Request, body []byte) Line {
	u := *r.URL
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	request := Canonical(body)
	return Line{Version: version, Key: k, Method: r.Method, URL: u.String(), Request: request, Digest: Digest(request)}
}

// Canonical is the form of a body over which its digest is taken: JSON with sorted keys and without white space, numbers as they were written.
func Canonical(body []byte) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil || dec.More() {
		v = strings.ToValidUTF8(string(body), "\ufffd")
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("null") // values that were just decoded always encode
	}
	return bytes.TrimSpace(buf.Bytes())
}

// Digest is the lower-case hex SHA-256 of a canonical body.
func Digest(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// numbering names requests.
type numbering struct {
	mu    sync.Mutex
	calls map[string]int // by session, begun so far
}

func (c *numbering) of(r *http.Request) Key {
	session := sessionOf(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[session]++
	return Key{session, c.calls[session]}
}
