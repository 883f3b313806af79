// Package term gives each agent one persistent bash on a pseudo-terminal of its own.
//
// A command goes down a private pipe, never through the terminal's input, so TABs, control bytes and lines of any length arrive as they were
// written. Its end is a random fence on the terminal; its status comes back on a second private pipe.
//
// Guarantees. Order: the calls of one Terminals run one at a time, first in, first out; output is handed on in the order the terminal gave it.
// Loss: none while a call runs; output of background jobs between calls is kept up to a bound and what was dropped is counted; the ring
// (for watchers) drops its oldest bytes, and a reader that lags is told how many. Blocking: a call ends by its timeout or its context, after
// at most the rungs of the ladder (about 1.5 s) and a kill; a slow Output function slows the terminal down, a slow watcher slows nothing.
package term

import (
	"errors"
	"time"

	"github.com/dsh-web/dsh-web/host/proc"
)

var (
	// ErrUnsupported: this platform has no pseudo-terminals.
	ErrUnsupported = errors.New("no persistent shell on this platform")
	// ErrClosed: the agent, and with it its shell, is closed.
	ErrClosed = errors.New("the shell is closed")
	// ErrBusy: a call runs, or somebody else holds the keyboard.
	ErrBusy = errors.New("the shell is busy")
	// ErrStarted: the shell's settings can't change any more.
	ErrStarted = errors.New("the shell has started already")
	// ErrNotHolder: the keyboard is not (any more) held by the caller.
	ErrNotHolder = errors.New("the keyboard is not held")
	// ErrNUL: a command with a NUL byte, which bash can't be given.
	ErrNUL = errors.New("the command contains a NUL byte")
)

// Size of the terminal, unless a person who holds the keyboard changes it.
const (
	Rows = 40
	Cols = 160
)

// Options are what a Terminals needs from its host. Proc and Dir are required.
type Options struct {
	Proc    *proc.Instance
	Dir     string   // absolute: where shells start
	Session string   // DSH_SESSION_ID
	Environ []string // the environment to scrub and hand on; nil: the host's own
	Resumed bool     // an earlier life of the session used a shell that is gone: the first outcome says so

	// Taken is called when a person gives the keyboard back, with who it was and what they typed (at most 64 KiB). May be nil.
	Taken func(by string, typed []byte)
}

// Shell is how the agent's shell is set up.
type Shell struct {
	Startup       []string          // commands run in each fresh shell before the first call; their output is dropped
	Env           map[string]string // added to the environment, over everything else
	PassEnv       []string          // names that pass the scrub
	Restore       bool              // after the shell died: directory and exported variables come back
	StdinTTY      bool              // commands read the terminal instead of an end of file
	ResetOnExpiry bool              // a call that timed out always leaves a fresh shell
}

// Startup commands of interactive and of login shells.
const (
	StartupBashrc = `if [ -r /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi; if [ -r ~/.bashrc ]; then . ~/.bashrc; fi`
	StartupLogin  = `if [ -r /etc/profile ]; then . /etc/profile; fi; if [ -r ~/.bash_profile ]; then . ~/.bash_profile; elif [ -r ~/.bash_login ]; then . ~/.bash_login; elif [ -r ~/.profile ]; then . ~/.profile; fi`
)

// Request is one call.
type Request struct {
	Command string        // run as one unit by bash; may be empty with Restart
	Restart bool          // start a fresh shell first
	Timeout time.Duration // wall clock from the moment the call's turn has come, start of the shell included; 0: none
	// Output gets what the terminal gave between start and end of the command, raw, without our fences. It is called from one goroutine,
	// never after Run returned, and must not keep the slice. May be nil.
	Output func([]byte)
}

// Outcome is how a call ended. Exactly one of the first group describes the command; the second group the shell afterwards.
type Outcome struct {
	Status    int      // exit status, when Ended
	Ended     bool     // the command ran to its end (or was interrupted and bash gave a status)
	Died      *Death   // the shell itself ended
	Replaced  bool     // exec put another program in the shell's place; it was killed
	Lost      bool     // the shell no longer answered the driver (a redefined builtin, closed descriptors); it was killed
	TimedOut  bool     // the ladder ran because of the timeout
	Cancelled bool     // the ladder ran because the context ended
	Waiting   *Waiting // the ladder ran because the command waited for input from the terminal

	Reset bool // the next call starts a fresh shell
	// What the next call's fresh shell will be given back: directory and exported variables, when Shell.Restore.
	WillRestore bool

	Fresh     *Fresh // this call started a shell although there had been one
	Resumed   bool   // this is the first shell after Options.Resumed
	Continued bool   // the shell had been stopped (SIGSTOP) and was continued
	Person    bool   // a person used the keyboard since the call before
	Rung      string // the strongest signal the ladder needed: SIGINT, SIGTERM, SIGKILL, or empty

	Idle        []byte // raw output since the call before: background jobs, bash's notices
	IdleSkipped int64  // bytes of it that were dropped

	LeftOver []proc.Process // background processes not told before
	Dir      string         // the shell's directory after the call
	Duration time.Duration
	CPU      time.Duration // of the shell and the children it waited for; 10 ms steps; 0 for calls under 10 ms
}

// Death is how a shell ended: by exit with Code, or by Signal.
type Death struct {
	Code   int
	Signal string // for example SIGKILL; empty after an exit
}

// Waiting is a program that wanted input from the terminal when nobody could give it.
type Waiting struct {
	PID     int
	Command string
}

// Fresh says why a call got a new shell.
type Fresh struct {
	Asked    bool   // by Request.Restart
	Died     *Death // the one before had died between calls
	Lost     bool   // the one before no longer answered, or had become another program, between calls; it was killed
	Restored bool   // directory and exported variables were brought back
	Dir      string // where it started
	DirGone  string // the directory that should have been restored, or started in, and is no more; the nearest parent was taken
}

// State is a snapshot for viewers.
type State struct {
	PID        int    // of the shell, 0 when none lives
	Generation int    // counts shells; a change means the old one is gone
	Running    bool   // a call runs
	Writer     string // who holds the keyboard
	Rows, Cols int
	Foreground string // command of the foreground process group when it isn't the shell itself
}
