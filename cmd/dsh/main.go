// Command dsh runs a standalone profile: one process that speaks JSON-RPC over its standard streams, without a web host.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/dsh-web/dsh-web/presets"
	"github.com/dsh-web/dsh-web/sdk/profiles"
)

// version is set by the build.
var version = "dev"

//go:embed usage.md
var usage string

// The exit codes.
const (
	exitOK          = 0
	exitConfig      = 1 // the configuration can't be used
	exitUsage       = 2 // the command line can't, or a place for data is missing
	exitInterrupted = 130
)

// exit is an error with its exit code.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }

func failf(code int, format string, args ...any) error {
	return &exit{code, fmt.Errorf(format, args...)}
}

// command is what a command line asks for. An empty profile with no error means that everything is done.
func command(args, env []string, stdout io.Writer) (profile string, err error) {
	flags := pflag.NewFlagSet("dsh", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var dump, help, showVersion bool
	flags.StringVar(&profile, "profile", "", "")
	flags.BoolVar(&dump, "dump-config", false, "")
	flags.BoolVarP(&help, "help", "h", false, "")
	flags.BoolVar(&showVersion, "version", false, "")
	patch := flags.String("patch", "", "")
	flags.Lookup("patch").NoOptDefVal = "yes"
	err = flags.Parse(args)
	switch {
	case flags.Changed("patch") || strings.HasPrefix(*patch, "y"):
		return "", failf(exitConfig, "--patch: a profile has one owner and takes no patches; make a preset for dsh-web instead")
	case err != nil:
		return "", failf(exitUsage, "%v\n%s", err, usage)
	case help:
		_, err := io.WriteString(stdout, usage)
		return "", err
	case showVersion:
		_, err := fmt.Fprintln(stdout, "dsh", version)
		return "", err
	case len(args) == 0:
		return "", failf(exitUsage, "a profile is missing\n%s", usage)
	case flags.NArg() > 0:
		return "", failf(exitUsage, "unexpected argument %q\n%s", flags.Arg(0), usage)
	case profile == "":
		return "", failf(exitUsage, "--profile is missing\n%s", usage)
	}
	if _, _, ok := profiles.Text(profile); !ok {
		return "", failf(exitConfig, "--profile: there is no profile %q; there is %s", profile, strings.Join(profiles.Names(), ", "))
	}
	if !dump {
		return profile, nil
	}
	c, err := composition(profile, lookup(env))
	if err != nil {
		return "", &exit{exitConfig, err}
	}
	return "", dumpConfig(stdout, c)
}

// composition is the profile with this process's persona.
func composition(profile string, get func(string) (string, bool)) (*presets.Composition, error) {
	file, text, _ := profiles.Text(profile)
	c, err := presets.Parse(profile, file, text)
	if err != nil {
		return nil, err
	}
	persona, _ := get("DSH_SYSTEM_PROMPT")
	if strings.TrimSpace(persona) == "" {
		return c, nil
	}
	if c, err = c.With("persona", "text", persona); err != nil {
		return nil, fmt.Errorf("DSH_SYSTEM_PROMPT: %w", err)
	}
	return c, nil
}

// dumpConfig prints a composition, every row and setting of it, as a file that reads back as the same one.
func dumpConfig(w io.Writer, c *presets.Composition) error {
	rows := c.Rows()
	quoteTabs(rows)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	err := enc.Encode(struct {
		Version     int           `yaml:"version"`
		Name        string        `yaml:"name"`
		Description string        `yaml:"description"`
		Rows        []presets.Row `yaml:"rows"`
	}{presets.Version, c.Name, c.Description, rows})
	return errors.Join(err, enc.Close())
}

// quoteTabs has texts quoted that begin with white space and a tab in it: the encoder makes blocks of some of them that its decoder refuses.
func quoteTabs(rows []presets.Row) {
	for _, r := range rows {
		for key, value := range r.With {
			text, _ := value.(string)
			if white := text[:len(text)-len(strings.TrimLeft(text, " \t\r\n"))]; strings.Contains(white, "\t") {
				r.With[key] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text}
			}
		}
		quoteTabs(r.Rows)
	}
}

// lookup finds variables of an environment.
func lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := len(env) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(env[i], name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
}

// report prints what went wrong and gives the exit code. What isn't about the command line is one line.
func report(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	code := exitConfig
	var e *exit
	if errors.As(err, &e) {
		code = e.code
	}
	text := strings.TrimSpace(err.Error())
	if code != exitUsage {
		text = strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(text)
	}
	fmt.Fprintln(stderr, "dsh:", text)
	return code
}

func main() {
	os.Exit(start(os.Args[1:], os.Environ()))
}
