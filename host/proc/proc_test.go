//go:build linux

package proc_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/proc"
)

func TestMain(m *testing.M) {
	proc.RunKeeperIfAsked()
	if dir := os.Getenv("PROC_TEST_HOST"); dir != "" {
		if err := actAsHost(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

// leaks says whether the tests left goroutines or child processes behind.
func leaks() int {
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var w syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &w, syscall.WNOHANG, nil); err != syscall.ECHILD {
		fmt.Fprintln(os.Stderr, "a child process is left:", pid, err)
		return 1
	}
	return 0
}

// zoo is what a process can do to get lost. Each line leaves something that records its pid under its name and then sleeps.
// HERE is replaced by a command that does the recording and sleeping.
var zoo = []struct{ name, script string }{
	{"background", `HERE & :`},
	{"nohup", `nohup HERE >/dev/null 2>&1 & :`},
	{"disown", `HERE & disown -a`},
	{"setsid", `setsid HERE & :`},
	{"subshell", `(HERE &)`},
	{"doublefork", `( ( HERE & ) & ) ; :`},
	{"doublefork-setsid", `(setsid sh -c 'HERE & :' &)`},
	{"empty-env", `env -i HERE & :`},
	{"empty-env-setsid", `(env -i setsid HERE &)`},
	{"new-root-dir-no-fds", `(cd / && exec setsid HERE <&- >&- 2>&-) & :`},
	{"ignores-everything", `sh -c 'trap "" TERM INT HUP QUIT; HERE & wait' & :`},
	{"stopped", `STOPPED & :`},
	{"renamed", `(exec -a kworker/0:1 setsid HERE) & :`},
	{"exec-chain", `(exec env exec-chain=1 nice -n 1 setsid sh -c 'exec HERE') & :`},
	{"new-limits", `(ulimit -n 64; ulimit -c 0; exec setsid HERE) & :`},
	{"user-namespace", `setsid unshare -U HERE & :`},
	{"other-user", `setsid su -s /bin/sh nobody -c 'HERE & :' >/dev/null 2>&1 & :`},
}

func zooScript(dir string, i int) string {
	z := zoo[i]
	here := fmt.Sprintf("sh %s/rec %s", dir, z.name)
	stopped := fmt.Sprintf("sh %s/stop %s", dir, z.name)
	return strings.NewReplacer("HERE", here, "STOPPED", stopped).Replace(z.script)
}

// zooDir is a directory that everybody may write to, with the scripts of the zoo.
func zooDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "zoo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	write("rec", "echo $$ > "+dir+"/$1.tmp && mv "+dir+"/$1.tmp "+dir+"/$1.pid; exec sleep 300\n")
	write("stop", "echo $$ > "+dir+"/$1.tmp && mv "+dir+"/$1.tmp "+dir+"/$1.pid; kill -STOP $$; exec sleep 300\n")
	return dir
}

// shell is a marked bash that reads its script from a pipe, as an agent's does.
type shell struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	tag proc.Tag
}

func startShell(in *proc.Instance) (*shell, error) {
	tag, _, err := in.Agent()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/bash", "--noprofile", "--norc")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	w, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &shell{cmd, w, tag}, in.Mark(cmd.Process.Pid, tag)
}

func open(t testing.TB, o proc.Options) *proc.Instance {
	t.Helper()
	in, err := proc.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeInstance(t, in) })
	return in
}

func closeInstance(t testing.TB, in *proc.Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := in.Close(ctx); err != nil {
		t.Error(err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}

// alive says whether pid exists and is more than a zombie.
func alive(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	rest := data[bytes.LastIndexByte(data, ')')+1:]
	return !bytes.HasPrefix(rest, []byte(" Z")) && !bytes.HasPrefix(rest, []byte(" X"))
}

func readPID(dir, name string) int {
	data, err := os.ReadFile(filepath.Join(dir, name+".pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// TestZoo hides 17 kinds of orphan in 20 agents; each is found, belongs to the right agent, and dies with it and with nobody else.
func TestZoo(t *testing.T) {
	in := open(t, proc.Options{})
	const agents = 20
	var shells []*shell
	var dirs []string
	for i := range agents {
		s, err := startShell(in)
		if err != nil {
			t.Fatal(err)
		}
		shells = append(shells, s)
		dirs = append(dirs, zooDir(t))
		// Every agent holds one kind; two of them hold all.
		for z := range zoo {
			if i%10 != 0 && z != i%len(zoo) {
				continue
			}
			if zoo[z].name == "other-user" && os.Getuid() != 0 {
				continue
			}
			if _, err := fmt.Fprintln(s.in, zooScript(dirs[i], z)); err != nil {
				t.Fatal(err)
			}
		}
	}
	orphans := make([][]int, agents)
	for i := range agents {
		for z := range zoo {
			if (i%10 != 0 && z != i%len(zoo)) || (zoo[z].name == "other-user" && os.Getuid() != 0) {
				continue
			}
			eventually(t, zoo[z].name, func() bool { return readPID(dirs[i], zoo[z].name) != 0 })
			orphans[i] = append(orphans[i], readPID(dirs[i], zoo[z].name))
		}
	}
	for i, s := range shells {
		found, err := in.PIDs(s.tag)
		if err != nil {
			t.Fatal(err)
		}
		for j := range shells {
			for _, pid := range orphans[j] {
				if has := slices.Contains(found, pid); has != (i == j) {
					t.Errorf("agent %d: orphan %d of agent %d: found %v", i, pid, j, has)
				}
			}
		}
	}

	kill := func(i int, grace time.Duration) {
		t.Helper()
		if err := in.Kill(t.Context(), shells[i].tag, grace); err != nil {
			t.Fatal(err)
		}
		_ = shells[i].cmd.Wait()
	}
	check := func(dead func(int) bool) {
		t.Helper()
		for i := range shells {
			for _, pid := range orphans[i] {
				if alive(pid) == dead(i) {
					t.Errorf("agent %d: orphan %d: alive %v", i, pid, alive(pid))
				}
			}
		}
	}
	kill(0, 0)
	check(func(i int) bool { return i == 0 })
	kill(10, 200*time.Millisecond) // what ignores SIGTERM goes after the grace
	check(func(i int) bool { return i == 0 || i == 10 })
	closeInstance(t, in)
	check(func(int) bool { return true })
	for i, s := range shells {
		if i != 0 && i != 10 {
			_ = s.cmd.Wait()
		}
	}
}

// TestWrap: a one-shot command is tagged before it can fork.
func TestWrap(t *testing.T) {
	in := open(t, proc.Options{})
	tag, _, err := in.Agent()
	if err != nil {
		t.Fatal(err)
	}
	argv := tag.Wrap([]string{"sh", "-c", `echo "$1"; (setsid sleep 300 >/dev/null 2>&1 &)`, "sh", "a  b"})
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil || string(out) != "a  b\n" {
		t.Fatalf("%q, %v", out, err)
	}
	eventually(t, "the orphan", func() bool {
		list, err := in.Processes(tag)
		return err == nil && len(list) == 1 && list[0].Command == "sleep 300"
	})
	if err := in.Kill(t.Context(), tag, 0); err != nil {
		t.Fatal(err)
	}
	if list, err := in.Processes(tag); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// actAsHost is a host in a process of its own: it fills three agents with orphans, says so, and waits to be killed.
func actAsHost(dir string) error {
	in, err := proc.Open(proc.Options{Keeper: os.Getenv("PROC_TEST_KEEPER") != "", Dir: os.Getenv("PROC_TEST_RECORDS")})
	if err != nil {
		return err
	}
	var wait []string
	for i := range 3 {
		s, err := startShell(in)
		if err != nil {
			return err
		}
		for z := range zoo {
			if z%3 != i || (zoo[z].name == "other-user" && os.Getuid() != 0) {
				continue
			}
			if _, err := fmt.Fprintln(s.in, zooScript(dir, z)); err != nil {
				return err
			}
			wait = append(wait, zoo[z].name)
		}
	}
	for _, name := range wait {
		for readPID(dir, name) == 0 {
			time.Sleep(2 * time.Millisecond) // a helper process, not a test
		}
	}
	fmt.Println("ready", in.KeeperPID())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// foreignHost starts a host process and waits until its agents are full of orphans.
func foreignHost(t *testing.T, wrap func([]string) []string, env ...string) (cmd *exec.Cmd, keeper int, orphans []int) {
	t.Helper()
	dir := zooDir(t)
	argv := []string{"/proc/self/exe"}
	if exe, err := os.Executable(); err == nil {
		argv[0] = exe
	}
	if wrap != nil {
		argv = wrap(argv)
	}
	cmd = exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), append(env, "PROC_TEST_HOST="+dir)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
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
	if _, err := fmt.Sscanf(line, "ready %d", &keeper); err != nil {
		t.Fatal(err)
	}
	for _, z := range zoo {
		if pid := readPID(dir, z.name); pid != 0 {
			orphans = append(orphans, pid)
		}
	}
	if len(orphans) < len(zoo)-1 {
		t.Fatalf("%d orphans", len(orphans))
	}
	return cmd, keeper, orphans
}

func countAlive(pids []int) int {
	n := 0
	for _, pid := range pids {
		if alive(pid) {
			n++
		}
	}
	return n
}

// TestKeeper kills a host with SIGKILL; its keeper, which ignores the polite signals, ends everything and goes.
func TestKeeper(t *testing.T) {
	cmd, keeper, orphans := foreignHost(t, nil, "PROC_TEST_KEEPER=1")
	if keeper == 0 || !alive(keeper) {
		t.Fatal("no keeper")
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := syscall.Kill(keeper, s); err != nil {
			t.Fatal(err)
		}
	}
	if n := countAlive(orphans); n != len(orphans) {
		t.Fatalf("%d of %d orphans live", n, len(orphans))
	}
	start := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the orphans to die", func() bool { return countAlive(orphans) == 0 })
	t.Logf("nothing left after %v", time.Since(start))
	eventually(t, "the keeper to go", func() bool { return !alive(keeper) })
}

// TestKeeperAgain: a keeper that somebody killed is started again with the next agent.
func TestKeeperAgain(t *testing.T) {
	in := open(t, proc.Options{Keeper: true})
	agent := func() {
		t.Helper()
		_, release, err := in.Agent()
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	agent()
	first := in.KeeperPID()
	agent()
	if in.KeeperPID() != first {
		t.Error("a second keeper")
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keeper to die", func() bool { return !alive(first) })
	agent()
	second := in.KeeperPID()
	if second == first || !alive(second) {
		t.Errorf("keeper %d, then %d", first, second)
	}
	closeInstance(t, in)
	if alive(second) {
		t.Error("the keeper outlives its instance")
	}
}

// TestSweep: what a host without a keeper left is ended by the next start, and nothing else is.
func TestSweep(t *testing.T) {
	records := t.TempDir()
	cmd, keeper, orphans := foreignHost(t, nil, "PROC_TEST_RECORDS="+records)
	if keeper != 0 {
		t.Fatal("a keeper")
	}
	bystander := exec.Command("sleep", "300")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	})
	// While that host lives, a second one on the same directory leaves its processes alone.
	if n, err := proc.Sweep(t.Context(), records); n != 0 || err != nil {
		t.Fatalf("swept %d of a living host, %v", n, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// Records that mean nothing do no harm.
	for name, text := range map[string]string{"1.instance": "{", "2.instance": `{"boot":"other","tags":"4611686018427387904","pid":1,"start":1}`} {
		if err := os.WriteFile(filepath.Join(records, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := countAlive(orphans); n != len(orphans) {
		t.Fatalf("%d of %d orphans live", n, len(orphans))
	}
	in := open(t, proc.Options{Dir: records})
	if n := countAlive(orphans); n != 0 {
		t.Errorf("%d orphans live", n)
	}
	if !alive(bystander.Process.Pid) {
		t.Error("a bystander was killed")
	}
	if left, _ := os.ReadDir(records); len(left) != 1 {
		t.Errorf("records: %v", left)
	}
	closeInstance(t, in)
	if left, _ := os.ReadDir(records); len(left) != 0 {
		t.Errorf("records after Close: %v", left)
	}
}

// TestNested: a host inside an agent's shell tags its own agents; ending the outer agent ends them, too, and not the other way round.
func TestNested(t *testing.T) {
	in := open(t, proc.Options{})
	tag, _, err := in.Agent()
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, orphans := foreignHost(t, tag.Wrap)
	inner, err := in.PIDs(tag)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(inner, cmd.Process.Pid) {
		t.Errorf("the inner host %d is not among %v", cmd.Process.Pid, inner)
	}
	if err := in.Kill(t.Context(), tag, 0); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if n := countAlive(orphans); n != 0 {
		t.Errorf("%d of %d orphans of the inner host live", n, len(orphans))
	}
}

// TestShared: many agents close at once and share the scans.
func TestShared(t *testing.T) {
	in := open(t, proc.Options{})
	var shells []*shell
	for range 40 {
		s, err := startShell(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(s.in, "setsid sleep 300 & sleep 300 & sleep 300"); err != nil {
			t.Fatal(err)
		}
		shells = append(shells, s)
	}
	errs := make(chan error, len(shells))
	for _, s := range shells {
		go func() { // joined by errs
			err := in.Kill(t.Context(), s.tag, time.Second)
			_ = s.cmd.Wait()
			errs <- err
		}()
	}
	for range shells {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, s := range shells {
		if pids, err := in.PIDs(s.tag); err != nil || len(pids) > 0 {
			t.Errorf("%v, %v", pids, err)
		}
	}
}

// TestForkBomb: a tree that grows while it is being killed.
func TestForkBomb(t *testing.T) {
	in := open(t, proc.Options{})
	s, err := startShell(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(s.in, `for i in 1 2 3 4 5 6 7 8; do (while :; do (exec setsid sleep 5) & sleep 0.01; done) & done; echo $! > /dev/null; wait`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a crowd", func() bool {
		pids, err := in.PIDs(s.tag)
		return err == nil && len(pids) > 60
	})
	if err := in.Kill(t.Context(), s.tag, 0); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	if pids, err := in.PIDs(s.tag); err != nil || len(pids) > 0 {
		t.Errorf("%v, %v", pids, err)
	}
}

func TestClosed(t *testing.T) {
	in := open(t, proc.Options{})
	closeInstance(t, in)
	if _, _, err := in.Agent(); err != proc.ErrClosed {
		t.Errorf("%v", err)
	}
	closeInstance(t, in)
}

func BenchmarkScan(b *testing.B) {
	in := open(b, proc.Options{})
	tag, _, err := in.Agent()
	if err != nil {
		b.Fatal(err)
	}
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := in.PIDs(tag); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(entries)), "processes")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(entries)), "ns/process")
}
