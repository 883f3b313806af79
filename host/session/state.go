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

	// Request is the last request header, nil before the first and after another preset was selected; Sent the last request that left.
	Request *RequestHeader
	Sent    *RequestSent
	Context *RequestContext

	// Approvals are the approvals and questions without a decision, in the order asked.
	Approvals []ApprovalAsked
	// Grants are what the owner allowed for the whole session and hasn't taken back, in the order given. A fork begins without them.
	Grants []Grant
	Policy string // the last approval/policy, "" before the first
	Mode   string // the last sandbox/mode, "" before the first
	Todos  []TodoItem
	// Compacting is the id of a compaction without its end, "" when there is none.
	Compacting string

	// Accepted lists the ids of all messages that ever entered a queue, so that a repeated command can be told.
	Accepted []Accepted

	// Usage sums the model calls of this session; those of a fork's copied part belong to its parent.
	Usage model.Usage
	Blank bool // no turn/start yet
	// SeedEnd is the seq of session/end-seed, -1 for a session that isn't a fork.
	SeedEnd int64
	// TurnSeq is the seq of the last turn/start, -1 before the first.
	TurnSeq int64
	// StepSeq is the seq of the last step/start of the open turn, -1 without one.
	StepSeq int64
	// Damage is the reason why the log is read-only, "" when it is sound.
	Damage string
}

// Grant is an approval that was allowed with the scope session.
type Grant struct {
	ID        string // the approval's
	Tool      string
	Arguments string
	Cwd       string
	At        int64 // epoch milliseconds
}

// Accepted says at which seq a message entered a queue first.
type Accepted struct {
	ID  string
	Seq int64
}

// Knows says whether a message with this id was ever accepted.
func (s State) Knows(messageID string) bool {
	_, ok := s.AcceptedAt(messageID)
	return ok
}

// AcceptedAt gives the seq at which the message entered a queue first. It looks through all ids: some microseconds for a thousand.
func (s State) AcceptedAt(messageID string) (seq int64, ok bool) {
	for i := range s.Accepted {
		if s.Accepted[i].ID == messageID {
			return s.Accepted[i].Seq, true
		}
	}
	return 0, false
}

// Queued counts the messages that wait.
func (s State) Queued() int { return len(s.NextTurn) + len(s.NextStep) }

// HistoryEntry is one message of the model's history and where it stands in the log.
type HistoryEntry struct {
	Seq         int64
	Message     model.Message
	Turn, Step  int
	Interrupted bool
	Stop        string
}
