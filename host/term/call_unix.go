//go:build linux || darwin

package term

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsh-web/dsh-web/host/proc"
)

const (
	tick         = 250 * time.Millisecond // between looks at a shell whose call takes longer
	cpuFrom      = 10 * time.Millisecond  // shorter calls can't have used a measurable time
	leftOverFrom = 50 * time.Millisecond  // shorter calls are searched for left-overs only when bash reports a new job
	idlePatience = 200 * time.Millisecond // for an answer of a shell that looks idle: the kernel hands terminal output on when it has time
)

// call is one Run, or the part of a Take that runs in the shell. It holds the slot.
type call struct {
	t     *Terminals
	req   Request
	out   Outcome
	begun time.Time
	limit *time.Timer // the timeout
	ticks *time.Timer

	idleSince time.Time // since when looks find the shell idle, with nothing left to read from the terminal
	resent    int
	input     detector
}

// verdict is why waiting for a command ended.
type verdict int

const (
	finished verdict = iota
	gone             // the shell ended or was replaced
	lost             // it waits for input and never answered
	expired
	cancelled
	waiting // for input from the terminal
	closed
	pausing // the rung's time is over
)

func newCall(t *Terminals, req Request) *call {
	c := &call{t: t, req: req, begun: time.Now(), ticks: time.NewTimer(tick)}
	if req.Timeout > 0 {
		c.limit = time.NewTimer(req.Timeout)
	} else {
		c.limit = time.NewTimer(1<<63 - 1)
	}
	c.out.Person, t.person = t.person, false
	return c
}

func (c *call) stop() {
	c.limit.Stop()
	c.ticks.Stop()
}

func (c *call) run(ctx context.Context) (out Outcome, err error) {
	defer func() { out.Duration = time.Since(c.begun) }()
	for attempt := 0; ; attempt++ {
		s, err := c.t.ready(ctx, c)
		if err != nil {
			return c.out, err
		}
		if c.req.Command == "" {
			return c.out, nil
		}
		j := &job{script: c.t.script(c.req.Command), output: c.req.Output}
		v := c.execute(ctx, s, j)
		if (v == gone || v == lost) && attempt == 0 && c.neverRan(s, j) {
			// The shell ended before it read the command: between the calls, as far as the command is concerned.
			if err := c.leave(s, v); err != nil {
				return c.out, err
			}
			c.out.Died, c.out.Replaced, c.out.Lost, c.out.Reset = nil, false, false, false
			c.req.Restart = false
			c.idleSince, c.resent = time.Time{}, 0
			continue
		}
		return c.conclude(s, j, v)
	}
}

// neverRan says that the command had no part in the shell's end. A shell that lives, as something else or without an answer, is killed first, so
// that it starts nothing now; then the terminal runs dry, so that a start fence on its way counts.
func (c *call) neverRan(s *shell, j *job) bool {
	if e := s.ending(); e == nil || e.death == nil {
		_ = unix.Kill(s.pid, unix.SIGKILL)
	}
	timer := time.NewTimer(hangupWait)
	defer timer.Stop()
	select {
	case <-j.started:
	case <-s.silent:
	case <-timer.C:
	}
	select {
	case <-j.started:
		return false
	default:
		return true
	}
}

// leave ends the shell of an attempt that will be repeated in a new one.
func (c *call) leave(s *shell, v verdict) error {
	e := s.ending()
	err := c.t.slay(s)
	f := &Fresh{Lost: v == lost}
	if e != nil && v == gone {
		f.Died, f.Lost = e.death, e.replaced
	}
	c.out.Fresh = f
	return err
}

// script makes the input for a command from what the shell was left with.
func (t *Terminals) script(command string) script {
	t.mu.Lock()
	defer t.mu.Unlock()
	return script{nonce: newNonce(), command: command, before: t.status, flags: t.flags, debug: t.debug, tty: t.setup.StdinTTY, dump: t.setup.Restore}
}

// execute sends the command and waits for its end.
func (c *call) execute(ctx context.Context, s *shell, j *job) verdict {
	s.begin(j)
	defer func() {
		idle, skipped := s.idleBefore(j)
		c.out.Idle = append(append(c.out.Idle, c.t.carried...), idle...)
		c.out.IdleSkipped += c.t.carriedOff + skipped
		c.t.carried, c.t.carriedOff = nil, 0
	}()
	if err := c.send(ctx, s, j.lines()); err != nil {
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return c.bereaved(s)
		case ctx.Err() != nil:
			return cancelled
		case c.isClosing():
			return closed
		}
		return expired
	}
	return c.await(ctx, s, j)
}

// bereaved waits a moment for the end of a shell whose pipe broke.
func (c *call) bereaved(s *shell) verdict {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-s.gone:
		return gone
	case <-timer.C:
		return lost
	}
}

func (c *call) isClosing() bool {
	select {
	case <-c.t.closing:
		return true
	default:
		return false
	}
}

// send writes to the control pipe. A long command is taken as fast as bash reads it; timeout, context and closing end the wait.
func (c *call) send(ctx context.Context, s *shell, lines []byte) error {
	if len(lines) <= pieceSize { // an empty pipe takes it whole
		_, err := s.control.Write(lines)
		return err
	}
	hurry := func() { _ = s.control.SetWriteDeadline(time.Unix(1, 0)) }
	if c.req.Timeout > 0 {
		_ = s.control.SetWriteDeadline(c.begun.Add(c.req.Timeout))
	}
	stop := context.AfterFunc(ctx, hurry)
	written := make(chan struct{})
	watched := make(chan struct{})
	go func() { // joined below
		defer close(watched)
		select {
		case <-written:
		case <-c.t.closing:
			hurry()
		case <-s.gone:
			hurry()
		}
	}()
	_, err := s.control.Write(lines)
	stop()
	close(written)
	<-watched
	if err == nil {
		_ = s.control.SetWriteDeadline(time.Time{})
	}
	return err
}

// await waits for the command, looking at the shell now and then.
func (c *call) await(ctx context.Context, s *shell, j *job) verdict {
	for {
		select {
		case <-j.finished:
			return finished
		case <-s.gone:
			select {
			case <-j.finished: // it answered first
				return finished
			default:
				return gone
			}
		case <-c.t.closing:
			return closed
		case <-ctx.Done():
			return cancelled
		case <-c.limit.C:
			return expired
		case now := <-c.ticks.C:
			if v, ok := c.look(s, j, now, false); ok {
				return v
			}
			c.ticks.Reset(tick)
		}
	}
}

// look sees to a shell whose call takes long, and says whether there is an end to it.
func (c *call) look(s *shell, j *job, now time.Time, ladder bool) (verdict, bool) {
	if s.reap() {
		return 0, false // await sees it
	}
	switch s.look() {
	case conditionStopped:
		if !c.out.Continued {
			c.out.Continued = true
			_ = unix.Kill(s.pid, unix.SIGCONT)
		}
	case conditionReplaced:
		s.finish(&ending{replaced: true})
	case conditionIdle:
		return c.idle(s, j, now)
	case conditionOther:
		c.idleSince = time.Time{}
		if ladder {
			break
		}
		if w := c.input.check(s, now); w != nil {
			c.out.Waiting = w
			return waiting, true
		}
	}
	return 0, false
}

// idle deals with a shell that waits for its next line although this one hasn't been answered. A signal can unwind the answer as well: it is
// asked for once more, then once more from a clean top level, and then the shell is given up.
func (c *call) idle(s *shell, j *job, now time.Time) (verdict, bool) {
	if !s.drained() {
		c.idleSince = time.Time{}
		return 0, false
	}
	if c.idleSince.IsZero() {
		c.idleSince = now
	}
	if now.Sub(c.idleSince) < idlePatience {
		return 0, false
	}
	select {
	case <-j.started:
	default:
		return lost, true
	}
	c.idleSince = time.Time{}
	c.resent++
	switch c.resent {
	case 1:
	case 2:
		_ = unix.Kill(s.pid, unix.SIGINT)
	default:
		return lost, true
	}
	if _, err := s.control.WriteString("\n" + j.last()); err != nil {
		return lost, true
	}
	return 0, false
}

// conclude turns the verdict into an outcome and leaves either a shell that is ready or none.
func (c *call) conclude(s *shell, j *job, v verdict) (Outcome, error) {
	switch v {
	case expired:
		c.out.TimedOut = true
	case cancelled:
		c.out.Cancelled = true
	}
	if v == expired || v == cancelled || v == waiting {
		v = c.ladder(s, j)
	}
	var err error
	switch v {
	case finished:
		c.settle(s, j)
		_ = s.modes(sane)
		if c.out.TimedOut && c.t.resets() {
			c.out.Reset = true
			err = c.t.slay(s)
		}
	case gone:
		e := s.ending()
		c.out.Reset = true
		c.out.Died, c.out.Replaced = e.death, e.replaced
		if e.replaced {
			err = c.t.slay(s)
		} else {
			c.t.bury(s)
		}
		c.t.status = 0
	case closed:
		return c.out, c.abandon(s)
	default: // lost, pausing
		c.out.Lost = v == lost
		c.out.Reset = true
		err = c.t.slay(s)
	}
	c.out.WillRestore = c.out.Reset && c.t.restores()
	return c.out, err
}

// abandon lets go of the shell of an agent that is being closed: Close ends the tree, but output must not come after Run returned.
func (c *call) abandon(s *shell) error {
	s.drop()
	s.settleOutput()
	return ErrClosed
}

func (t *Terminals) resets() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setup.ResetOnExpiry
}

func (t *Terminals) restores() bool {
	t.mu.Lock()
	restore := t.setup.Restore
	t.mu.Unlock()
	return restore && t.exported != ""
}

// settle takes over what a finished command left.
func (c *call) settle(s *shell, j *job) {
	t := c.t
	r := j.a
	if r == nil {
		r = j.b
	}
	if r == nil {
		r = &report{}
	}
	c.out.Ended, c.out.Status = true, r.status
	t.status = r.status
	t.flags, t.debug = r.flags, r.debug
	if c.resent > 0 {
		s.forgetComplaints()
	}
	if dir := s.dir(); dir != "" {
		if dir != t.dir {
			t.dir = dir
		}
	}
	c.out.Dir = t.dir
	took := time.Since(c.begun)
	if took >= cpuFrom {
		now := s.cpu()
		c.out.CPU, t.cpu = now-t.cpu, now
	}
	if newJob := r.job != t.job; newJob || took >= leftOverFrom {
		t.job = r.job
		c.out.LeftOver = t.leftOver(s)
	}
}

// leftOver lists the background processes that were not told before.
func (t *Terminals) leftOver(s *shell) []proc.Process {
	pids, err := t.options.Proc.PIDs(s.tag)
	if err != nil {
		return nil
	}
	alive := make(map[int]bool, len(pids))
	var news []int
	for _, pid := range pids {
		alive[pid] = true
		if pid != s.pid && !t.told[pid] {
			news = append(news, pid)
		}
	}
	t.told = alive
	if len(news) == 0 {
		return nil
	}
	return proc.Describe(news)
}

// prepare runs what a fresh shell runs before the first command. Its output is dropped.
func (c *call) prepare(ctx context.Context, s *shell, command string) error {
	sc := c.t.script(command)
	sc.tty, sc.dump = false, false
	j := &job{script: sc}
	v := c.execute(ctx, s, j)
	if v == finished {
		c.t.status, c.t.flags, c.t.debug = 0, "", ""
		if j.a != nil {
			c.t.flags, c.t.debug = j.a.flags, j.a.debug
		}
		return nil
	}
	why := "they did not come to an end"
	if v == gone || v == lost {
		why = "they ended the shell"
	}
	if v == expired {
		why = "the call's time was over before they ended"
	}
	if v == cancelled {
		why = "the call was cancelled"
	}
	if err := c.t.slay(s); err != nil {
		return err
	}
	if v == closed {
		return ErrClosed
	}
	return fmt.Errorf("start shell: run its startup commands: %s", why)
}

// forgetComplaints takes bash's own messages out of the idle output: those about the rest of a driver's line that a signal cut.
func (s *shell) forgetComplaints() {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.idle[:0]
	for line := range bytes.Lines(s.idle) {
		if !bytes.HasPrefix(line, []byte("bash: ")) {
			kept = append(kept, line...)
		}
	}
	s.idle = kept
}

// drained says that the terminal holds no output that hasn't been handled.
func (s *shell) drained() bool {
	n := 0
	err := s.withMaster(func(fd int) error {
		var e error
		n, e = unix.IoctlGetInt(fd, bytesReady)
		return e
	})
	return err == nil && n == 0 && !s.taking.Load()
}

// settleOutput waits until the reader is between two pieces, so that the output function of a dropped job is not running any more.
func (s *shell) settleOutput() {
	for s.taking.Load() {
		time.Sleep(time.Millisecond)
	}
}
