package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
)

// EncodeEvent gives the canonical encoding of e: one JSON object on one line, without a newline, with the members seq, time, type, data,
// prev and, only when true, ignorable, in that order and without white space around them. data stands as it is in e.Data, which the
// committer writes compact and without HTML escapes. Stores keep exactly these bytes and exports write exactly these bytes.
func EncodeEvent(e Event) []byte {
	out, _, _ := appendEvent(make([]byte, 0, len(e.Data)+len(e.Type)+160), e)
	return out
}

// HashEvent is the hash that the event after carries as prev: lower-case hex SHA-256 over the canonical encoding (EncodeEvent) of the
// event, which holds its own prev; so the hash of the last event stands for the whole log. The header isn't part of the chain, which is
// why a fork shares the hashes of its parent's events.
func HashEvent(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// appendEvent appends the canonical encoding and says where data begins and ends in the result.
func appendEvent(dst []byte, e Event) (out []byte, from, to int) {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, `,"time":`...)
	dst = strconv.AppendInt(dst, e.Time, 10)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"data":`...)
	from = len(dst)
	if len(e.Data) == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, e.Data...)
	}
	to = len(dst)
	dst = append(dst, `,"prev":`...)
	dst = appendString(dst, e.Prev)
	if e.Ignorable {
		dst = append(dst, `,"ignorable":true`...)
	}
	return append(dst, '}'), from, to
}

func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(false)
			if enc.Encode(s) != nil { // a string always encodes
				return append(dst, `""`...)
			}
			return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// ParseEvent reads one encoded event. Data of the result is a part of b. The canonical form takes a fast path; any other JSON form of the
// envelope is read too, since imports bring them. Duplicate or missing seq and type are errors, and so is data that isn't JSON.
func ParseEvent(b []byte) (Event, error) {
	if e, ok := parseCanonical(b); ok && json.Valid(e.Data) {
		return e, nil
	}
	return parseAny(b)
}

// parseUnchecked is ParseEvent for callers that read the data of every canonical event themselves.
func parseUnchecked(b []byte) (Event, error) {
	if e, ok := parseCanonical(b); ok {
		return e, nil
	}
	return parseAny(b)
}

func parseAny(b []byte) (Event, error) {
	var in struct {
		Seq       *int64          `json:"seq"`
		Time      int64           `json:"time"`
		Type      string          `json:"type"`
		Data      json.RawMessage `json:"data"`
		Prev      string          `json:"prev"`
		Ignorable bool            `json:"ignorable"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	if in.Seq == nil || *in.Seq < 0 {
		return Event{}, fmt.Errorf("decode event: seq is missing or negative")
	}
	if in.Type == "" {
		return Event{}, fmt.Errorf("decode event %d: type is missing", *in.Seq)
	}
	var data bytes.Buffer
	if len(in.Data) == 0 {
		data.WriteString("null")
	} else if err := json.Compact(&data, in.Data); err != nil {
		return Event{}, fmt.Errorf("decode event %d: %w", *in.Seq, err)
	}
	return Event{Seq: *in.Seq, Time: in.Time, Type: in.Type, Data: data.Bytes(), Prev: in.Prev, Ignorable: in.Ignorable}, nil
}

// parseCanonical reads exactly what appendEvent writes for a plain type, and nothing else; the data isn't looked at.
func parseCanonical(b []byte) (Event, bool) {
	var e Event
	rest, ok := bytes.CutPrefix(b, []byte(`{"seq":`))
	if !ok {
		return e, false
	}
	if e.Seq, rest, ok = cutInt(rest, `,"time":`); !ok || e.Seq < 0 {
		return e, false
	}
	if e.Time, rest, ok = cutInt(rest, `,"type":"`); !ok {
		return e, false
	}
	end := bytes.IndexByte(rest, '"')
	if end <= 0 {
		return e, false
	}
	for _, c := range rest[:end] {
		if c < ' ' || c > '~' || c == '\\' {
			return e, false
		}
	}
	e.Type = eventTypeName(rest[:end])
	if rest, ok = bytes.CutPrefix(rest[end:], []byte(`","data":`)); !ok {
		return e, false
	}
	if rest, ok = bytes.CutSuffix(rest, []byte(`}`)); !ok {
		return e, false
	}
	if cut, found := bytes.CutSuffix(rest, []byte(`,"ignorable":true`)); found {
		rest, e.Ignorable = cut, true
	}
	const empty = `,"prev":""`
	tail := len(rest) - len(empty)
	if !bytes.HasSuffix(rest, []byte(empty)) {
		tail -= 2 * sha256.Size
	}
	if tail < 1 {
		return e, false
	}
	prev, ok := bytes.CutPrefix(rest[tail:], []byte(`,"prev":"`))
	if !ok || prev[len(prev)-1] != '"' {
		return e, false
	}
	prev = prev[:len(prev)-1]
	for _, c := range prev {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return e, false
		}
	}
	e.Prev = string(prev)
	e.Data = json.RawMessage(rest[:tail:tail])
	return e, true
}

func cutInt(b []byte, sep string) (n int64, rest []byte, ok bool) {
	i := bytes.IndexByte(b, ',')
	if i < 0 || i > 20 {
		return 0, b, false
	}
	n, err := strconv.ParseInt(string(b[:i]), 10, 64)
	if err != nil || (i > 1 && (b[0] == '0' || b[0] == '+')) {
		return 0, b, false
	}
	rest, ok = bytes.CutPrefix(b[i:], []byte(sep))
	return n, rest, ok
}

// encoder turns payloads into canonical events with one JSON encode and one allocation for each.
type encoder struct {
	buf bytes.Buffer
	enc *json.Encoder
}

func newEncoder() *encoder {
	e := &encoder{}
	e.enc = json.NewEncoder(&e.buf)
	e.enc.SetEscapeHTML(false)
	return e
}

// encode fills ev.Data and gives the canonical bytes; Data is a part of them.
func (e *encoder) encode(ev *Event, p Payload) ([]byte, error) {
	e.buf.Reset()
	if !encodeFast(&e.buf, p) {
		e.buf.Reset()
		if err := e.enc.Encode(p); err != nil {
			return nil, fmt.Errorf("encode %s: %w", ev.Type, err)
		}
	}
	ev.Data = bytes.TrimSuffix(e.buf.Bytes(), []byte("\n"))
	out, from, to := appendEvent(make([]byte, 0, len(ev.Data)+len(ev.Type)+160), *ev)
	ev.Data = json.RawMessage(out[from:to:to])
	if e.buf.Cap() > 1<<20 {
		e.buf = bytes.Buffer{}
		e.enc = json.NewEncoder(&e.buf)
		e.enc.SetEscapeHTML(false)
	}
	return out, nil
}
