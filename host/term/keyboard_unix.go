//go:build linux || darwin

package term

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const typedMax = 64 << 10 // bytes of what a person typed that are reported

// keyboardLoop is what the shell runs while a person has the keyboard: their lines act on the agent's own shell, and what they start reads the
// terminal. A failed read is the end of input (^D); the host starts the loop again until the keyboard is given back.
const keyboardLoop = `while IFS= \builtin read -r -p "${PWD} \$ "; do \builtin eval "$REPLY"; done`

// Keyboard is a person's hold on the terminal's input. While it is held calls wait, up to their context. Release must be called.
type Keyboard struct {
	t    *Terminals
	by   string
	lost chan struct{}

	end  chan struct{} // closed by Release
	done chan struct{} // closed when the slot is given back
	once sync.Once

	mu    sync.Mutex
	typed []byte
}

// Take gives a person the keyboard, starting the shell if there is none; it fails with ErrBusy while a call runs or somebody else holds it.
func (t *Terminals) Take(ctx context.Context, by string) (*Keyboard, error) {
	select {
	case t.slot <- struct{}{}:
	default:
		return nil, ErrBusy
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		<-t.slot
		return nil, ErrClosed
	}
	k := &Keyboard{t: t, by: by, lost: make(chan struct{}), end: make(chan struct{}), done: make(chan struct{})}
	t.running = true
	t.resizeRingLocked()
	t.mu.Unlock()

	c := newCall(t, Request{})
	s, err := t.ready(ctx, c)
	if err == nil {
		err = s.modes(human)
	}
	if err != nil {
		c.stop()
		t.unlock()
		return nil, fmt.Errorf("take the keyboard: %w", err)
	}
	// What this call found out belongs to the next result.
	t.person = true
	t.carried, t.carriedOff = append(t.carried, c.out.Idle...), t.carriedOff+c.out.IdleSkipped
	c.out.Idle, c.out.IdleSkipped = nil, 0
	t.mu.Lock()
	t.keyboard = k
	t.mu.Unlock()
	t.ring.tell()
	go k.serve(c, s) // Release waits for k.done
	return k, nil
}

// serve keeps the loop running until the keyboard is given back, the shell is gone or the agent closes.
func (k *Keyboard) serve(c *call, s *shell) {
	t := k.t
	defer close(k.done)
	defer t.unlock()
	defer k.report()
	defer func() {
		t.mu.Lock()
		t.keyboard = nil
		t.rows, t.cols = Rows, Cols
		t.mu.Unlock()
	}()
	defer c.stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() { // joined below
		defer close(ended)
		select {
		case <-k.end:
		case <-t.closing:
		case <-ctx.Done():
		}
		cancel()
	}()
	defer func() { cancel(); <-ended }()

	var first []byte
	var firstOff int64
	for {
		sc := t.script(keyboardLoop)
		sc.tty = true
		j := &job{script: sc}
		s.begin(j)
		v := lost
		if c.send(ctx, s, j.lines()) == nil {
			v = k.await(ctx, s, j)
		}
		if first == nil {
			idle, skipped := s.idleBefore(j)
			first, firstOff = append([]byte{}, idle...), skipped
		}
		if v == cancelled && !c.isClosing() {
			v = c.ladder(s, j)
		}
		if v == finished && ctx.Err() == nil {
			c.settle(s, j)
			if s.modes(human) == nil {
				continue // ^C or ^D at the prompt
			}
		}
		k.leave(c, s, j, v)
		break
	}
	t.carried, t.carriedOff = append(t.carried, first...), t.carriedOff+firstOff
}

// await is the call's await without its looks at the shell: a person decides how long a program waits for input.
func (k *Keyboard) await(ctx context.Context, s *shell, j *job) verdict {
	select {
	case <-j.finished:
		return finished
	case <-s.gone:
		return gone
	case <-ctx.Done():
		return cancelled
	}
}

// leave puts the shell into the state that calls expect, or ends it.
func (k *Keyboard) leave(c *call, s *shell, j *job, v verdict) {
	t := k.t
	if c.isClosing() {
		close(k.lost)
		s.drop()
		return
	}
	if v == finished {
		c.settle(s, j)
		_ = s.modes(sane)
		_ = s.resize(Rows, Cols)
		s.mu.Lock()
		s.takeIdleLocked() // prompts and echoes: nothing that concerns the model
		s.mu.Unlock()
		return
	}
	close(k.lost)
	if e := s.ending(); v == gone && e != nil && !e.replaced {
		t.bury(s)
		return
	}
	_ = t.slay(s)
}

func (k *Keyboard) report() {
	k.mu.Lock()
	typed := k.typed
	k.mu.Unlock()
	if k.t.options.Taken != nil {
		k.t.options.Taken(k.by, typed)
	}
}

// Write types p: it goes to the foreground program, which is the shell's own prompt to begin with. It blocks while that program doesn't read and
// the terminal's buffer is full, for at most 10 s.
func (k *Keyboard) Write(p []byte) (int, error) {
	s, err := k.holding()
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	k.typed = append(k.typed, p[:min(len(p), typedMax-len(k.typed))]...)
	k.mu.Unlock()
	_ = s.master.SetWriteDeadline(time.Now().Add(10 * time.Second))
	n, err := s.master.Write(p)
	if err != nil {
		return n, fmt.Errorf("type: %w", err)
	}
	return n, nil
}

// Resize changes the terminal's size until the keyboard is released.
func (k *Keyboard) Resize(rows, cols int) error {
	s, err := k.holding()
	if err != nil {
		return err
	}
	if rows < 1 || cols < 1 || rows > 1000 || cols > 1000 {
		return fmt.Errorf("resize terminal: %d rows × %d columns is out of range", rows, cols)
	}
	if err := s.resize(rows, cols); err != nil {
		return err
	}
	k.t.mu.Lock()
	k.t.rows, k.t.cols = rows, cols
	k.t.mu.Unlock()
	k.t.ring.tell()
	return nil
}

func (k *Keyboard) holding() (*shell, error) {
	k.t.mu.Lock()
	defer k.t.mu.Unlock()
	if k.t.keyboard != k || k.t.shell == nil {
		return nil, ErrNotHolder
	}
	return k.t.shell, nil
}

// Release gives the keyboard back and interrupts what the person left running in the foreground. It may be called more than once.
func (k *Keyboard) Release(ctx context.Context) error {
	k.once.Do(func() { close(k.end) })
	select {
	case <-k.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("release the keyboard: %w", ctx.Err())
	}
}

// Lost is closed when the keyboard was taken away because the shell died or the agent was closed.
func (k *Keyboard) Lost() <-chan struct{} { return k.lost }
