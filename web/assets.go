package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/dsh-web/dsh-web/web/guard"
)

// The built page. all: takes names that begin with a dot or an underscore too.
//
//go:embed all:dist
var embedded embed.FS

// assets serves the built page. Names under assets/ carry a hash of their content and never change; everything else is asked for again.
type assets struct {
	files map[string]*asset
	dev   http.Handler // a development server, or nil
}

// asset is one file. What travels is made at its first request.
type asset struct {
	name string
	fsys fs.FS
	load func() (served, error)
}

// served is a file in the forms it travels in. A nil form doesn't exist or wouldn't be smaller.
type served struct {
	plain, gzip, brotli []byte
	tag                 string
}

func newAssets(fsys fs.FS, base, dev string) (*assets, error) {
	if fsys == nil {
		sub, err := fs.Sub(embedded, "dist")
		if err != nil {
			return nil, fmt.Errorf("open page: %w", err)
		}
		fsys = sub
	}
	a := &assets{files: map[string]*asset{}}
	if dev != "" {
		target, err := url.Parse(dev)
		if err != nil || target.Host == "" {
			return nil, fmt.Errorf("address of the page's development server %q: want http://HOST:PORT", dev)
		}
		a.dev = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
		return a, nil
	}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ext := path.Ext(name); ext == ".gz" || ext == ".br" {
			if _, err := fs.Stat(fsys, strings.TrimSuffix(name, ext)); err == nil {
				return nil // a form of another file
			}
		}
		f := &asset{name: name, fsys: fsys}
		f.load = sync.OnceValues(func() (served, error) { return f.read(base) })
		a.files[name] = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list page: %w", err)
	}
	return a, nil
}

func (f *asset) read(base string) (served, error) {
	data, err := fs.ReadFile(f.fsys, f.name)
	if err != nil {
		return served{}, err
	}
	out := served{plain: data}
	if path.Ext(f.name) == ".html" {
		out.plain = bytes.Replace(data, []byte("<head>"), []byte(`<head><base href="`+base+`/">`), 1)
	} else {
		for _, form := range []struct {
			ext string
			to  *[]byte
		}{{".gz", &out.gzip}, {".br", &out.brotli}} {
			packed, err := fs.ReadFile(f.fsys, f.name+form.ext)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return served{}, err
			}
			*form.to = packed
		}
	}
	if out.gzip == nil && compressible(f.name) {
		out.gzip = pack(out.plain)
	}
	out.tag = tagOf(out.plain)
	return out, nil
}

func tagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

func pack(data []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil
	}
	_, _ = z.Write(data) // a buffer takes everything
	_ = z.Close()
	if b.Len() >= len(data) {
		return nil
	}
	return bytes.Clone(b.Bytes())
}

// mediaType knows the files of the page. The standard library's table depends on the machine and costs reading it.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".ico":
		return "image/x-icon"
	case ".json", ".map":
		return "application/json"
	case ".webmanifest":
		return "application/manifest+json"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".wasm":
		return "application/wasm"
	}
	return "application/octet-stream"
}

func compressible(name string) bool {
	switch path.Ext(name) {
	case ".html", ".js", ".css", ".svg", ".json", ".map", ".txt", ".webmanifest":
		return true
	}
	return false
}

// ServeHTTP answers / and the files of the page.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.dev != nil {
		// The development server's own client needs inline code and its socket.
		w.Header().Del("Content-Security-Policy")
		a.dev.ServeHTTP(w, r)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	f := a.files[name]
	if f == nil {
		guard.WriteProblem(w, routeNotFound())
		return
	}
	body, err := f.load()
	if err != nil {
		guard.WriteProblem(w, internalProblem())
		return
	}
	cache := "no-cache"
	if strings.HasPrefix(name, "assets/") {
		cache = "public, max-age=31536000, immutable"
	}
	body.answer(w, r, mediaType(name), cache)
}

// answer sends the smallest form that the client takes, or says that the client has it.
func (s served) answer(w http.ResponseWriter, r *http.Request, kind, cache string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", cache)
	data, tag, coding := s.plain, s.tag, ""
	accepts := r.Header.Get("Accept-Encoding")
	switch {
	case s.brotli != nil && acceptsCoding(accepts, "br"):
		data, tag, coding = s.brotli, tag+"-br", "br"
	case s.gzip != nil && acceptsCoding(accepts, "gzip"):
		data, tag, coding = s.gzip, tag+"-gz", "gzip"
	}
	tag = `"` + tag + `"`
	h.Set("ETag", tag)
	if hasTag(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if coding != "" {
		h.Set("Content-Encoding", coding)
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(data) // the peer may be gone; there is nobody else to tell
	}
}

// hasTag reads an If-None-Match header. A proxy may have made a tag weak.
func hasTag(header, tag string) bool {
	for known := range strings.SplitSeq(header, ",") {
		known = strings.TrimSpace(known)
		if known == "*" || strings.TrimPrefix(known, "W/") == tag {
			return true
		}
	}
	return false
}

// acceptsCoding reads an Accept-Encoding header.
func acceptsCoding(header, coding string) bool {
	for offer := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(offer, ";")
		if strings.EqualFold(strings.TrimSpace(name), coding) {
			weight, given := strings.CutPrefix(strings.ToLower(strings.TrimSpace(params)), "q=")
			if !given {
				return weight == ""
			}
			q, err := strconv.ParseFloat(weight, 64)
			return err == nil && q > 0 && q <= 1
		}
	}
	return false
}
