package web

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
)

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
