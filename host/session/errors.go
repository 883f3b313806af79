package session

import (
	"errors"
	"fmt"
)

// What a caller may match.
var (
	ErrNotFound    = errors.New("the session doesn't exist")
	ErrExists      = errors.New("a session with this id exists")
	ErrClosed      = errors.New("the log is closed")
	ErrReadOnly    = errors.New("the session is read-only")
	ErrCursorAhead = errors.New("the cursor is beyond the end of the log; it belongs to another or a restored database, so load the session again")
	ErrStaleEpoch  = errors.New("another owner has taken over this store; nothing was written")
	ErrBadCursor   = errors.New("the cursor isn't one of this list")
	// ErrReentrant is what Update returns in checked mode when it is called from inside an update function.
	ErrReentrant = errors.New("Update was called from inside an update function")
	// ErrImpure is what Update returns in checked mode when its function gave two results for one state.
	ErrImpure = errors.New("the update function isn't pure: two runs over one state gave different drafts")
	// ErrBegun is the refusal to change the preset of a session that isn't blank.
	ErrBegun = errors.New("the session has begun")
	// ErrNotAtTurnEnd is the refusal of a fork inside a turn.
	ErrNotAtTurnEnd = errors.New("a fork begins where a turn has ended")
)

// DamagedRow is the damage of a session whose row (header, labels) a store can't read; it stays whatever its log says.
const DamagedRow = "the session's row can't be read"

// DamageError says why a session can't be read on or written. It matches ErrReadOnly.
type DamageError struct {
	Session string
	Seq     int64 // the first event that can't be used, -1 when the whole session can't
	Reason  string
}

// Error names the session and the reason.
func (e *DamageError) Error() string {
	return fmt.Sprintf("session %s is damaged and read-only: %s", e.Session, e.Reason)
}

// Is matches ErrReadOnly.
func (e *DamageError) Is(target error) bool { return target == ErrReadOnly }
