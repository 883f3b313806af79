package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownLimit() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &l); err != nil {
		return 0, fmt.Errorf("read limit of file locks: %w", err)
	}
	return l.Max, nil
}

// closeOnExec marks every descriptor above 2; kernels before 5.11 can't in one call, and inherited ones are rare enough to leave there.
func closeOnExec() { _ = unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) }

func mark(pid int, tag Tag) error {
	l := unix.Rlimit{Cur: uint64(tag), Max: uint64(tag)}
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, &l, nil); err != nil {
		return fmt.Errorf("tag process %d: %w", pid, err)
	}
	return nil
}

// tagOf reads the tag of a process; 0 when it has none, is gone, or belongs to somebody we may not ask about.
func tagOf(pid int) Tag {
	var l unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &l)
	if err == unix.EPERM && os.Geteuid() == 0 {
		// Root without CAP_SYS_RESOURCE, as in many containers, may not ask about other users' processes this way; anybody may read the file.
		l.Max, err = limitOf(pid)
	}
	if t := Tag(l.Max); err == nil && t.valid() {
		return t
	}
	return 0
}

// limitOf reads the hard limit of file locks from /proc.
func limitOf(pid int) (uint64, error) {
	var buf [4096]byte
	data, err := readSmall("/proc/"+strconv.Itoa(pid)+"/limits", buf[:])
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(data, []byte("\nMax file locks"))
	line, _, _ := bytes.Cut(rest, []byte{'\n'})
	f := bytes.Fields(line)
	if len(f) < 2 || string(f[1]) == "unlimited" {
		return infinity, nil
	}
	return strconv.ParseUint(string(f[1]), 10, 64)
}

// target is one process to be ended.
type target struct {
	pid int
	tag Tag
}

// signal sends sigs to the process if it still is the one that was found.
func (p target) signal(sigs ...unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return // gone
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if tagOf(p.pid) != p.tag { // another process took the pid before the pidfd was opened
		return
	}
	for _, s := range sigs {
		if err == nil {
			_ = unix.PidfdSendSignal(fd, s, nil, 0)
		} else {
			_ = unix.Kill(p.pid, s) // an old kernel, or a seccomp filter that doesn't know pidfds
		}
	}
}

func (p target) ask()    { p.signal(unix.SIGTERM, unix.SIGCONT) }
func (p target) freeze() { p.signal(unix.SIGSTOP) }
func (p target) kill()   { p.signal(unix.SIGKILL) }

// tagged calls visit for every process that carries a tag.
func tagged(visit func(pid int, tag Tag)) error {
	self := os.Getpid()
	dir, err := os.Open("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		if tag := tagOf(pid); tag != 0 {
			visit(pid, tag)
		}
	}
	return nil
}

// memory is the tags of hosts that run inside the killed shells.
type memory struct{ inner map[space]bool }

// scan finds the targets of every killing in one pass over /proc.
func (in *Instance) scan(kills []*killing) ([][]target, error) {
	found := make([][]target, len(kills))
	var nested []target
	err := tagged(func(pid int, tag Tag) {
		if !in.tags.has(tag) && tag.top() >= in.tags.base.top() {
			return // another host, beside or around this one
		}
		if !in.tags.has(tag) {
			nested = append(nested, target{pid, tag})
			return
		}
		if st, ok := readStat(pid); !ok || st.zombie() {
			return
		}
		for i, k := range kills {
			if k.covers(tag) {
				found[i] = append(found[i], target{pid, tag})
			}
		}
	})
	if err != nil || len(nested) == 0 {
		return found, err
	}
	for i := range found {
		found[i] = append(found[i], within(found[i], nested, kills[i])...)
	}
	return found, nil
}

// within picks, of the processes with tags of deeper hosts, those whose host runs inside the found ones: a process is, when its parent is,
// and with it all that share its instance. The spaces are remembered, since their host may be gone by the next pass.
func within(found, nested []target, k *killing) []target {
	inside := map[int]bool{}
	for _, t := range found {
		inside[t.pid] = true
	}
	if k.inner == nil {
		k.inner = map[space]bool{}
	}
	for again := true; again; {
		again = false
		for _, n := range nested {
			if inside[n.pid] {
				continue
			}
			if k.inner[n.tag.space()] {
				inside[n.pid], again = true, true
				continue
			}
			if st, ok := readStat(n.pid); ok && inside[st.ppid] {
				inside[n.pid], k.inner[n.tag.space()], again = true, true, true
			}
		}
	}
	var out []target
	for _, n := range nested {
		if inside[n.pid] {
			if st, ok := readStat(n.pid); ok && !st.zombie() {
				out = append(out, n)
			}
		}
	}
	return out
}

func (in *Instance) find(tag Tag) ([]int, error) {
	k := &killing{tag: tag}
	found, err := in.scan([]*killing{k})
	if err != nil {
		return nil, err
	}
	pids := make([]int, len(found[0]))
	for i, t := range found[0] {
		pids[i] = t.pid
	}
	slices.Sort(pids)
	return pids, nil
}

// stat is the part of /proc/PID/stat that is needed here and by callers that watch a shell.
type stat struct {
	state byte
	ppid  int
	start uint64 // clock ticks since boot
}

func (s stat) zombie() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, bool) {
	var buf [1024]byte
	data, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return stat{}, false
	}
	// The name, in parentheses, may hold anything; the last one closes it.
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return stat{}, false
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, false
	}
	ppid, err1 := strconv.Atoi(string(fields[1]))
	start, err2 := strconv.ParseUint(string(fields[19]), 10, 64)
	return stat{state: fields[0][0], ppid: ppid, start: start}, cmp.Or(err1, err2) == nil
}

// readSmall reads a file of /proc into buf with three system calls.
func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	n, err := syscall.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// startOf tells two processes apart that had the same pid; 0 when there is none.
func startOf(pid int) uint64 {
	st, ok := readStat(pid)
	if !ok || st.zombie() {
		return 0
	}
	return st.start
}
