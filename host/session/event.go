// Package session is the append-only event log of sessions: its vocabulary, the state folded from it, the committer that is the only writer,
// and the contract a store keeps.
//
// Guarantees. Order: seq is contiguous from 0 per session. Durability: an event is committed before any reader gets it. Loss: none for
// events; readers pull by cursor and a slow reader costs the writer nothing. Live text and live output (Live) are provisional: bounded,
// never part of the log, dropped when the durable event stands.
package session

import (
	"encoding/json"
)

// Event is one committed entry of a session's log.
type Event struct {
	Seq  int64           `json:"seq"`
	Time int64           `json:"time"` // epoch milliseconds
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
	// Prev is the lower-case hex SHA-256 of the event before, "" for seq 0.
	Prev      string `json:"prev"`
	Ignorable bool   `json:"ignorable,omitempty"`
}

// Header is what is known of a session before its first event. It never changes.
type Header struct {
	ID            string            `json:"id"`
	Version       int               `json:"version"`
	CreatedAt     int64             `json:"createdAt"` // epoch milliseconds
	Cwd           string            `json:"cwd"`
	AgentPreset   PresetRef         `json:"agentPreset"`
	ParentSession string            `json:"parentSession,omitempty"`
	SeedLength    int64             `json:"seedLength,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Group         string            `json:"group,omitempty"`
	Attempt       int               `json:"attempt,omitempty"`
}

// PresetRef names a preset and the hash of the composition that a session was given.
type PresetRef struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
}

// Payload is the data of one event type. The zero value of every payload decodes from its JSON form.
type Payload interface {
	EventType() string
}

// Draft is an event that asks to be committed. Seq, time and prev are the committer's.
type Draft struct {
	Payload Payload
}

// ignorable is implemented by payloads that a reader of the reference vocabulary may skip.
type ignorable interface{ Ignorable() bool }
