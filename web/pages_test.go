package web

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
)

// page makes events from first on with titles of the given lengths.
func page(first int64, lengths ...int) session.Page {
	var p session.Page
	for i, n := range lengths {
		e := session.Event{Seq: first + int64(i), Type: "session/title", Data: fmt.Appendf(nil, `{"title":%q}`, strings.Repeat("x", n))}
		p.Events = append(p.Events, e)
		p.Encoded = append(p.Encoded, session.EncodeEvent(e))
	}
	return p
}

func TestRunsAreFramedWhole(t *testing.T) {
	p := page(5, 10, 200, 40_000, 1, 100_000, 1, 1)
	run := newFramed("one", 4, p)
	if len(run.pieces) < 4 || run.pieces[len(run.pieces)-1].last != 11 {
		t.Fatalf("%d pieces, the last up to %d", len(run.pieces), run.pieces[len(run.pieces)-1].last)
	}
	next, last := 0, int64(4)
	for _, piece := range run.pieces {
		b := piece.frames
		for len(b) > 0 {
			size, head := int(b[1]), 2
			switch size {
			case 126:
				size, head = int(b[2])<<8|int(b[3]), 4
			case 127:
				size, head = int(b[6])<<24|int(b[7])<<16|int(b[8])<<8|int(b[9]), 10
			}
			if b[0] != 0x81 || b[1]&0x80 != 0 {
				t.Fatalf("a frame begins with %x", b[:2])
			}
			want := `{"type":"event","session":"one","event":` + string(p.Encoded[next]) + "}"
			if got := b[head : head+size]; string(got) != want {
				t.Fatalf("frame %.80q, want %.80q", got, want)
			}
			b = b[head+size:]
			next++
			last++
		}
		if piece.last != last {
			t.Errorf("a piece ends with %d, told %d", last, piece.last)
		}
	}
	if next != len(p.Events) {
		t.Errorf("%d of %d events", next, len(p.Events))
	}
}

// TestShelf gives a run to all who stand where it begins, for as long as somebody has it.
func TestShelf(t *testing.T) {
	var s shelf
	one, two := new(session.Log), new(session.Log)
	leave := []func(){s.follow(one), s.follow(one), s.follow(two)}
	run := newFramed("one", 4, page(5, 1))
	s.put(one, run)
	if s.at(one, 4) != run || s.at(one, 3) != nil || s.at(one, 5) != nil || s.at(two, 4) != nil {
		t.Error("a run stands in another place")
	}
	s.put(one, newFramed("one", 2, page(3, 1))) // somebody who catches up
	if s.at(one, 4) != run {
		t.Error("an older run took the place of a newer one")
	}
	if !bytes.Contains(run.pieces[0].frames, []byte(`"seq":5`)) {
		t.Error("the run changed")
	}
	runtime.KeepAlive(run)
	runtime.GC()
	runtime.GC()
	if s.at(one, 4) != nil {
		t.Error("a run that nobody sends is kept")
	}
	for _, l := range leave {
		l()
	}
	if len(s.sessions) != 0 {
		t.Errorf("%d sessions are left", len(s.sessions))
	}
}
