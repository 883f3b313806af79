package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/sdk/profiles"
)

// presetsCommand lists, shows, checks and compares presets, without a host.
func (p *program) presetsCommand() *cobra.Command {
	c := &cobra.Command{Use: "presets", Short: "List, show, check and compare presets"}
	roster := func(cmd *cobra.Command) (*presets.Roster, *config, error) {
		cfg, err := loadConfig(cmd.Flags(), p.env)
		if err != nil {
			return nil, nil, err
		}
		return newRoster(cfg), cfg, nil
	}
	c.AddCommand(
		&cobra.Command{Use: "list", Short: "List every preset, broken ones with the reason", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			r, cfg, err := roster(cmd)
			if err != nil {
				return err
			}
			return p.listPresets(r, cfg.DefaultPreset)
		}},
		&cobra.Command{Use: "show ID", Short: "Print a preset's resolved rows", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := roster(cmd)
			if err != nil {
				return err
			}
			composition, err := r.Resolve(args[0])
			if err != nil {
				return err
			}
			return p.printJSON(map[string]any{
				"id": composition.ID, "name": composition.Name, "description": composition.Description, "hash": composition.Hash, "rows": composition.Rows(),
			})
		}},
		&cobra.Command{Use: "check [ID...]", Short: "Mount presets dry and print what their agents' models would be told", RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := roster(cmd)
			if err != nil {
				return err
			}
			return p.checkPresets(r, args)
		}},
		&cobra.Command{Use: "diff A B", Short: "Compare two presets: rows, prompt, tools", Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := roster(cmd)
			if err != nil {
				return err
			}
			diff, err := r.Diff(args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(p.stdout, diff)
			return err
		}},
	)
	return c
}

func (p *program) listPresets(r *presets.Roster, def string) error {
	entries, listErr := r.List()
	w := tabwriter.NewWriter(p.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tORIGIN\tSTATE")
	for _, e := range entries {
		state := "ok"
		if e.ID == def {
			state = "ok, default"
		}
		if e.Broken != "" {
			state = "broken: " + e.Broken
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.ID, e.Name, e.Origin, state)
	}
	return errors.Join(w.Flush(), listErr)
}

// checkPresets checks the named presets and profiles, or all. It goes on after a broken one, and then fails.
func (p *program) checkPresets(r *presets.Roster, ids []string) error {
	if len(ids) == 0 {
		entries, err := r.List()
		if err != nil {
			return err
		}
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		ids = append(ids, profiles.Names()...)
	}
	var errs []error
	for _, id := range ids {
		report, err := checkOne(r, id)
		if err != nil {
			fmt.Fprintf(p.stdout, "== %s: broken\n%v\n\n", id, err)
			errs = append(errs, fmt.Errorf("preset %s is broken: %w", id, err))
			continue
		}
		fmt.Fprintf(p.stdout, "== %s\ncomposition %s\nprompt and tools %s, about %d tokens\n", id, report.Composition.Hash, report.Hash, report.Tokens)
		for _, w := range report.Composition.Warnings {
			fmt.Fprintln(p.stdout, "warning:", w)
		}
		fmt.Fprintf(p.stdout, "-- system\n%s\n", report.System)
		for _, t := range report.Tools {
			fmt.Fprintf(p.stdout, "-- tool %s\n%s\n%s\n", t.Name, t.Description, t.Parameters)
		}
		fmt.Fprintln(p.stdout, "-- owns")
		p.printTree(report.Audit, "")
		fmt.Fprintln(p.stdout)
	}
	return errors.Join(errs...)
}

// checkOne checks a preset, or a profile that no preset has the name of.
func checkOne(r *presets.Roster, id string) (presets.Report, error) {
	report, err := r.Check(id)
	file, text, profile := profiles.Text(id)
	if !profile || !errors.Is(err, presets.ErrNotFound) {
		return report, err
	}
	c, err := presets.Parse(id, file, text)
	if err != nil {
		return presets.Report{}, err
	}
	return presets.Fixed(c).Check(id)
}

func (p *program) printTree(n scope.Node, indent string) {
	fmt.Fprintf(p.stdout, "%s%s %s\n", indent, n.Kind, n.Name)
	for _, c := range n.Children {
		p.printTree(c, indent+"  ")
	}
}

func (p *program) printJSON(v any) error {
	enc := json.NewEncoder(p.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// configCommand prints the resolved configuration: what a host that is started with these flags, from this shell, would have. It holds no secrets:
// keys are named, never written, in it.
func (p *program) configCommand() *cobra.Command {
	return &cobra.Command{Use: "config", Short: "Print the configuration that a host started like this would have", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) (err error) {
		c, err := loadConfig(cmd.Flags(), p.env)
		if err != nil {
			return err
		}
		logger := newLogger(p.stderr, c)
		w, err := openWire("", nil, logger)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		router, err := newRouter(c, c.Providers, credential.New(c.data, p.lookup), w, &recordings{logger: logger})
		if err != nil {
			return err
		}
		c.Providers, c.DefaultModel = router.Configured(), router.Default()
		return p.printJSON(c.view())
	}}
}
