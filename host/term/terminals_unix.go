//go:build linux || darwin

package term

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dsh-web/dsh-web/host/proc"
)

// killWait bounds the wait for a tree that SIGKILL should end at once.
const killWait = 15 * time.Second

// Terminals owns one agent's shell, which starts with the first Run or Take. Its methods may be called from any goroutine.
type Terminals struct {
	options Options
	ring    ring
	buffers sync.Pool
	slot    chan struct{} // the one-slot lock: who holds it owns the control pipe, the ladder, the keyboard and what is under "slot"
	closing chan struct{} // closed by Close

	mu         sync.Mutex
	setup      Shell
	started    bool // there was a shell once
	closed     bool
	shell      *shell
	generation int
	running    bool
	watchers   int
	keyboard   *Keyboard
	rows, cols int

	slotState
}

// slotState belongs to the holder of the slot.
type slotState struct {
	tag        proc.Tag
	releaseTag func()
	dir        string // the shell's directory after the last command
	exported   string // its exported variables, as bash declares them
	status     int    // what $? shows next
	flags      string
	debug      string // the DEBUG trap, which the driver takes off between commands
	job        string // process of the newest background job
	told       map[int]bool
	cpu        time.Duration
	carried    []byte // idle output of a shell that is gone
	carriedOff int64
	person     bool // a person used the keyboard
	resumed    bool // still to be told
}

// New allocates; the shell starts with the first Run or Take.
func New(o Options) *Terminals {
	t := &Terminals{
		options: o,
		slot:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		rows:    Rows, cols: Cols,
	}
	t.ring.limit = ringIdle
	t.buffers.New = func() any { return new([readSize]byte) }
	t.told = map[int]bool{}
	t.resumed = o.Resumed
	return t
}

// Configure sets how the shell is started; it fails with ErrStarted once there was one.
func (t *Terminals) Configure(s Shell) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started {
		return ErrStarted
	}
	t.setup = s
	return nil
}

// Used says whether a shell was ever started.
func (t *Terminals) Used() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.started
}

// lock waits for the slot, first in, first out.
func (t *Terminals) lock(ctx context.Context) error {
	select {
	case t.slot <- struct{}{}:
	default:
		select {
		case t.slot <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("wait for the shell: %w", context.Cause(ctx))
		case <-t.closing:
			return ErrClosed
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		<-t.slot
		return ErrClosed
	}
	t.running = true
	t.resizeRingLocked()
	return nil
}

func (t *Terminals) unlock() {
	t.mu.Lock()
	t.running = false
	t.resizeRingLocked()
	<-t.slot // never waits: the token is ours. With the mutex held, so that who is told that nobody has the slot can take it
	t.mu.Unlock()
	t.ring.tell()
}

func (t *Terminals) resizeRingLocked() {
	limit := ringIdle
	if t.running || t.watchers > 0 {
		limit = ringBusy
	}
	t.ring.resize(limit)
}

// Run runs one command; see Request and Outcome. An error means that the command was not run: ErrNUL, ErrClosed, the context's cause while the
// call waited for its turn, or a shell that could not be started. A call of an agent that is closed meanwhile returns ErrClosed.
func (t *Terminals) Run(ctx context.Context, req Request) (Outcome, error) {
	if strings.IndexByte(req.Command, 0) >= 0 {
		return Outcome{}, ErrNUL
	}
	if err := t.lock(ctx); err != nil {
		return Outcome{}, err
	}
	defer t.unlock()
	c := newCall(t, req)
	defer c.stop()
	return c.run(ctx)
}

// ready gives the call a living shell.
func (t *Terminals) ready(ctx context.Context, c *call) (*shell, error) {
	s := t.current()
	var fresh *Fresh
	if s != nil && (s.ending() != nil || s.reap()) {
		fresh = &Fresh{Died: s.ending().death, Lost: s.ending().replaced}
		if s.ending().replaced {
			if err := t.slay(s); err != nil {
				return nil, err
			}
		} else {
			t.bury(s)
		}
		s = nil
	}
	if s != nil && c.req.Restart {
		if err := t.slay(s); err != nil {
			return nil, err
		}
		s = nil
	}
	if s != nil {
		return s, nil
	}
	if fresh == nil {
		fresh = c.out.Fresh // a second attempt
	}
	if fresh == nil && t.Used() {
		fresh = &Fresh{}
	}
	if c.req.Restart {
		fresh = &Fresh{Asked: true}
	}
	c.out.Fresh = fresh
	return t.start(ctx, c, fresh)
}

// start spawns a shell and runs what a fresh one runs first.
func (t *Terminals) start(ctx context.Context, c *call, fresh *Fresh) (*shell, error) {
	t.mu.Lock()
	setup := t.setup
	t.mu.Unlock()
	restore := setup.Restore && fresh != nil && !fresh.Asked && t.exported != ""
	want := t.options.Dir
	if restore && t.dir != "" {
		want = t.dir
	}
	dir, err := existing(want)
	if err != nil {
		return nil, err
	}
	if t.releaseTag == nil {
		if t.tag, t.releaseTag, err = t.options.Proc.Agent(); err != nil {
			return nil, fmt.Errorf("start shell: %w", err)
		}
	}
	name := dir
	if restore {
		if l := logical(t.exported); l != "" && sameDir(l, dir) {
			name = l
		}
	}
	env := environment(t.environ(), t.options.Session, name, setup)
	s, err := spawn(t.options.Proc, t.tag, dir, env, &t.ring, &t.buffers)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.shell, t.started = s, true
	t.generation++
	t.mu.Unlock()
	t.ring.tell()
	t.status, t.flags, t.debug, t.job, t.cpu = 0, "", "", "", 0
	if fresh == nil {
		fresh = &Fresh{}
		if dir != filepath.Clean(want) {
			c.out.Fresh = fresh
		}
	}
	fresh.Dir = dir
	if dir != filepath.Clean(want) {
		fresh.DirGone = want
	}
	if t.resumed {
		t.resumed, c.out.Resumed = false, true
	}

	first := append([]string(nil), setup.Startup...)
	if restore {
		fresh.Restored = true
		first = append(first, restoring(env, t.exported), `\builtin cd -- $'`+string(appendQuoted(nil, name))+`'`)
	}
	if len(first) > 0 {
		if err := c.prepare(ctx, s, strings.Join(first, "\n")); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func sameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

func (t *Terminals) environ() []string {
	if t.options.Environ != nil {
		return t.options.Environ
	}
	return os.Environ()
}

func (t *Terminals) current() *shell {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shell
}

// slay ends the agent's whole tree, the shell with it.
func (t *Terminals) slay(s *shell) error {
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	err := t.options.Proc.Kill(ctx, t.tag, 0)
	t.bury(s)
	return err
}

// bury forgets a shell that is dead. What it printed last between calls goes to the head of the next result.
func (t *Terminals) bury(s *shell) {
	s.dispose()
	s.mu.Lock()
	idle, skipped := s.takeIdleLocked()
	if s.exported != "" {
		t.exported = s.exported
	}
	s.mu.Unlock()
	t.carried, t.carriedOff = append(t.carried, idle...), t.carriedOff+skipped
	t.mu.Lock()
	t.shell = nil
	t.mu.Unlock()
	t.ring.tell()
}

// State is a snapshot for viewers.
func (t *Terminals) State() State {
	t.mu.Lock()
	st := State{Generation: t.generation, Running: t.running && t.keyboard == nil, Rows: t.rows, Cols: t.cols}
	if t.keyboard != nil {
		st.Writer = t.keyboard.by
	}
	s := t.shell
	t.mu.Unlock()
	if s == nil || s.ending() != nil {
		return st
	}
	st.PID = s.pid
	if g := s.foreground(); g != 0 && g != s.pid {
		st.Foreground = commandOf(g)
	}
	return st
}

// ReadAt copies output from an absolute offset on into p. It starts at the returned offset, which is later than asked when older bytes were
// dropped (the difference was skipped), earlier when offset lies beyond the end; n is 0 when there is nothing yet.
func (t *Terminals) ReadAt(offset int64, p []byte) (n int, at int64) { return t.ring.readAt(offset, p) }

// End is the offset after the last byte of output.
func (t *Terminals) End() int64 { return t.ring.offset() }

// Changed returns a channel that is closed when there is more output, or State changed, after this call. To miss nothing, take the channel
// first, then read, then wait.
func (t *Terminals) Changed() <-chan struct{} { return t.ring.changed() }

// Watch keeps more output for viewers until release is called.
func (t *Terminals) Watch() (release func()) {
	t.watch(1)
	return sync.OnceFunc(func() { t.watch(-1) })
}

func (t *Terminals) watch(n int) {
	t.mu.Lock()
	t.watchers += n
	t.resizeRingLocked()
	t.mu.Unlock()
}

// Processes lists what of the agent lives besides its shell.
func (t *Terminals) Processes() ([]proc.Process, error) {
	s := t.current()
	if s == nil {
		return nil, nil
	}
	pids, err := t.options.Proc.PIDs(s.tag)
	if err != nil {
		return nil, err
	}
	return proc.Describe(without(pids, s.pid)), nil
}

func without(pids []int, pid int) []int {
	out := pids[:0]
	for _, p := range pids {
		if p != pid {
			out = append(out, p)
		}
	}
	return out
}

// Close ends the shell and everything that was started in it, and waits for that. It may be called more than once.
func (t *Terminals) Close(ctx context.Context) error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.closing)
	}
	k := t.keyboard
	t.mu.Unlock()
	if k != nil {
		_ = k.Release(ctx)
	}
	select {
	case t.slot <- struct{}{}: // a running call sees closing and lets go
	case <-ctx.Done():
		return fmt.Errorf("close shell: %w", ctx.Err())
	}
	defer func() { <-t.slot }()
	if t.releaseTag == nil {
		return nil
	}
	s := t.current()
	if s != nil {
		_ = s.control.Close() // end of file, and with the hangup below a shell's own goodbye
		_ = s.master.Close()
	}
	err := t.options.Proc.Kill(ctx, t.tag, t.options.Proc.Grace())
	if s != nil {
		t.bury(s)
	}
	if err != nil {
		return fmt.Errorf("close shell: %w", err)
	}
	t.releaseTag()
	t.releaseTag = nil
	return nil
}
