package wire

import (
	"bytes"
	"encoding/json"
	"io"
)

// Event is one server-sent event. Data is valid until the next call of Next.
type Event struct {
	Type string
	Data []byte
}

// Reader reads server-sent events as servers really write them: any line ending, a byte-order mark, no space after the colon, lines of any
// length, data over several lines, and events without the empty line between them. It reads on the caller's goroutine and returns an event
// as soon as its last byte is there; it never reads ahead of what the source gives.
type Reader struct {
	src   io.Reader
	err   error
	buf   []byte // buf[pos:] is unread
	pos   int
	start int  // where the last line began
	seen  int  // buf[pos:pos+seen] holds no line end
	bom   bool // the start of the stream was checked for a byte-order mark
	full  bool // the last read filled the buffer
	skip  bool // the last line ended in CR at the end of what was there; an LF right after it belongs to it

	typ   []byte
	data  []byte // lines of the event so far, joined by LF, when there is more than one
	lines int
}

// Most answers are short, and a fast one fills whatever room there is.
const (
	firstRead = 1 << 10
	readSize  = 8 << 10
)

// NewReader reads events from src.
func NewReader(src io.Reader) *Reader { return &Reader{src: src} }

// Next returns the next event with data. At the end it returns what an unfinished last event held, and then the source's error, io.EOF
// when it ended well.
func (r *Reader) Next() (Event, error) {
	r.typ, r.lines = r.typ[:0], 0
	return r.resume()
}

func (r *Reader) resume() (Event, error) {
	for {
		line, ok := r.line()
		if !ok {
			if r.lines > 0 {
				return r.event(), nil
			}
			return Event{}, r.err
		}
		if len(line) == 0 {
			if r.lines > 0 {
				return r.event(), nil
			}
			r.typ = r.typ[:0]
			continue
		}
		name, value := field(line)
		switch name {
		case fieldEvent:
			if r.lines > 0 && complete(r.data) {
				// A server without empty lines between events: this line opens the next one.
				ev := r.event()
				r.unread()
				return ev, nil
			}
			r.typ = append(r.typ[:0], value...)
		case fieldData:
			if r.lines == 0 {
				if ev, ok := r.fast(value); ok {
					return ev, nil
				}
				r.data = append(r.data[:0], value...)
				r.lines = 1
				continue
			}
			if complete(r.data) {
				ev := r.event()
				r.unread()
				return ev, nil
			}
			r.data = append(append(r.data, '\n'), value...)
			r.lines++
		}
	}
}

// fast hands out a one-line event without copying it, when the empty line that ends it is already in the buffer.
func (r *Reader) fast(value []byte) (Event, bool) {
	rest := r.buf[r.pos:]
	switch {
	case r.skip:
		return Event{}, false
	case len(rest) >= 1 && rest[0] == '\n':
		r.pos++
	case len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n':
		r.pos += 2
	default:
		return Event{}, false
	}
	return Event{Type: string(r.typ), Data: value}, true
}

func (r *Reader) event() Event {
	ev := Event{Type: string(r.typ), Data: r.data}
	r.typ, r.lines = r.typ[:0], 0
	return ev
}

// unread puts back the line just read, so that the next event begins with it.
func (r *Reader) unread() { r.pos, r.seen, r.skip = r.start, 0, false }

// complete says whether data can stand for itself: a JSON value or the end mark.
func complete(data []byte) bool {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return false
	}
	if data[0] == '{' && data[len(data)-1] != '}' {
		return false // spares a long pretty-printed value a check per line
	}
	return bytes.Equal(data, doneMark) || json.Valid(data)
}

var doneMark = []byte("[DONE]")

// Done says whether data is the mark that ends a chat-completions stream.
func Done(data []byte) bool { return bytes.Equal(bytes.TrimSpace(data), doneMark) }

type fieldName int

const (
	fieldNone fieldName = iota
	fieldData
	fieldEvent
)

// field splits a line. A line that begins with a brace counts as data: some servers write an error so, bare into the stream.
func field(line []byte) (fieldName, []byte) {
	if line[0] == '{' {
		return fieldData, line
	}
	var value []byte
	name := line
	if i := bytes.IndexByte(line, ':'); i >= 0 {
		name, value = line[:i], line[i+1:]
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
	}
	switch string(name) {
	case "data":
		return fieldData, value
	case "event":
		return fieldEvent, value
	}
	return fieldNone, nil
}

// line returns the next line without its end; ok is false when the source gives no more. The last line needs no end.
func (r *Reader) line() (line []byte, ok bool) {
	for {
		rest := r.buf[r.pos:]
		if r.skip && len(rest) > 0 {
			r.skip = false
			if rest[0] == '\n' {
				r.pos++
				rest = rest[1:]
			}
		}
		if !r.bom && (len(rest) >= 3 || (r.err != nil && len(rest) > 0)) {
			r.bom = true
			if bytes.HasPrefix(rest, []byte("\ufeff")) {
				r.pos += 3
				rest = rest[3:]
			}
		}
		if r.bom {
			if end, next := lineEnd(rest, r.seen); end >= 0 {
				r.skip = rest[end] == '\r' && next == len(rest) && next == end+1
				r.start, r.pos, r.seen = r.pos, r.pos+next, 0
				return rest[:end], true
			}
			r.seen = len(rest)
		}
		if r.err != nil {
			r.start, r.pos, r.seen = r.pos, len(r.buf), 0
			return rest, len(rest) > 0
		}
		r.fill()
	}
}

// lineEnd finds the first line end in b at or after from: where the line ends and where the next begins.
func lineEnd(b []byte, from int) (end, next int) {
	lf := bytes.IndexByte(b[from:], '\n')
	head := b[from:]
	if lf >= 0 {
		head = head[:lf]
	}
	if cr := bytes.IndexByte(head, '\r'); cr >= 0 {
		end = from + cr
		if end+1 < len(b) && b[end+1] == '\n' {
			return end, end + 2
		}
		return end, end + 1
	}
	if lf < 0 {
		return -1, 0
	}
	return from + lf, from + lf + 1
}

// fill reads once. What was handed out before becomes invalid.
func (r *Reader) fill() {
	if r.pos > 0 {
		n := copy(r.buf, r.buf[r.pos:])
		r.buf, r.pos = r.buf[:n], 0
	}
	if cap(r.buf)-len(r.buf) <= cap(r.buf)/2 || r.full && cap(r.buf) < readSize {
		grown := make([]byte, len(r.buf), max(firstRead, 2*cap(r.buf)))
		copy(grown, r.buf)
		r.buf = grown
	}
	for range 100 {
		n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+n]
		r.full = len(r.buf) == cap(r.buf)
		if err != nil {
			r.err = err
		}
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}
