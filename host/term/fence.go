package term

import "bytes"

// A fence is what the shell prints on the terminal between a command's output and everything else: mark, nonce, kind, mark. The nonce is new
// for every command, so no output can hold one by accident or from knowledge of an earlier one.
const (
	fenceMark = 0x1e
	nonceLen  = 16 // hexadecimal digits
	fenceLen  = 1 + nonceLen + 1 + 1

	kindStart = 'S' // the command's output begins
	kindEnd   = 'E' // it ended, and the top level was not unwound
	kindFinal = 'F' // the shell is ready for the next command
)

// filter takes fences and driver text out of what the terminal gives. It knows the nonces of the running and of the last command: a line that
// was sent twice prints its fence twice.
type filter struct {
	now, last string
	held      []byte // a tail that may be the beginning of a fence
	echo      bool   // inside a line of driver text that the shell echoed (set -v) or traced (set -x)
}

func (f *filter) begin(nonce string) {
	if nonce != f.now {
		f.last, f.now = f.now, nonce
	}
}

// feed hands the cleaned pieces of p to text and the running command's fences to fence, in order. Neither may keep what it gets.
func (f *filter) feed(p []byte, text func([]byte), fence func(kind byte)) {
	if len(f.held) > 0 {
		p = append(f.held, p...)
		f.held = nil
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, fenceMark)
		if i < 0 {
			f.clean(p, text)
			return
		}
		f.clean(p[:i], text)
		p = p[i:]
		kind, current, state := f.match(p)
		switch state {
		case matchPart:
			f.held = append([]byte(nil), p...)
			return
		case matchNone:
			f.clean(p[:1], text)
			p = p[1:]
		case matchFull:
			f.echo = false
			p = p[fenceLen:]
			if current {
				fence(kind)
			}
		}
	}
}

// flush hands on what was held: no more will come.
func (f *filter) flush(text func([]byte)) {
	if len(f.held) > 0 {
		text(f.held)
		f.held = nil
	}
}

type matching int

const (
	matchNone matching = iota
	matchPart
	matchFull
)

// match says whether p, which begins with a mark, begins with a fence, and whether with one of the running command.
func (f *filter) match(p []byte) (kind byte, current bool, state matching) {
	for _, nonce := range [2]string{f.now, f.last} {
		if nonce == "" {
			continue
		}
		n := min(len(p)-1, nonceLen)
		if string(p[1:1+n]) != nonce[:n] {
			continue
		}
		if len(p) < fenceLen {
			return 0, false, matchPart
		}
		if p[fenceLen-1] == fenceMark {
			return p[fenceLen-2], nonce == f.now, matchFull
		}
	}
	return 0, false, matchNone
}

// clean hands on p without the lines that hold a nonce: the shell prints those only when it shows the driver's own lines.
func (f *filter) clean(p []byte, text func([]byte)) {
	for len(p) > 0 {
		if f.echo {
			end := bytes.IndexByte(p, '\n')
			if end < 0 {
				return
			}
			f.echo = false
			p = p[end+1:]
			continue
		}
		at := f.nonceIn(p)
		if at < 0 {
			text(p)
			return
		}
		if line := bytes.LastIndexByte(p[:at], '\n') + 1; line > 0 {
			text(p[:line])
		}
		p = p[at:]
		f.echo = true
	}
}

func (f *filter) nonceIn(p []byte) int {
	first := -1
	for _, nonce := range [2]string{f.now, f.last} {
		if nonce == "" {
			continue
		}
		if i := bytes.Index(p, []byte(nonce)); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}
