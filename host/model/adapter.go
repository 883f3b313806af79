package model

import (
	"context"
	"encoding/json"
	"time"
)

// Request is one model call before any wire form. It is a pure function of the log: two equal requests on one route encode to the same bytes.
type Request struct {
	System   string
	Tools    []Tool
	Messages []Message
	// MaxTokens limits the answer; 0 leaves the parameter out.
	MaxTokens int
	// ReasoningEffort is passed on in the route's dialect; "" leaves it out.
	ReasoningEffort string
	// Params are extra top-level parameters, sent as they are. Nobody set them: they are absent.
	Params map[string]json.RawMessage
	// Session and Call identify the call to recorders and the scripted model. They are not sent to a server. Call counts the requests of the
	// session; every attempt counts, so a retry has the next number.
	Session string
	Call    int
	// Earlier is a request of the same session that was made before, or nil. An adapter may go on from its encoding; that changes no byte.
	Earlier *Prepared
	// RepairReasoning asks the adapter for the other reasoning form, once, after a server refused the first.
	RepairReasoning bool
}

// Prepared is the exact request an adapter is about to send, made without I/O, so that its hash can be logged before the first byte leaves.
type Prepared struct {
	// Encoder names the encoding and its version, for example "openai/1".
	Encoder string
	// Body holds the exact bytes of the HTTP body.
	Body []byte
	// System, Tools and Messages are the wire forms of the parts in canonical JSON; prefix hashes are taken over them.
	System   json.RawMessage
	Tools    json.RawMessage
	Messages []json.RawMessage
	// Request is what was encoded.
	Request Request
	// Memo is the adapter's own: what it goes on from when a later request names this one as its Earlier.
	Memo any

	openings [2]*Opening // the one it goes on from, and its own, which is as long or longer
}

// DeltaKind says what a streamed piece belongs to.
type DeltaKind string

// Kinds of streamed pieces.
const (
	DeltaText      DeltaKind = "text"
	DeltaReasoning DeltaKind = "reasoning"
	DeltaTool      DeltaKind = "tool"
)

// Delta is one streamed piece. Pieces of one Block index concatenate; a Block keeps one kind. Block numbers the pieces of one answer from 0;
// it isn't an index into Response.Content, which may hold an empty reasoning block that was never streamed.
type Delta struct {
	Block int
	Kind  DeltaKind
	Text  string
	// Name and CallID are set on the first piece of a tool block when known, and again on a later piece when they became known or changed.
	Name   string
	CallID string
}

// StopReason says why the model stopped.
type StopReason string

// Why a model stopped. Tool calls are run on StopEnd and StopTools, never on StopMaxTokens.
const (
	StopEnd       StopReason = "stop"
	StopTools     StopReason = "tool-calls"
	StopMaxTokens StopReason = "max-tokens"
)

// Response is a finished model call; beside an error it holds what had arrived by then.
type Response struct {
	// Content lists the blocks in the order in which they began. Ids of calls are unique within the request's history. A thinking route
	// records an empty reasoning block when a message makes calls without having reasoned, since the next request must say so.
	Content []Block
	Stop    StopReason
	Usage   *Usage
	// TTFT is the time to the first payload, Total the time to the end of the stream.
	TTFT, Total time.Duration
	// RequestID is the server's name for the call, when it gave one.
	RequestID string
	// Tokens holds raw token ids and log-probabilities as the server sent them, when the route captures tokens.
	Tokens json.RawMessage
	// Incomplete lists ids of calls in Content that were or may have been cut: those with broken arguments when Stop is StopMaxTokens, and all
	// beside an error. They are not run.
	Incomplete []string
}

// Adapter speaks one wire to one configured provider. Implementations are safe for concurrent use.
type Adapter interface {
	// Prepare encodes r. No I/O.
	Prepare(r Request) (*Prepared, error)
	// Stream sends p and reads the answer on the calling goroutine, calling emit for each piece as it arrives. Errors are *Error;
	// the response beside an error is what had arrived, or nil. It returns at once when ctx ends.
	Stream(ctx context.Context, p *Prepared, emit func(Delta)) (*Response, error)
}
