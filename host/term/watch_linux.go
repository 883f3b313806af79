package term

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsh-web/dsh-web/host/proc"
)

// What /proc tells about a shell and its foreground group. All of it is asked only while a call runs longer than a quarter of a second.

const (
	clockTick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	pfExiting = 0x4
)

// identify remembers how /proc shows what belongs to the shell.
func (s *shell) identify(stdin *os.File) {
	s.pipe, _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(stdin.Fd())))
	s.exe = exeOf(s.pid)
}

func exeOf(pid int) string {
	exe, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return exe
}

type procStat struct {
	state     byte
	ppid      int
	pgrp      int
	start     uint64 // ticks since boot
	flags     uint64
	own, kids time.Duration // CPU of the process, and of the children it waited for
}

func statOf(path string) (procStat, bool) {
	var buf [1024]byte
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return procStat{}, false
	}
	n, err := syscall.Read(fd, buf[:])
	_ = syscall.Close(fd)
	if err != nil {
		return procStat{}, false
	}
	data := buf[:n]
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return procStat{}, false
	}
	// state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime priority nice threads itrealvalue starttime
	f := strings.Fields(string(data[end+1:]))
	if len(f) < 20 {
		return procStat{}, false
	}
	num := func(i int) int64 {
		v, _ := strconv.ParseInt(f[i], 10, 64)
		return v
	}
	return procStat{
		state: f[0][0], ppid: int(num(1)), pgrp: int(num(2)), flags: uint64(num(6)), start: uint64(num(19)),
		own:  time.Duration(num(11)+num(12)) * clockTick,
		kids: time.Duration(num(13)+num(14)) * clockTick,
	}, true
}

func statOfPID(pid int) (procStat, bool) { return statOf("/proc/" + strconv.Itoa(pid) + "/stat") }

// exiting says whether the process has begun to exit: its descriptors are closed before it can be waited for.
func exiting(pid int) bool {
	st, ok := statOfPID(pid)
	return !ok || st.flags&pfExiting != 0 || st.state == 'Z' || st.state == 'X'
}

// cpu is what the shell and the children it waited for have used.
func (s *shell) cpu() time.Duration {
	st, _ := statOfPID(s.pid)
	return st.own + st.kids
}

// runnable says that the shell has, or waits for, a processor.
func (s *shell) runnable() bool {
	st, ok := statOfPID(s.pid)
	return ok && st.state == 'R'
}

// dir is the shell's working directory as the kernel knows it; a deleted one keeps its path.
func (s *shell) dir() string {
	dir, _ := os.Readlink("/proc/" + strconv.Itoa(s.pid) + "/cwd")
	return strings.TrimSuffix(dir, " (deleted)")
}

// condition is what a look at the shell's process shows.
type condition int

const (
	conditionOther   condition = iota // busy, or nothing can be said
	conditionStopped                  // by SIGSTOP or the like
	conditionIdle                     // it waits for the next line on the control pipe and has read all there is
	conditionReplaced
)

func (s *shell) look() condition {
	st, ok := statOfPID(s.pid)
	if !ok {
		return conditionOther
	}
	if st.state == 'T' {
		return conditionStopped
	}
	if exe := exeOf(s.pid); exe != "" && s.exe != "" && exe != s.exe {
		return conditionReplaced
	}
	if st.state != 'S' || s.pending() != 0 {
		return conditionOther
	}
	dir := "/proc/" + strconv.Itoa(s.pid)
	if to, err := os.Readlink(dir + "/fd/0"); err != nil || to != s.pipe {
		return conditionOther // a command runs: it has another standard input
	}
	if call, ok := callOf(s.pid, s.pid); ok {
		if call.number == unix.SYS_READ && call.args[0] == 0 {
			return conditionIdle
		}
		return conditionOther
	}
	if wchan, err := os.ReadFile(dir + "/wchan"); err == nil && bytes.Contains(wchan, []byte("pipe_read")) {
		return conditionIdle
	}
	return conditionOther
}

// pending is how many bytes of the control pipe the shell hasn't read.
func (s *shell) pending() int {
	n := 0
	raw, err := s.control.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), bytesReady) })
	return n
}

// sleepingIn is a system call in which a thread sleeps.
type sleepingIn struct {
	number int64
	args   [6]uint64
}

func callOf(pid, tid int) (sleepingIn, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/syscall")
	if err != nil {
		return sleepingIn{}, false
	}
	f := strings.Fields(string(data))
	if len(f) < 7 {
		return sleepingIn{}, false // running, or a kernel that doesn't say
	}
	var c sleepingIn
	if c.number, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return sleepingIn{}, false
	}
	for i := range c.args {
		if c.args[i], err = strconv.ParseUint(f[i+1], 0, 64); err != nil {
			return sleepingIn{}, false
		}
	}
	return c, true
}

// detector finds a foreground program that waits for input from the terminal, which nobody will give while a call runs.
type detector struct {
	positives int
	first     time.Time
	cpu       time.Duration
	nextScan  time.Time
	scanPause time.Duration
	found     *Waiting
}

const (
	silence       = time.Second     // without output before anybody is suspected
	inputGrace    = 2 * time.Second // that a suspect has to go on by itself
	firstScan     = time.Second     // between looks at all processes of the agent, doubled each time
	longestScan   = 8 * time.Second
	needPositives = 2
)

// check looks once; it returns the program when it has waited long enough.
func (d *detector) check(s *shell, now time.Time) *Waiting {
	if time.Since(s.born)-time.Duration(s.last.Load()) < silence {
		d.positives = 0
		return nil
	}
	group := s.foreground()
	if group == 0 {
		d.positives = 0
		return nil
	}
	members := []int{group}
	pid, cpu, settled := s.reader(members)
	if pid == 0 && settled {
		// The leader sleeps, but on something else: perhaps on a child that reads. Looking at all processes costs more, so it is done less often.
		if d.found != nil {
			members = append(members, d.found.PID)
			pid, cpu, settled = s.reader(members)
		} else if !now.Before(d.nextScan) {
			d.scanPause = min(max(d.scanPause*2, firstScan), longestScan)
			d.nextScan = now.Add(d.scanPause)
			pid, cpu, settled = s.reader(s.group(group))
		}
	}
	if pid == 0 || !settled || (d.positives > 0 && cpu != d.cpu) {
		if pid == 0 || !settled {
			d.found = nil
		}
		d.positives = 0
		d.cpu = cpu
		return nil
	}
	if d.positives == 0 {
		d.first = now
		d.found = &Waiting{PID: pid, Command: commandOf(pid)}
	}
	d.positives++
	d.cpu = cpu
	if d.positives >= needPositives && now.Sub(d.first) >= inputGrace {
		return d.found
	}
	return nil
}

// isBash says whether the process runs the shell's program: a subshell, or a child that hasn't become its program yet.
func (s *shell) isBash(pid int) bool { return exeOf(pid) == s.exe }

// startClock is the time on the clock that process starts are told in.
func startClock() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano()) / uint64(clockTick)
}

// children lists the process groups of the shell's own children that started since then, the shell's own group and known ones excepted: the
// clock ticks in hundredths of a second.
func (s *shell) children(since uint64, known map[int]bool) []int {
	pids, err := s.procs.PIDs(s.tag)
	if err != nil {
		return nil
	}
	var groups []int
	for _, pid := range pids {
		st, ok := statOfPID(pid)
		if ok && !known[pid] && st.ppid == s.pid && st.pgrp != s.pid && st.start >= since && !slices.Contains(groups, st.pgrp) {
			groups = append(groups, st.pgrp)
		}
	}
	return groups
}

// group lists the agent's processes in a process group.
func (s *shell) group(pgrp int) []int {
	pids, err := s.procs.PIDs(s.tag)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		st, ok := statOfPID(pid)
		return !ok || st.pgrp != pgrp
	})
}

// reader finds, among processes whose threads all sleep, the one that reads the terminal. settled says that they all sleep.
func (s *shell) reader(pids []int) (found int, cpu time.Duration, settled bool) {
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/task"
		tasks, err := os.ReadDir(dir)
		if err != nil {
			continue // gone: a pipeline's first program may be
		}
		if st, ok := statOfPID(pid); ok {
			cpu += st.own
		}
		for _, t := range tasks {
			st, ok := statOf(dir + "/" + t.Name() + "/stat")
			if ok && st.state != 'S' && st.state != 'Z' && st.state != 'X' && st.state != 'I' {
				return 0, cpu, false
			}
			tid, _ := strconv.Atoi(t.Name())
			if c, ok := callOf(pid, tid); ok && found == 0 && s.readsTerminal(pid, c) {
				found = pid
			}
		}
	}
	return found, cpu, true
}

// readsTerminal says whether the call waits for input on our terminal, and on nothing else.
func (s *shell) readsTerminal(pid int, c sleepingIn) bool {
	switch c.number {
	case unix.SYS_READ, unix.SYS_READV:
		return s.isTerminal(pid, c.args[0])
	case sysPoll, unix.SYS_PPOLL:
		if c.args[1] != 1 {
			return false
		}
		var pollfd [8]byte
		return peek(pid, c.args[0], pollfd[:]) && s.isTerminal(pid, uint64(binary.NativeEndian.Uint32(pollfd[:4])))
	case sysSelect, unix.SYS_PSELECT6:
		if c.args[0] == 0 || c.args[0] > 1024 || c.args[1] == 0 || c.args[2] != 0 && !emptySet(pid, c.args[2], c.args[0]) {
			return false
		}
		set := make([]byte, (c.args[0]+63)/64*8)
		if !peek(pid, c.args[1], set) {
			return false
		}
		only := -1
		for fd := range int(c.args[0]) {
			if set[fd/8]&(1<<(fd%8)) != 0 {
				if only >= 0 {
					return false
				}
				only = fd
			}
		}
		return only >= 0 && s.isTerminal(pid, uint64(only))
	}
	return false
}

func emptySet(pid int, at, n uint64) bool {
	set := make([]byte, (n+63)/64*8)
	return peek(pid, at, set) && len(bytes.Trim(set, "\x00")) == 0
}

func (s *shell) isTerminal(pid int, fd uint64) bool {
	to, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.FormatUint(fd, 10))
	return err == nil && (to == s.pts || to == "/dev/tty")
}

// peek reads memory of another process.
func peek(pid int, at uint64, into []byte) bool {
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(into)}}, 0)
	runtime.KeepAlive(into)
	return err == nil && n == len(into)
}

func commandOf(pid int) string {
	if p := proc.Describe([]int{pid}); len(p) == 1 {
		return p[0].Command
	}
	return ""
}
