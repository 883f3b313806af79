package web

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/web/guard"
)

// apiRoutes makes the API: a router of its own, each route behind the guard with a rule.
func (s *Server) apiRoutes() *api {
	a := newAPI(s, chi.NewRouter())
	a.authRoutes()
	a.hostRoutes()
	a.presetRoutes()
	a.modelRoutes()
	a.workspaceRoutes()
	a.sessionRoutes()
	a.messageRoutes()
	a.approvalRoutes()
	a.attachmentRoutes()
	a.eventRoutes()
	a.exportRoutes()
	a.streamRoute()
	a.terminalRoute()
	raw := func(path string, h http.Handler) {
		readable(a.router, path, s.guard.Handler(guard.Rule{Route: path, Access: guard.Owner, API: true}, h))
	}
	raw(apiRoot+"/openapi.json", s.document("application/openapi+json", a.json))
	raw(apiRoot+"/openapi.yaml", s.document("application/openapi+yaml", a.yaml))
	s.refuseOthers(a.router)
	return a
}

// pageRoutes makes the router of everything else.
func (s *Server) pageRoutes() *chi.Mux {
	router := chi.NewRouter()
	open := func(path string, h http.HandlerFunc) {
		readable(router, path, s.guard.Handler(guard.Rule{Route: path, Access: guard.Open, API: true}, h))
	}
	open("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	open("/readyz", s.ready)
	readable(router, "/metrics", s.guard.Handler(guard.Rule{Route: "/metrics", Access: guard.Loopback, API: true}, s.stats))
	readable(router, "/*", s.guard.Handler(guard.Rule{Route: "/*", Access: guard.Open}, s.assets))
	s.refuseOthers(router)
	return router
}

func (s *Server) refuseOthers(router *chi.Mux) {
	router.NotFound(s.guard.Refused(routeNotFound()).ServeHTTP)
	refused := s.guard.Refused(guard.Problem{Status: http.StatusMethodNotAllowed, Code: codeMethod, Detail: "This address takes other methods."})
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allowed(router, r), ", "))
		refused.ServeHTTP(w, r)
	})
}

// readable has a handler answer GET, and HEAD, whose body the server drops.
func readable(router *chi.Mux, path string, h http.Handler) {
	router.Method(http.MethodGet, path, h)
	router.Method(http.MethodHead, path, h)
}

// allowed are the methods that a request's address takes.
func allowed(router *chi.Mux, r *http.Request) (methods []string) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if router.Match(chi.NewRouteContext(), m, path) {
			methods = append(methods, m)
		}
	}
	return methods
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer may be gone; there is nobody else to tell
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.host.Ready(); err != nil {
		guard.WriteProblem(w, guard.Problem{Status: http.StatusServiceUnavailable, Code: host.CodeDraining, Detail: "Not ready: " + err.Error() + "."})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// HostInfo describes the host.
type HostInfo struct {
	Version       string     `json:"version"`
	Commit        string     `json:"commit"`
	Node          string     `json:"node"`
	OS            string     `json:"os"`
	StartedAt     int64      `json:"startedAt" doc:"Epoch milliseconds."`
	UptimeSeconds int64      `json:"uptimeSeconds"`
	Uptime        string     `json:"uptime"`
	Live          int        `json:"live" doc:"Agents in memory."`
	Draining      bool       `json:"draining"`
	Demo          bool       `json:"demo" doc:"No model has a key: a script answers."`
	DefaultPreset string     `json:"defaultPreset"`
	Auth          bool       `json:"auth"`
	Limits        HostLimits `json:"limits"`
	Sandbox       any        `json:"sandbox,omitempty" doc:"What confines the processes of agents."`
}

// noSandbox is the report of a host that confines no processes.
type noSandbox struct {
	Backend string `json:"backend"` // none
	Detail  string `json:"detail"`
}

// HostLimits are what clients run into.
type HostLimits struct {
	BodyBytes     int `json:"bodyBytes"`
	Sockets       int `json:"sockets"`
	Streams       int `json:"streams"`
	EventsPerPage int `json:"eventsPerPage"`
	BytesPerPage  int `json:"bytesPerPage"`
}

func (a *api) hostRoutes() {
	s := a.server
	register(a, route{method: "GET", path: "/host", id: "host", tag: "host", rule: guard.Rule{Access: guard.Owner}, summary: "About this host"},
		func(context.Context, *struct{}) (*struct{ Body HostInfo }, error) {
			r := s.host.Report()
			up := time.Since(r.Started)
			out := HostInfo{
				Version: s.cfg.Version, Commit: s.cfg.Commit, Node: s.cfg.Node, OS: runtime.GOOS + "/" + runtime.GOARCH,
				StartedAt: r.Started.UnixMilli(), UptimeSeconds: int64(up.Seconds()), Uptime: up.Truncate(time.Second).String(),
				Live: r.Live, Draining: r.Draining, Demo: r.Demo, DefaultPreset: s.cfg.DefaultPreset, Auth: s.keys != nil,
				Limits: HostLimits{BodyBytes: guard.MaxJSON, Sockets: s.sockets.max, Streams: s.streams.max, EventsPerPage: pageEvents, BytesPerPage: pageBytes},
			}
			if s.cfg.Sandbox != nil {
				out.Sandbox = s.cfg.Sandbox()
			} else {
				out.Sandbox = noSandbox{"none", "This host has no process sandbox: the commands of every agent run as the host's own user, with all its rights."}
			}
			return &struct{ Body HostInfo }{out}, nil
		})
	register(a, route{method: "POST", path: "/host/drain", id: "drain", tag: "host", rule: guard.Rule{Access: guard.Owner, Body: guard.JSON}, status: http.StatusAccepted,
		summary: "Take no new work and park agents at their next tool boundary"},
		func(context.Context, *struct{}) (*struct{ Body struct{} }, error) {
			s.host.Drain()
			return &struct{ Body struct{} }{}, nil
		})
}

type modelsOut struct {
	Body struct {
		Models  []model.Info `json:"models"`
		Default model.Choice `json:"default"`
	}
}

type providersOut struct {
	Body struct {
		Providers []model.ProviderInfo `json:"providers"`
	}
}

func (a *api) modelRoutes() {
	s := a.server
	owner := guard.Rule{Access: guard.Owner}
	register(a, route{method: "GET", path: "/models", id: "list-models", tag: "models", rule: owner, summary: "The models that are known"},
		func(context.Context, *struct{}) (*modelsOut, error) {
			out := &modelsOut{}
			out.Body.Models, out.Body.Default = s.host.Router().Models(), s.host.Router().Default()
			if out.Body.Models == nil {
				out.Body.Models = []model.Info{}
			}
			return out, nil
		})
	register(a, route{method: "GET", path: "/providers", id: "list-providers", tag: "models", rule: owner, summary: "Where models are served, and whether a key is there"},
		func(context.Context, *struct{}) (*providersOut, error) {
			out := &providersOut{}
			out.Body.Providers = s.host.Router().Providers()
			return out, nil
		})
	register(a, route{method: "PUT", path: "/providers/{id}/credential", id: "set-credential", tag: "models",
		rule: guard.Rule{Access: guard.Owner, Body: guard.JSON}, status: http.StatusNoContent, summary: "Store a provider's key; it is never told again", errors: []int{404}},
		func(ctx context.Context, in *struct {
			ID   string `path:"id"`
			Body struct {
				Key string `json:"key" minLength:"1" maxLength:"4096"`
			}
		}) (*struct{}, error) {
			name, err := s.keyName(in.ID)
			if err != nil {
				return nil, err
			}
			if err := s.host.Credentials().Set(name, in.Body.Key); err != nil {
				return nil, refuse(codeValidation, "The key can't be stored: "+err.Error()+".")
			}
			return nil, nil
		})
	register(a, route{method: "DELETE", path: "/providers/{id}/credential", id: "delete-credential", tag: "models", rule: owner, status: http.StatusNoContent,
		summary: "Forget a provider's stored key", errors: []int{404}},
		func(ctx context.Context, in *struct {
			ID string `path:"id"`
		}) (*struct{}, error) {
			name, err := s.keyName(in.ID)
			if err != nil {
				return nil, err
			}
			return nil, s.host.Credentials().Delete(name)
		})
}

func (s *Server) keyName(provider string) (string, error) {
	info, err := s.host.Router().Provider(provider)
	if err != nil {
		return "", refuse("provider-not-found", "There is no such provider.")
	}
	if info.KeyName == "" || s.host.Credentials() == nil {
		return "", refuse(codeValidation, "This provider takes no key.")
	}
	return info.KeyName, nil
}
