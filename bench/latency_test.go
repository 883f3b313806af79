package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/web/socket"
)

// mark is the width of a token's text in these benchmarks: its number, so that a viewer can tell when it was written.
const mark = 8

// pacer is a model server whose answer to a session's message is tokens, a number each, so many of them at each tick.
type pacer struct {
	tokens int
	tick   time.Duration
	each   int

	mu      sync.Mutex
	written map[string][]time.Time // by the text of the session's message
}

func (p *pacer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var q struct {
		Messages []struct{ Content string }
	}
	if json.Unmarshal(raw, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	times := make([]time.Time, 0, p.tokens)
	ticks := time.NewTicker(p.tick)
	defer ticks.Stop()
	out := http.NewResponseController(w)
	for n := range p.tokens {
		if n%p.each == 0 {
			<-ticks.C
		}
		times = append(times, time.Now())
		fmt.Fprintf(w, `data: {"id":"x","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":"%*d"},"finish_reason":null}]}`+"\n\n", mark, n)
		if (n+1)%p.each == 0 {
			_ = out.Flush()
		}
	}
	fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	p.mu.Lock()
	p.written[q.Messages[len(q.Messages)-1].Content] = times
	p.mu.Unlock()
}

// watch gives the times at which a websocket viewer got each token of the next answer, and waits for its end.
func (s *server) watch(ctx context.Context, id string, ready *sync.WaitGroup) (got []time.Time, err error) {
	conn, _, err := socket.Dial(ctx, strings.Replace(s.url, "http", "ws", 1)+"/api/v1/stream",
		http.Header{"Authorization": {"Bearer " + s.token}}, socket.Options{ReadLimit: 1 << 24}, "dsh-web.v1")
	if err != nil {
		ready.Done()
		return nil, err
	}
	defer conn.Abort()
	if err = conn.Write(false, []byte(`{"type":"subscribe","session":"`+id+`","after":-1}`)); err != nil {
		ready.Done()
		return nil, err
	}
	for text := ""; ; {
		_, raw, err := conn.Read(ctx)
		if err != nil {
			return got, err
		}
		now := time.Now()
		var f struct {
			Type, Text string
			Event      struct{ Type string }
		}
		if err := json.Unmarshal(raw, &f); err != nil {
			return got, err
		}
		switch {
		case f.Type == "caughtUp":
			ready.Done()
		case f.Type == "delta":
			for text += f.Text; len(text) >= mark; text = text[mark:] {
				if n, err := strconv.Atoi(strings.TrimSpace(text[:mark])); err != nil || n != len(got) {
					return got, fmt.Errorf("token %q in place of %d", text[:mark], len(got))
				}
				got = append(got, now)
			}
		case f.Event.Type == "turn/end":
			return got, nil
		}
	}
}

// latency lets sessions answer at once, a viewer on each, and gives how long each token was under way. What comes after the last frame of live text
// comes with the message, so a viewer may see fewer tokens than were written.
func latency(b *testing.B, s *server, p *pacer, ids []string) (all []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p.written = map[string][]time.Time{}
	got := make([][]time.Time, len(ids))
	errs := make([]error, len(ids))
	var ready, viewers sync.WaitGroup
	for i, id := range ids {
		ready.Add(1)
		viewers.Go(func() { got[i], errs[i] = s.watch(ctx, id, &ready) })
	}
	ready.Wait()
	for _, id := range ids {
		s.do(b, "POST", "/api/v1/sessions/"+id+"/messages", `{"content":"`+id+`"}`)
	}
	viewers.Wait()
	for i, id := range ids {
		if errs[i] != nil {
			b.Fatal(errs[i])
		}
		if len(got[i]) < p.tokens/2 {
			b.Fatalf("%s: %d of %d tokens", id, len(got[i]), p.tokens)
		}
		for n, at := range got[i] {
			all = append(all, at.Sub(p.written[id][n]))
		}
	}
	return all
}

// BenchmarkLatency is how long tokens are under way, from just before the model's server writes one to its arrival in a frame at a websocket viewer:
//
//	silence  one session, a token every 25 ms. Budget: 1 ms p99
//	fifty    50 sessions of 50 tokens a second, a viewer each. Budget: 10 ms p99
//	flood    one session, 50,000 tokens a second. Budget: 10 ms p99
//
// The model's server and the viewers are in this process, on the same cores. More than the program can take isn't tried here: what waits in the kernel then
// would be measured.
func BenchmarkLatency(b *testing.B) {
	for _, c := range []struct {
		name     string
		sessions int
		pacer    *pacer
	}{
		{"silence", 1, &pacer{tokens: 300, tick: 25 * time.Millisecond, each: 1}},
		{"fifty", 50, &pacer{tokens: 100, tick: 20 * time.Millisecond, each: 1}},
		{"flood", 1, &pacer{tokens: 100_000, tick: 2 * time.Millisecond, each: 100}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := c.pacer
			s := withModel(b, p)
			ws := b.TempDir()
			var all []time.Duration
			made := 0
			for b.Loop() {
				ids := make([]string, c.sessions)
				for i := range ids {
					made++
					ids[i] = fmt.Sprint("s", made)
					s.do(b, "POST", "/api/v1/sessions", `{"id":"`+ids[i]+`","preset":"minimal","workspace":"`+ws+`"}`)
				}
				all = append(all, latency(b, s, p, ids)...)
			}
			report(b, all)
			b.ReportMetric(float64(all[len(all)-1].Microseconds())/1e3, "ms/max")
		})
	}
}
