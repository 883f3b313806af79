//go:build linux || darwin

package term

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	pollPause     = 10 * time.Millisecond // between looks at the foreground group while a signal is due
	pollsPerLook  = 5                     // of the shell, and between two signals to a group that may have forgotten the first
	loopPrograms  = 3                     // programs that came up one after the other make a loop
	starvedWait   = 2 * time.Second       // for a shell that gets no processor
	starvedCPU    = 50 * time.Millisecond // is enough for any shell to come to an interrupt
	startPatience = 2 * time.Second       // for a shell to begin with a command that is to be stopped; a busy machine takes its time
)

type rung struct {
	signals []unix.Signal
	name    string
	wait    time.Duration
}

// rungs of the ladder: what is sent to the foreground group, and how long it has.
var rungs = [...]rung{
	{[]unix.Signal{unix.SIGINT}, "SIGINT", 300 * time.Millisecond},
	{[]unix.Signal{unix.SIGTERM, unix.SIGCONT}, "SIGTERM", 500 * time.Millisecond},
	{[]unix.Signal{unix.SIGKILL}, "SIGKILL", 500 * time.Millisecond},
}

// ladder ends the foreground group by stronger and stronger signals. It returns finished or gone, or pausing when only the tree is left to kill.
func (c *call) ladder(s *shell, j *job) verdict {
	rung := time.NewTimer(startPatience)
	defer rung.Stop()
	select {
	case <-j.started:
	default:
		// A signal before bash has read the whole line would make the rest of it a command.
		if v := c.untilStarted(s, j, rung); v != finished {
			return v
		}
	}
	s.insist(j)
	for _, r := range rungs {
		rung.Reset(r.wait)
		if v := c.climb(s, j, r, rung); v != pausing {
			return v
		}
	}
	return c.spare(s, j)
}

// spare gives a shell that has noted the interrupt, but has hardly run since, a little more time: on a crowded machine the rungs can pass before
// it gets the processor.
func (c *call) spare(s *shell, j *job) verdict {
	before := s.cpu()
	limit := time.NewTimer(starvedWait)
	defer limit.Stop()
	poll := time.NewTicker(pollPause)
	defer poll.Stop()
	for s.foreground() == s.pid && s.runnable() && s.cpu()-before < starvedCPU {
		select {
		case <-j.finished:
			return finished
		case <-s.gone:
			return gone
		case <-c.t.closing:
			return closed
		case <-limit.C:
			return pausing
		case <-poll.C:
		}
	}
	return pausing
}

// climb is one rung: while it lasts, every foreground group that comes up gets the signal. One is not always enough: a loop can be between two
// programs, a forked bash that hasn't become its program yet notes a signal and forgets it, and bash drops one that comes while it reads a
// command substitution. So a group that was led by a bash gets it again; a program, which may be tidying up, does not.
func (c *call) climb(s *shell, j *job, r rung, over *time.Timer) verdict {
	last, again, alone, programs := 0, 0, 0, 0
	forgetful := false
	poll := time.NewTicker(pollPause)
	defer poll.Stop()
	for n := 1; ; n++ {
		group := s.foreground()
		if group == 0 {
			return pausing
		}
		mine := group == s.pid
		switch {
		case mine && r.name == "SIGKILL": // killing the shell itself is left to the caller
		case group != last || (n == again && forgetful):
			forgetful = s.isBash(group) // before the signal: afterwards it may have become its program
			if group != last && !mine {
				programs++
			}
			last, again = group, n+pollsPerLook
			c.signal(group, r)
			if programs >= loopPrograms && r.name != "SIGKILL" {
				// The programs end and the command goes on. The shell is not told of a signal to its children, so it is told itself; while
				// one program runs on that would only leave it behind.
				_ = unix.Kill(s.pid, unix.SIGINT)
			}
		}
		if mine && r.name != "SIGINT" && n%pollsPerLook == 1 {
			// An interactive bash ignores SIGTERM. What it waits for may stand in another group: a signal can come before bash has handed
			// the terminal over.
			if !c.signalChildren(s, j, r) {
				alone++
			}
			if r.name == "SIGKILL" && alone > 1 {
				return pausing
			}
		}
		select {
		case <-j.finished:
			return finished
		case <-s.gone:
			return gone
		case <-c.t.closing:
			return closed
		case <-over.C:
			return pausing
		case now := <-poll.C:
			if n%pollsPerLook == 0 {
				if v, ok := c.look(s, j, now, true); ok {
					return v
				}
			}
		}
	}
}

func (c *call) signal(group int, r rung) {
	if group <= 1 {
		return // kill(-1) would mean everybody
	}
	c.out.Rung = r.name
	for _, sig := range r.signals {
		_ = unix.Kill(-group, sig)
	}
}

// signalChildren signals the groups of what the command started directly below the shell, and says whether there was any. Jobs of earlier calls
// are left alone.
func (c *call) signalChildren(s *shell, j *job, r rung) bool {
	groups := s.children(j.begun, c.t.told)
	for _, g := range groups {
		c.signal(g, r)
	}
	return len(groups) > 0
}

func (c *call) untilStarted(s *shell, j *job, patience *time.Timer) verdict {
	select {
	case <-j.started:
		return finished
	case <-s.gone:
		return gone
	case <-c.t.closing:
		return closed
	case <-patience.C:
		return pausing
	}
}
