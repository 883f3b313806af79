package session

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
)

// LockedError says that another process, or another owner in this one, holds a lock file.
type LockedError struct {
	Path string
	PID  int // of the holder, 0 when it can't be read
}

// Error names the holder.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process; stop it first", e.Path)
	}
	return fmt.Sprintf("%s is locked by process %d; stop it first", e.Path, e.PID)
}

// LockFile takes the lock of path, creates the file with mode 0600 and writes this process's id into it. The lock ends with release or with
// the process, whatever ends it; the file stays. Held already: *LockedError.
func LockFile(path string) (release func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	held, err := lock(f)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if held {
		content, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		pid, _ := strconv.Atoi(string(bytes.TrimSpace(content))) // a holder that hasn't written yet counts as unknown
		return nil, &LockedError{Path: path, PID: pid}
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write lock file: %w", err)
	}
	return f.Close, nil
}
