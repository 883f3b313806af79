package wire

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// TransportConfig configures NewTransport.
type TransportConfig struct {
	// Guard refuses link-local and metadata addresses, and those of Own, when a connection is about to be made: after names are resolved, so
	// that no name and no redirect leads there.
	Guard bool
	// Own lists the addresses our own server listens on, asked at every dial. May be nil.
	Own func() []netip.AddrPort
}

// NewTransport makes the transport that adapters share. Close its idle connections at the end. Bodies arrive as the server sent them,
// without decompression.
func NewTransport(cfg TransportConfig) *http.Transport {
	dialer := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}
	if cfg.Guard {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return guard(address, cfg.Own) }
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		TLSHandshakeTimeout: 15 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		WriteBufferSize:     32 << 10, // most requests leave in one write
		ReadBufferSize:      16 << 10,
	}
}

// RefusedError says that an address isn't dialled.
type RefusedError struct {
	Address string
	Reason  string
}

// Error names address and reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused to connect to %s: %s", e.Address, e.Reason)
}

// Permanent says that another attempt would end alike. A round tripper's error with this method isn't retried.
func (e *RefusedError) Permanent() bool { return true }

// Addresses outside the link-local ranges where clouds answer with their machines' credentials.
func metadata(a netip.Addr) bool {
	switch a.String() {
	case "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254":
		return true
	}
	return false
}

func guard(address string, own func() []netip.AddrPort) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return &RefusedError{address, "it isn't an IP address and port"}
	}
	addr := target.Addr().Unmap().WithZone("")
	switch {
	case addr.IsLinkLocalUnicast(), addr.IsLinkLocalMulticast(), addr.IsMulticast():
		return &RefusedError{address, "link-local and multicast addresses serve no models"}
	case metadata(addr):
		return &RefusedError{address, "it is a cloud's metadata service"}
	}
	if own == nil {
		return nil
	}
	for _, o := range own() {
		if o.Port() == target.Port() && reaches(addr, o.Addr().Unmap().WithZone("")) {
			return &RefusedError{address, "it is this server itself"}
		}
	}
	return nil
}

// reaches says whether a connection to addr ends at a listener on own, the port being the same.
func reaches(addr, own netip.Addr) bool {
	if addr == own || addr.IsUnspecified() {
		return true
	}
	if !own.IsUnspecified() {
		return false
	}
	if addr.IsLoopback() {
		return true
	}
	local, err := net.InterfaceAddrs()
	if err != nil {
		return true // fail closed
	}
	for _, l := range local {
		if p, err := netip.ParsePrefix(l.String()); err == nil && p.Addr().Unmap() == addr {
			return true
		}
	}
	return false
}
