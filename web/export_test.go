package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// Hurry shortens the time that a slow reader is given.
func Hurry(s *Server, write, grace time.Duration) {
	s.patience.WriteTimeout, s.patience.WriteGrace = write, grace
}

// HurryReads shortens the time that a message may take from its first frame to its last.
func HurryReads(s *Server, d time.Duration) { s.patience.ReadTimeout = d }

// Document is the API's document.
func Document(s *Server) *huma.OpenAPI { return s.api().OpenAPI() }

// Routes lists the router's own routes as "METHOD /path".
func Routes(s *Server) []string {
	var out []string
	for _, router := range []*chi.Mux{s.page, s.api().router} {
		_ = chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			out = append(out, method+" "+route)
			return nil
		})
	}
	return out
}

// MetricNames lists this program's own metrics.
func MetricNames(s *Server) []string {
	all := make(chan *prometheus.Desc, 1000)
	s.stats.registry.Describe(all)
	close(all)
	var out []string
	for d := range all {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		if name, _, _ = strings.Cut(name, `"`); strings.HasPrefix(name, "dsh_") {
			out = append(out, name)
		}
	}
	return out
}

// Names gives the function that bounds the values of a label to n and one more.
func Names(n int) func(string) string {
	all := names{max: n, seen: map[string]struct{}{}}
	return all.label
}
