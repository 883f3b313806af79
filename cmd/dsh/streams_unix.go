//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// openStreams takes the client's streams away from the rest of the program: what anybody prints goes to standard error, and whoever reads
// standard input finds its end. Closing one of the files ends a Read or Write that is in progress.
func openStreams() (in, out *os.File, err error) {
	if in, err = own(0, "client input"); err != nil {
		return nil, nil, err
	}
	if out, err = own(1, "client output"); err != nil {
		return nil, nil, err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	if err := replace(null, 0); err != nil {
		return nil, nil, err
	}
	if err := replace(2, 1); err != nil {
		return nil, nil, err
	}
	return in, out, unix.Close(null)
}

func replace(from, to int) error {
	if err := dupTo(from, to); err != nil {
		return fmt.Errorf("redirect descriptor %d: %w", to, err)
	}
	return nil
}

// own gives a stream a descriptor of its own. Pipes, sockets and terminals are waited for by the runtime, so that closing one ends the wait.
func own(fd int, name string) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, fmt.Errorf("open %s: %w", name, err) }
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err)
	}
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFCHR && fd == 0 {
		// A terminal is shared with others: it gets an open file of its own instead of another mode.
		if f, err := os.OpenFile(fmt.Sprintf("/dev/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err == nil {
			return f, nil
		}
	} else if kind == unix.S_IFIFO || kind == unix.S_IFSOCK {
		if err := unix.SetNonblock(fd, true); err != nil {
			return fail(err)
		}
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(dup), name), nil
}

// watch ends the program's work when nobody can read out any more, also while nothing is written. It ends when out is closed.
func watch(out *os.File, cancel context.CancelCauseFunc) *sync.WaitGroup {
	var group sync.WaitGroup
	conn, err := out.SyscallConn()
	if err != nil {
		return &group
	}
	group.Go(func() {
		broken := false
		if err := conn.Read(func(fd uintptr) bool { // it only waits: whatever happens to the descriptor wakes it
			poll := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(poll, 0)
			broken = err == nil && n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
			return broken
		}); err == nil && broken {
			cancel(errGone)
		}
	})
	return &group
}
