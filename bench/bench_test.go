// Package bench measures the built program from outside: what a user of it waits for and pays.
//
//	go test -run '^$' -bench . ./bench
//
// Figures are medians (p50) over the iterations; quote them with the machine.
package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "dsh-bench-*")
	if err != nil {
		panic(err)
	}
	if binary = os.Getenv("DSH_BENCH_EXE"); binary != "" { // another build, for comparisons
		os.Exit(m.Run())
	}
	binary = filepath.Join(dir, "dsh-web")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/dsh-web").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// server is a running program.
type server struct {
	cmd   *exec.Cmd
	url   string
	token string
	ready time.Duration // from exec to the first 200 of /healthz
}

func start(b *testing.B, data string, env ...string) *server {
	b.Helper()
	s := &server{cmd: exec.Command(binary, "serve", "--listen", "127.0.0.1:0", "--data", data, "--log-level", "error")}
	s.cmd.Env = append(append(os.Environ(), "DSH_WEB_DEMO_PACE=0s"), env...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	s.url = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "dsh-web listening on "), "/")
	s.do(b, "GET", "/healthz", "")
	s.ready = time.Since(begin)
	raw, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		b.Fatal(err)
	}
	s.token = strings.TrimSpace(string(raw))
	return s
}

func (s *server) stop(b *testing.B) {
	b.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

func (s *server) do(b *testing.B, method, path, body string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		b.Fatalf("%s %s: %s %v\n%s", method, path, res.Status, err, raw)
	}
	return string(raw)
}

// resident is the process's resident memory in MB.
func (s *server) resident(b *testing.B) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		b.Skip("needs /proc")
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kb) / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

// report gives the median and the 99th percentile in milliseconds.
func report(b *testing.B, all []time.Duration) {
	b.Helper()
	p50, p99 := quantiles(all)
	b.ReportMetric(p50, "ms/p50")
	b.ReportMetric(p99, "ms/p99")
	b.ReportMetric(0, "ns/op")
}

// quantiles sorts and gives the median and the 99th percentile in milliseconds.
func quantiles(all []time.Duration) (p50, p99 float64) {
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return ms(all[len(all)/2]), ms(all[len(all)*99/100])
}

// BenchmarkStart is from exec to the first 200, on a fresh data directory.
func BenchmarkStart(b *testing.B) {
	var all []time.Duration
	resident := 0.0
	for b.Loop() {
		s := start(b, b.TempDir())
		all = append(all, s.ready)
		resident = s.resident(b)
		s.stop(b)
	}
	report(b, all)
	b.ReportMetric(resident, "MB/idle")
}

// BenchmarkCreate creates minimal sessions over HTTP, durable commit included.
func BenchmarkCreate(b *testing.B) {
	s := start(b, b.TempDir())
	defer s.stop(b)
	ws := b.TempDir()
	var all []time.Duration
	for b.Loop() {
		begin := time.Now()
		s.do(b, "POST", "/api/v1/sessions", `{"preset":"minimal","workspace":"`+ws+`"}`)
		all = append(all, time.Since(begin))
	}
	report(b, all)
}
