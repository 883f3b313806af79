package guard

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Problem is an answer that says what was wrong: RFC 9457 with a code for programs.
type Problem struct {
	_      struct{} `additionalProperties:"true"` // for the API's document: More
	Status int      `json:"status" doc:"The HTTP status."`
	Title  string   `json:"title" doc:"The status in words."`
	Code   string   `json:"code" doc:"What was wrong, for programs."`
	Detail string   `json:"detail,omitempty" doc:"What was wrong and what to do, for people."`
	// Errors point at fields of the request. They never repeat its values.
	Errors []Field `json:"errors,omitempty" doc:"The fields that were wrong."`
	// More are members of their own, by code; they may not be called like the ones above.
	More map[string]any `json:"-"`
}

// Field says what is wrong at one place of the request.
type Field struct {
	Location string `json:"location,omitempty" doc:"Where, for example body.workspace."`
	Message  string `json:"message" doc:"What is wrong there."`
}

// Error is the problem in one line.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is the media type of an encoded problem.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// MarshalJSON writes the members and those of More.
func (p Problem) MarshalJSON() ([]byte, error) {
	type plain Problem
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	out, err := json.Marshal(plain(p))
	if err != nil || len(p.More) == 0 {
		return out, err
	}
	more, err := json.Marshal(p.More)
	if err != nil {
		return nil, err
	}
	return append(append(out[:len(out)-1], ','), more[1:]...), nil
}

// WriteProblem answers with p.
func WriteProblem(w http.ResponseWriter, p Problem) {
	body, err := json.Marshal(p)
	if err != nil { // a member of More that JSON can't hold
		p.More = nil
		body, _ = json.Marshal(p)
	}
	h := w.Header()
	h.Set("Content-Type", p.ContentType(""))
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the peer may be gone; there is nobody else to tell
}
