package web_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web"
)

// BenchmarkNew is the share of a host's start that making the server takes.
func BenchmarkNew(b *testing.B) {
	r := newRig(b, options{})
	b.ReportAllocs()
	var keep []*web.Server
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		s, err := web.New(web.Config{Host: r.host, Keys: r.keys})
		if err != nil {
			b.Fatal(err)
		}
		keep = append(keep, s)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(keep)), "heap-B/op")
	runtime.KeepAlive(keep)
}

// BenchmarkTokens forwards model tokens to one viewer as fast as possible. Budgets: 196,000 a second, 12 bytes of wire each.
func BenchmarkTokens(b *testing.B) {
	r := newRig(b, options{source: func() script.Source {
		return script.ByHistory(script.Turn{script.Repeat(b.N, "word ")})
	}()})
	r.create(map[string]any{"id": "one", "title": "bench"})
	v := r.view()
	v.check = false
	v.subscribe("one", -1)
	v.until("caughtUp", isType("caughtUp"))
	b.ResetTimer()
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
	bytes, frames := 0, 0
	for {
		f := v.nextAny()
		if f.Type == "delta" || f.Type == "block" {
			bytes += len(v.raw) + 4
			frames++
		}
		if f.Type == "event" && f.Event.Type == "turn/end" {
			break
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64(bytes)/float64(b.N), "wire-B/token")
	b.ReportMetric(float64(frames), "frames")
}

// BenchmarkTokensAt50 streams at 50 tokens a second. Budget: 120 bytes of wire each.
func BenchmarkTokensAt50(b *testing.B) {
	var turn script.Turn
	for range 50 {
		turn = append(turn, script.Text("word "), script.Pause(20*time.Millisecond))
	}
	r := newRig(b, options{source: script.ByHistory(turn)})
	r.create(map[string]any{"id": "one", "title": "bench"})
	v := r.view()
	v.check = false
	v.subscribe("one", -1)
	bytes, tokens := 0, 0
	for b.Loop() {
		r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
		for {
			f := v.nextAny()
			if f.Type == "delta" || f.Type == "block" {
				bytes += len(v.raw) + 2
			}
			if f.Type == "event" && f.Event.Type == "turn/end" {
				break
			}
		}
		tokens += 50
	}
	b.ReportMetric(float64(bytes)/float64(tokens), "wire-B/token")
}

// BenchmarkGetSessionOpenLoop asks for one session 500 times a second, however long the answers take. A request's latency counts from when it was
// put to the clients; the clock that puts it may be a millisecond late. Budget: 1 ms p99.
func BenchmarkGetSessionOpenLoop(b *testing.B) {
	const rate, clients = 500, 16
	r := newRig(b, options{})
	r.create(map[string]any{"id": "one"})
	due := make(chan time.Time, b.N)
	took := make(chan time.Duration, b.N)
	var all sync.WaitGroup
	for range clients {
		c := r.bare("/sessions/one")
		all.Go(func() {
			for at := range due {
				if err := c.get(); err != nil {
					b.Error(err)
				}
				took <- time.Since(at)
			}
		})
	}
	b.ResetTimer()
	begun := time.Now()
	for i := range b.N {
		at := begun.Add(time.Duration(i) * time.Second / rate)
		if wait := time.Until(at); wait > 0 {
			<-time.After(wait)
		}
		due <- time.Now()
	}
	close(due)
	all.Wait()
	report(b, took)
}

// BenchmarkGetSessionClosedLoop has 50 clients that each ask again at once. Budget: 10 ms p99.
func BenchmarkGetSessionClosedLoop(b *testing.B) {
	const clients = 50
	r := newRig(b, options{})
	r.create(map[string]any{"id": "one"})
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make(chan time.Duration, b.N)
	var all sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(clients)
	begin := make(chan struct{})
	for range clients {
		c := r.bare("/sessions/one")
		all.Go(func() {
			if err := c.get(); err != nil { // connected
				b.Error(err)
			}
			ready.Done()
			<-begin
			for left.Add(-1) >= 0 {
				at := time.Now()
				if err := c.get(); err != nil {
					b.Error(err)
				}
				took <- time.Since(at)
			}
		})
	}
	ready.Wait()
	b.ResetTimer()
	close(begin)
	all.Wait()
	report(b, took)
}

// report tells percentiles of what is in the channel.
func report(b *testing.B, took chan time.Duration) {
	b.StopTimer()
	close(took)
	var all []time.Duration
	for d := range took {
		all = append(all, d)
	}
	b.ReportMetric(float64(percentile(all, 50).Microseconds()), "p50-µs")
	b.ReportMetric(float64(percentile(all, 99).Microseconds()), "p99-µs")
}

// bareClient asks for one path over a kept connection. Next to nothing of what is measured is its own work.
type bareClient struct {
	net.Conn
	in      *bufio.Reader
	request []byte
	body    []byte
}

func (r *rig) bare(path string) *bareClient {
	c, err := net.Dial("tcp", r.addr)
	r.must(err)
	r.t.Cleanup(func() { _ = c.Close() })
	return &bareClient{Conn: c, in: bufio.NewReaderSize(c, 64<<10),
		request: fmt.Appendf(nil, "GET /api/v1%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, r.addr, r.token)}
}

// get asks once and reads the whole answer into body.
func (c *bareClient) get() error {
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil || !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("answer %q: %w", status, err)
	}
	size := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if text, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
				return err
			}
		}
	}
	if size < 0 { // in chunks
		c.body = c.body[:0]
		for {
			line, err := c.in.ReadSlice('\n')
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
			if err != nil {
				return err
			}
			at := len(c.body)
			c.body = slices.Grow(c.body, int(n)+2)[:at+int(n)+2]
			if _, err := io.ReadFull(c.in, c.body[at:]); err != nil {
				return err
			}
			c.body = c.body[:at+int(n)]
			if n == 0 {
				return nil
			}
		}
	}
	c.body = slices.Grow(c.body[:0], size)[:size]
	_, err = io.ReadFull(c.in, c.body)
	return err
}

// BenchmarkHistoryPage reads a page of 256 KiB, from the store. Budget: 10 ms.
func BenchmarkHistoryPage(b *testing.B) {
	big := strings.Repeat("some text of a long answer; ", 400)
	r := newRig(b, options{source: script.ByHistory(script.Turn{script.Text(big)})})
	r.create(map[string]any{"id": "one"})
	for range 60 {
		r.say("one", "hi")
	}
	c := r.bare("/sessions/one/events?after=-1&limit=1000")
	took := make(chan time.Duration, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		at := time.Now()
		if err := c.get(); err != nil {
			b.Fatal(err)
		}
		took <- time.Since(at)
	}
	report(b, took)
	b.ReportMetric(float64(len(c.body)), "page-B")
}

// BenchmarkFanOut measures how long after a commit 100 subscribers have its event: from the publication and, with the commit, from the call.
// Budget: 5 ms p99.
func BenchmarkFanOut(b *testing.B) {
	const viewers = 100
	r := newRig(b, options{})
	r.create(map[string]any{"id": "one"})
	var published atomic.Int64 // nanoseconds since begun
	var begun time.Time
	clock := time.Now()
	defer r.host.Observe(host.Observer{Committed: func([]session.Committed) { published.Store(int64(time.Since(clock))) }})()
	fromCommit, fromCall := make(chan time.Duration, b.N*viewers), make(chan time.Duration, b.N*viewers)
	arrived := make(chan struct{}, viewers)
	var readers sync.WaitGroup
	var all []net.Conn
	caughtUp := make(chan struct{}, viewers)
	for range viewers {
		c := r.stall("one")
		all = append(all, c)
		readers.Go(func() {
			_ = readFrames(c, func(data []byte) bool {
				switch {
				case bytes.Contains(data, []byte(`{"type":"caughtUp"`)):
					caughtUp <- struct{}{}
				case bytes.HasPrefix(data, []byte(`{"type":"event"`)) && bytes.Contains(data, []byte(`"session/title"`)):
					now := time.Since(clock)
					fromCommit <- max(0, now-time.Duration(published.Load()))
					fromCall <- now - begun.Sub(clock)
					arrived <- struct{}{}
				}
				return true
			})
		})
	}
	for range viewers {
		<-caughtUp
	}
	log, err := r.host.Journal().Open(b.Context(), "one")
	r.must(err)
	defer r.host.Journal().Release(log)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		begun = time.Now()
		if _, err := log.Update(b.Context(), func(session.State) ([]session.Draft, error) {
			return []session.Draft{{Payload: session.Title{Title: fmt.Sprint("title ", n)}}}, nil
		}); err != nil {
			b.Fatal(err)
		}
		for range viewers {
			<-arrived
		}
	}
	report(b, fromCommit)
	close(fromCall)
	var calls []time.Duration
	for d := range fromCall {
		calls = append(calls, d)
	}
	b.ReportMetric(float64(percentile(calls, 99).Microseconds()), "call-p99-µs")
	for _, c := range all {
		_ = c.Close()
	}
	readers.Wait()
}

// readFrames reads the rest of a handshake's answer, then unmasked, unfragmented frames, until take says no or the connection ends. data is
// good until the next one.
func readFrames(c io.Reader, take func(data []byte) bool) error {
	in := bufio.NewReaderSize(c, 16<<10)
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			return err
		}
	}
	var data []byte
	for {
		head, err := in.Peek(2)
		if err != nil {
			return err
		}
		size, skip := uint64(head[1]&0x7f), 2
		switch size {
		case 126:
			skip = 4
		case 127:
			skip = 10
		}
		if head, err = in.Peek(skip); err != nil {
			return err
		}
		switch skip {
		case 4:
			size = uint64(binary.BigEndian.Uint16(head[2:]))
		case 10:
			size = binary.BigEndian.Uint64(head[2:])
		}
		_, _ = in.Discard(skip) // it was peeked
		data = slices.Grow(data[:0], int(size))[:size]
		if _, err := io.ReadFull(in, data); err != nil {
			return err
		}
		if !take(data) {
			return nil
		}
	}
}

// BenchmarkIdleSockets opens sockets that watch one idle session. Budget of the server's half: 40 KB each.
func BenchmarkIdleSockets(b *testing.B) {
	const sockets = 1000
	r := newRig(b, options{web: func(c *web.Config) { c.Limits.Sockets = 2 * sockets }})
	r.create(map[string]any{"id": "one"})
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	before := resident(b)
	for range sockets {
		conns = append(conns, r.stall("one")) // a bare connection: next to nothing of the client's half is counted
	}
	for r.plain("GET", "/host") != 200 { // the last subscription has been taken by then
	}
	b.ReportMetric(float64(resident(b)-before)/sockets, "B/socket")
	b.ReportMetric(0, "ns/op")
}

// resident is the memory of this process after a collection.
func resident(t testing.TB) int64 {
	debug.FreeOSMemory()
	return statm(t)
}

func statm(t testing.TB) int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var total, rss int64
	if _, err := fmt.Sscan(string(data), &total, &rss); err != nil {
		t.Fatal(err)
	}
	return rss * int64(os.Getpagesize())
}
