//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
	"github.com/dsh-web/dsh-web/sdk/rpc"
)

// deaf is a client that reads nothing.
type deaf struct {
	once sync.Once
	gone chan struct{}
}

func (d *deaf) Write([]byte) (int, error) { <-d.gone; return 0, io.ErrClosedPipe }
func (d *deaf) Close() error              { d.once.Do(func() { close(d.gone) }); return nil }

// TestTheEndOpensNothing: prompts that still wait when the server has closed its sessions don't open them again.
func TestTheEndOpensNothing(t *testing.T) {
	r := newRig(t, say("hi"))
	env := map[string]string{"DSH_HOME": r.home, "DEEPSEEK_BASE_URL": r.url, "DEEPSEEK_API_KEY": "key-for-tests"}
	c, err := readConfig("sdk-minimal", func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	s, err := open(t.Context(), c, logger)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	var owned atomic.Int32
	own := func(id string) error { owned.Add(1); return s.own(id) }
	in, requests := io.Pipe()
	server := rpc.New(rpc.Config{
		Host: s.host, In: in, Out: &deaf{gone: make(chan struct{})}, Own: own, Disown: s.store.Disown, Cwd: r.ws, Version: "test", Logger: logger,
	})
	var group sync.WaitGroup
	group.Go(func() { server.Serve(t.Context()) })
	send := func(method string, params any) {
		line, err := json.Marshal(map[string]any{"id": 1, "method": method, "params": params})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := requests.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	send("initialize", map[string]any{"provider": "deepseek", "model": "m"})
	for i := range 5 {
		send("session/prompt", prompt("s", fmt.Sprint(i)))
	}
	_ = requests.Close()
	group.Wait()
	if n := owned.Load(); n != 1 {
		t.Errorf("the session was opened %d times", n)
	}
}

// TestLockedWhileItIsMade: the refusal is the same whether the other process has made the session or is making it.
func TestLockedWhileItIsMade(t *testing.T) {
	r := newRig(t, say("hi"))
	dir := filepath.Join(r.home, "sessions", jsonl.ProjectName(r.ws), "s")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	release, err := session.LockFile(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	c := r.start()
	c.initialize()
	want := fmt.Sprintf("in use by process %d", os.Getpid())
	if code, message := c.refused(1, "session/prompt", prompt("s", "x")); code != -32603 || !strings.Contains(message, want) {
		t.Errorf("%d %s", code, message)
	}
}
