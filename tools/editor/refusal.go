package editor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/dsh-web/dsh-web/host/fsys"
)

// Refusal is why nothing was done: a code for programs and a text for the model.
type Refusal struct {
	Code Code
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// Code is the kind of a Refusal.
type Code string

// The codes.
const (
	UnknownCommand Code = "UNKNOWN_COMMAND"
	BadArgument    Code = "BAD_ARGUMENT"
	NotAbsolute    Code = "PATH_NOT_ABSOLUTE"
	NotFound       Code = "NOT_FOUND"
	AlreadyExists  Code = "ALREADY_EXISTS"
	IsDirectory    Code = "IS_DIRECTORY"
	NotDirectory   Code = "NOT_A_DIRECTORY"
	NotRegular     Code = "NOT_REGULAR"
	TooLarge       Code = "TOO_LARGE"
	Binary         Code = "BINARY"
	Encoding       Code = "ENCODING"
	Undecodable    Code = "UNDECODABLE"
	ImageRefused   Code = "IMAGE_NOT_SUPPORTED"
	AccessDenied   Code = "ACCESS_DENIED"
	NoPermission   Code = "NO_PERMISSION"
	Changed        Code = "CHANGED"
	OutOfRange     Code = "OUT_OF_RANGE"
	NoMatch        Code = "NO_MATCH"
	ManyMatches    Code = "MANY_MATCHES"
	NoChange       Code = "NO_CHANGE"
	NoHistory      Code = "NO_HISTORY"
	DiskFull       Code = "DISK_FULL"
	Cancelled      Code = "CANCELLED"
	Failed         Code = "FAILED"
)

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Text: fmt.Sprintf(format, args...)}
}

// refusal turns what a provider returned into words. What only a programmer could read stays out of them.
func refusal(path string, err error) error {
	var r *Refusal
	var denied *fsys.DeniedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return r
	case errors.As(err, &denied):
		return refuseDenied(path, denied)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refuse(Cancelled, "The call ended before %s could be handled.", path)
	case errors.Is(err, fsys.ErrChanged):
		return refuse(Changed, "%s was changed by another program meanwhile, so nothing was written. View it again, then repeat the edit.", path)
	case errors.Is(err, fs.ErrExist):
		return refuseExists(path)
	case errors.Is(err, fs.ErrNotExist):
		return refuse(NotFound, "%s does not exist.", path)
	case errors.Is(err, fsys.ErrDirectory):
		return refuse(IsDirectory, "%s is a directory; only `view` works on directories.", path)
	case errors.Is(err, fsys.ErrNotDirectory):
		return refuse(NotDirectory, "%s cannot be reached: a part of the path before its end is not a directory.", path)
	case errors.Is(err, fsys.ErrNotRegular):
		return refuse(NotRegular, "%s is not a regular file (it is a pipe, a socket or a device).", path)
	case errors.Is(err, fsys.ErrTooLarge):
		return refuse(TooLarge, "%s is too large to edit here (over 10 MiB). Use bash, for example with sed.", path)
	case errors.Is(err, fsys.ErrNoSpace):
		return refuse(DiskFull, "There is no space left to write %s. Nothing was changed.", path)
	case errors.Is(err, fsys.ErrReadOnly):
		return refuse(NoPermission, "%s is on a read-only file system. Nothing was changed.", path)
	case errors.Is(err, fs.ErrPermission):
		return refuse(NoPermission, "%s: permission denied for the user that runs this tool.", path)
	case errors.Is(err, fsys.ErrLinkLoop):
		return refuse(NotFound, "%s leads through too many symbolic links.", path)
	case errors.Is(err, fsys.ErrBadName), errors.Is(err, fsys.ErrNotAbsolute):
		return refuse(BadArgument, "%s is not a usable path.", path)
	default:
		return refuse(Failed, "%s could not be accessed.", path)
	}
}

func refuseExists(path string) *Refusal {
	return refuse(AlreadyExists, "%s already exists, and `create` cannot overwrite. Change it with `str_replace` or `insert`, or choose another path.", path)
}

func refuseDenied(path string, denied *fsys.DeniedError) *Refusal {
	switch denied.Reason {
	case fsys.Unwritten:
		return refuse(AccessDenied, "Access denied: sandbox mode `%s` does not allow writing to %s.", denied.Mode, path)
	case fsys.Protected:
		return refuse(AccessDenied, "Access denied: %s is protected configuration, which is not writable under sandbox mode `%s`.", path, denied.Mode)
	default:
		return refuse(AccessDenied, "Access denied: %s is outside the workspace, and sandbox mode `%s` allows no other place.", path, denied.Mode)
	}
}
