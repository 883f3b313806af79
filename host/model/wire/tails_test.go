package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/dsh-web/dsh-web/host/model/wire"
)

// answers serves complete answers whose connection is held open until release is closed, and counts connections.
func answers(t *testing.T, release <-chan struct{}) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {}\n\ndata: [DONE]\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

// read takes a whole answer.
func read(t *testing.T, ctx context.Context, c wire.Client, url string) {
	t.Helper()
	s, err := c.Open(ctx, wire.Post{URL: url, Header: http.Header{}, Body: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		ev, err := s.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if wire.Done(ev.Data) {
			s.Finish()
			return
		}
	}
}

// TestNobodyWaitsForATail: an answer is over with its last word; its connection serves the next one even though the caller's context has ended.
func TestNobodyWaitsForATail(t *testing.T) {
	release := make(chan struct{})
	url, connections := answers(t, release)
	transport := wire.NewTransport(wire.TransportConfig{})
	tails := wire.NewTails()
	c := wire.Client{Transport: transport, Tails: tails}
	ctx, cancel := context.WithCancel(context.Background())
	read(t, ctx, c, url) // it returns while the server still holds on
	cancel()
	close(release)
	tails.Wait()
	read(t, context.Background(), c, url)
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for two calls", n)
	}
	tails.Close()
	transport.CloseIdleConnections()
}

// TestTailsEndWithTheirOwner: a server that never lets go holds nobody up.
func TestTailsEndWithTheirOwner(t *testing.T) {
	url, connections := answers(t, nil)
	transport := wire.NewTransport(wire.TransportConfig{})
	defer transport.CloseIdleConnections()
	tails := wire.NewTails()
	c := wire.Client{Transport: transport, Tails: tails}
	read(t, context.Background(), c, url)
	tails.Close()
	read(t, context.Background(), c, url) // after the end a caller waits for it itself
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, want one for each", n)
	}
}
