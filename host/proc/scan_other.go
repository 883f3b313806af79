//go:build !linux && !darwin

package proc

import "os"

// Where processes can't be followed nothing is started, so there is nothing to find or to end either.

const keeperEnv = "DSH_KEEPER"

type (
	target struct{ pid int }
	keeper struct{}
	memory struct{}
)

// RunKeeperIfAsked does nothing: there are no keepers on this platform.
func RunKeeperIfAsked() {}

// KeeperPID is 0: there are no keepers on this platform.
func (in *Instance) KeeperPID() int { return 0 }

func (keeper) ensure(space) error { return ErrUnsupported }
func (keeper) stop() error        { return nil }

func (target) ask()    {}
func (target) freeze() {}
func (target) kill()   {}

func closeOnExec()              {}
func ownLimit() (uint64, error) { return infinity, nil }
func mark(int, Tag) error       { return ErrUnsupported }
func (in *Instance) scan(kills []*killing) ([][]target, error) {
	return make([][]target, len(kills)), nil
}
func (in *Instance) find(Tag) ([]int, error) { return nil, nil }
func describe([]int) []Process               { return nil }
func bootID() (string, error)                { return "", ErrUnsupported }

func startOf(pid int) uint64 {
	if _, err := os.FindProcess(pid); err != nil {
		return 0
	}
	return 1
}
