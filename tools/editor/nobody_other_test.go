//go:build unix && !linux

package editor_test

import "testing"

// asNobody needs rights of a single thread, which only Linux gives.
func asNobody(t *testing.T, _, _ func()) {
	t.Helper()
	t.Skip("needs Linux")
}
