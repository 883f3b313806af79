package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
)

// maxPlainBody bounds bodies that aren't streams: errors and whole completions.
const maxPlainBody = 64 << 20

// Client posts requests and opens their answers.
type Client struct {
	Provider  string
	Transport http.RoundTripper
	Clocks    Clocks
	// Annotate marks a request for a recording transport; may be nil.
	Annotate func(r *http.Request, session string, call int) *http.Request
	// Tails reads what comes after an answer that is complete; nil lets Close do it.
	Tails *Tails
}

// Post is one request.
type Post struct {
	URL     string
	Header  http.Header
	Body    []byte
	Session string
	Call    int
	// Secret is never repeated in an error.
	Secret string
}

// Stream is an open answer: a stream of events, or one whole JSON body. Close it.
type Stream struct {
	// Plain is the whole body when the server answered with plain JSON instead of a stream.
	Plain []byte
	// RequestID is the server's name for the call.
	RequestID string

	client   *Client
	post     Post
	ctx      context.Context // the caller's; a stream never outlives the call that opened it
	inner    context.Context // ended by a clock
	cancel   context.CancelCauseFunc
	detach   func() bool // ends inner's dependence on ctx
	watch    *watch
	resp     *http.Response
	reader   *Reader
	began    time.Time
	first    time.Time
	finished bool
}

// Open sends p and waits for the answer's headers. Any failure is a *model.Error.
func (c *Client) Open(ctx context.Context, p Post) (*Stream, error) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // the tail may outlive the call
	s := &Stream{client: c, post: p, ctx: ctx, inner: inner, cancel: cancel, began: time.Now()}
	s.detach = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	s.watch = newWatch(c.Clocks.withDefaults(), cancel)
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stream) open() error {
	req, err := http.NewRequestWithContext(s.inner, http.MethodPost, s.post.URL, bytes.NewReader(s.post.Body))
	if err != nil {
		return s.fail(model.CodeInvalidRequest, "the base URL can't be used", 0, nil)
	}
	req.Header = s.post.Header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if s.client.Annotate != nil {
		req = s.client.Annotate(req, s.post.Session, s.post.Call)
	}
	transport := s.client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	// A round tripper follows no redirect, so the key can't travel with one.
	if s.resp, err = transport.RoundTrip(req); err != nil {
		return s.broken(err, model.CodeTransport)
	}
	s.watch.sawBytes(time.Now())
	s.RequestID = requestID(s.resp.Header)
	body := &feeding{src: s.resp.Body, watch: s.watch}
	switch code := s.resp.StatusCode; {
	case code >= 300 && code < 400:
		return s.fail(model.CodeInvalidRequest, "the server redirects to "+cleanURL(s.resp.Header.Get("Location"))+"; set the base URL to the final place", code, nil)
	case code != http.StatusOK:
		raw, _ := io.ReadAll(io.LimitReader(body, 1<<20))
		return s.refused(raw)
	}
	kind, _, _ := mime.ParseMediaType(s.resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		s.reader = NewReader(body)
		return nil
	}
	return s.sniff(kind, body)
}

// sniff handles an answer that doesn't say it is a stream: it may be one all the same, or a whole completion, or a page from somewhere else.
func (s *Stream) sniff(kind string, body io.Reader) error {
	head := make([]byte, 0, 512)
	for len(bytes.TrimLeft(head, " \t\r\n\ufeff")) < 8 && len(head) < cap(head) {
		n, err := body.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return s.broken(err, model.CodeStreamClosed)
		}
	}
	text := bytes.TrimLeft(head, " \t\r\n\ufeff")
	whole := io.MultiReader(bytes.NewReader(head), body)
	for _, start := range []string{"data:", "event:", ":", "id:", "retry:"} {
		if bytes.HasPrefix(text, []byte(start)) {
			s.reader = NewReader(whole)
			return nil
		}
	}
	if bytes.HasPrefix(text, []byte("{")) {
		raw, err := io.ReadAll(io.LimitReader(whole, maxPlainBody))
		if err != nil {
			return s.broken(err, model.CodeStreamClosed)
		}
		s.watch.sawPayload(time.Now())
		s.first = time.Now()
		s.Plain = raw
		return nil
	}
	if kind == "" {
		kind = "no content type"
	}
	if len(text) == 0 {
		return s.fail(model.CodeEmptyResponse, "the server answered with an empty body ("+kind+")", s.resp.StatusCode, nil)
	}
	// Not retried: the same page would come again.
	return s.fail(model.CodeInvalidRequest, fmt.Sprintf("the server answered with %s instead of a stream, beginning %q; check the base URL", kind, clip(string(text), 120)),
		s.resp.StatusCode, nil)
}

// Next returns the next event. At the end of the stream, and when the grace after Finish is over, it returns io.EOF; every other failure
// is a *model.Error.
func (s *Stream) Next() (Event, error) {
	ev, err := s.reader.Next()
	switch {
	case err == nil:
		return ev, nil
	case err == io.EOF:
		return ev, io.EOF
	case s.finished && s.ctx.Err() == nil:
		return ev, io.EOF // the answer is complete; how the connection ended doesn't matter
	}
	return ev, s.broken(err, model.CodeStreamClosed)
}

// Payload tells the clocks that an event carried something.
func (s *Stream) Payload() {
	now := time.Now()
	if s.first.IsZero() {
		s.first = now
	}
	s.watch.sawPayload(now)
}

// Finish tells the clocks that the answer is complete, so that only late pieces are waited for.
func (s *Stream) Finish() {
	if !s.finished {
		s.finished = true
		s.watch.sawFinish(time.Now())
	}
}

// Times fills in how long the call took so far.
func (s *Stream) Times(r *model.Response) {
	r.RequestID = s.RequestID
	r.Total = time.Since(s.began)
	if !s.first.IsZero() {
		r.TTFT = s.first.Sub(s.began)
	}
}

// Close ends the call. Its connection serves the next one when the answer was complete and its last bytes come soon.
func (s *Stream) Close() {
	s.watch.stop()
	s.detach()
	switch {
	case s.resp == nil:
		s.cancel(nil)
	case !s.finished || s.ctx.Err() != nil:
		_ = s.resp.Body.Close()
		s.cancel(nil)
	case s.client.Tails == nil || !s.client.Tails.take(s):
		s.drain(drainTime)
	}
}

const (
	// drainTime is how long Close waits for the last bytes of an answer that is complete. They are nearly always there already, and a
	// connection that was read to its end serves the next call without a new handshake.
	drainTime = 20 * time.Millisecond
	// tailTime is the same where nobody waits.
	tailTime = time.Second
)

// drain reads the rest and closes.
func (s *Stream) drain(limit time.Duration) {
	timer := time.AfterFunc(limit, func() { s.cancel(errGrace) })
	_, _ = io.CopyN(io.Discard, s.resp.Body, 64<<10)
	timer.Stop()
	_ = s.resp.Body.Close()
	s.cancel(nil)
}

// Fail makes an error about this call.
func (s *Stream) Fail(code model.Code, message string) *model.Error {
	return s.fail(code, message, s.resp.StatusCode, nil)
}

func (s *Stream) fail(code model.Code, message string, status int, cause error) *model.Error {
	return &model.Error{
		Code: code, Message: redact(message, s.post.Secret), Provider: s.client.Provider, URL: cleanURL(s.post.URL), Status: status,
		RequestID: s.RequestID, Err: cause,
	}
}

// broken explains a failed connection: by the caller's cancel, by a clock, else by the code given.
func (s *Stream) broken(err error, code model.Code) error {
	if s.ctx.Err() != nil {
		return s.fail(model.CodeAborted, "the call was cancelled", 0, context.Cause(s.ctx))
	}
	clocks := s.client.Clocks.withDefaults()
	switch cause := context.Cause(s.inner); cause {
	case errBytesClock:
		return s.fail(model.CodeTimeout, fmt.Sprintf("the server sent nothing for %s", clocks.Bytes), 0, cause)
	case errPayloadClock:
		return s.fail(model.CodeTimeout, fmt.Sprintf("the server sent no payload for %s", clocks.Payload), 0, cause)
	}
	var final interface{ Permanent() bool }
	if errors.As(err, &final) && final.Permanent() {
		return s.fail(model.CodeInvalidRequest, err.Error(), 0, err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return s.fail(code, "the connection ended too early", 0, err)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return s.fail(code, err.Error(), 0, err)
}

// feeding tells the clock about every read that brought something.
type feeding struct {
	src   io.Reader
	watch *watch
}

func (f *feeding) Read(p []byte) (int, error) {
	n, err := f.src.Read(p)
	if n > 0 {
		f.watch.sawBytes(time.Now())
	}
	return n, err
}

// Endpoint joins a base URL and a path. The base may end in a slash, in the path itself, or carry a query, which stays; a base without any
// path gets the version in front. Then one call has one URL however the base was written.
func Endpoint(base, version, path string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", errors.New("the base URL must begin with http:// or https:// and name a host")
	}
	u.Fragment, u.User = "", nil
	p := strings.TrimRight(u.EscapedPath(), "/")
	p = strings.TrimRight(strings.TrimSuffix(p, path), "/")
	if p == "" {
		p = version
	}
	u.RawPath = p + path
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return "", errors.New("the path of the base URL is badly escaped")
	}
	return u.String(), nil
}

func requestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "X-Ds-Trace-Id", "Cf-Ray"} {
		if v := h.Get(name); v != "" {
			return clip(v, 128)
		}
	}
	return ""
}
