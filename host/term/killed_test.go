//go:build linux || darwin

package term_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/term"
)

// leftBehind hides processes in every usual way, and keeps one in the foreground.
const leftBehind = `sleep 99 & (setsid sleep 98 &); env -i setsid sh -c 'sleep 97 & exec sleep 96' & nohup sleep 95 >/dev/null 2>&1 & echo on; sleep 94`

// actAsHost is a host of its own: three agents, each in the middle of a call, until it is killed.
func actAsHost(dir string) error {
	in, err := proc.Open(proc.Options{Keeper: true, Dir: dir})
	if err != nil {
		return err
	}
	var all []*term.Terminals
	for range 3 {
		ts := term.New(term.Options{Proc: in, Dir: dir})
		on := make(chan struct{})
		go func() { // until this process is killed
			_, _ = ts.Run(context.Background(), term.Request{Command: leftBehind, Output: func(p []byte) {
				if strings.Contains(string(p), "on") {
					close(on)
				}
			}})
		}()
		<-on
		all = append(all, ts)
	}
	for _, ts := range all {
		for n := 0; n < 6; time.Sleep(2 * time.Millisecond) { // a helper process, not a test
			list, err := ts.Processes()
			if err != nil {
				return err
			}
			n = 0
			for _, p := range list {
				if strings.HasPrefix(p.Command, "sleep 9") {
					n++
				}
			}
		}
		list, err := ts.Processes()
		if err != nil {
			return err
		}
		for _, p := range list {
			fmt.Print(p.PID, " ")
		}
		fmt.Print(ts.State().PID, " ")
	}
	fmt.Println(in.KeeperPID())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestHostKilled: when the host is killed in the middle of everything, nothing of its agents is alive soon after.
func TestHostKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "TERM_TEST_HOST="+t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(line)
	if len(pids) < 3*7+1 {
		t.Fatalf("%d processes: %s", len(pids), line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = cmd.Wait()
	eventually(t, "everything to end", func() bool {
		for _, pid := range pids {
			data, err := os.ReadFile("/proc/" + pid + "/stat")
			if err == nil && !strings.Contains(string(data), ") Z") && !strings.Contains(string(data), ") X") {
				return false
			}
		}
		return true
	})
	if took := time.Since(killed); took > 3*time.Second {
		t.Errorf("it took %v", took)
	} else {
		t.Logf("nothing left after %v", took)
	}
}
