package jsonl

import (
	"errors"
	"syscall"
)

// room is what the disk keeps for each open log behind its end, so that a turn can be ended with what it was about to tell when the disk is full:
// a client that waits for the end would wait for space.
const room = 128 << 10

// keepRoom has the disk keep room behind the end that a write is about to reach. Where there is none, only the end of a turn may use what was kept.
func (f *file) keepRoom(end int64, ending bool) error {
	if end+room <= f.kept {
		return nil
	}
	err := allocate(f.log, end, 2*room)
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	switch {
	case err == nil:
		f.kept = end + 2*room
	case full && (!ending || end > f.kept):
		return err
	}
	return nil // or the file system keeps no room
}

// giveBack frees what was kept, and cuts what could not be cut before.
func (f *file) giveBack() error {
	if f.broken || f.kept == 0 && !f.ragged {
		return nil
	}
	return f.cut(f.lines[len(f.lines)-1])
}
