package proc

import (
	"errors"
	"fmt"
	"time"
)

// killing is one Kill in progress; the reaper's goroutine alone changes it.
type killing struct {
	tag      Tag
	deadline time.Time // when asking ends
	gentle   bool
	asked    map[int]bool // pids that got SIGTERM
	seen     bool         // the pass before found something
	memory                // what a pass has to know of those before
	done     chan struct{}
	err      error
}

// covers says whether t belongs to what is killed: one agent, or the whole instance when the killing's agent number is zero.
func (k *killing) covers(t Tag) bool {
	return t == k.tag || (k.tag&(1<<agentBits-1) == 0 && k.tag.space().has(t))
}

const (
	firstPause = time.Millisecond
	longPause  = 16 * time.Millisecond
	// stuckAfter bounds the killing of a process that SIGKILL doesn't end (uninterruptible sleep): Kill then reports it instead of waiting.
	stuckAfter = 10 * time.Second
)

// reap serves all killings with one scan per pass until there is none left.
func (in *Instance) reap() {
	defer in.reaper.Done()
	var running []*killing
	pause := firstPause
	for {
		before := len(running)
		if running = in.take(running); len(running) == 0 {
			return
		}
		if len(running) > before {
			pause = firstPause
		}
		found, err := in.scan(running)
		still := running[:0]
		for i, k := range running {
			if err == nil && !k.step(found[i]) {
				still = append(still, k)
				continue
			}
			k.err = errors.Join(k.err, err)
			close(k.done)
		}
		clear(running[len(still):])
		running = still
		if len(running) > 0 {
			time.Sleep(pause)
			pause = min(pause*2, longPause)
		}
	}
}

// step does what one killing needs after a scan that found procs, and says whether it is over.
func (k *killing) step(procs []target) bool {
	if len(procs) == 0 {
		// A process that forks while the scan runs can slip by once; a second empty scan settles it.
		again := k.seen
		k.seen = false
		return !again
	}
	k.seen = true
	now := time.Now()
	if k.gentle && now.Before(k.deadline) {
		for _, p := range procs {
			if !k.asked[p.pid] {
				k.asked[p.pid] = true
				p.ask()
			}
		}
		return false
	}
	if now.After(k.deadline.Add(stuckAfter)) {
		k.err = fmt.Errorf("end processes of %v: %d still live after SIGKILL, first is %d", k.tag, len(procs), procs[0].pid)
		return true
	}
	for _, p := range procs {
		p.freeze()
	}
	for _, p := range procs {
		p.kill()
	}
	return false
}
