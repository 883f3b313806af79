//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/model/wire"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/sdk/rpc"
)

const (
	// grace is what an agent's processes get to end by themselves.
	grace = 250 * time.Millisecond
	// closeTime bounds the end of what sessions share, after they are closed.
	closeTime = time.Second
	// patience is how long a process that was told to end may take, whatever hangs. The keeper then ends its children.
	patience = 5 * time.Second
	// How long to wait for the lock of a session whose holder lives, or is gone.
	lockBusy = 100 * time.Millisecond
	lockGone = 2 * time.Second
)

// start runs the whole program.
func start(args, env []string) int {
	proc.RunKeeperIfAsked()
	profile, err := command(args, env, os.Stdout)
	if err != nil || profile == "" {
		return report(err, os.Stderr)
	}
	c, err := readConfig(profile, lookup(env))
	if err != nil {
		return report(err, os.Stderr)
	}
	code, err := run(c)
	if err != nil {
		return report(err, os.Stderr)
	}
	return code
}

// config is what the environment says.
type config struct {
	composition *presets.Composition
	data        string // records and images
	dataFrom    string // the variable that says so
	home        string // stored keys; "" when there is none
	sessions    string
	rootFrom    string // the variable that sessions follow from
	cwd         string
	window      int
	synchronous string
	get         func(string) (string, bool)
}

func readConfig(profile string, get func(string) (string, bool)) (*config, error) {
	value := func(name string) string { v, _ := get(name); return strings.TrimSpace(v) }
	c := &config{get: get}
	var err error
	place := func(name string) string {
		path := value(name)
		if path == "" || err != nil {
			return path
		}
		var abs string
		if abs, err = filepath.Abs(path); err != nil {
			err = failf(exitConfig, "%s: %v", name, err)
		}
		return abs
	}
	c.home, c.sessions, c.cwd = place("DSH_HOME"), place("DSH_SESSION_ROOT"), place("DSH_CWD")
	if err != nil {
		return nil, err
	}
	c.data, c.dataFrom, c.rootFrom = c.home, "DSH_HOME", "DSH_SESSION_ROOT"
	switch {
	case c.home == "" && c.sessions == "":
		return nil, failf(exitUsage, "DSH_HOME: it is not set; set it, or DSH_SESSION_ROOT, to the directory that sessions are kept in")
	case c.home == "":
		c.data, c.dataFrom = c.sessions, c.rootFrom
	case c.sessions == "":
		c.sessions, c.rootFrom = filepath.Join(c.home, "sessions"), c.dataFrom
	}
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		return nil, failf(exitConfig, "%s: %v", c.dataFrom, err)
	}
	if err := os.MkdirAll(c.sessions, 0o700); err != nil {
		return nil, failf(exitConfig, "%s: %v", c.rootFrom, err)
	}
	if c.cwd == "" {
		if c.cwd, err = os.Getwd(); err != nil {
			return nil, failf(exitConfig, "DSH_CWD: it is not set, and there is no working directory: %v", err)
		}
	} else if info, err := os.Stat(c.cwd); err != nil {
		return nil, failf(exitConfig, "DSH_CWD: %v", err)
	} else if !info.IsDir() {
		return nil, failf(exitConfig, "DSH_CWD: %s is not a directory", c.cwd)
	}
	if w := value("DSH_CONTEXT_WINDOW"); w != "" {
		if c.window, err = strconv.Atoi(w); err != nil || c.window < 1 {
			return nil, failf(exitConfig, "DSH_CONTEXT_WINDOW: %q is not a positive number of tokens", w)
		}
	}
	if base := value("DEEPSEEK_BASE_URL"); base != "" {
		if _, err := wire.Endpoint(base, "", ""); err != nil {
			return nil, failf(exitConfig, "DEEPSEEK_BASE_URL: %v", err)
		}
	}
	switch c.synchronous = value("DSH_SYNCHRONOUS"); c.synchronous {
	case "", "full", "normal":
	default:
		return nil, failf(exitConfig, "DSH_SYNCHRONOUS: %q is neither full nor normal", c.synchronous)
	}
	if c.composition, err = composition(profile, get); err != nil {
		return nil, &exit{exitConfig, err}
	}
	return c, nil
}

// run serves one client until it is done, or a signal comes.
func run(c *config) (code int, err error) {
	in, out, err := openStreams()
	if err != nil {
		return exitConfig, err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var signals listener
	signals.start(cancel)
	defer signals.stop()
	gone := watch(out, cancel)
	defer func() {
		_ = in.Close() // for the second time, mostly
		_ = out.Close()
		gone.Wait()
	}()

	s, err := open(ctx, c, logger)
	defer func() {
		within, done := context.WithTimeout(context.Background(), closeTime)
		defer done()
		if closeErr := s.close(within); closeErr != nil {
			logger.Error("close", "error", closeErr) // the client has its answers; the keeper ends what lives
		}
	}()
	if err != nil {
		return exitConfig, err
	}
	rpc.New(rpc.Config{
		Host: s.host, In: in, Out: out, Own: s.own, Disown: s.store.Disown, Cwd: c.cwd, Version: version, Logger: logger,
	}).Serve(ctx)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return exitInterrupted, nil
	}
	return exitOK, nil
}

// standalone is the host of one profile with what it is made of.
type standalone struct {
	store *jsonl.Store
	proc  *proc.Instance
	host  *host.Host
	tails *wire.Tails
}

// open acquires everything. close works on what a failure leaves.
func open(ctx context.Context, c *config, logger *slog.Logger) (s *standalone, err error) {
	s = &standalone{}
	if s.store, err = jsonl.Open(c.sessions, jsonl.Options{Synchronous: c.synchronous}); err != nil {
		return s, fmt.Errorf("%s: %w", c.rootFrom, err)
	}
	if s.proc, err = proc.Open(proc.Options{Dir: filepath.Join(c.data, ".instances"), Keeper: true, Grace: grace}); err != nil {
		return s, fmt.Errorf("%s: %w", c.dataFrom, err)
	}
	keys := credential.New(c.home, c.get)
	transport := wire.NewTransport(wire.TransportConfig{Guard: true})
	s.tails = wire.NewTails()
	router, err := model.NewRouter(model.Config{
		Default: model.Choice{Provider: model.ProviderDeepSeek}, ContextWindow: c.window, Lookup: keys.Lookup,
		Kinds: map[string]model.Factory{
			"openai":         openai.Factory(openai.Config{Transport: transport, Tails: s.tails}),
			model.KindScript: script.Factory(script.Options{}),
		},
	})
	if err != nil {
		return s, err
	}
	s.host = host.New(host.Config{
		Store: s.store, Router: router, Credentials: keys, Roster: presets.Fixed(c.composition), Proc: s.proc,
		Attachments: filepath.Join(c.data, ".attachments"), DefaultPreset: c.composition.ID, Standalone: true, Logger: logger,
	})
	return s, s.host.Start(ctx)
}

// own takes a session over. A process that was killed while it started a shell leaves the lock to that shell's first instants, so a lock whose
// holder is gone is waited for, and any other a little, in case its holder is just ending.
func (s *standalone) own(id string) error {
	begin := time.Now()
	for {
		err := s.store.Own(id)
		var locked *session.LockedError
		if !errors.As(err, &locked) {
			return err
		}
		wait := lockBusy
		if locked.PID > 0 && errors.Is(syscall.Kill(locked.PID, 0), syscall.ESRCH) {
			wait = lockGone
		}
		if time.Since(begin) > wait {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *standalone) close(ctx context.Context) error {
	var errs []error
	if s.host != nil {
		errs = append(errs, s.host.Close(ctx)) // it closes the store
	} else if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.proc != nil {
		errs = append(errs, s.proc.Close(ctx))
	}
	if s.tails != nil {
		s.tails.Close()
	}
	return errors.Join(errs...)
}

var (
	errInterrupted = errors.New("interrupted")
	errTerminated  = errors.New("terminated")
	errGone        = errors.New("the client is gone")
)

// listener turns signals into the end of the program: the first asks, the second doesn't.
type listener struct {
	signals chan os.Signal
	pipes   chan os.Signal
	group   sync.WaitGroup
}

func (l *listener) start(cancel context.CancelCauseFunc) {
	l.signals, l.pipes = make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(l.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	signal.Notify(l.pipes, syscall.SIGPIPE) // a write to a client that is gone fails, and that is all; children keep the default
	l.group.Go(func() {
		asked := false
		var late <-chan time.Time
		code := exitOK
		for {
			select {
			case sig, ok := <-l.signals:
				if !ok {
					return
				}
				if asked {
					os.Exit(code)
				}
				asked, late = true, time.After(patience)
				if sig == syscall.SIGINT {
					code = exitInterrupted
					cancel(errInterrupted)
				} else {
					cancel(errTerminated)
				}
			case <-late:
				os.Exit(code)
			}
		}
	})
}

func (l *listener) stop() {
	signal.Stop(l.signals)
	close(l.signals)
	l.group.Wait()
}
