//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
)

// built makes the real binary, as a release has it. DSH_BENCH_EXE names another one to measure, for comparisons.
func built(b *testing.B) string {
	b.Helper()
	if exe := os.Getenv("DSH_BENCH_EXE"); exe != "" {
		return exe
	}
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
	return launch(b, exec.Command(exe, "--profile", "sdk-minimal"), []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "DSH_HOME=" + home, "DEEPSEEK_BASE_URL=" + url, "DEEPSEEK_API_KEY=key-for-tests",
		"DSH_SYNCHRONOUS=" + os.Getenv("DSH_SYNCHRONOUS"),
	})
}

func launch(b *testing.B, cmd *exec.Cmd, env []string) *driver {
	b.Helper()
	cmd.Env = env
	d := &driver{cmd: cmd}
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

// until sends a frame, reads to a line that holds a text, and gives what it read.
func (d *driver) until(b *testing.B, send, text string) (lines []string) {
	b.Helper()
	if _, err := io.WriteString(d.in, send+"\n"); err != nil {
		b.Fatal(err)
	}
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			b.Fatalf("before %s: %v", text, err)
		}
		lines = append(lines, line)
		if strings.Contains(line, text) {
			return lines
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

// pong is what this binary answers to every line when it stands in for dsh: the frames in the file that the variable names.
const pong = "DSH_TEST_PONG"

func playPong(file string) {
	frames, err := os.ReadFile(file)
	for in := bufio.NewReader(os.Stdin); err == nil; {
		if _, err = in.ReadSlice('\n'); err == nil {
			_, err = os.Stdout.Write(frames)
		}
	}
	os.Exit(0)
}

// nullTurn is the client's share of a turn: the same frames from a process that does nothing else.
func nullTurn(b *testing.B, frames []string) time.Duration {
	b.Helper()
	file := filepath.Join(b.TempDir(), "frames")
	if err := os.WriteFile(file, []byte(strings.Join(frames, "")), 0o600); err != nil {
		b.Fatal(err)
	}
	d := launch(b, exec.Command(binary(b)), []string{pong + "=" + file})
	var took []time.Duration
	for range 200 {
		begin := time.Now()
		d.until(b, "{}", `"idle"`)
		took = append(took, time.Since(begin))
	}
	_ = d.in.Close()
	_ = d.cmd.Wait()
	return median(took)
}

// floor makes this binary do the least that a turn can be, and no more: a line read, two requests with a line to a bash and back in between, a line
// written.
const floor = "DSH_TEST_FLOOR"

func playFloor() {
	fatal := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	shell := exec.Command("bash", "--norc")
	commands, err := shell.StdinPipe()
	fatal(err)
	out, err := shell.StdoutPipe()
	fatal(err)
	fatal(shell.Start())
	results := bufio.NewReader(out)
	ask := func(messages string) {
		q, err := http.NewRequest(http.MethodPost, os.Getenv(floor)+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[`+messages+`]}`))
		fatal(err)
		answer, err := http.DefaultTransport.RoundTrip(q)
		fatal(err)
		_, err = io.Copy(io.Discard, answer.Body)
		fatal(err)
		fatal(answer.Body.Close())
	}
	for in := bufio.NewReader(os.Stdin); ; {
		if _, err := in.ReadSlice('\n'); err != nil {
			os.Exit(0)
		}
		ask(`{"role":"user","content":"go"}`)
		_, err := io.WriteString(commands, "eval true; echo $?\n")
		fatal(err)
		_, err = results.ReadSlice('\n')
		fatal(err)
		ask(`{"role":"user","content":"go"},{"role":"tool","tool_call_id":"c","content":""}`)
		_, err = os.Stdout.WriteString("\"idle\"\n")
		fatal(err)
	}
}

// floorTurn is what such a turn takes beyond the model.
func floorTurn(b *testing.B, url string, took <-chan time.Duration) time.Duration {
	b.Helper()
	d := launch(b, exec.Command(binary(b)), []string{floor + "=" + url, "PATH=" + os.Getenv("PATH")})
	var all []time.Duration
	for range 200 {
		begin := time.Now()
		d.until(b, "{}", `"idle"`)
		turn := time.Since(begin)
		all = append(all, turn-<-took-<-took)
	}
	_ = d.in.Close()
	_ = d.cmd.Wait()
	return median(all)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// turnsEach is how many turns each process is timed over; its history grows to twice as many messages of each side.
const turnsEach = 30

// BenchmarkProcess: start to the answer of initialize; resident memory with one shell that was used; a turn of two model calls and one bash call;
// shutdown to the end of the process. Figures are medians. Of a turn:
//
//	turn-ms    from the prompt written to idle read
//	beyond-ms  the same without what the model's server took for its two answers, each from the last byte of the request read to its own last one
//	           written: two HTTP round trips, four commits and the shell's work are in it
//	floor-ms   the least that beyond-ms can be: the round trips alone
//	null-ms    the client's share in all: the same frames from a process that does nothing
func BenchmarkProcess(b *testing.B) {
	for _, synchronous := range []string{"full", "normal"} {
		b.Run("synchronous="+synchronous, func(b *testing.B) {
			b.Setenv("DSH_SYNCHRONOUS", synchronous)
			benchmarkProcess(b)
		})
	}
}

func benchmarkProcess(b *testing.B) {
	exe := built(b)
	took := make(chan time.Duration, 2)
	served := script.NewHandler(func(q model.Request) (script.Turn, error) {
		if last := q.Messages[len(q.Messages)-1]; last.Source.Kind == "tool" {
			return script.Turn{script.Text("done")}, nil
		}
		return script.Turn{bashCall("", "true")}, nil
	})
	served.Took = func(d time.Duration) { took <- d }
	server := httptest.NewServer(served)
	defer server.Close()
	var start, exit, turn, beyond []time.Duration
	var resident []int
	var frames []string
	for b.Loop() {
		home, ws := b.TempDir(), b.TempDir()
		begin := time.Now()
		d := drive(b, exe, home, server.URL)
		d.until(b, hello(b, ws), `"serverInfo"`)
		start = append(start, time.Since(begin))
		const prompt = `{"id":2,"method":"session/prompt","params":{"sessionId":"s","contentBlocks":[{"type":"text","text":"go"}]}}`
		for n := range 1 + turnsEach {
			begin = time.Now()
			frames = d.until(b, prompt, `"idle"`)
			all := time.Since(begin)
			if model := <-took + <-took; n > 0 { // the shell starts in the first
				turn, beyond = append(turn, all), append(beyond, all-model)
			}
		}
		resident = append(resident, rss(b, d.cmd.Process.Pid))
		begin = time.Now()
		d.until(b, `{"id":3,"method":"shutdown"}`, `"id":3`)
		_ = d.in.Close()
		if err := d.cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		exit = append(exit, time.Since(begin))
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	slices.Sort(resident)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(median(start)), "start-ms")
	b.ReportMetric(ms(median(exit)), "exit-ms")
	b.ReportMetric(ms(median(turn)), "turn-ms")
	b.ReportMetric(ms(median(beyond)), "beyond-ms")
	b.ReportMetric(ms(floorTurn(b, server.URL, took)), "floor-ms")
	b.ReportMetric(ms(nullTurn(b, frames)), "null-ms")
	b.ReportMetric(float64(resident[len(resident)/2])/(1<<20), "MiB-resident")
}
