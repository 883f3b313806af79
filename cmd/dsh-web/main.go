// Command dsh-web is the web host: one process, many agents.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dsh-web/dsh-web/host/proc"
)

// version is set by the build.
var version = "dev"

func main() {
	proc.RunKeeperIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once; the database survives that
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "dsh-web:", err)
		os.Exit(1)
	}
}

// run is the whole program. It returns when ctx ends or the command is done.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) error {
	app := &program{env: env, stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:           "dsh-web",
		Short:         "A web host for coding agents, with a preset for each agent",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          app.serve,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	configFlags(root.PersistentFlags())
	serve := &cobra.Command{Use: "serve", Short: "Start the host (what dsh-web does without a command)", Args: cobra.NoArgs, RunE: app.serve}
	for _, c := range []*cobra.Command{root, serve} {
		c.Flags().Bool("open", false, "open a browser on the login URL")
		c.Flags().String("record", "", "record all model traffic in this new file, for dsh-web replay")
	}
	root.AddCommand(serve, app.openCommand(), app.presetsCommand(), app.configCommand(), app.importCommand(), app.viewCommand(), app.replayCommand(), app.versionCommand())
	err := root.ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// program is what the commands share.
type program struct {
	env            []string
	stdout, stderr io.Writer
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		_, err := fmt.Fprintln(p.stdout, "dsh-web", version)
		return err
	}}
}
