package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/anthropic"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/model/wire"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/web"
	"github.com/dsh-web/dsh-web/web/guard"
)

// stopTimeout bounds a shutdown.
const stopTimeout = 10 * time.Second

// serve runs the host until ctx ends.
func (p *program) serve(cmd *cobra.Command, _ []string) (err error) {
	c, err := loadConfig(cmd.Flags(), p.env)
	if err != nil {
		return err
	}
	// An agent's processes run as this user: their /proc must not be a way into this one's memory.
	if err := undumpable(); err != nil {
		return err
	}
	logger := newLogger(p.stderr, c)
	listeners, err := listen(c)
	if err != nil {
		return err
	}
	closeAll := func() {
		for _, ln := range listeners {
			_ = ln.Close()
		}
	}
	srv, err := open(cmd.Context(), c, p.lookup, addresses(listeners), logger)
	if err != nil {
		closeAll()
		return err
	}
	var group sync.WaitGroup
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		err = errors.Join(err, srv.Close(ctx))
		closeAll()
		group.Wait() // for Serve, which the close ended
	}()
	sock, err := listenSocket(filepath.Join(c.data, "sock"))
	if err != nil {
		return err
	}
	listeners = append(listeners, sock)

	served := make(chan error, len(listeners))
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	for _, ln := range listeners {
		group.Go(func() { served <- srv.web.Serve(ctx, ln) })
	}
	addr := listeners[0].Addr()
	login := srv.web.LoginURL(addr)
	address := fmt.Sprintf("http://%s%s", addr, basePath(c))
	if err := os.WriteFile(filepath.Join(c.data, addressFile), []byte(address+"\n"), 0o600); err != nil {
		return fmt.Errorf("write address: %w", err)
	}
	fmt.Fprintf(p.stdout, "dsh-web listening on %s\nopen %s\n", address, login)
	if c.Auth == "off" {
		logger.Warn("authority is off: every program on this machine can use this host")
	}
	if yes, _ := cmd.Flags().GetBool("open"); yes {
		if err := browse(login); err != nil {
			logger.Warn("open a browser", "error", err)
		}
	}
	select {
	case <-ctx.Done():
		logger.Info("stopping")
		return nil
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	}
}

// server is an open host with its web side.
type server struct {
	host *host.Host
	web  *web.Server
	proc *proc.Instance
}

// open acquires everything a serving host needs except its listeners.
func open(ctx context.Context, c *config, lookup func(string) (string, bool), own []netip.AddrPort, logger *slog.Logger) (_ *server, err error) {
	store, err := sqlite.Open(ctx, c.data, sqlite.Options{Synchronous: c.Store.Synchronous})
	if err != nil {
		return nil, err
	}
	s := &server{}
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
	router, err := newRouter(c, keys, own)
	if err != nil {
		return nil, err
	}
	s.host = host.New(host.Config{
		Store: store, Router: router, Credentials: keys, Roster: newRoster(c), Proc: s.proc,
		Attachments:   filepath.Join(c.data, "attachments"),
		DefaultPreset: c.DefaultPreset, MaxLive: c.Limits.Sessions,
		EvictIdle: c.Eviction.Idle, EvictUsedShell: c.Eviction.UsedShell,
		KeepRecorded: true, Logger: logger,
	})
	if err := s.host.Start(ctx); err != nil {
		return nil, err
	}
	var tokens *guard.Keys
	if c.Auth == "on" {
		if tokens, err = guard.OpenKeys(c.data, time.Now); err != nil {
			return nil, err
		}
	}
	node, err := os.Hostname()
	if err != nil {
		node = "unknown"
	}
	s.web, err = web.New(web.Config{
		Host: s.host, Keys: tokens, Hosts: c.AllowHost, BasePath: c.BasePath, UIDev: c.uiDev, Node: node, Version: version,
		DefaultPreset: c.DefaultPreset,
		Limits:        web.Limits{Connections: c.Limits.Connections, Sockets: c.Limits.Sockets}, Logger: logger,
	})
	return s, err
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
	return errors.Join(errs...)
}

// newRouter wires the configured providers to their wires. A model server can't be this host itself, nor a cloud's metadata address.
func newRouter(c *config, keys *credential.Store, own []netip.AddrPort) (*model.Router, error) {
	transport := wire.NewTransport(wire.TransportConfig{Guard: true, Own: func() []netip.AddrPort { return own }})
	return model.NewRouter(model.Config{
		Providers: c.Providers, Default: c.DefaultModel, Lookup: keys.Lookup,
		Kinds: map[string]model.Factory{
			"openai":         openai.Factory(openai.Config{Transport: transport}),
			"anthropic":      anthropic.Factory(anthropic.Config{Transport: transport}),
			model.KindScript: script.Factory(script.Options{Pause: c.Demo.Pace}),
		},
	})
}

func newRoster(c *config) *presets.Roster {
	return presets.NewRoster(c.Presets.Roots, filepath.Join(c.data, "presets"))
}

func newLogger(w interface{ Write([]byte) (int, error) }, c *config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // checked with the configuration
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// listen opens the configured address; localhost means both loopback addresses.
func listen(c *config) ([]net.Listener, error) {
	name, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	addrs := []string{c.Listen}
	if name == "localhost" {
		addrs = []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)}
	}
	var out []net.Listener
	for i, a := range addrs {
		ln, err := net.Listen("tcp", a)
		switch {
		case err == nil:
			out = append(out, ln)
		case i == 0 && errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("listen: %s is in use; another dsh-web? Choose an address with --listen, or port 0", a)
		case i == 0:
			return nil, fmt.Errorf("listen: %w", err)
		}
		if i == 0 && len(addrs) > 1 {
			_, port, _ = net.SplitHostPort(out[0].Addr().String())
			addrs[1] = net.JoinHostPort("::1", port)
		}
	}
	return out, nil
}

// addresses lists where this host listens.
func addresses(listeners []net.Listener) []netip.AddrPort {
	var out []netip.AddrPort
	for _, ln := range listeners {
		if a, err := netip.ParseAddrPort(ln.Addr().String()); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// listenSocket opens the socket for local tools. Its file mode is its authority. A socket that a dead host left is replaced; the store's lock
// says that no other host lives here.
func listenSocket(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open local socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open local socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open local socket: %w", err), ln.Close())
	}
	return ln, nil
}

func basePath(c *config) string {
	return "/" + strings.TrimPrefix(strings.TrimSuffix(c.BasePath, "/")+"/", "/")
}

// lookup reads the environment the program was started with.
func (p *program) lookup(name string) (string, bool) {
	for i := len(p.env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// browse opens the platform's browser.
func browse(url string) error {
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	return exec.Command(name, url).Start()
}

// addressFile, in the data directory, says where the running host is reached; dsh-web open reads it.
const addressFile = "address"

// openCommand prints a fresh login URL of the running host.
func (p *program) openCommand() *cobra.Command {
	return &cobra.Command{Use: "open", Short: "Print a fresh login URL of the running host", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		c, err := loadConfig(cmd.Flags(), p.env)
		if err != nil {
			return err
		}
		url, err := freshLogin(cmd.Context(), c.data)
		if err != nil {
			return fmt.Errorf("no host answers in %s; start one with dsh-web serve (%w)", c.data, err)
		}
		_, err = fmt.Fprintln(p.stdout, url)
		return err
	}}
}

// freshLogin asks the host of a data directory for a login code, over its local socket.
func freshLogin(ctx context.Context, data string) (string, error) {
	base, err := os.ReadFile(filepath.Join(data, addressFile))
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(data, "sock"))
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	address := strings.TrimSpace(string(base))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"api/v1/auth/code", strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the host answered %s", res.Status)
	}
	var out struct{ Code string }
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return "", err
	}
	if out.Code == "" {
		return address, nil
	}
	return address + "#code=" + out.Code, nil
}
