package web_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/web/socket"
)

// TestGuide runs the commands of the guide. websocat is played by this test's own binary.
func TestGuide(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	text, err := os.ReadFile("../docs/guide/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands strings.Builder
	commands.WriteString("set -eu\n")
	blocks := 0
	for rest := string(text); ; {
		_, after, found := strings.Cut(rest, "```sh\n")
		if !found {
			break
		}
		block, next, _ := strings.Cut(after, "```")
		commands.WriteString(block)
		rest = next
		blocks++
	}
	if blocks < 10 {
		t.Fatalf("only %d blocks", blocks)
	}
	r := newRig(t, options{})
	home := t.TempDir()
	self, err := os.Executable()
	r.must(err)
	r.must(os.Symlink(self, filepath.Join(home, "websocat")))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", commands.String())
	c.Dir = home
	c.Env = append(os.Environ(), "URL="+r.base, "TOKEN="+r.token, "HOME="+home, "PATH="+home+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"You are a helpful software engineer assistant.", "hello", `"caughtUp"`, `"contiguous":true`, `"outcome":"allowed"`, `"policy":"ask"`, `"parent":"walk"`, `"group":"attempts"`} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the output lacks %s", want)
		}
	}
	var sessions host.List
	r.want(200, "GET", "/sessions", nil, &sessions)
	if a := r.call("GET", "/presets/careful", nil); len(sessions.Sessions) != 0 || a.status != 404 {
		t.Errorf("left over: %+v, preset careful: %d", sessions.Sessions, a.status)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// websocat is as much of that tool as the guide uses: lines of its input are messages, messages are lines of its output.
func websocat(args []string) error {
	header := http.Header{}
	var url, protocol string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case strings.HasPrefix(a, "-H="):
			name, value, _ := strings.Cut(a[3:], ": ")
			header.Set(name, value)
		case a == "--protocol":
			i++
			protocol = args[i]
		case !strings.HasPrefix(a, "-"):
			url = a
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, _, err := socket.Dial(ctx, url, header, socket.Options{ReadLimit: 1 << 20}, protocol)
	if err != nil {
		return err
	}
	defer c.Abort()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := c.Write(false, lines.Bytes()); err != nil {
			return err
		}
	}
	for {
		_, data, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if _, err := fmt.Println(string(data)); err != nil {
			return err
		}
		if bytes.Contains(data, []byte(`"caughtUp"`)) {
			return nil // what reads this has seen enough
		}
	}
}
