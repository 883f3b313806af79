package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dsh-web/dsh-web/host"
)

// The error codes of JSON-RPC that this server uses.
const (
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
)

// request is one frame from the client. ID is its JSON text, nil for a notification.
type request struct {
	id     json.RawMessage
	method string
	params map[string]json.RawMessage
	size   int
}

// parseRequest reads one line. What isn't a request is skipped: ok is false.
func parseRequest(line []byte) (r request, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return r, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || json.Unmarshal(fields["method"], &r.method) != nil || r.method == "" {
		return r, false
	}
	r.id, r.size = fields["id"], len(line)
	if json.Unmarshal(fields["params"], &r.params) != nil {
		r.params = nil // counts as {}
	}
	return r, true
}

// paramError is a parameter that can't be used.
type paramError struct {
	name string
	text string
}

func (e *paramError) Error() string { return e.name + ": " + e.text }

// methodError is a method that isn't there.
type methodError struct{ method string }

func (e *methodError) Error() string { return fmt.Sprintf("there is no method %q", e.method) }

type rpcError struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data,omitempty"`
}

// errorOf is what the client is told of err.
func errorOf(err error) rpcError {
	e := rpcError{Code: codeInternal, Message: err.Error()}
	var param *paramError
	var method *methodError
	var refused *host.Error
	switch {
	case errors.As(err, &method):
		e.Code = codeMethod
	case errors.As(err, &param):
		e.Code, e.Data = codeParams, map[string]any{"param": param.name}
	case errors.As(err, &refused):
		e.Data = map[string]any{"code": refused.Code}
		switch refused.Code {
		case host.CodeValidation, host.CodeIDInvalid, host.CodeWorkspaceInvalid:
			e.Code = codeParams
		}
	}
	return e
}

// encode is JSON without HTML escaping and without a newline.
func encode(v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		out.Reset()
		fmt.Fprintf(&out, "%q\n", err.Error()) // plain values always encode
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// appendReply adds the answer to a request, one line.
func appendReply(buf []byte, id json.RawMessage, result any, err error) []byte {
	buf = append(append(buf, `{"jsonrpc":"2.0","id":`...), oneLine(id)...)
	if err != nil {
		buf = append(append(buf, `,"error":`...), encode(errorOf(err))...)
	} else {
		buf = append(append(buf, `,"result":`...), encode(result)...)
	}
	return append(buf, "}\n"...)
}

// oneLine keeps an id as it was written, but on one line, and in UTF-8.
func oneLine(id json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Compact(&out, id) != nil {
		return []byte("null")
	}
	return bytes.ToValidUTF8(out.Bytes(), []byte("\uFFFD"))
}

// appendNotification adds a notification whose params begin with the session's id; fields is the rest of them, from the comma on.
func appendNotification(buf []byte, method string, session []byte, fields func([]byte) []byte) []byte {
	buf = append(append(buf, `{"jsonrpc":"2.0","method":"`...), method...)
	buf = append(append(buf, `","params":{"sessionId":`...), session...)
	return append(fields(buf), "}}\n"...)
}
