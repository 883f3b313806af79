//go:build linux || darwin

package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeperName is the name a keeper is started under; keeperEnv marks it, so that a main that forgot the hook can't start keepers of keepers.
const (
	keeperName = "dsh-keeper"
	keeperEnv  = "DSH_KEEPER"
)

// RunKeeperIfAsked turns this process into a keeper when it was started as one, and never returns then. Otherwise it does nothing.
// It must be the first thing main (or TestMain) does, in every program that opens an Instance with Options.Keeper.
func RunKeeperIfAsked() {
	if len(os.Args) != 2 || os.Args[0] != keeperName || os.Getenv(keeperEnv) == "" {
		return
	}
	if err := keep(os.Args[1], os.NewFile(3, "host")); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// keep waits until the host's end of the pipe is gone, however that came about, and ends everything the host's agents left.
func keep(tags string, host io.Reader) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGPIPE)
	s, err := parseSpace(tags)
	if err != nil {
		return err
	}
	if host == nil {
		return errors.New("keep: no pipe to the host")
	}
	if _, err := io.Copy(io.Discard, host); err != nil {
		return fmt.Errorf("keep: wait for the host: %w", err)
	}
	_, err = sweepSpace(s)
	return err
}

// keeper is the host's side: the pipe whose end tells the keeper that the host is gone.
type keeper struct {
	mu  sync.Mutex
	pid int
	end int // write end of the pipe, -1 or 0 when none
}

// ensure starts the keeper when there is none, or when somebody killed it.
func (k *keeper) ensure(tags space) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pid != 0 {
		if pid, err := syscall.Wait4(k.pid, nil, syscall.WNOHANG, nil); err == nil && pid == 0 {
			return nil
		}
		k.pid = 0
		_ = syscall.Close(k.end)
	}
	exe, err := ownExecutable()
	if err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	var pipe [2]int
	if err := pipeCloexec(&pipe); err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("start keeper: %w", err), syscall.Close(pipe[0]), syscall.Close(pipe[1]))
	}
	pid, err := syscall.ForkExec(exe, []string{keeperName, tags.String()}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{keeperEnv + "=1", "GOMAXPROCS=1", "PATH=/usr/bin:/bin"},
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(pipe[0])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	_ = syscall.Close(null)
	_ = syscall.Close(pipe[0])
	if err != nil {
		_ = syscall.Close(pipe[1])
		return fmt.Errorf("start keeper: %w", err)
	}
	k.pid, k.end = pid, pipe[1]
	return nil
}

// stop lets the keeper end and reaps it.
func (k *keeper) stop() error {
	k.mu.Lock()
	pid, end := k.pid, k.end
	k.pid = 0
	k.mu.Unlock()
	if pid == 0 {
		return nil
	}
	err := syscall.Close(end)
	deadline := time.Now().Add(stuckAfter)
	for pause := time.Millisecond; ; pause = min(pause*2, longPause) {
		got, e := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		switch {
		case got == pid || errors.Is(e, syscall.ECHILD):
			return err
		case time.Now().After(deadline):
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(pause)
	}
}

// KeeperPID is the process that ends what the host leaves, 0 when none runs: for diagnosis and tests.
func (in *Instance) KeeperPID() int {
	in.keeper.mu.Lock()
	defer in.keeper.mu.Unlock()
	return in.keeper.pid
}

func pipeCloexec(p *[2]int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(p[:]); err != nil {
		return err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return nil
}
