// Package proc finds and ends every process of an agent, whatever the process did to hide: background jobs, new sessions, double forks,
// empty environments, other users, user namespaces.
//
// Each process carries a tag: the soft and hard limit RLIMIT_LOCKS, which Linux has not used since 2.4.25 and hands down over fork, exec and
// setuid. A tag names the host process (an Instance) and one agent of it. Killing is a scan of /proc for the tag, by pidfd, with a second
// look before every signal, so a recycled pid is never hit.
//
// What is not promised: a process that deliberately resets its own limit escapes (root can raise it, everybody can lower it). Zombies that an
// orphan leaves are reaped by init, so a container needs an init process. Outside Linux there are no tags; trees are then found by parent,
// group and session of the shells that were registered, which a double fork into a new session escapes.
package proc

import (
	"errors"
	"time"
)

// ErrUnsupported is returned where the platform has no way to do what was asked.
var ErrUnsupported = errors.New("not supported on this platform")

// ErrClosed is returned by an Instance that is closed.
var ErrClosed = errors.New("process instance is closed")

// Grace is how long a tree may take to end by itself after SIGTERM when an agent is closed.
const Grace = 2 * time.Second

// Process is one living process of an agent.
type Process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`         // its arguments joined by blanks, at most 200 bytes; its name in brackets when it has none
	Ports   []int  `json:"ports,omitempty"` // TCP ports it listens on, ascending
}

// Describe tells what the processes are, in the order given; those that are gone are left out.
func Describe(pids []int) []Process { return describe(pids) }
