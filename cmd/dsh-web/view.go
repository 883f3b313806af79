package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/session/export"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
	"github.com/dsh-web/dsh-web/web"
)

// viewCommand shows an exported bundle in the page, read-only, from a temporary folder.
func (p *program) viewCommand() *cobra.Command {
	return &cobra.Command{Use: "view FILE", Short: "Show an exported bundle (format=bundle), read-only", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) (err error) {
		dir, err := os.MkdirTemp("", "dsh-web-view-*")
		if err != nil {
			return fmt.Errorf("view %s: %w", args[0], err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		sessions := filepath.Join(dir, "sessions")
		if err := os.Mkdir(sessions, 0o700); err != nil {
			return fmt.Errorf("view %s: %w", args[0], err)
		}
		if _, err := export.Unpack(args[0], sessions); errors.Is(err, zip.ErrFormat) {
			return fmt.Errorf("%s is no bundle: view shows what a session's export with format=bundle gives, a ZIP file; a log (JSONL) goes into a running host with dsh-web import", args[0])
		} else if err != nil {
			return err
		}
		c, err := loadConfig(cmd.Flags(), p.env)
		if err != nil {
			return err
		}
		c.data = dir
		if !cmd.Flags().Changed("listen") {
			c.Listen = "127.0.0.1:0" // beside a host that may run
		}
		return p.serveOn(cmd, c, openBundle(sessions))
	}}
}

// openBundle opens a host over unpacked sessions. It has no processes and calls no model.
func openBundle(sessions string) opener {
	return func(ctx context.Context, c *config, lookup func(string) (string, bool), own []netip.AddrPort, logger *slog.Logger) (_ *server, err error) {
		store, err := jsonl.Open(sessions, jsonl.Options{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		keys := credential.New(c.data, lookup)
		w, err := openWire("", own, logger)
		if err != nil {
			return nil, errors.Join(err, store.Close())
		}
		router, err := newRouter(c, c.Providers, keys, w, &recordings{logger: logger})
		if err != nil {
			return nil, errors.Join(err, store.Close())
		}
		s := &server{wire: w, host: host.New(host.Config{
			Store: store, Router: router, Credentials: keys, Roster: newRoster(c), DefaultPreset: c.DefaultPreset, ReadOnly: true, Logger: logger,
		})}
		if err := s.host.Start(ctx); err != nil {
			return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
		tokens, err := openTokens(c)
		if err != nil {
			return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
		s.web, err = web.New(web.Config{Host: s.host, Keys: tokens, BasePath: c.BasePath, Version: version, DefaultPreset: c.DefaultPreset, Logger: logger})
		if err != nil {
			return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
		return s, nil
	}
}

// importCommand sends a log to the running host.
func (p *program) importCommand() *cobra.Command {
	var preset, workspace string
	c := &cobra.Command{Use: "import FILE", Short: "Import a session's log (JSONL) into the running host", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		c, err := loadConfig(cmd.Flags(), p.env)
		if err != nil {
			return err
		}
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		query := url.Values{}
		for name, value := range map[string]string{"preset": preset, "workspace": workspace} {
			if value != "" {
				query.Set(name, value)
			}
		}
		res, err := local(cmd.Context(), c.data, http.MethodPost, "api/v1/sessions/import?"+query.Encode(), "application/x-ndjson", f)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusCreated {
			return fmt.Errorf("the host refused %s: %s", args[0], raw)
		}
		_, err = fmt.Fprintf(p.stdout, "%s\n", raw)
		return err
	}}
	c.Flags().StringVar(&preset, "preset", "", "the preset to go on with, instead of the one that the log ran on")
	c.Flags().StringVar(&workspace, "workspace", "", "the directory to work in, instead of the log's own")
	return c
}
