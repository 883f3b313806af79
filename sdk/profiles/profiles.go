// Package profiles holds the compositions of standalone programs as text. Unlike a preset, a profile has one owner, the process that runs it.
package profiles

import (
	_ "embed"
	"slices"
)

// SDKMinimal is the id of the minimal profile.
const SDKMinimal = "sdk-minimal"

//go:embed sdk-minimal.yml
var sdkMinimal []byte

// Names lists the profiles.
func Names() []string { return []string{SDKMinimal} }

// Text gives a profile's file, which it is called by in messages.
func Text(name string) (file string, text []byte, ok bool) {
	if name != SDKMinimal {
		return "", nil, false
	}
	return name + ".yml", slices.Clone(sdkMinimal), true
}
