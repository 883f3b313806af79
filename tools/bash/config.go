package bash

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/term"
)

// Config is one row's settings; start from DefaultConfig. The YAML keys are those of a preset row, to be decoded strictly.
type Config struct {
	// Timeout is the wall clock of one call, start of the shell included.
	Timeout Duration `yaml:"timeout"`
	// MaxOutputChars is how many characters (not bytes) of a command's output the model gets; notices come on top.
	MaxOutputChars int `yaml:"maxOutputChars"`
	// Clip says which part of longer output is kept: ClipHead or ClipHeadTail.
	Clip string `yaml:"clip"`
	// Stdin is what programs read: StdinEOF or StdinTTY.
	Stdin string `yaml:"stdin"`
	// Startup is what a fresh shell runs first.
	Startup Startup `yaml:"startup"`
	// AfterTimeout says what becomes of the shell of a call that timed out: AfterKeep or AfterReset.
	AfterTimeout string `yaml:"afterTimeout"`
	// Restore says what a shell gets back after the one before it died: RestoreNone or RestoreEnv.
	Restore string `yaml:"restore"`
	// Description is the whole model-facing text.
	Description string `yaml:"description"`
	// Env is added to the shell's environment.
	Env map[string]string `yaml:"env"`
	// PassEnv names variables of the host that pass the scrub.
	PassEnv []string `yaml:"passEnv"`
}

// The values of Config's enumerations.
const (
	ClipHead     = "head"
	ClipHeadTail = "headTail"
	StdinEOF     = "eof"
	StdinTTY     = "tty"
	AfterKeep    = "keep"
	AfterReset   = "reset"
	RestoreNone  = "none"
	RestoreEnv   = "env"
)

// DefaultConfig is what a row that names nothing gets.
func DefaultConfig() Config {
	return Config{
		Timeout:        Duration(300 * time.Second),
		MaxOutputChars: 16000,
		Clip:           ClipHead,
		Stdin:          StdinEOF,
		AfterTimeout:   AfterKeep,
		Restore:        RestoreEnv,
		Description:    Description(),
	}
}

// Validate says everything that is wrong with c, naming the keys.
func (c Config) Validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	oneOf := func(key, value string, allowed ...string) {
		add(!slices.Contains(allowed, value), "%s: %q is none of %s", key, value, strings.Join(allowed, ", "))
	}
	add(c.Timeout <= 0, "timeout: %v must be longer than nothing", time.Duration(c.Timeout))
	add(c.MaxOutputChars < 1, "maxOutputChars: %d must be at least 1", c.MaxOutputChars)
	oneOf("clip", c.Clip, ClipHead, ClipHeadTail)
	oneOf("stdin", c.Stdin, StdinEOF, StdinTTY)
	oneOf("afterTimeout", c.AfterTimeout, AfterKeep, AfterReset)
	oneOf("restore", c.Restore, RestoreNone, RestoreEnv)
	add(strings.TrimSpace(c.Description) == "", "description: must not be blank")
	for _, line := range c.Startup.Commands {
		add(strings.ContainsRune(line, 0), "startup: a command contains a NUL byte")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		add(!isName(name), "env: %q is no variable name", name)
		add(strings.ContainsRune(c.Env[name], 0), "env: the value of %s contains a NUL byte", name)
	}
	for _, name := range c.PassEnv {
		add(!isName(name), "passEnv: %q is no variable name", name)
	}
	return errors.Join(errs...)
}

func isName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// shell is the part of c that starts shells.
func (c Config) shell() term.Shell {
	return term.Shell{
		Startup:       c.Startup.Commands,
		Env:           c.Env,
		PassEnv:       c.PassEnv,
		Restore:       c.Restore == RestoreEnv,
		StdinTTY:      c.Stdin == StdinTTY,
		ResetOnExpiry: c.AfterTimeout == AfterReset,
	}
}

// Duration is a time span written as Go writes it: 300s, 1m30s, 500ms. It decodes from text, so also from a YAML scalar.
type Duration time.Duration

// UnmarshalText reads a Go duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration such as 300s or 1m30s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes a Go duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Startup is what a fresh shell runs before the first call. In YAML it is one of the words none, bashrc and login, or a list of commands.
type Startup struct {
	Commands []string
}

// UnmarshalYAML reads a word or a list; unmarshal decodes the node, as the YAML libraries of Go hand it over.
func (s *Startup) UnmarshalYAML(unmarshal func(any) error) error {
	var list []string
	if err := unmarshal(&list); err == nil {
		s.Commands = list
		return nil
	}
	var word string
	if err := unmarshal(&word); err != nil {
		return errors.New("startup: must be none, bashrc, login or a list of commands")
	}
	switch word {
	case "none":
		s.Commands = nil
	case "bashrc":
		s.Commands = []string{term.StartupBashrc}
	case "login":
		s.Commands = []string{term.StartupLogin}
	default:
		return fmt.Errorf("startup: %q is none of none, bashrc, login, nor a list of commands", word)
	}
	return nil
}
