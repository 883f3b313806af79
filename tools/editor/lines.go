package editor

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// extent is how far a read got.
type extent struct {
	total int  // lines read
	more  bool // there may be more lines
}

// line is one line of a file, without its ending.
type line struct {
	head    []byte // what may be shown; valid until the next read
	chars   int    // in the whole line
	crlf    bool
	unended bool // the file ends without a line break
}

// lineReader reads lines of any length with a bounded memory.
type lineReader struct {
	src   *bufio.Reader
	limit int // characters
	head  []byte
}

// next reads a line; io.EOF says that there is none. With skip, only its end is looked for.
func (r *lineReader) next(skip bool) (line, error) {
	r.head = r.head[:0]
	l := line{}
	read, last := 0, byte(0)
	for {
		piece, err := r.src.ReadSlice('\n')
		read += len(piece)
		ended := err == nil
		if ended {
			before := last
			if len(piece) > 1 {
				before = piece[len(piece)-2]
			}
			l.crlf = before == '\r'
			piece = piece[:len(piece)-1]
		}
		if !skip {
			l.chars += countStarts(piece)
			r.head = append(r.head, piece[:min(len(piece), max(r.limit*utf8.UTFMax+1-len(r.head), 0))]...)
		}
		if len(piece) > 0 {
			last = piece[len(piece)-1]
		}
		switch {
		case ended, err == io.EOF && read > 0:
			l.unended = !ended
			if l.crlf {
				l.chars--
				if l.chars <= r.limit {
					r.head = bytes.TrimSuffix(r.head, []byte{'\r'})
				}
			}
			l.head = r.head
			return l, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return l, err
		}
	}
}

// skip passes over n lines and says how many there were. It returns io.EOF when there were fewer.
func (r *lineReader) skip(n int) (skipped int, err error) {
	for skipped < n {
		if r.src.Buffered() == 0 {
			if _, err := r.src.Peek(1); err != nil {
				return skipped, err
			}
		}
		block, _ := r.src.Peek(r.src.Buffered()) // it is there
		breaks := lineBreaks(block)
		if breaks == 0 { // the end of the line is yet to come
			if _, err := r.next(true); err != nil {
				return skipped, err
			}
			skipped++
			continue
		}
		end := bytes.LastIndexByte(block, '\n') + 1
		if breaks > n-skipped {
			breaks = n - skipped
			end = skipLines(block, 0, breaks)
		}
		if _, err := r.src.Discard(end); err != nil {
			return skipped, err
		}
		skipped += breaks
	}
	return skipped, nil
}

// rest counts the lines that were not read.
func (r *lineReader) rest() (int, error) {
	n, partial := 0, false
	for {
		piece, err := r.src.ReadSlice('\n')
		switch {
		case err == nil:
			n, partial = n+1, false
		case errors.Is(err, bufio.ErrBufferFull):
			partial = true
		case err == io.EOF:
			if partial || len(piece) > 0 {
				n++
			}
			return n, nil
		default:
			return n, err
		}
	}
}
