package wire

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

type event struct{ Type, Data string }

// pieces gives its strings one read at a time.
type pieces []string

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	if (*p)[0] = (*p)[0][n:]; (*p)[0] == "" {
		*p = (*p)[1:]
	}
	return n, nil
}

func readAll(t testing.TB, src io.Reader) []event {
	t.Helper()
	r := NewReader(src)
	var out []event
	for {
		ev, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, event{ev.Type, string(ev.Data)})
	}
}

func TestReader(t *testing.T) {
	cases := []struct {
		name, in string
		want     []event
	}{
		{"plain", "data: a\n\ndata: b\n\n", []event{{"", "a"}, {"", "b"}}},
		{"L31 no space, CRLF", "data:a\r\n\r\ndata:b\r\n\r\n", []event{{"", "a"}, {"", "b"}}},
		{"L31 CR alone", "data: a\r\rdata: b\r\r", []event{{"", "a"}, {"", "b"}}},
		{"mixed line ends", "data: a\r\n\ndata: b\n\r\n", []event{{"", "a"}, {"", "b"}}},
		{"L31 byte-order mark", "\ufeffdata: a\n\n", []event{{"", "a"}}},
		{"a mark later is content", "data: \ufeffa\n\n", []event{{"", "\ufeffa"}}},
		{"only one space goes", "data:  a\n\n", []event{{"", " a"}}},
		{"event, id, retry, comment, unknown", ": hi\nevent: x\nid: 7\nretry: 3\nfoo: bar\nfoo\ndata: a\n\n", []event{{"x", "a"}}},
		{"the type is for one event", "event: x\ndata: a\n\ndata: b\n\n", []event{{"x", "a"}, {"", "b"}}},
		{"a type without data is dropped", "event: x\n\ndata: b\n\n", []event{{"", "b"}}},
		{"multi-line", "data: {\"a\":\ndata: 1}\n\n", []event{{"", "{\"a\":\n1}"}}},
		{"multi-line, CRLF", "data: {\"a\":\r\ndata: 1}\r\n\r\n", []event{{"", "{\"a\":\n1}"}}},
		{"no empty lines", "data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]\n", []event{{"", `{"a":1}`}, {"", `{"b":2}`}, {"", "[DONE]"}}},
		{"no empty lines, with types", "event: x\ndata: {\"a\":1}\nevent: y\ndata: {\"b\":2}\n", []event{{"x", `{"a":1}`}, {"y", `{"b":2}`}}},
		{"empty data", "data\n\ndata:\n\n", []event{{"", ""}, {"", ""}}},
		{"end without an empty line", "data: a\n", []event{{"", "a"}}},
		{"end inside a line", "data: a", []event{{"", "a"}}},
		{"a bare object", "{\"error\":1}\n", []event{{"", `{"error":1}`}}},
		{"nothing", "", nil},
		{"a mark and nothing", "\ufeff", nil},
		{"empty lines", "\n\n\r\n\r\n", nil},
		{"two bytes", "{}", []event{{"", "{}"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, readAll(t, strings.NewReader(c.in))); d != "" {
				t.Errorf("in one read (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.want, readAll(t, iotest.OneByteReader(strings.NewReader(c.in)))); d != "" {
				t.Errorf("byte by byte (-want +got):\n%s", d)
			}
		})
	}
}

// An event is handed out as soon as its last byte is there.
func TestReaderDoesNotWait(t *testing.T) {
	in, out := io.Pipe()
	got := make(chan string, 8)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		r := NewReader(in)
		for {
			ev, err := r.Next()
			if err != nil {
				close(got)
				return
			}
			got <- string(ev.Data)
		}
	})
	for _, s := range []string{"data: one\n\n", "data: two\r\n\r\n", "data: three\r\r", "data: four\n\n"} {
		if _, err := io.WriteString(out, s); err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(s)[1]
		if g := <-got; g != want {
			t.Fatalf("got %q, want %q", g, want)
		}
	}
	_ = out.Close()
	if _, open := <-got; open {
		t.Error("one event too many")
	}
}

func TestReaderLongLine(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	got := readAll(t, iotest.HalfReader(strings.NewReader("data: "+long+"\n\ndata: b\n\n")))
	if len(got) != 2 || got[0].Data != long || got[1].Data != "b" {
		t.Errorf("%d events", len(got))
	}
}

func TestReaderError(t *testing.T) {
	r := NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	for _, want := range []string{"a", "b"} {
		if ev, err := r.Next(); err != nil || string(ev.Data) != want {
			t.Fatalf("%q, %v", ev.Data, err)
		}
	}
	if _, err := r.Next(); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
}

// FuzzReader: however a stream is cut into reads, the events are the same, and nothing panics or loops.
func FuzzReader(f *testing.F) {
	f.Add("data: a\r\n\r\ndata: {\"b\":1}\ndata: {\"c\":2}\n\n", 3, 5)
	f.Add("\ufeffevent: x\rdata\r\rdata: [DONE]\n{\"error\":1}", 1, 2)
	f.Add("data: a\r", 7, 1)
	f.Fuzz(func(t *testing.T, in string, first, second int) {
		whole := readAll(t, strings.NewReader(in))
		if d := cmp.Diff(whole, readAll(t, iotest.OneByteReader(strings.NewReader(in)))); d != "" {
			t.Fatalf("byte by byte (-whole +cut):\n%s", d)
		}
		var cut pieces
		rest := in
		for _, n := range []int{first, second, first} {
			n = max(0, min(n, len(rest)))
			cut, rest = append(cut, rest[:n]), rest[n:]
		}
		cut = append(cut, rest)
		if d := cmp.Diff(whole, readAll(t, &cut)); d != "" {
			t.Fatalf("in pieces (-whole +cut):\n%s", d)
		}
	})
}

// FuzzAppendString: what is appended is what encoding/json would read back.
func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\x00\x7f\u2028é\xff\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendString([]byte("x"), s)[1:]
		var back string
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%v in %s", err, got)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); back != want && len(back) != len([]rune(back)) && strings.ReplaceAll(back, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
			t.Fatalf("%q became %q", s, back)
		}
		raw, err := json.Marshal(s)
		var reference string
		if err != nil || json.Unmarshal(raw, &reference) != nil || reference != back {
			t.Fatalf("%q, encoding/json says %q", back, reference)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	const chunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" hello"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	stream := strings.Repeat(chunk, 10_000)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(strings.NewReader(stream))
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/event")
}

func BenchmarkAppendString(b *testing.B) {
	s := strings.Repeat("a line of output with \"quotes\" and é\n", 1000)
	b.SetBytes(int64(len(s)))
	var buf []byte
	for b.Loop() {
		buf = AppendString(buf[:0], s)
	}
}
