// Package host keeps many live sessions in one process: it creates, resumes, evicts and closes their agents, and tells viewers what changed.
//
// A session is a log; an agent is a session that runs. Reading never makes an agent; sending does. Creating is one step: everything is
// mounted first, then one commit makes the session exist, so a failure leaves nothing. Sessions close in parallel, then what they share.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsh-web/dsh-web/agent"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/prompt"
	"github.com/dsh-web/dsh-web/tools"
)

// Config is what a host is made of.
type Config struct {
	Store       session.Store
	Router      *model.Router
	Credentials *credential.Store
	Roster      *presets.Roster
	Proc        *proc.Instance
	// Attachments is the folder for images; "" keeps none.
	Attachments string

	DefaultPreset  string
	DefaultModel   model.Choice
	MaxLive        int           // agents at a time
	EvictIdle      time.Duration // of agents that never used their shell; 0 never
	EvictUsedShell time.Duration // of the others; 0 never
	Retention      Retention
	// ReadOnly shows the sessions of a store that can't be changed: nothing is recovered, created or sent.
	ReadOnly bool
	// KeepRecorded makes resumed sessions go on with the prompt of their log.
	KeepRecorded bool
	// Unattended says that nobody is there to ask: a call that needs leave is answered at once with "unavailable", and so is a question.
	Unattended bool
	// Standalone makes this the host of one profile, in a process that shares its store with others. Every session runs on DefaultPreset as it
	// is now, also a resumed one; ids are any text that names a file (session.FileName); agents get no confined file provider; and what a
	// stopped process left open is closed when the session is resumed, not at the start, since others may be running it. It is Unattended,
	// too.
	Standalone bool
	// Violation hears of a prompt that changed after its first request. Nil: it is only logged.
	Violation func(error)

	Now    func() time.Time
	Logger *slog.Logger
}

// Host is the owner of all sessions of one process. Start before use, Close after.
type Host struct {
	cfg     Config
	root    *scope.Scope
	journal *session.Journal
	prompts *prompt.Registry
	tools   *tools.Registry
	feed    *Feed
	locks   *fsys.Locks // shared by all file providers
	names   names
	started time.Time

	observers observers

	liveCount atomic.Int64
	draining  chan struct{} // closed once by drain
	drain     func()

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry
}

// New allocates a host.
func New(cfg Config) *Host {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Host{
		cfg: cfg, root: scope.New("host"), prompts: &prompt.Registry{Logger: cfg.Logger}, tools: &tools.Registry{}, locks: new(fsys.Locks),
		entries: map[string]*entry{}, draining: make(chan struct{}),
	}
	h.drain = sync.OnceFunc(func() { close(h.draining) })
	h.feed = &Feed{host: h, subs: map[*Subscription]struct{}{}}
	h.journal = session.NewJournal(cfg.Store, session.Options{Now: cfg.Now, Logger: cfg.Logger, AfterCommit: h.committed, Observe: h.commit})
	return h
}

// Start takes the store, closes what a crash left open, and begins to evict. After an error call Close.
func (h *Host) Start(ctx context.Context) error {
	if err := h.journal.Start(ctx); err != nil {
		return err
	}
	if !h.cfg.Standalone && !h.cfg.ReadOnly {
		recovered, err := h.journal.Recover(ctx)
		if err != nil {
			return fmt.Errorf("recover sessions: %w", err)
		}
		h.cfg.Logger.Info("recovered", "sessions", recovered.Sessions, "calls", recovered.Calls, "damaged", recovered.Damaged)
	}
	if err := h.contribute(); err != nil {
		return err
	}
	h.started = h.cfg.Now()
	if h.cfg.Attachments != "" && !h.cfg.Standalone && !h.cfg.ReadOnly {
		if err := h.root.Go("sweep attachments", h.sweepAttachments); err != nil {
			return err
		}
	}
	if h.cfg.Retention != (Retention{}) && !h.cfg.ReadOnly {
		if err := h.root.Go("retention", h.retain); err != nil {
			return err
		}
	}
	if h.cfg.EvictIdle > 0 || h.cfg.EvictUsedShell > 0 || (!h.cfg.Standalone && !h.cfg.ReadOnly) { // also when idle agents are kept for ever: archived ones aren't
		return h.root.Go("evict idle agents", h.evictions)
	}
	return nil
}

func (h *Host) evictions(ctx context.Context) error {
	every := time.Minute
	for _, d := range []time.Duration{h.cfg.EvictIdle, h.cfg.EvictUsedShell} {
		if d > 0 {
			every = min(every, max(d/4, 10*time.Millisecond))
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := h.evict(ctx); err != nil && ctx.Err() == nil {
				h.cfg.Logger.Error("evict", "error", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Close ends every agent in parallel, each turn with a logged reason, then the store. It works after a failed Start too, and twice.
func (h *Host) Close(ctx context.Context) error {
	h.drain()
	h.mu.Lock()
	h.closed = true
	all := make([]*entry, 0, len(h.entries))
	for _, e := range h.entries {
		e.refs++
		all = append(all, e)
	}
	h.mu.Unlock()

	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	for _, e := range all {
		group.Go(func() {
			defer h.leave(e)
			unlock, err := e.lock(ctx)
			if err == nil {
				defer unlock()
				err = h.shut(ctx, e, agent.ByShutdown)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("close session %s: %w", e.id, err))
			}
		})
	}
	group.Wait()
	errs = append(errs, h.root.Close(ctx), h.journal.Close(ctx))
	return errors.Join(errs...)
}

// Drain parks every agent after the step in progress and starts no further turn; creating and sending are refused. Reading goes on.
func (h *Host) Drain() {
	h.drain()
	h.mu.Lock()
	all := make([]*entry, 0, len(h.entries))
	for _, e := range h.entries {
		all = append(all, e)
	}
	h.mu.Unlock()
	for _, e := range all {
		if l := e.now(); l != nil {
			l.agent.Park()
			l.desk.Close(withdrawnByDrain) // after: the step that goes on then is the last
		}
	}
	h.feed.dirty()
}

// Draining says whether the host takes no more work.
func (h *Host) Draining() bool {
	select {
	case <-h.draining:
		return true
	default:
		return false
	}
}

// writable refuses changes on a host that only shows sessions.
func (h *Host) writable() error {
	if h.cfg.ReadOnly {
		return refuse(CodeReadOnly, "This host only shows sessions; import them into another one to go on with them.")
	}
	return nil
}

// open refuses work while the host drains or closes.
func (h *Host) open() error {
	if err := h.writable(); err != nil {
		return err
	}
	if h.Draining() {
		return refuse(CodeDraining, "The host is shutting down and takes no new work; try again when it is back.")
	}
	return nil
}

// Roster lists the presets.
func (h *Host) Roster() *presets.Roster { return h.cfg.Roster }

// Router lists the models.
func (h *Host) Router() *model.Router { return h.cfg.Router }

// Credentials keeps the keys.
func (h *Host) Credentials() *credential.Store { return h.cfg.Credentials }

// Feed tells what changed.
func (h *Host) Feed() *Feed { return h.feed }

// Journal reads logs. Changing a session goes through its handle.
func (h *Host) Journal() *session.Journal { return h.journal }

// Scope is the root that all agents live under, for contributions of the process that embeds the host.
func (h *Host) Scope() *scope.Scope { return h.root }

// Prompts takes contributions to the prompts of all agents.
func (h *Host) Prompts() *prompt.Registry { return h.prompts }

// Tools takes tools and guards for all agents.
func (h *Host) Tools() *tools.Registry { return h.tools }
