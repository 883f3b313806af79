package web

import (
	"encoding/json"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/session"
)

// The frames of the event stream. The document describes these types; the ones that are sent often are written by hand below, and the
// tests hold the two together.

// HelloFrame is the first one.
type HelloFrame struct {
	Type    string `json:"type" enum:"hello"`
	LogID   string `json:"logId" doc:"Cursors are good only while this stays the same."`
	Node    string `json:"node"`
	Version string `json:"version"`
}

// EventFrame is a durable event.
type EventFrame struct {
	Type    string        `json:"type" enum:"event"`
	Session string        `json:"session"`
	Event   session.Event `json:"event"`
}

// CaughtUpFrame says that a subscription has sent what there was when it began.
type CaughtUpFrame struct {
	Type    string `json:"type" enum:"caughtUp"`
	Session string `json:"session"`
	Seq     int64  `json:"seq"`
}

// BlockFrame announces provisional text.
type BlockFrame struct {
	Type    string `json:"type" enum:"block"`
	Block   int    `json:"block"`
	Session string `json:"session"`
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
	Attempt int    `json:"attempt"`
	Kind    string `json:"kind" enum:"text,reasoning,tool"`
	Name    string `json:"name,omitempty" doc:"Of the tool, once it is known; then the frame may come a second time."`
	CallID  string `json:"callId,omitempty"`
}

// DeltaFrame adds provisional text to a block. Offsets count bytes of UTF-8.
type DeltaFrame struct {
	Type   string `json:"type" enum:"delta"`
	Block  int    `json:"block"`
	Offset int    `json:"offset"`
	Text   string `json:"text"`
}

// DropFrame withdraws a block.
type DropFrame struct {
	Type  string `json:"type" enum:"drop"`
	Block int    `json:"block"`
}

// OutputFrame is output of a running call. Skipped counts bytes before Offset that are gone.
type OutputFrame struct {
	Type    string `json:"type" enum:"output"`
	Session string `json:"session"`
	CallID  string `json:"callId"`
	Offset  int64  `json:"offset"`
	Text    string `json:"text"`
	Skipped int64  `json:"skipped,omitempty"`
}

// FeedFrame is what changed in the host; the first one is the whole state.
type FeedFrame struct {
	Type string `json:"type" enum:"feed"`
	host.Frame
}

// ErrorFrame says what went wrong. With a session, that subscription is over; the socket stays.
type ErrorFrame struct {
	Type    string `json:"type" enum:"error"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Session string `json:"session,omitempty"`
}

// frameTypes lists all frames, for the document.
func frameTypes() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[HelloFrame](), reflect.TypeFor[EventFrame](), reflect.TypeFor[CaughtUpFrame](), reflect.TypeFor[BlockFrame](),
		reflect.TypeFor[DeltaFrame](), reflect.TypeFor[DropFrame](), reflect.TypeFor[OutputFrame](), reflect.TypeFor[FeedFrame](),
		reflect.TypeFor[ErrorFrame](),
	}
}

// documentFrames puts the frames into the document as StreamFrame, and what clients send as StreamCommand.
func documentFrames(r huma.Registry) {
	all := &huma.Schema{Description: "What the stream sends, one text message each."}
	for _, t := range frameTypes() {
		all.OneOf = append(all.OneOf, r.Schema(t, true, t.Name()))
	}
	r.Map()["StreamFrame"] = all
	r.Schema(reflect.TypeFor[StreamCommand](), true, "StreamCommand")
}

// StreamCommand is what a client sends.
type StreamCommand struct {
	Type    string `json:"type" enum:"subscribe,unsubscribe,watch"`
	Session string `json:"session,omitempty"`
	After   *int64 `json:"after,omitempty" doc:"The last seq the client has; -1 from the start; absent: the tail page."`
}

func appendCaughtUp(b []byte, session string, seq int64) []byte {
	b = append(b, `{"type":"caughtUp","session":`...)
	b = appendString(b, session)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, seq, 10)
	return append(b, '}')
}

func appendBlock(b []byte, id string, v session.BlockView) []byte {
	b = append(b, `{"type":"block","block":`...)
	b = strconv.AppendInt(b, int64(v.ID), 10)
	b = append(b, `,"session":`...)
	b = appendString(b, id)
	b = append(b, `,"turn":`...)
	b = strconv.AppendInt(b, int64(v.Turn), 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, int64(v.Step), 10)
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(v.Attempt), 10)
	b = append(b, `,"kind":`...)
	b = appendString(b, string(v.Kind))
	if v.Name != "" {
		b = append(b, `,"name":`...)
		b = appendString(b, v.Name)
	}
	if v.CallID != "" {
		b = append(b, `,"callId":`...)
		b = appendString(b, v.CallID)
	}
	return append(b, '}')
}

func appendDelta(b []byte, block, offset int, text string) []byte {
	b = append(b, `{"type":"delta","block":`...)
	b = strconv.AppendInt(b, int64(block), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, int64(offset), 10)
	b = append(b, `,"text":`...)
	b = appendString(b, text)
	return append(b, '}')
}

func appendDrop(b []byte, block int) []byte {
	b = append(b, `{"type":"drop","block":`...)
	b = strconv.AppendInt(b, int64(block), 10)
	return append(b, '}')
}

func appendOutput(b []byte, session, callID string, offset int64, text string, skipped int64) []byte {
	b = append(b, `{"type":"output","session":`...)
	b = appendString(b, session)
	b = append(b, `,"callId":`...)
	b = appendString(b, callID)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, offset, 10)
	b = append(b, `,"text":`...)
	b = appendString(b, text)
	if skipped > 0 {
		b = append(b, `,"skipped":`...)
		b = strconv.AppendInt(b, skipped, 10)
	}
	return append(b, '}')
}

// appendString writes s as a JSON string. A byte that is no UTF-8 becomes one question mark, so that offsets in bytes stay true.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[from:i]...), '?')
				i++
				from = i
				continue
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}

// whole cuts a character that isn't complete off the end of a piece of output; the next piece begins with it.
func whole(text string) string {
	for n := 1; n <= min(utf8.UTFMax-1, len(text)); n++ {
		c := text[len(text)-n]
		if c < utf8.RuneSelf {
			return text
		}
		if utf8.RuneStart(c) {
			if !utf8.FullRuneInString(text[len(text)-n:]) {
				return text[:len(text)-n]
			}
			return text
		}
	}
	return text
}

// begin counts the bytes at the head of a piece that belong to a character whose beginning is gone.
func begin(text string) int {
	n := 0
	for n < min(utf8.UTFMax-1, len(text)) && !utf8.RuneStart(text[n]) {
		n++
	}
	return n
}

func encodeFrame(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // a type of this package that can't be encoded is a fault of the program
		panic(err)
	}
	return b
}
