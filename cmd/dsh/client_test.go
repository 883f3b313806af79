//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/proc"
)

// asBinary makes this test binary behave as dsh.
const asBinary = "DSH_TEST_AS_BINARY"

// noise makes it print as a careless library would, once the client's streams are taken.
const noise = "DSH_TEST_NOISE"

func TestMain(m *testing.M) {
	proc.RunKeeperIfAsked()
	if file := os.Getenv(pong); file != "" {
		playPong(file)
	}
	if os.Getenv(floor) != "" {
		playFloor()
	}
	if os.Getenv(asBinary) != "" {
		if os.Getenv(noise) != "" {
			go chatter() // ends with the process
		}
		main()
	}
	goleak.VerifyTestMain(m)
}

// chatter prints as soon as standard output leads elsewhere than the client.
func chatter() {
	for tick := time.NewTicker(time.Millisecond); ; {
		<-tick.C
		out, err1 := os.Stdout.Stat()
		elsewhere, err2 := os.Stderr.Stat()
		if err1 == nil && err2 == nil && os.SameFile(out, elsewhere) {
			fmt.Println("NOISE from a library")
			fmt.Fprintln(os.Stdout, `{"jsonrpc":"2.0","id":1,"result":"NOISE"}`)
		}
	}
}

// patienceTest bounds every wait; nothing waits that long unless it fails.
const patienceTest = 30 * time.Second

// rig is a scripted model server and a home.
type rig struct {
	t    *testing.T
	home string
	ws   string
	url  string
	*script.Handler
}

func newRig(t *testing.T, source script.Source) *rig {
	t.Helper()
	h := script.NewHandler(source)
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &rig{t: t, home: t.TempDir(), ws: t.TempDir(), url: server.URL, Handler: h}
}

// client is one dsh process and its frames.
type client struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	frames chan frame
	exited chan struct{}
	stderr lockedBuffer
	seen   []frame
	params map[string]any
	gate   sync.Mutex // held while the client reads nothing
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// frame is one line from dsh.
type frame struct {
	raw    string
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Method string `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		Status    string `json:"status"`
		Text      string `json:"text"`
		Event     struct {
			Seq  int64           `json:"seq"`
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		} `json:"event"`
	} `json:"params"`
}

func (f frame) event(typ string) bool { return f.Params.Event.Type == typ }

func (f frame) reason() (r struct{ Kind, Code, By, Message string }) {
	var end struct {
		Reason struct{ Kind, Code, By, Message string }
	}
	_ = json.Unmarshal(f.Params.Event.Data, &end)
	return end.Reason
}

func (r *rig) env(extra ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.home, asBinary + "=1", "DSH_HOME=" + r.home, "DEEPSEEK_BASE_URL=" + r.url, "DEEPSEEK_API_KEY=sk-test-key-123",
	}, extra...)
}

// start runs dsh. A later variable replaces an earlier one.
func (r *rig) start(env ...string) *client {
	r.t.Helper()
	c := &client{t: r.t, frames: make(chan frame, 100000), exited: make(chan struct{})}
	c.params = map[string]any{"cwd": r.ws, "provider": "deepseek", "model": "test-model"}
	c.cmd = exec.Command(binary(r.t), "--profile", "sdk-minimal")
	c.cmd.Env = r.env(env...)
	c.cmd.Stderr = &c.stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	c.out, c.cmd.Stdout = read, write
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	_ = write.Close()
	var group sync.WaitGroup
	group.Go(func() {
		defer close(c.frames)
		lines := bufio.NewReader(c.out)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			f := frame{raw: strings.TrimSuffix(line, "\n")}
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				f.Method = "garbage"
			}
			c.frames <- f
			c.pass()
		}
	})
	group.Go(func() {
		defer close(c.exited)
		_ = c.cmd.Wait()
	})
	r.t.Cleanup(func() {
		_ = c.in.Close()
		select {
		case <-c.exited:
		case <-time.After(patienceTest):
			_ = c.cmd.Process.Kill()
			r.t.Errorf("dsh didn't end with its input")
		}
		_ = c.out.Close()
		group.Wait()
		if r.t.Failed() && c.stderr.String() != "" {
			r.t.Logf("stderr: %s", c.stderr.String())
		}
	})
	return c
}

// pass waits while the gate is held.
func (c *client) pass() {
	c.gate.Lock()
	defer c.gate.Unlock()
}

func binary(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func (c *client) write(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, s); err != nil {
		c.t.Fatalf("write: %v\n%s", err, c.stderr.String())
	}
}

func (c *client) send(id any, method string, params any) {
	c.t.Helper()
	raw, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(string(raw) + "\n")
}

func prompt(session, text string) any {
	return map[string]any{"sessionId": session, "contentBlocks": []any{map[string]any{"type": "text", "text": text}}}
}

// until reads frames up to one that is meant, and gives it.
func (c *client) until(what string, ok func(frame) bool) frame {
	c.t.Helper()
	late := time.After(patienceTest)
	for {
		select {
		case f, open := <-c.frames:
			if !open {
				c.t.Fatalf("never: %s; dsh has ended\n%s\n%s", what, c.tail(), c.stderr.String())
			}
			c.seen = append(c.seen, f)
			if ok(f) {
				return f
			}
		case <-late:
			c.t.Fatalf("never: %s\n%s\n%s", what, c.tail(), c.stderr.String())
		}
	}
}

func (c *client) tail() string {
	var out strings.Builder
	for _, f := range c.seen[max(0, len(c.seen)-20):] {
		fmt.Fprintln(&out, f.raw[:min(len(f.raw), 400)])
	}
	return out.String()
}

// reply waits for the answer to a request.
func (c *client) reply(id any) frame {
	c.t.Helper()
	want, _ := json.Marshal(id)
	return c.until("the answer to "+string(want), func(f frame) bool { return bytes.Equal(f.ID, want) })
}

// call is a request and its answer, which must be a result.
func (c *client) call(id any, method string, params any) json.RawMessage {
	c.t.Helper()
	c.send(id, method, params)
	f := c.reply(id)
	if f.Error != nil {
		c.t.Fatalf("%s: %+v", method, *f.Error)
	}
	return f.Result
}

// refused is a request and its answer, which must be an error.
func (c *client) refused(id any, method string, params any) (code int, message string) {
	c.t.Helper()
	c.send(id, method, params)
	f := c.reply(id)
	if f.Error == nil {
		c.t.Fatalf("%s: it was answered: %s", method, f.Result)
	}
	return f.Error.Code, f.Error.Message
}

func (c *client) initialize() {
	c.t.Helper()
	c.call("init", "initialize", c.params)
}

// turn sends a message and gives the frame of its turn's end, after idle.
func (c *client) turn(session, text string) frame {
	c.t.Helper()
	c.call("turn", "session/prompt", prompt(session, text))
	end := c.until("turn/end", func(f frame) bool { return f.event("turn/end") && f.Params.SessionID == session })
	c.until("idle", func(f frame) bool { return f.Params.Status == "idle" && f.Params.SessionID == session })
	return end
}

// wait waits for the end and gives the exit code, -1 for a signal.
func (c *client) wait() int {
	c.t.Helper()
	select {
	case <-c.exited:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(patienceTest):
		c.t.Fatalf("dsh doesn't end\n%s", c.stderr.String())
		return 0
	}
}

// log reads a session's file, one event a line, the header first.
func (r *rig) log(session string) (path string, lines []string) {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.home, "sessions", "--*--", session, "session.jsonl"))
	if err != nil || len(found) != 1 {
		r.t.Fatalf("session files: %v %v", found, err)
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return found[0], strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
}

func typeOf(line string) string {
	var e struct{ Type string }
	_ = json.Unmarshal([]byte(line), &e)
	return e.Type
}

// system and messages of a request that the model server got.
func requestOf(t *testing.T, rec script.Recorded) (system string, messages, tools int, body string) {
	t.Helper()
	var req struct {
		Messages []struct {
			Role    string
			Content any
		}
		Tools []any
	}
	if err := json.Unmarshal(rec.Body, &req); err != nil {
		t.Fatal(err)
	}
	for _, m := range req.Messages {
		if m.Role == "system" {
			system, _ = m.Content.(string)
		} else {
			messages++
		}
	}
	return system, messages, len(req.Tools), string(rec.Body)
}

// await looks again and again until a condition holds that nothing announces.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	tick, late := time.NewTicker(10*time.Millisecond), time.After(patienceTest)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("never: %s", what)
		}
	}
}

// marked lists the living processes with a marker in their command line.
func (r *rig) marked(marker string) []string {
	r.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		r.t.Fatal(err)
	}
	if len(files) == 0 {
		r.t.Skip("no /proc here")
	}
	var out []string
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err == nil && bytes.Contains(raw, []byte(marker)) {
			out = append(out, string(bytes.ReplaceAll(raw, []byte{0}, []byte{' '})))
		}
	}
	return out
}
