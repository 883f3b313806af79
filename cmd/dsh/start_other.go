//go:build !unix

package main

import (
	"fmt"
	"os"
	"runtime"
)

// start explains why nothing can be started here.
func start(args, env []string) int {
	profile, err := command(args, env, os.Stdout)
	if err != nil || profile == "" {
		return report(err, os.Stderr)
	}
	fmt.Fprintf(os.Stderr, "dsh: profile %s needs a persistent shell, and on %s there is none yet: a PowerShell backend is missing. Use Linux, macOS, or WSL.\n", profile, runtime.GOOS)
	return exitUsage
}
