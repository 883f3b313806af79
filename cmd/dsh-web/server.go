package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/anthropic"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/replay"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/model/wire"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/web"
	"github.com/dsh-web/dsh-web/web/guard"
)

// server is an open host with its web side.
type server struct {
	host *host.Host
	web  *web.Server
	proc *proc.Instance
	// wire carries all model traffic.
	wire *wireTap
	// recordings answer for models; nil until they are read.
	recordings *recordings
	// check looks for damage that an unclean stop may have left; nil after a clean one.
	check func(context.Context) error
}

// open acquires everything a serving host needs except its listeners.
func open(ctx context.Context, c *config, lookup func(string) (string, bool), own []netip.AddrPort, logger *slog.Logger) (_ *server, err error) {
	store, err := sqlite.Open(ctx, c.data, sqlite.Options{Synchronous: c.Store.Synchronous})
	if err != nil {
		return nil, err
	}
	s := &server{}
	if store.Unclean() {
		s.check = store.Check
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
			if s.host == nil {
				err = errors.Join(err, store.Close())
			}
		}
	}()
	if s.proc, err = proc.Open(proc.Options{Dir: filepath.Join(c.data, "instances"), Keeper: true}); err != nil {
		return nil, err
	}
	keys := credential.New(c.data, lookup)
	if s.wire, err = openWire(c.record, own, logger); err != nil {
		return nil, err
	}
	var providers []model.Provider
	if s.recordings, providers, err = openRecordings(c.Providers, logger); err != nil {
		return nil, err
	}
	router, err := newRouter(c, providers, keys, s.wire, s.recordings)
	if err != nil {
		return nil, err
	}
	s.wire.warn(router)
	s.host = host.New(host.Config{
		Store: store, Router: router, Credentials: keys, Roster: newRoster(c), Proc: s.proc,
		Attachments:   filepath.Join(c.data, "attachments"),
		DefaultPreset: c.DefaultPreset, MaxLive: c.Limits.Sessions,
		EvictIdle: c.Eviction.Idle, EvictUsedShell: c.Eviction.UsedShell,
		Retention:    host.Retention{Archive: c.Retention.Archive, Delete: c.Retention.Delete},
		KeepRecorded: true, Logger: logger,
	})
	if err := s.host.Start(ctx); err != nil {
		return nil, err
	}
	tokens, err := openTokens(c)
	if err != nil {
		return nil, err
	}
	node, err := os.Hostname()
	if err != nil {
		node = "unknown"
	}
	s.web, err = web.New(web.Config{
		Host: s.host, Keys: tokens, Hosts: c.AllowHost, BasePath: c.BasePath, UIDev: c.uiDev, Node: node, Version: version, Commit: commit(),
		DefaultPreset: c.DefaultPreset,
		Limits:        web.Limits{Connections: c.Limits.Connections, Sockets: c.Limits.Sockets}, Logger: logger,
	})
	return s, err
}

// openTokens reads the tokens of the data directory; nil where authority is off.
func openTokens(c *config) (*guard.Keys, error) {
	if c.Auth != "on" {
		return nil, nil
	}
	return guard.OpenKeys(c.data, time.Now)
}

// Close ends streams, then agents, then processes. It works on a server that was only half opened.
func (s *server) Close(ctx context.Context) error {
	var errs []error
	if s.host != nil {
		s.host.Drain()
	}
	if s.web != nil {
		errs = append(errs, s.web.Close(ctx))
	}
	if s.host != nil {
		errs = append(errs, s.host.Close(ctx))
	}
	if s.proc != nil {
		errs = append(errs, s.proc.Close(ctx))
	}
	if s.wire != nil {
		errs = append(errs, s.wire.Close())
	}
	if s.recordings != nil && s.web != nil {
		s.recordings.finish()
	}
	return errors.Join(errs...)
}

// wireTap is the transport of all model traffic, and the recorder in it when one was asked for.
type wireTap struct {
	transport *http.Transport
	tails     *wire.Tails
	file      *replay.File
	name      string // of the file, as it was given
	logger    *slog.Logger
}

// openWire makes the transport. A model server can't be this host itself, nor a cloud's metadata address.
func openWire(record string, own []netip.AddrPort, logger *slog.Logger) (*wireTap, error) {
	w := &wireTap{name: record, logger: logger, tails: wire.NewTails(), transport: wire.NewTransport(wire.TransportConfig{Guard: true, Own: func() []netip.AddrPort { return own }})}
	if record == "" {
		return w, nil
	}
	var err error
	w.file, err = replay.Create(record, w.transport)
	return w, err
}

func (w *wireTap) Close() error {
	w.tails.Close()
	w.transport.CloseIdleConnections()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	if w.file.Written() == 0 {
		w.logger.Warn("nothing was recorded: only calls to HTTP providers are, and there was none; the file is empty", "file", w.name)
	}
	return err
}

// warn says beforehand that sessions which name no model will leave nothing in the recording.
func (w *wireTap) warn(r *model.Router) {
	if w.file == nil {
		return
	}
	def := r.Default()
	p, err := r.Provider(def.Provider)
	if err == nil && (p.Kind == model.KindScript || p.Kind == model.KindReplay) {
		w.logger.Warn("only calls to HTTP providers are recorded, and the default model isn't at one", "provider", def.Provider, "model", def.Model, "file", w.name)
	}
}

// newRouter wires the configured providers to their wires.
func newRouter(c *config, providers []model.Provider, keys *credential.Store, w *wireTap, r *recordings) (*model.Router, error) {
	chat, messages := openai.Config{Transport: w.transport, Tails: w.tails}, anthropic.Config{Transport: w.transport, Tails: w.tails}
	if w.file != nil { // without tails: what is recorded of a call is whole when the call ends
		chat = openai.Config{Transport: w.file, Annotate: replay.Annotate}
		messages = anthropic.Config{Transport: w.file, Annotate: replay.Annotate}
	}
	return model.NewRouter(model.Config{
		Providers: providers, Default: c.DefaultModel, Lookup: keys.Lookup,
		Kinds: map[string]model.Factory{
			"openai":         openai.Factory(chat),
			"anthropic":      anthropic.Factory(messages),
			model.KindScript: script.Factory(script.Options{Pause: c.Demo.Pace}),
			model.KindReplay: r.adapter,
		},
	})
}

func newRoster(c *config) *presets.Roster {
	return presets.NewRoster(c.Presets.Roots, filepath.Join(c.data, "presets"))
}

func newLogger(w io.Writer, c *config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // checked with the configuration
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
