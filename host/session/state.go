package session

import (
	"github.com/dsh-web/dsh-web/host/model"
)

// State is what a log folds to: an immutable value. Slices and maps in it are shared and must not be changed.
type State struct {
	Header  Header
	LastSeq int64  // -1 when the log is empty
	Last    string // hash of the last event, "" when empty
	// UpdatedAt is the time of the last event, or of creation; epoch milliseconds.
	UpdatedAt int64

	Title  string
	Preset PresetRef // the header's, or the last one selected

	// NextTurn and NextStep are the queued messages by target.
	NextTurn []model.Message
	NextStep []model.Message

	// History is what the model is shown: user, assistant and tool messages in order.
	History []HistoryEntry

	Turns    int  // turns started
	TurnOpen bool // a turn/start without its turn/end
	Step     int  // step of the open turn, 0 before the first
	StepOpen bool
	LastEnd  *TurnEnd
	// OpenCalls are tool calls of the open step without a result, in call order.
	OpenCalls []ToolCall

	// Request is the last request header, nil before the first; Sent the last request that left.
	Request *RequestHeader
	Sent    *RequestSent
	Context *RequestContext

	Usage model.Usage
	Blank bool // no turn/start yet
	// Damage is the reason why the log is read-only, "" when it is sound.
	Damage string
}

// HistoryEntry is one message of the model's history and where it stands in the log.
type HistoryEntry struct {
	Seq         int64
	Message     model.Message
	Turn, Step  int
	Interrupted bool
	Stop        string
}
