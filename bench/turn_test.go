package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
)

// withModel starts the program with a model server of this process as its deepseek.
func withModel(b *testing.B, h http.Handler) *server {
	b.Helper()
	m := httptest.NewServer(h)
	b.Cleanup(m.Close)
	s := start(b, b.TempDir(), "DEEPSEEK_BASE_URL="+m.URL, "DEEPSEEK_API_KEY=key-for-benchmarks")
	b.Cleanup(func() { s.stop(b) })
	return s
}

// arrival is an event that a viewer got.
type arrival struct {
	kind string
	at   time.Time
}

// follow reads a session's events as they come until ctx ends.
func (s *server) follow(ctx context.Context, b *testing.B, session string) <-chan arrival {
	b.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/sessions/"+session+"/events?after=-1", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	out := make(chan arrival, 1000)
	go func() { // it ends with ctx, which the caller ends
		defer close(out)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data:")
			if !ok {
				continue
			}
			at := time.Now()
			var e struct{ Type string }
			if json.Unmarshal([]byte(data), &e) == nil {
				out <- arrival{e.Type, at}
			}
		}
	}()
	return out
}

// cpu is the processor time that the program has used so far, without its children's. It counts in hundredths of a second.
func (s *server) cpu(b *testing.B) time.Duration {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat"))
	if err != nil {
		b.Skip("needs /proc")
	}
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		b.Fatal(err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// turnsEach is how many turns a session has before another one takes over.
const turnsEach = 30

// BenchmarkBashTurn is a whole turn with one bash call: a message over HTTP that is answered at its end, two answers of a model's server, the call. Medians
// and the 99th percentile of
//
//	turn    from the request to its answer
//	beyond  the same without what the model's server took for its two answers, from the last byte of a request read to its own last one written
//	call    from the arrival of the tool/call event at a viewer to that of the tool/result event
func BenchmarkBashTurn(b *testing.B) {
	took := make(chan time.Duration, 2)
	served := script.NewHandler(func(q model.Request) (script.Turn, error) {
		if last := q.Messages[len(q.Messages)-1]; last.Source.Kind == model.SourceTool {
			return script.Turn{script.Text("done")}, nil
		}
		return script.Turn{script.CallJSON("", "bash", map[string]string{"command": "true"})}, nil
	})
	served.Took = func(d time.Duration) { took <- d }
	s := withModel(b, served)
	ws := b.TempDir()
	var turns, beyond, calls []time.Duration
	var id string
	var events <-chan arrival
	stop := func() {}
	one := func() (turn, past, call time.Duration) {
		begin := time.Now()
		s.do(b, "POST", "/api/v1/sessions/"+id+"/messages?wait=idle", `{"content":"go"}`)
		turn = time.Since(begin)
		var called time.Time
		for e := range events {
			switch e.kind {
			case "tool/call":
				called = e.at
			case "tool/result":
				call = e.at.Sub(called)
			}
			if e.kind == "turn/end" {
				break
			}
		}
		return turn, turn - <-took - <-took, call
	}
	var used time.Duration
	for n := 0; b.Loop(); n++ {
		if n%turnsEach == 0 {
			stop()
			id = fmt.Sprint("s", n)
			s.do(b, "POST", "/api/v1/sessions", `{"id":"`+id+`","preset":"minimal","workspace":"`+ws+`"}`)
			ctx, cancel := context.WithCancel(context.Background())
			stop, events = cancel, s.follow(ctx, b, id)
			one() // the shell starts
		}
		before := s.cpu(b)
		turn, past, call := one()
		turns, beyond, calls = append(turns, turn), append(beyond, past), append(calls, call)
		used += s.cpu(b) - before
	}
	stop()
	report(b, turns)
	p50, p99 := quantiles(beyond)
	b.ReportMetric(p50, "beyond-ms/p50")
	b.ReportMetric(p99, "beyond-ms/p99")
	p50, p99 = quantiles(calls)
	b.ReportMetric(p50, "call-ms/p50")
	b.ReportMetric(p99, "call-ms/p99")
	b.ReportMetric(used.Seconds()*1e3/float64(b.N), "cpu-ms/turn")
}
