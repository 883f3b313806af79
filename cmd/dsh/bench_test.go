//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
)

// built makes the real binary, as a release has it.
func built(b *testing.B) string {
	b.Helper()
	exe := filepath.Join(b.TempDir(), "dsh")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", exe, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return exe
}

type driver struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func drive(b *testing.B, exe, home, url string) *driver {
	b.Helper()
	d := &driver{cmd: exec.Command(exe, "--profile", "sdk-minimal")}
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "DSH_HOME=" + home, "DEEPSEEK_BASE_URL=" + url, "DEEPSEEK_API_KEY=key-for-tests"}
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	d.out = bufio.NewReaderSize(out, 1<<20)
	if err := d.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return d
}

// until sends a frame and reads to a line that holds a text.
func (d *driver) until(b *testing.B, send, text string) {
	b.Helper()
	if _, err := io.WriteString(d.in, send+"\n"); err != nil {
		b.Fatal(err)
	}
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			b.Fatalf("before %s: %v", text, err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

func hello(b *testing.B, ws string) string {
	b.Helper()
	raw, err := json.Marshal(map[string]any{"id": 1, "method": "initialize", "params": map[string]any{"cwd": ws, "provider": "deepseek", "model": "m"}})
	if err != nil {
		b.Fatal(err)
	}
	return string(raw)
}

// BenchmarkProcess: start to the answer of initialize; resident memory with one shell that was used; a bash turn of two model calls; shutdown to
// the end of the process.
func BenchmarkProcess(b *testing.B) {
	exe := built(b)
	server := httptest.NewServer(script.NewHandler(func(q model.Request) (script.Turn, error) {
		if last := q.Messages[len(q.Messages)-1]; last.Source.Kind == "tool" {
			return script.Turn{script.Text("done")}, nil
		}
		return script.Turn{bashCall("", "true")}, nil
	}))
	defer server.Close()
	var start, exit, turn time.Duration
	var resident, turns int
	for b.Loop() {
		home, ws := b.TempDir(), b.TempDir()
		begin := time.Now()
		d := drive(b, exe, home, server.URL)
		d.until(b, hello(b, ws), `"serverInfo"`)
		start += time.Since(begin)
		const prompt = `{"id":2,"method":"session/prompt","params":{"sessionId":"s","contentBlocks":[{"type":"text","text":"go"}]}}`
		d.until(b, prompt, `"idle"`)
		begin = time.Now()
		for range 10 {
			d.until(b, prompt, `"idle"`)
			turns++
		}
		turn += time.Since(begin)
		resident += rss(b, d.cmd.Process.Pid)
		begin = time.Now()
		d.until(b, `{"id":3,"method":"shutdown"}`, `"id":3`)
		_ = d.in.Close()
		if err := d.cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		exit += time.Since(begin)
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(start.Seconds()*1e3/n, "start-ms")
	b.ReportMetric(exit.Seconds()*1e3/n, "exit-ms")
	b.ReportMetric(turn.Seconds()*1e3/float64(turns), "turn-ms")
	b.ReportMetric(float64(resident)/n/(1<<20), "MiB-resident")
}
