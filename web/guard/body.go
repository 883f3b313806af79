package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/strictjson"
)

// readJSON takes the whole body in, bounded by size and time, checks it, and hands it on as the request's body. An empty body needs no
// type; whether it may be empty is the handler's to say.
func (g *Guard) readJSON(rc *http.ResponseController, w http.ResponseWriter, r *http.Request) *Problem {
	if r.ContentLength != 0 || r.Header.Get("Content-Type") != "" {
		if p := checkType(r.Header.Get("Content-Type")); p != nil {
			return p
		}
	}
	if r.ContentLength > MaxJSON {
		return tooLarge()
	}
	body, p := g.takeBody(rc, w, r)
	if p != nil {
		return p
	}
	if len(body) > 0 {
		if err := CheckJSON(body); err != nil {
			return &Problem{Status: http.StatusBadRequest, Code: "bad-json", Detail: "The body is refused: " + err.Error() + "."}
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return nil
}

// skipBody takes in a body that nobody asked for: left in the connection it would hold the answer up for as long as its sender likes.
func (g *Guard) skipBody(rc *http.ResponseController, w http.ResponseWriter, r *http.Request) *Problem {
	if r.ContentLength > MaxJSON {
		return tooLarge()
	}
	_, p := g.takeBody(rc, w, r)
	return p
}

// takeBody reads the whole body within its bounds of size and time.
func (g *Guard) takeBody(rc *http.ResponseController, w http.ResponseWriter, r *http.Request) ([]byte, *Problem) {
	_ = rc.SetReadDeadline(time.Now().Add(g.body)) // a writer without deadlines (tests) has none to set
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxJSON))
	// The server watches the connection while the handler runs; a deadline that is left would end a long wait.
	_ = rc.SetReadDeadline(time.Time{})
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, tooLarge()
	case err != nil:
		return nil, &Problem{Status: http.StatusBadRequest, Code: "bad-json", Detail: "The body did not arrive whole."}
	}
	return body, nil
}

func checkType(header string) *Problem {
	kind, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	if err == nil && kind == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return &Problem{Status: http.StatusUnsupportedMediaType, Code: "media-type", Detail: "The body must be application/json in UTF-8."}
}

func tooLarge() *Problem {
	return &Problem{Status: http.StatusRequestEntityTooLarge, Code: "too-large", Detail: fmt.Sprintf("The body may have %d bytes.", MaxJSON)}
}

// CheckJSON refuses what the decoder of the standard library would let pass or mend: bytes that are no UTF-8, a key that stands twice in
// one object, and nesting deeper than MaxJSONDepth.
func CheckJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("it isn't UTF-8")
	}
	if !json.Valid(data) {
		var any any
		if err := json.Unmarshal(data, &any); err != nil {
			return fmt.Errorf("it isn't JSON (%w)", err)
		}
		return errors.New("it isn't JSON")
	}
	if strictjson.Depth(data) > MaxJSONDepth {
		return fmt.Errorf("it is nested deeper than %d", MaxJSONDepth)
	}
	if _, found := strictjson.Twice(data); found {
		return errors.New("a key stands twice in one object")
	}
	return nil
}
