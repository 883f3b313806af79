package session

import (
	"context"

	"github.com/dsh-web/dsh-web/host/model"
)

// Store keeps sessions durably. It has two implementations, sqlite and jsonl, and one conformance suite, storetest. Reads may come from any
// goroutine; Commit comes from one, the committer. A store never interprets payloads.
type Store interface {
	// LogID is random and belongs to this store for life: cursors are valid only beside it.
	LogID() string
	// Acquire makes the caller the owner and returns its epoch; commits under an earlier one fail with ErrStaleEpoch from then on.
	Acquire(ctx context.Context) (epoch int64, err error)
	// Commit makes every change durable, or none, before it returns. (jsonl: all or none for each session, and it undoes the others.)
	// A new session whose id is taken fails the whole commit with ErrExists.
	Commit(epoch int64, changes []Change) error
	// Info reads what lists show of one session; ErrNotFound.
	Info(ctx context.Context, id string) (Info, error)
	// Read reads a run of events in ascending order; ErrNotFound. It never holds anything open after it returned.
	Read(ctx context.Context, id string, r Range) ([][]byte, error)
	// List reads one page of sessions, newest first.
	List(ctx context.Context, q Query) (List, error)
	// Document reads a private document; nil when there is none.
	Document(ctx context.Context, id string, kind DocumentKind) ([]byte, error)
	// Partials reads the checkpointed pieces of unfinished messages, in the order written.
	Partials(ctx context.Context, id string) ([]Partial, error)
	// Size is how many bytes the store takes on disk.
	Size(ctx context.Context) (int64, error)
	// Close releases what Open acquired. A second one does nothing.
	Close() error
}

// StagedStore is a Store that can tell when a commit is half way: written, but not yet safe from a power cut.
type StagedStore interface {
	Store
	// CommitStaged is Commit. It calls written once when the changes would survive the death of this process, before it makes them durable; a
	// failure after that takes them back.
	CommitStaged(epoch int64, changes []Change, written func()) error
}

// Range selects events with After < seq < Before: the first Limit of them, or with Last the last Limit. At most MaxBytes of encoding, but
// at least one event. Zero or negative limits don't limit.
type Range struct {
	After, Before int64
	Limit         int
	MaxBytes      int
	Last          bool
}

// Change is what one commit does to one session, in this order: Create, Events and Info, Documents, Partials, Delete.
type Change struct {
	ID string
	// Create adds the session; its row is Info.
	Create bool
	Events []Encoded
	// Ending says that the events end a turn: a store may keep room for that on a disk that is full.
	Ending bool
	// Info is the row after this change; nil leaves it.
	Info *Info
	// FactsOnly says that of Info only the numbers of LogFacts and LastHash differ from the row, as after most commits. A store may write
	// the whole row all the same.
	FactsOnly bool
	// Texts are what the search finds.
	Texts       []Text
	Documents   []Document
	Partials    []Partial
	DropPartial bool
	Delete      bool
}

// Encoded is one event in its canonical encoding.
type Encoded struct {
	Seq  int64
	Data []byte
}

// TitleSeq is the place of the title among the searched texts; a new one replaces the old one.
const TitleSeq = -1

// Text is a searched text: of the event Seq, or the title at TitleSeq. It is case-folded already (FoldText).
type Text struct {
	Seq  int64
	Text string
}

// DocumentKind names a private document of a session. Documents are outside the log; only annotations are ever exported.
type DocumentKind string

// The private documents.
const (
	DocPin         DocumentKind = "pin"         // the composition that the session was given
	DocSettings    DocumentKind = "settings"    // model selection, with the session's own key
	DocAnnotations DocumentKind = "annotations" // reward, labels, notes of a trainer
)

// Document is a private document to be written; a nil Body removes it.
type Document struct {
	Kind DocumentKind
	Body []byte
}

// Partial is a piece of an unfinished message: Text continues what the pieces of the same block before it hold.
type Partial struct {
	Turn    int
	Step    int
	Attempt int
	Block   int
	Kind    model.DeltaKind
	Name    string
	CallID  string
	Text    string
}

// ModelRef names a route.
type ModelRef struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
}

// Info is what lists show of a session: facts of its log, kept current in the commits that change them, and what the owner set beside
// the log.
type Info struct {
	Header
	LogFacts
	Model    ModelRef // of the last request header, or what SetSettings said last
	Archived bool
	Labels   map[string]string // set by the owner; begins as the header's
	// Damage is why the session is read-only, "" when it is sound.
	Damage string
}

// LogFacts are the facts of a log that lists show.
type LogFacts struct {
	Title     string
	Preset    PresetRef
	LastSeq   int64
	LastHash  string
	UpdatedAt int64
	Usage     model.Usage
	Pending   int // approvals and questions without a decision
	Queue     int // messages that wait
	Turns     int
	TurnSeq   int64 // seq of the last turn/start, -1 before the first
	StepSeq   int64 // seq of the last step/start of the open turn, -1 without one
	TurnOpen  bool
	Blank     bool
}

// Facts gives the facts of s that lists show.
func (s State) Facts() LogFacts {
	return LogFacts{
		Title: s.Title, Preset: s.Preset, LastSeq: s.LastSeq, LastHash: s.Last, UpdatedAt: s.UpdatedAt, Usage: s.Usage,
		Pending: len(s.Approvals), Queue: s.Queued(), Turns: s.Turns, TurnSeq: s.TurnSeq, StepSeq: s.StepSeq, TurnOpen: s.TurnOpen, Blank: s.Blank,
	}
}

// The statuses that a list can be filtered by.
const (
	StatusRunning = "running" // a turn is open
	StatusIdle    = "idle"
	StatusDamaged = "damaged"
)

// Status is what the row says: damaged, running while a turn is open, else idle.
func (i Info) Status() string {
	switch {
	case i.Damage != "":
		return StatusDamaged
	case i.TurnOpen:
		return StatusRunning
	}
	return StatusIdle
}

// Query selects sessions. Zero fields select all.
type Query struct {
	Cursor   string // NextCursor of the page before
	Limit    int    // 0: 50; at most 1,000
	Text     string // found anywhere in titles and messages, whatever its case
	Preset   string
	Group    string
	Archived *bool
	Status   string
}

// List is one page of sessions. Truncated says that a text search was cut (200 hits, 300 ms).
type List struct {
	Sessions   []Info
	NextCursor string
	Truncated  bool
}

// Page is a run of events in ascending order. Encoded holds the canonical encoding of each event of Events.
type Page struct {
	Events  []Event
	Encoded [][]byte
	LastSeq int64 // of the log when the page was read; -1 when it is empty
	// HasMore says that the log goes on beyond the page, in the direction that was asked for.
	HasMore bool
}
