package fsys

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// What a provider refuses, beside fs.ErrNotExist, fs.ErrExist and fs.ErrPermission.
var (
	ErrNotAbsolute  = errors.New("path is not absolute")
	ErrBadName      = errors.New("not a usable file name")
	ErrNotRegular   = errors.New("not a regular file")
	ErrDirectory    = errors.New("is a directory")
	ErrNotDirectory = errors.New("not a directory")
	ErrLinkLoop     = errors.New("too many symbolic links")
	ErrTooLarge     = errors.New("file is too large")
	ErrChanged      = errors.New("file changed meanwhile")
	ErrNoSpace      = errors.New("no space left")
	ErrReadOnly     = errors.New("file system is read-only")
	ErrClosed       = errors.New("file provider is closed")
)

// Reason is why a confined provider denied an access.
type Reason string

// Reasons of a DeniedError.
const (
	Outside   Reason = "outside"   // neither in the workspace nor in the temporary directory
	Unwritten Reason = "read-only" // a write, and the mode allows none
	Protected Reason = "protected" // a write to configuration that other programs trust
)

// DeniedError is an access that the sandbox mode does not allow.
type DeniedError struct {
	Path   string
	Mode   Mode
	Reason Reason
}

func (e *DeniedError) Error() string {
	switch e.Reason {
	case Unwritten:
		return fmt.Sprintf("write to %s denied under sandbox mode %s", e.Path, e.Mode)
	case Protected:
		return fmt.Sprintf("write to protected path %s denied under sandbox mode %s", e.Path, e.Mode)
	default:
		return fmt.Sprintf("access to %s denied under sandbox mode %s", e.Path, e.Mode)
	}
}

// classify puts the sentinel in front of an error of the operating system, so that callers match one vocabulary.
func classify(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range []struct {
		from error
		to   error
	}{
		{syscall.ENOSPC, ErrNoSpace},
		{syscall.EDQUOT, ErrNoSpace},
		{syscall.EFBIG, ErrNoSpace},
		{syscall.EROFS, ErrReadOnly},
		{syscall.ENOTDIR, ErrNotDirectory},
		{syscall.EISDIR, ErrDirectory},
		{syscall.ELOOP, ErrLinkLoop},
		{syscall.ENAMETOOLONG, ErrBadName},
		{syscall.EINVAL, ErrBadName},
		{syscall.ENXIO, ErrNotRegular},
		{os.ErrClosed, ErrClosed},
	} {
		if errors.Is(err, c.from) {
			return fmt.Errorf("%w: %w", c.to, err)
		}
	}
	return err
}
