//go:build linux || darwin

package term

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// sane changes t to the modes a command starts with: nothing is echoed, output is passed on as it is, ^C and line editing work for programs
// that a person types to.
func sane(t *unix.Termios) {
	t.Iflag = unix.ICRNL | unix.IXON | unix.IUTF8
	t.Oflag = unix.ONLCR // without OPOST it does nothing, until a person turns that on
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8 | unix.CREAD
	t.Lflag = unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cc[unix.VINTR], t.Cc[unix.VQUIT], t.Cc[unix.VERASE], t.Cc[unix.VKILL] = 0x03, 0x1c, 0x7f, 0x15
	t.Cc[unix.VEOF], t.Cc[unix.VSTART], t.Cc[unix.VSTOP], t.Cc[unix.VSUSP] = 0x04, 0x11, 0x13, 0x1a
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
}

// human adds what a person at the keyboard expects.
func human(t *unix.Termios) {
	sane(t)
	t.Oflag |= unix.OPOST
	t.Lflag |= unix.ECHO | unix.ECHOE | unix.ECHOK | unix.ECHOCTL | unix.ECHOKE
}

// setModes applies change to the terminal's modes, with a second system call only when that changes anything.
func setModes(fd int, change func(*unix.Termios)) error {
	t, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return fmt.Errorf("read terminal modes: %w", err)
	}
	want := *t
	change(&want)
	if want == *t {
		return nil
	}
	if err := unix.IoctlSetTermios(fd, setTermios, &want); err != nil {
		return fmt.Errorf("set terminal modes: %w", err)
	}
	return nil
}

func setSize(fd, rows, cols int) error {
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)}); err != nil {
		return fmt.Errorf("set terminal size: %w", err)
	}
	return nil
}

func prepareTerminal(fd int) error {
	if err := setModes(fd, sane); err != nil {
		return err
	}
	return setSize(fd, Rows, Cols)
}

// modes and resize act on a shell's terminal through its master.
func (s *shell) modes(change func(*unix.Termios)) error {
	return s.withMaster(func(fd int) error { return setModes(fd, change) })
}

func (s *shell) resize(rows, cols int) error {
	return s.withMaster(func(fd int) error { return setSize(fd, rows, cols) })
}

func (s *shell) withMaster(act func(fd int) error) error {
	raw, err := s.master.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = act(int(fd)) }); err != nil {
		return err
	}
	return inner
}
