package guard

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// hostList holds the configured names: port 0 is the listener's port or none at all, as behind a proxy.
type hostList map[hostPort]struct{}

type hostPort struct {
	name string
	port uint16
}

func parseHosts(names []string) (hostList, error) {
	list := hostList{}
	for _, n := range names {
		name, port, hasPort, ok := splitHost(n)
		if !ok || (hasPort && port == 0) {
			return nil, fmt.Errorf("allowed host %q: want NAME or NAME:PORT", n)
		}
		list[hostPort{name, port}] = struct{}{}
	}
	return list, nil
}

// allow judges a Host header on a listener's port. The loopback names are known; everything is compared whole, never by prefix.
func (l hostList) allow(host string, port uint16) bool {
	name, at, hasPort, ok := splitHost(host)
	if !ok {
		return false
	}
	if !hasPort {
		at = 80
	}
	switch name {
	case "127.0.0.1", "::1", "localhost":
		if at == port && port != 0 {
			return true
		}
	}
	if _, ok := l[hostPort{name, 0}]; ok && (!hasPort || at == port) {
		return true
	}
	if !hasPort {
		return false
	}
	_, ok = l[hostPort{name, at}]
	return ok
}

// splitHost takes a host and an optional port apart. Numeric addresses come back in their canonical form; every other way to write a
// number (hexadecimal, octal, short) is just a name that nobody configured.
func splitHost(s string) (name string, port uint16, hasPort, ok bool) {
	name = s
	if rest, bracket := strings.CutPrefix(s, "["); bracket {
		inside, after, closed := strings.Cut(rest, "]")
		addr, err := netip.ParseAddr(inside)
		if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", 0, false, false
		}
		name = addr.String()
		if after == "" {
			return name, 0, false, true
		}
		digits, colon := strings.CutPrefix(after, ":")
		if !colon {
			return "", 0, false, false
		}
		port, ok = parsePort(digits)
		return name, port, true, ok
	}
	if before, digits, colon := strings.Cut(s, ":"); colon {
		if port, ok = parsePort(digits); !ok {
			return "", 0, false, false
		}
		name, hasPort = before, true
	}
	if name == "" {
		return "", 0, false, false
	}
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
		if !plain {
			return "", 0, false, false
		}
	}
	return strings.ToLower(name), port, hasPort, true
}

func parsePort(s string) (uint16, bool) {
	if s == "" || len(s) > 5 || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil
}
