package web_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model/script"
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

// BenchmarkGetSession reads one session over a kept connection. Budget: 1 ms p99.
func BenchmarkGetSession(b *testing.B) {
	r := newRig(b, options{})
	r.create(map[string]any{"id": "one"})
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begun := time.Now()
		res := r.plain("GET", "/sessions/one")
		took = append(took, time.Since(begun))
		if res != 200 {
			b.Fatal(res)
		}
	}
	b.ReportMetric(float64(percentile(took, 99).Microseconds()), "p99-µs")
}

// BenchmarkHistoryPage reads a page of 256 KiB. Budget: 10 ms.
func BenchmarkHistoryPage(b *testing.B) {
	big := strings.Repeat("some text of a long answer; ", 400)
	r := newRig(b, options{source: script.ByHistory(script.Turn{script.Text(big)})})
	r.create(map[string]any{"id": "one"})
	for range 40 {
		r.say("one", "hi")
	}
	b.ResetTimer()
	size := 0
	for b.Loop() {
		req, _ := http.NewRequest("GET", r.base+"/api/v1/sessions/one/events?after=0&limit=1000", nil)
		req.Header.Set("Authorization", "Bearer "+r.token)
		res, err := r.client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		var page struct{ Events []json.RawMessage }
		if err := json.NewDecoder(res.Body).Decode(&page); err != nil {
			b.Fatal(err)
		}
		_ = res.Body.Close()
		size = 0
		for _, e := range page.Events {
			size += len(e)
		}
	}
	b.ReportMetric(float64(size), "page-B")
}

// BenchmarkFanOut measures how long after a commit 100 subscribers have its event. Budget: 5 ms p99.
func BenchmarkFanOut(b *testing.B) {
	const viewers = 100
	r := newRig(b, options{})
	r.create(map[string]any{"id": "one"})
	var begun time.Time
	var mu sync.Mutex
	var took []time.Duration
	arrived := make(chan struct{}, viewers)
	var readers sync.WaitGroup
	var all []*viewer
	for range viewers {
		v := r.view()
		v.check = false
		v.subscribe("one", -1)
		v.until("caughtUp", isType("caughtUp"))
		all = append(all, v)
		readers.Go(func() {
			for {
				f, err := v.read()
				if err != nil {
					return
				}
				if f.Type == "event" {
					mu.Lock()
					took = append(took, time.Since(begun))
					mu.Unlock()
					arrived <- struct{}{}
				}
			}
		})
	}
	h, err := r.host.Session(b.Context(), "one")
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		title := fmt.Sprintf("title %d", n)
		n++
		mu.Lock()
		begun = time.Now()
		mu.Unlock()
		if _, err := h.Patch(b.Context(), host.Patch{Title: &title}); err != nil {
			b.Fatal(err)
		}
		for range viewers {
			<-arrived
		}
	}
	b.ReportMetric(float64(percentile(took, 99).Microseconds()), "p99-µs")
	b.ReportMetric(float64(percentile(took, 50).Microseconds()), "p50-µs")
	h.Release()
	for _, v := range all {
		v.close()
	}
	readers.Wait()
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

func resident(b *testing.B) int64 {
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	var total, rss int64
	if _, err := fmt.Sscan(string(data), &total, &rss); err != nil {
		b.Fatal(err)
	}
	return rss * int64(os.Getpagesize())
}
