//go:build !linux && !darwin

package term

import (
	"context"

	"github.com/dsh-web/dsh-web/host/proc"
)

// Terminals owns one agent's shell. On this platform there is none: everything that would start it returns ErrUnsupported.
type Terminals struct{}

// Keyboard is a person's hold on the terminal's input.
type Keyboard struct{}

// New allocates; the shell starts with the first Run or Take.
func New(Options) *Terminals { return &Terminals{} }

// Configure sets how the shell is started; it fails with ErrStarted once there is one.
func (t *Terminals) Configure(Shell) error { return nil }

// Run runs one command; see Request and Outcome.
func (t *Terminals) Run(context.Context, Request) (Outcome, error) { return Outcome{}, ErrUnsupported }

// Used says whether a shell was ever started.
func (t *Terminals) Used() bool { return false }

// State is a snapshot for viewers.
func (t *Terminals) State() State { return State{Rows: Rows, Cols: Cols} }

// ReadAt copies output from an absolute offset on into p. It starts at the returned offset, which is later than asked when older bytes were
// dropped; n is 0 when there is nothing yet.
func (t *Terminals) ReadAt(offset int64, p []byte) (n int, at int64) { return 0, 0 }

// End is the offset after the last byte of output.
func (t *Terminals) End() int64 { return 0 }

// Changed returns a channel that is closed when there is more output, or State changed, after this call.
func (t *Terminals) Changed() <-chan struct{} { return nil }

// Watch keeps more output for viewers until release is called.
func (t *Terminals) Watch() (release func()) { return func() {} }

// Take gives a person the keyboard; it fails with ErrBusy while a call runs.
func (t *Terminals) Take(context.Context, string) (*Keyboard, error) { return nil, ErrUnsupported }

// Processes lists what of the agent lives besides its shell.
func (t *Terminals) Processes() ([]proc.Process, error) { return nil, nil }

// Close ends the shell and everything that was started in it, and waits for that.
func (t *Terminals) Close(context.Context) error { return nil }

// Write types p.
func (k *Keyboard) Write(p []byte) (int, error) { return 0, ErrUnsupported }

// Resize changes the terminal's size until the keyboard is released.
func (k *Keyboard) Resize(rows, cols int) error { return ErrUnsupported }

// Release gives the keyboard back and interrupts what the person left running in the foreground.
func (k *Keyboard) Release(context.Context) error { return nil }

// Lost is closed when the keyboard was taken away: the shell died or the agent closed.
func (k *Keyboard) Lost() <-chan struct{} { return nil }
