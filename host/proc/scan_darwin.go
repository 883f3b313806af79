package proc

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// macOS has no limit that is both unused and readable from outside, so tags are only names here: what belongs to an agent is found from the
// shells that were registered, by parent, process group and controlling terminal. It compiles and is written with care; it has not been run.

func ownLimit() (uint64, error) { return infinity, nil }
func mark(int, Tag) error       { return nil }

// closeOnExec does nothing: this system has no call for all descriptors at once.
func closeOnExec() {}

type target struct {
	pid   int
	start int64
}

func (p target) signal(sigs ...unix.Signal) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", p.pid)
	if err != nil || k.Proc.P_starttime.Nano() != p.start {
		return
	}
	for _, s := range sigs {
		_ = unix.Kill(p.pid, s)
	}
}

func (p target) ask()    { p.signal(unix.SIGTERM, unix.SIGCONT) }
func (p target) freeze() { p.signal(unix.SIGSTOP) }
func (p target) kill()   { p.signal(unix.SIGKILL) }

// memory is pid and start of every process found before.
type memory struct{ known map[int]int64 }

// roots are the registered processes of tag, or of all agents for the tag of the whole instance.
func (in *Instance) roots(tag Tag) []int {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []int
	for t, a := range in.live {
		if t == tag || tag == in.tags.base {
			for pid := range a.roots {
				out = append(out, pid)
			}
		}
	}
	return out
}

const zombieState = 5 // SZOMB of <sys/proc.h>

func (in *Instance) scan(kills []*killing) ([][]target, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := make([][]target, len(kills))
	for i, k := range kills {
		found[i] = k.tree(all, in.roots(k.tag))
	}
	return found, nil
}

// tree finds the registered shells, everything below them, their groups and their terminals. What was found once is remembered by the
// killing, so that a child whose parent is gone by the next pass is still known.
func (k *killing) tree(all []unix.KinfoProc, roots []int) []target {
	if k.known == nil {
		k.known = map[int]int64{}
	}
	inside := map[int]bool{}
	groups := map[int32]bool{}
	ttys := map[int32]bool{}
	for again := true; again; {
		again = false
		for i := range all {
			p := &all[i]
			pid, start := int(p.Proc.P_pid), p.Proc.P_starttime.Nano()
			if inside[pid] || pid == os.Getpid() {
				continue
			}
			mine := slices.Contains(roots, pid) || k.known[pid] == start || inside[int(p.Eproc.Ppid)] || groups[p.Eproc.Pgid] ||
				(p.Eproc.Tdev != -1 && ttys[p.Eproc.Tdev])
			if !mine {
				continue
			}
			inside[pid], k.known[pid], again = true, start, true
			groups[p.Eproc.Pgid] = true
			if p.Eproc.Tdev != -1 {
				ttys[p.Eproc.Tdev] = true
			}
		}
	}
	var out []target
	for i := range all {
		p := &all[i]
		if pid := int(p.Proc.P_pid); inside[pid] && p.Proc.P_stat != zombieState {
			out = append(out, target{pid, p.Proc.P_starttime.Nano()})
		}
	}
	return out
}

func (in *Instance) find(tag Tag) ([]int, error) {
	found, err := in.scan([]*killing{{tag: tag}})
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, t := range found[0] {
		pids = append(pids, t.pid)
	}
	slices.Sort(pids)
	return pids, nil
}

func describe(pids []int) []Process {
	var out []Process
	for _, pid := range pids {
		k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
		if err != nil {
			continue
		}
		out = append(out, Process{PID: pid, Command: "[" + unix.ByteSliceToString(k.Proc.P_comm[:]) + "]"})
	}
	return out
}

func startOf(pid int) uint64 {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || k.Proc.P_stat == zombieState {
		return 0
	}
	return uint64(k.Proc.P_starttime.Nano())
}

func bootID() (string, error) {
	t, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(t.Nano(), 10), nil
}

func ownExecutable() (string, error) { return os.Executable() }
