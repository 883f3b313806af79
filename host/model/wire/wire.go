// Package wire holds what adapters of different wires share: the reader of server-sent events, the idle clocks, the classification of
// failures, the guarded transport, and the function that makes a history sendable.
package wire

import (
	"net/http"
	"net/netip"
	"time"
)

// Clocks bound the silence of a server. Zero takes the default, negative turns a clock off.
type Clocks struct {
	// Bytes is the longest wait for any byte, the response's headers included. Default 300 s.
	Bytes time.Duration
	// Payload is the longest wait for a payload; comments and pings don't count. Default 300 s.
	Payload time.Duration
	// Grace is how long to read on after the finish reason for usage and late pieces. Default 3 s.
	Grace time.Duration
}

// TransportConfig configures NewTransport.
type TransportConfig struct {
	// Guard refuses link-local and metadata addresses, and those of Own.
	Guard bool
	// Own lists the addresses our own server listens on, asked at every dial.
	Own func() []netip.AddrPort
}

// NewTransport makes the transport that adapters share. Close its idle connections at the end.
func NewTransport(cfg TransportConfig) *http.Transport {
	return &http.Transport{}
}
