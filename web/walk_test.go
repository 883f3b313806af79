package web_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/web"
)

// open lists the routes that need no token. A new one has to be added here on purpose.
var open = []string{"GET /*", "HEAD /*", "GET /healthz", "HEAD /healthz", "GET /readyz", "HEAD /readyz", "GET /metrics", "HEAD /metrics", "POST /api/v1/auth/exchange"}

// TestEveryRouteIsGuarded walks the router's own list.
func TestEveryRouteIsGuarded(t *testing.T) {
	r := newRig(t, options{})
	routes := web.Routes(r.server)
	if len(routes) < 40 {
		t.Fatalf("only %d routes", len(routes))
	}
	do := func(method, path, host string, header map[string]string) int {
		t.Helper()
		req, err := http.NewRequest(method, r.base+path, strings.NewReader("{}"))
		r.must(err)
		req.Header.Set("Content-Type", "application/json")
		if host != "" {
			req.Host = host
		}
		for k, v := range header {
			req.Header.Set(k, v)
		}
		res, err := r.client.Do(req)
		r.must(err)
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.Header.Get("Content-Security-Policy") == "" || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: no security headers", method, path)
		}
		if strings.HasPrefix(path, "/api/") && res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s may be cached", method, path)
		}
		return res.StatusCode
	}
	owner := map[string]string{"Authorization": "Bearer " + r.token}
	for _, route := range routes {
		method, pattern, _ := strings.Cut(route, " ")
		path := strings.NewReplacer("{id}", "x", "{messageId}", "y", "{grantId}", "y", "{aid}", "z", "/*", "/").Replace(pattern)
		if got := do(method, path, "evil.example", owner); got != 421 {
			t.Errorf("%s with a foreign host: %d", route, got)
		}
		if got := do(method, path, "", map[string]string{"Authorization": "Bearer " + r.token, "Origin": "http://evil.example"}); got != 403 {
			t.Errorf("%s with a foreign origin: %d", route, got)
		}
		if slices.Contains(open, route) {
			if got := do(method, path, "", nil); got == 401 {
				t.Errorf("%s needs a token but is listed as open", route)
			}
			continue
		}
		if got := do(method, path, "", nil); got != 401 {
			t.Errorf("%s without a token: %d", route, got)
		}
		if got := do(method, path, "", map[string]string{"Authorization": "Bearer " + strings.Repeat("x", 43)}); got != 401 {
			t.Errorf("%s with a wrong token: %d", route, got)
		}
	}
}

// TestEveryOperationIsRouted holds the document and the router together.
func TestEveryOperationIsRouted(t *testing.T) {
	r := newRig(t, options{})
	routes := web.Routes(r.server)
	documented := 4 // the document's own two addresses, with two methods each
	for path, item := range web.Document(r.server).Paths {
		for method, op := range map[string]any{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if isNil(op) {
				continue
			}
			documented++
			if !slices.Contains(routes, method+" "+path) {
				t.Errorf("%s %s is documented and not routed", method, path)
			}
		}
	}
	routed := 0
	for _, route := range routes {
		if strings.Contains(route, " /api/v1/") {
			routed++
		}
	}
	if routed != documented {
		t.Errorf("%d routes under /api/v1, %d of them documented", routed, documented)
	}
	for _, path := range []string{"/openapi.json", "/openapi.yaml"} {
		if a := r.call("GET", path, nil); a.status != 200 || !strings.Contains(string(a.body), "StreamFrame") {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}
