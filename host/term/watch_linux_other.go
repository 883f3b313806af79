//go:build linux && !amd64

package term

// Newer architectures have only ppoll and pselect6; on older ones a program in poll or select is not recognised and meets the timeout.
const (
	sysPoll   = -2
	sysSelect = -3
)
