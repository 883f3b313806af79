// Package editor is the str_replace_editor tool: view, create, replace, insert and undo on files, through a file provider.
//
// Engine does the work and knows nothing of tool calls, so that other tools can be written over it; New wraps one Engine in one tool. An
// edit replaces one run of bytes by another: nothing outside it is decoded or rewritten. Every failure is a *Refusal, with a text for
// the model that names the path and says what to do, and is the same for the same situation.
package editor

import (
	"errors"
	"fmt"
	"strings"
)

// Profile is how results look.
type Profile string

// The profiles.
const (
	// ClaudeSWE numbers lines as `cat -n` does and shows the surroundings after an edit.
	ClaudeSWE Profile = "claude-swe"
	// Plain puts two spaces after the number, counts lines in the header, and confirms an edit in one line.
	Plain Profile = "plain"
)

// MinOutputChars is the smallest limit that leaves room for a header, a line and a notice.
const MinOutputChars = 1000

// Config is the editor's row in a preset.
type Config struct {
	// Name is the tool's name.
	Name string `yaml:"name"`
	// MaxOutputChars limits the text of one result, in characters.
	MaxOutputChars int `yaml:"maxOutputChars"`
	// Undo offers undo_edit.
	Undo bool `yaml:"undo"`
	// Profile is how results look.
	Profile Profile `yaml:"profile"`
	// Description replaces the text that the model reads about the tool; empty keeps it.
	Description string `yaml:"description"`
}

// DefaultConfig is a row that says nothing.
func DefaultConfig() Config {
	return Config{Name: "str_replace_editor", MaxOutputChars: 16000, Undo: true, Profile: ClaudeSWE}
}

// Validate says what is wrong with c, all of it.
func (c Config) Validate() error {
	var errs []error
	if !isToolName(c.Name) {
		errs = append(errs, fmt.Errorf("name: %q is not a tool name (letters, digits, _ and -, at most 64)", c.Name))
	}
	if c.MaxOutputChars < MinOutputChars {
		errs = append(errs, fmt.Errorf("maxOutputChars: %d is less than %d", c.MaxOutputChars, MinOutputChars))
	}
	if c.Profile != ClaudeSWE && c.Profile != Plain {
		errs = append(errs, fmt.Errorf("profile: %q is neither %s nor %s", c.Profile, ClaudeSWE, Plain))
	}
	return errors.Join(errs...)
}

// isToolName follows what model interfaces take: letters, digits, _ and -, at most 64.
func isToolName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	return name != "" && len(name) <= 64 && strings.Trim(name, letters) == ""
}
