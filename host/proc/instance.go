package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Options say how an Instance works. The zero value is fine for tests: no keeper, no record.
type Options struct {
	// Dir is where the instance leaves a record of itself, so that the next start can end what a killed host left. Empty: no record.
	// Open first sweeps the instances recorded there under the same boot whose host is gone.
	Dir string
	// Keeper starts, with the first agent, one process that outlives the host by some milliseconds and ends everything it left.
	// The program's main must then call RunKeeperIfAsked before anything else.
	Keeper bool
	// Grace is how long processes may take to end by themselves when their agent or this instance closes; 0 is the constant Grace.
	Grace time.Duration
}

// Instance is this host process as the owner of agents' processes. Its methods may be called from any goroutine.
type Instance struct {
	options Options
	tags    space

	mu     sync.Mutex
	closed bool
	next   uint32
	live   map[Tag]*agent
	queue  []*killing // waiting for the reaper's next pass
	active bool       // a reaper is running

	reaper sync.WaitGroup
	keeper keeper
	record string
}

// agent is what an instance knows of one of its agents.
type agent struct {
	roots map[int]bool // pids of registered shells: what platforms without tags start their search from
}

// Open readies an instance: it chooses tags, sweeps and records (Options.Dir). It starts no process. Descriptors that this process inherited
// become close-on-exec, so that no agent's process gets them.
func Open(o Options) (*Instance, error) {
	if o.Keeper && os.Getenv(keeperEnv) != "" {
		return nil, errors.New("open process instance: this process is a keeper whose main did not call RunKeeperIfAsked first")
	}
	closeOnExec()
	limit, err := ownLimit()
	if err != nil {
		return nil, err
	}
	top, err := topFor(limit)
	if err != nil {
		return nil, err
	}
	tags, err := newSpace(top)
	if err != nil {
		return nil, err
	}
	in := &Instance{options: o, tags: tags, live: map[Tag]*agent{}}
	if o.Dir == "" {
		return in, nil
	}
	if _, err := Sweep(context.Background(), o.Dir); err != nil {
		if errors.Is(err, ErrUnsupported) {
			return in, nil // nothing is started here, so there is nothing to record
		}
		return nil, err
	}
	if in.record, err = writeRecord(o.Dir, tags); err != nil {
		return nil, err
	}
	return in, nil
}

// Agent reserves a tag for one agent, and starts the keeper when there should be one and is none. Release gives the tag back;
// it ends no process: that is Kill.
func (in *Instance) Agent() (tag Tag, release func(), err error) {
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return 0, nil, ErrClosed
	}
	if len(in.live) >= 1<<agentBits-2 {
		in.mu.Unlock()
		return 0, nil, errors.New("reserve process tag: too many agents")
	}
	for tag == 0 || in.live[tag] != nil {
		in.next = (in.next + 1) & (1<<agentBits - 1)
		if in.next != 0 {
			tag = in.tags.agent(in.next)
		}
	}
	in.live[tag] = &agent{roots: map[int]bool{}}
	in.mu.Unlock()

	if in.options.Keeper {
		if err := in.keeper.ensure(in.tags); err != nil {
			in.forget(tag)
			return 0, nil, err
		}
	}
	return tag, sync.OnceFunc(func() { in.forget(tag) }), nil
}

func (in *Instance) forget(tag Tag) {
	in.mu.Lock()
	delete(in.live, tag)
	in.mu.Unlock()
}

// Mark tags the process pid, which must not have run anything yet.
func (in *Instance) Mark(pid int, tag Tag) error {
	in.mu.Lock()
	if a := in.live[tag]; a != nil {
		a.roots[pid] = true
	}
	in.mu.Unlock()
	return mark(pid, tag)
}

// Unmark forgets a process that has been reaped, so that its pid means nothing any more.
func (in *Instance) Unmark(pid int, tag Tag) {
	in.mu.Lock()
	if a := in.live[tag]; a != nil {
		delete(a.roots, pid)
	}
	in.mu.Unlock()
}

// Kill ends every process that carries tag: SIGTERM, at most grace to leave, then SIGSTOP and SIGKILL until a scan finds none. With no
// grace it begins with SIGKILL. Processes of hosts that run inside the agent's shells go too. All callers share the scans of one
// goroutine. It returns when none is left, or when ctx ends, with an error that names what still lives; the killing goes on then.
func (in *Instance) Kill(ctx context.Context, tag Tag, grace time.Duration) error {
	k := &killing{tag: tag, deadline: time.Now().Add(grace), gentle: grace > 0, done: make(chan struct{}), asked: map[int]bool{}}
	in.mu.Lock()
	in.queue = append(in.queue, k)
	if !in.active {
		in.active = true
		in.reaper.Add(1)
		go in.reap() // Close waits for in.reaper
	}
	in.mu.Unlock()
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
		return fmt.Errorf("end processes of %v: %w", tag, ctx.Err())
	}
}

// Grace is how long a tree may take to end by itself when its agent closes.
func (in *Instance) Grace() time.Duration {
	if in.options.Grace > 0 {
		return in.options.Grace
	}
	return Grace
}

// take moves the waiting killings to the reaper's list; with none in either the reaper is over.
func (in *Instance) take(running []*killing) []*killing {
	in.mu.Lock()
	defer in.mu.Unlock()
	running = append(running, in.queue...)
	in.queue = nil
	if len(running) == 0 {
		in.active = false
	}
	return running
}

// Processes lists the living processes of tag, by pid.
func (in *Instance) Processes(tag Tag) ([]Process, error) {
	pids, err := in.find(tag)
	if err != nil {
		return nil, err
	}
	return describe(pids), nil
}

// PIDs lists the pids of the living processes of tag, ascending. It is one scan, without a look at what they are.
func (in *Instance) PIDs(tag Tag) ([]int, error) { return in.find(tag) }

// Count says how many processes of all agents live.
func (in *Instance) Count() (int, error) {
	pids, err := in.find(in.tags.base)
	return len(pids), err
}

// Close ends everything that carries a tag of this instance, then the keeper, and removes the record. It may be called more than once.
func (in *Instance) Close(ctx context.Context) error {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	err := in.Kill(ctx, in.tags.base, in.Grace())
	if err != nil {
		return err // the keeper and the record stay: they may still be needed
	}
	in.reaper.Wait()
	err = in.keeper.stop()
	if in.record != "" {
		if e := os.Remove(in.record); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("close process instance: %w", e))
		}
	}
	return err
}
