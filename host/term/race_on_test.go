//go:build race

package term_test

// The race detector adds threads and memory of its own.
const raceEnabled = true
