//go:build linux || darwin

package term

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/dsh-web/dsh-web/host/proc"
)

const (
	none = ^uintptr(0) // a descriptor that the child hasn't

	bashPath   = "/bin/bash"
	readSize   = 8 << 10
	idleBurst  = 256 << 10 // bytes between calls that are read at full speed; then a piece of 4 KiB each pause, 1 MB/s
	idlePause  = 4 * time.Millisecond
	idleMax    = 32 << 10 // bytes of output between calls that are kept for the next result
	statusMax  = 4 << 20  // bytes on the status pipe that no record came of: the command writes garbage there
	hangupWait = 200 * time.Millisecond
)

// shell is one bash process with its terminal and its two pipes: three descriptors, two goroutines that sleep in the poller, no thread.
type shell struct {
	pid     int
	tag     proc.Tag
	procs   *proc.Instance
	ring    *ring
	buffers *sync.Pool

	master  *os.File // output, keyboard, termios
	control *os.File // write end of the shell's standard input
	status  *os.File // read end
	pts     string   // the terminal's device, as links in /proc show it
	pipe    string   // the control pipe, likewise
	exe     string   // the program, likewise

	last atomic.Int64 // when output came last, in nanoseconds of the monotonic clock since born
	born time.Time

	mu      sync.Mutex
	job     *job
	idle    []byte
	skipped int64
	burst   int    // bytes since the last call
	answer  []byte // what came on the status pipe and is still to be read
	dumping string // nonce of the command whose exported variables are on their way
	// exported are the shell's exported variables after the last command, as bash declares them.
	exported string
	end      *ending
	reaped   bool

	gone      chan struct{} // closed when end is known
	silent    chan struct{} // closed when the terminal gives no more
	abandoned chan struct{} // closed by dispose: a process that can't be killed is not waited for
	leaf      sync.WaitGroup
	taking    atomic.Bool // the reader handles output that it has taken from the terminal
}

// ending is how a shell went.
type ending struct {
	death    *Death
	replaced bool // the process lives and runs something else, or has lost its status pipe
}

// job is one command on its way through the shell; the shell's mutex guards it, except the channels.
type job struct {
	script
	output func([]byte)

	idle    []byte // what came before the start fence
	skipped int64
	stage   byte // 0, kindStart, kindEnd, kindFinal: the newest fence
	a, b    *report
	strict  bool
	begun   uint64 // on the clock of process starts

	started  chan struct{} // closed with the start fence
	finished chan struct{} // closed when the job is over
}

// spawn starts a shell in dir, an existing directory. Nothing has run in it yet when it returns, and everything it will start carries tag.
func spawn(procs *proc.Instance, tag proc.Tag, dir string, env []string, r *ring, buffers *sync.Pool) (s *shell, err error) {
	s = &shell{
		tag: tag, procs: procs, ring: r, buffers: buffers, born: time.Now(),
		gone: make(chan struct{}), silent: make(chan struct{}), abandoned: make(chan struct{}),
	}
	var open []*os.File
	defer func() {
		for _, f := range open {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			err = fmt.Errorf("start shell: %w", err)
		}
	}()
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	open = append(open, master, slave)
	s.pts = slave.Name()
	if err := prepareTerminal(int(slave.Fd())); err != nil {
		return nil, err
	}
	// The library's master blocks a thread per reader; a second descriptor in non-blocking mode is served by the poller.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s.master = os.NewFile(uintptr(fd), "terminal")
	stdin, control, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, s.master.Close())
	}
	s.control = control
	open = append(open, stdin)
	status, report, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, s.master.Close(), control.Close())
	}
	s.status = status
	open = append(open, report)

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, s.master.Close(), control.Close(), status.Close())
	}
	open = append(open, null)

	// The descriptors stand where the driver's lines expect them; 3 to 9 are closed, whatever the host inherited.
	// Fd makes the shell's ends blocking: they are descriptions of their own, ours stay in the poller.
	s.pid, err = syscall.ForkExec(bashPath, []string{bashPath, "--noprofile", "--norc", "--noediting", "-i"}, &syscall.ProcAttr{
		Dir: dir, Env: env,
		Files: []uintptr{
			stdin.Fd(), slave.Fd(), slave.Fd(), none, none, none, none, none, none, none,
			slave.Fd(), report.Fd(), null.Fd(),
		},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1},
	})
	if err == nil {
		if err = procs.Mark(s.pid, tag); err != nil {
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(s.pid, nil, 0, nil)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.master.Close(), control.Close(), status.Close())
	}
	s.identify(stdin)
	s.leaf.Add(2)
	go s.readTerminal() // dispose waits for both
	go s.readStatus()
	if _, err := s.control.WriteString(setupLine); err != nil && !errors.Is(err, syscall.EPIPE) {
		s.dispose()
		return nil, err
	}
	return s, nil
}

// readTerminal is the only reader of the master.
func (s *shell) readTerminal() {
	defer s.leaf.Done()
	defer close(s.silent)
	var f filter
	s.pieces(s.master, func(p []byte) {
		s.taking.Store(true)
		s.take(&f, p)
		s.taking.Store(false)
		s.brake(len(p))
	})
	f.flush(func(p []byte) { s.text(s.current(&f), p) }) // nobody has the terminal open any more
}

// brake slows the terminal down for a background job that floods it while nobody waits for anything: it may burn its own time, not the host's.
// A call that begins meanwhile waits for one pause at most.
func (s *shell) brake(n int) {
	s.mu.Lock()
	if s.job != nil {
		s.burst = 0
	} else {
		s.burst += n
	}
	over := s.burst > idleBurst
	s.mu.Unlock()
	if over {
		time.Sleep(idlePause)
	}
}

// pieces hands on what f gives until its end, an error, or Close. It waits without a buffer and borrows one for each piece.
func (s *shell) pieces(f *os.File, each func([]byte)) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	var buf *[readSize]byte
	var n int
	read := func(fd uintptr) bool {
		buf = s.buffers.Get().(*[readSize]byte)
		for {
			var err error
			n, err = syscall.Read(int(fd), buf[:])
			if err == syscall.EAGAIN {
				s.buffers.Put(buf)
				buf = nil
				return false
			}
			if err != syscall.EINTR {
				return true
			}
		}
	}
	for raw.Read(read) == nil {
		if n > 0 {
			each(buf[:n])
		}
		s.buffers.Put(buf)
		buf = nil
		if n <= 0 {
			return
		}
	}
}

func (s *shell) current(f *filter) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job != nil {
		f.begin(s.job.nonce)
	}
	return s.job
}

func (s *shell) take(f *filter, p []byte) {
	s.last.Store(int64(time.Since(s.born)))
	j := s.current(f)
	f.feed(p, func(p []byte) { s.text(j, p) }, func(kind byte) { s.fence(j, kind) })
}

// text files output: to the call while its command runs, else as idle output for the next one.
func (s *shell) text(j *job, p []byte) {
	s.ring.write(p)
	s.mu.Lock()
	mine := j != nil && s.job == j && j.stage == kindStart
	if !mine {
		s.idle = append(s.idle, p...)
		if over := len(s.idle) - idleMax; over > 0 {
			s.skipped += int64(over)
			s.idle = append(s.idle[:0], s.idle[over:]...)
		}
	}
	s.mu.Unlock()
	if mine && j.output != nil {
		j.output(p)
	}
}

func (s *shell) fence(j *job, kind byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j == nil || s.job != j {
		return
	}
	switch {
	case kind == kindStart && j.stage == 0:
		j.stage = kindStart
		j.idle, j.skipped = s.takeIdleLocked()
		close(j.started)
	case kind == kindEnd && j.stage == kindStart:
		j.stage = kindEnd
	case kind == kindFinal && j.stage != kindFinal && j.stage != 0:
		j.stage = kindFinal
	}
	s.settleLocked(j)
}

// settleLocked ends the job when it is over: with the end fence and its report, or, when the top level was unwound or may be, with the final
// fence and the second report.
func (s *shell) settleLocked(j *job) {
	over := (j.stage == kindEnd && j.a != nil && !j.strict) || (j.stage == kindFinal && j.b != nil)
	if !over || s.job != j {
		return
	}
	s.job = nil
	if j.dump {
		s.dumping = j.nonce
		s.takeDumpLocked() // a short one may be here already
	} else {
		s.answer = nil
	}
	close(j.finished)
}

// insist makes the job wait for the final fence: signals are on their way, and what they cut of line 2 must not reach the next job.
func (s *shell) insist(j *job) {
	s.mu.Lock()
	j.strict = true
	s.mu.Unlock()
}

// readStatus collects the reports, and learns of the shell's end by the end of file.
func (s *shell) readStatus() {
	defer s.leaf.Done()
	s.pieces(s.status, s.heard)
	s.farewell()
}

// heard files what came on the status pipe: the running job's reports, and the exported variables that the last one left, which come after its
// end.
func (s *shell) heard(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answer) > statusMax {
		s.answer = append(s.answer[:0], s.answer[len(s.answer)-nonceLen*4:]...)
	}
	s.answer = append(s.answer, p...)
	s.takeDumpLocked()
	j := s.job
	if j == nil {
		if s.dumping == "" {
			s.answer = nil
		}
		return
	}
	if r, ok := findReport(s.answer, 'A', j.nonce); ok {
		j.a = &r
	}
	if r, ok := findReport(s.answer, 'B', j.nonce); ok {
		j.b = &r
	}
	s.settleLocked(j)
}

func (s *shell) takeDumpLocked() {
	if s.dumping == "" {
		return
	}
	dump, rest, ok := findDump(s.answer, s.dumping)
	if !ok {
		return
	}
	if string(dump) != s.exported {
		s.exported = string(dump)
	}
	s.dumping, s.answer = "", append([]byte(nil), rest...)
}

// farewell finds out what the end of the status pipe means: a process on its way out, or one that lives on without it.
func (s *shell) farewell() {
	for pause := time.Millisecond; ; pause = min(pause*2, 50*time.Millisecond) {
		if s.reap() {
			return
		}
		if !exiting(s.pid) {
			s.finish(&ending{replaced: true})
		}
		select {
		case <-time.After(pause):
		case <-s.abandoned:
			return
		}
	}
}

// reap collects the shell's status if it has ended, and says whether it had.
func (s *shell) reap() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reaped {
		return true
	}
	var w syscall.WaitStatus
	pid, err := syscall.Wait4(s.pid, &w, syscall.WNOHANG, nil)
	if pid != s.pid && !errors.Is(err, syscall.ECHILD) {
		return false
	}
	s.reaped = true
	d := &Death{Code: w.ExitStatus()}
	if w.Signaled() {
		d = &Death{Code: 128 + int(w.Signal()), Signal: unix.SignalName(w.Signal())}
	}
	s.finishLocked(&ending{death: d})
	return true
}

func (s *shell) finish(e *ending) {
	s.mu.Lock()
	s.finishLocked(e)
	s.mu.Unlock()
}

func (s *shell) finishLocked(e *ending) {
	if s.end == nil {
		s.end = e
		close(s.gone)
	}
}

func (s *shell) ending() *ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// begin makes j the running job, so that its fences count.
func (s *shell) begin(j *job) {
	j.started, j.finished = make(chan struct{}), make(chan struct{})
	s.last.Store(int64(time.Since(s.born)))
	j.begun = startClock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job = j
}

// idleBefore is the output that came before j's start fence; without that it stays where it is.
func (s *shell) idleBefore(j *job) (idle []byte, skipped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle, skipped = j.idle, j.skipped
	j.idle, j.skipped = nil, 0
	return idle, skipped
}

func (s *shell) takeIdleLocked() (idle []byte, skipped int64) {
	idle, skipped = s.idle, s.skipped
	s.idle, s.skipped = nil, 0
	return idle, skipped
}

// drop forgets a job that will not finish.
func (s *shell) drop() {
	s.mu.Lock()
	s.job = nil
	s.mu.Unlock()
}

// dispose gives back what the dead shell held and waits for its goroutines. What the terminal still holds is read first, for a bounded time.
// The process must be dead, or about to be: dispose waits until it can be reaped.
func (s *shell) dispose() {
	timer := time.NewTimer(hangupWait)
	select {
	case <-s.silent:
	case <-timer.C:
	}
	timer.Stop()
	s.drop()
	s.reap()
	close(s.abandoned)
	_ = s.control.Close()
	_ = s.status.Close()
	_ = s.master.Close()
	s.leaf.Wait()
	s.procs.Unmark(s.pid, s.tag)
}

// foreground is the terminal's foreground process group, 0 when there is none.
func (s *shell) foreground() int {
	raw, err := s.master.SyscallConn()
	if err != nil {
		return 0
	}
	group := 0
	_ = raw.Control(func(fd uintptr) {
		if g, e := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); e == nil && g > 1 {
			group = g
		}
	})
	return group
}

// existing returns dir, or its nearest parent that is a directory.
func existing(dir string) (found string, err error) {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		st, err := os.Stat(d)
		if err == nil && st.IsDir() {
			return d, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrPermission) {
			return "", fmt.Errorf("find directory for the shell: %w", err)
		}
		if d == filepath.Dir(d) {
			return d, nil
		}
	}
}
