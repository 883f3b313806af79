package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// stopTimeout bounds a shutdown.
const stopTimeout = 10 * time.Second

// checkTime bounds the look for damage after an unclean stop; the host serves meanwhile.
const checkTime = 2 * time.Second

// serve runs the host until its context ends.
func (p *program) serve(cmd *cobra.Command, _ []string) error {
	c, err := loadConfig(cmd.Flags(), p.env)
	if err != nil {
		return err
	}
	if c.record, err = cmd.Flags().GetString("record"); err != nil {
		return err
	}
	return p.serveOn(cmd, c, open)
}

// opener acquires what answers on the listeners at own.
type opener func(ctx context.Context, c *config, lookup func(string) (string, bool), own []netip.AddrPort, logger *slog.Logger) (*server, error)

// serveOn listens, opens, prints where, and serves until the command's context ends.
func (p *program) serveOn(cmd *cobra.Command, c *config, open opener) (err error) {
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
		if gone := os.Remove(filepath.Join(c.data, addressFile)); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone) // while this host still has the data directory
		}
		err = errors.Join(err, srv.Close(ctx))
		closeAll()
		group.Wait() // for Serve, which the close ended
	}()
	addr := shownAddr(listeners[0].Addr(), c.AllowHost)
	address := fmt.Sprintf("http://%s%s", addr, basePath(c))
	// Before the socket: whoever reaches this host there reads this host's address, not the one before's.
	if err := os.WriteFile(filepath.Join(c.data, addressFile), []byte(address+"\n"), 0o600); err != nil {
		return fmt.Errorf("write address: %w", err)
	}
	sock, err := listenSocket(filepath.Join(c.data, "sock"))
	if err != nil {
		return err
	}
	listeners = append(listeners, sock)

	served := make(chan error, len(listeners))
	ctx := cmd.Context()
	for _, ln := range listeners {
		// The close above ends it, after the streams; the command's context would end it before.
		group.Go(func() { served <- srv.web.Serve(context.WithoutCancel(ctx), ln) })
	}
	if srv.check != nil {
		group.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			if err := srv.check(bounded); err != nil && bounded.Err() == nil {
				logger.Error("the database is damaged; damaged sessions are read-only, make a copy before you go on", "error", err)
			}
		})
	}
	login := srv.web.LoginURL(addr)
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

// shown is an address as people type it.
type shown string

func (shown) Network() string  { return "tcp" }
func (s shown) String() string { return string(s) }

// shownAddr is where browsers find the host: on a listener for all addresses, the first name that requests may carry.
func shownAddr(addr net.Addr, names []string) net.Addr {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil || !at.Addr().IsUnspecified() || len(names) == 0 {
		return addr
	}
	if _, _, err := net.SplitHostPort(names[0]); err == nil {
		return shown(names[0])
	}
	return shown(net.JoinHostPort(names[0], strconv.Itoa(int(at.Port()))))
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
