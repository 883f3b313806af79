package main

import (
	"net"
	"testing"
)

func TestShownAddrIsWhatABrowserCanOpen(t *testing.T) {
	for _, c := range []struct {
		listens, want string
		names         []string
	}{
		{"127.0.0.1:3080", "127.0.0.1:3080", []string{"agents.example"}},
		{"0.0.0.0:3080", "localhost:8080", []string{"localhost:8080", "other"}},
		{"[::]:3080", "agents.example:3080", []string{"agents.example"}},
		{"0.0.0.0:3080", "0.0.0.0:3080", nil},
	} {
		addr, err := net.ResolveTCPAddr("tcp", c.listens)
		if err != nil {
			t.Fatal(err)
		}
		if got := shownAddr(addr, c.names).String(); got != c.want {
			t.Errorf("%s with %v: %s, want %s", c.listens, c.names, got, c.want)
		}
	}
}
