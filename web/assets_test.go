package web_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/web"
)

func TestPage(t *testing.T) {
	r := newRig(t, options{})
	a := r.send("GET", "/", nil, map[string]string{"Accept-Encoding": "identity"})
	if a.status != 200 || !bytes.Contains(a.body, []byte(`<head><base href="/">`)) || a.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	for path, c := range map[string]struct{ encoding, accept, want string }{
		"/assets/z-1a2b3c.js":   {"br", "gzip, br", "brotli"},
		"/assets/z-1a2b3c.js?1": {"gzip", "gzip", "gzip"},
		"/assets/z-1a2b3c.js?2": {"", "br;q=0", "plain"},
		"/assets/z-1a2b3c.js?3": {"gzip", "GZIP", "gzip"},
		"/assets/z-1a2b3c.js?4": {"", "gzip;q=abc", "plain"},
		"/assets/z-1a2b3c.js?5": {"gzip", "br;q=0.000, gzip ; Q=0.5", "gzip"},
		"/assets/z-1a2b3c.js?6": {"", "gzip;q=7, br;x", "plain"},
	} {
		a := r.send("GET", path, nil, map[string]string{"Accept-Encoding": c.accept})
		if string(a.body) != c.want || a.header.Get("Content-Encoding") != c.encoding || !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %q %v", path, a.body, a.header)
		}
		if again := r.send("GET", path, nil, map[string]string{"Accept-Encoding": c.accept, "If-None-Match": a.header.Get("ETag")}); again.status != 304 {
			t.Errorf("%s: %d", path, again.status)
		}
	}
	if a := r.send("GET", "/assets/app-1a2b3c.js", nil, map[string]string{"Accept-Encoding": "gzip"}); a.header.Get("Content-Encoding") != "gzip" || len(a.body) > 200 {
		t.Errorf("%d bytes, %v", len(a.body), a.header)
	}
	for _, path := range []string{"/nothing", "/assets/", "/assets", "/api/v1/nothing", "/api/v1/", "/assets/../index.html", "/index.html/x"} {
		if a := r.send("GET", path, nil, nil); a.status != 404 || a.code() != "route-not-found" {
			t.Errorf("%s: %d %.100s", path, a.status, a.body)
		}
	}
	for path, allow := range map[string]string{
		"/": "GET, HEAD", "/nothing": "GET, HEAD", "/healthz": "GET, HEAD", "/api/v1/sessions": "GET, POST", "/api/v1/sessions/x/messages/y": "PATCH, DELETE",
		"/api/v1/openapi.json": "GET, HEAD",
	} {
		for _, method := range []string{"PUT", "MADEUP"} {
			if a := r.send(method, path, nil, nil); a.status != 405 || a.code() != "method-not-allowed" || a.header.Get("Allow") != allow {
				t.Errorf("%s %s: %d, allow %q, %s", method, path, a.status, a.header.Get("Allow"), a.body)
			}
		}
	}
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/api/v1/openapi.yaml"} {
		owner := map[string]string{"Authorization": "Bearer " + r.token, "Accept-Encoding": "identity"}
		get, head := r.send("GET", path, nil, owner), r.send("HEAD", path, nil, owner)
		if head.status != 200 || len(head.body) != 0 || head.header.Get("Content-Type") != get.header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %v", path, head.status, head.header)
		}
	}
	if a := r.send("POST", "/api/v1/host", "{}", map[string]string{"Authorization": "Bearer " + r.token}); a.status != 405 || a.code() != "method-not-allowed" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestDocumentTravelsSmall asks for the API's document as a browser does.
func TestDocumentTravelsSmall(t *testing.T) {
	r := newRig(t, options{})
	for _, path := range []string{"/api/v1/openapi.json", "/api/v1/openapi.yaml"} {
		header := map[string]string{"Authorization": "Bearer " + r.token, "Accept-Encoding": "gzip, deflate, br, zstd"}
		a := r.send("GET", path, nil, header)
		if a.status != 200 || a.header.Get("Content-Encoding") != "gzip" || a.header.Get("Cache-Control") != "private, no-cache" || len(a.body) > 20_000 {
			t.Errorf("%s: %d, %d bytes, %v", path, a.status, len(a.body), a.header)
		}
		tag := a.header.Get("ETag")
		for _, known := range []string{tag, `"other", ` + tag, "W/" + tag} {
			header["If-None-Match"] = known
			if again := r.send("GET", path, nil, header); again.status != 304 || len(again.body) != 0 || again.header.Get("ETag") != tag {
				t.Errorf("%s with %s: %d", path, known, again.status)
			}
		}
		header["Accept-Encoding"], header["If-None-Match"] = "identity", tag
		if plain := r.send("GET", path, nil, header); plain.status != 200 || plain.header.Get("Content-Encoding") != "" || plain.header.Get("ETag") == tag {
			t.Errorf("%s plain: %d %v", path, plain.status, plain.header)
		}
	}
}

// TestPageBudget loads the page that is built in, as a browser does that has nothing of it: at most 250,000 bytes travel, all of its code that
// the first view needs and the API's document included.
func TestPageBudget(t *testing.T) {
	r := newRig(t, options{web: func(c *web.Config) { c.Assets = nil }})
	header := map[string]string{"Authorization": "Bearer " + r.token, "Accept-Encoding": "gzip"}
	plain := r.send("GET", "/", nil, map[string]string{"Accept-Encoding": "identity"})
	paths := []string{"/", "/favicon.svg", "/api/v1/openapi.json"}
	for _, m := range regexp.MustCompile(`(?:src|href)="\.?/?(assets/[^"]+)"`).FindAllSubmatch(plain.body, -1) {
		paths = append(paths, "/"+string(m[1]))
	}
	if len(paths) < 5 {
		t.Fatalf("the page is made of %v", paths)
	}
	total := 0
	for _, path := range paths {
		a := r.send("GET", path, nil, header)
		if a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
		t.Logf("%s: %d bytes", path, len(a.body))
		total += len(a.body)
	}
	if total > 250_000 {
		t.Errorf("%d bytes in all", total)
	}
}
