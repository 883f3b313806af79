package web

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/web/guard"
)

const apiRoot = "/api/v1"

// humaSwitches sets what huma keeps in package variables, once for the process and nowhere else: field names in their exact case, arrays that
// aren't null, and our own shape of errors, which never repeats what was sent.
var humaSwitches = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false
	huma.NewError = newProblem
})

// api joins huma to the router: each operation goes behind the guard with its own rule.
type api struct {
	huma.API
	server *Server
	router *chi.Mux
	rules  map[string]guard.Rule // by operation id
	json   func() ([]byte, error)
	yaml   func() ([]byte, error)
}

func newAPI(s *Server, router *chi.Mux) *api {
	humaSwitches()
	a := &api{server: s, router: router, rules: map[string]guard.Rule{}}
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[model.Block](), reflect.TypeFor[Block]())
	doc := &huma.OpenAPI{
		OpenAPI:    "3.1.0",
		Info:       &huma.Info{Title: "dsh-web", Version: s.cfg.Version, Description: "Sessions of coding agents over HTTP."},
		Servers:    []*huma.Server{{URL: s.base + "/"}},
		Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}},
	}
	if s.base == "" {
		doc.Servers = nil
	}
	format := huma.Format{Marshal: encode, Unmarshal: json.Unmarshal}
	a.API = huma.NewAPI(huma.Config{
		OpenAPI: doc, Formats: map[string]huma.Format{"application/json": format, "json": format}, DefaultFormat: "application/json",
	}, adapter{a})
	a.json = func() ([]byte, error) { return json.Marshal(doc) }
	a.yaml = func() ([]byte, error) { return doc.YAML() }
	return a
}

// schemaName names types in the document as clients think of them; types of other packages share names.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[host.Info]():
		return "Session"
	case reflect.TypeFor[host.List]():
		return "SessionList"
	case reflect.TypeFor[host.Queued]():
		return "QueuedMessage"
	case reflect.TypeFor[model.Info]():
		return "Model"
	case reflect.TypeFor[model.ProviderInfo]():
		return "Provider"
	case reflect.TypeFor[model.Choice]():
		return "ModelChoice"
	case reflect.TypeFor[model.Selection]():
		return "ModelSelection"
	case reflect.TypeFor[guard.Field]():
		return "ProblemField"
	case reflect.TypeFor[guard.Token]():
		return "BrowserToken"
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// adapter is huma's view of the router.
type adapter struct{ a *api }

// Handle adds an operation's route. An operation without a rule gets the zero rule, which lets nobody in.
func (d adapter) Handle(op *huma.Operation, handle func(huma.Context)) {
	rule := d.a.rules[op.OperationID]
	rule.Route = op.Path
	d.a.router.Method(op.Method, op.Path, d.a.server.guard.Handler(rule, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(humachi.NewContext(op, r, w))
	})))
}

// ServeHTTP is for huma's own tests.
func (d adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.a.router.ServeHTTP(w, r) }

// encode writes JSON without HTML escapes.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// route is an operation's place, its rule and its words.
type route struct {
	method, path, id, summary string
	rule                      guard.Rule
	status                    int   // of success, 0 for huma's choice
	also                      int   // another status of success, with the same body
	errors                    []int // beside 400, 401, 403, 421, 422 and 500
	tag                       string
}

// register adds an operation. Errors of handle become problems.
func register[I, O any](a *api, r route, handle func(context.Context, *I) (*O, error)) {
	r.rule.API = true
	a.rules[r.id] = r.rule
	op := huma.Operation{
		OperationID: r.id, Method: r.method, Path: apiRoot + r.path, Summary: r.summary, DefaultStatus: r.status,
		Errors: append([]int{http.StatusForbidden, http.StatusMisdirectedRequest}, r.errors...),
		// The guard has read, bounded and checked the body.
		MaxBodyBytes: -1, BodyReadTimeout: -1, RejectUnknownQueryParameters: true,
	}
	if r.tag != "" {
		op.Tags = []string{r.tag}
	}
	if r.rule.Access != guard.Open {
		op.Security = []map[string][]string{{"bearer": {}}}
		op.Errors = append(op.Errors, http.StatusUnauthorized)
	}
	if r.rule.Body == guard.Bytes {
		op.Middlewares = huma.Middlewares{keepBody}
	}
	if r.rule.Body != guard.NoBody {
		op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	huma.Register(a, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.server.problem(ctx, r.id, err)
		}
		return out, nil
	})
	if r.also != 0 {
		item := a.OpenAPI().Paths[op.Path]
		made := map[string]*huma.Operation{"POST": item.Post}[r.method]
		copied := *made.Responses[strconv.Itoa(r.status)]
		copied.Description = http.StatusText(r.also)
		made.Responses[strconv.Itoa(r.also)] = &copied
	}
}

// newProblem is huma's constructor of errors: for requests that don't fit their operation.
func newProblem(status int, message string, errs ...error) huma.StatusError {
	p := &guard.Problem{Status: status, Title: http.StatusText(status), Code: codeOf(status), Detail: sentence(message)}
	for _, err := range errs {
		field, ok := err.(huma.ErrorDetailer)
		if !ok {
			continue // an error of the program: its text isn't for clients
		}
		d := field.ErrorDetail()
		p.Errors = append(p.Errors, guard.Field{Location: d.Location, Message: d.Message})
	}
	return p
}

func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// document serves the OpenAPI document, which is written and packed once.
func (s *Server) document(kind string, text func() ([]byte, error)) http.Handler {
	load := sync.OnceValues(func() (served, error) {
		body, err := text()
		if err != nil {
			return served{}, err
		}
		return served{plain: body, gzip: pack(body), tag: tagOf(body)}, nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := load()
		if err != nil {
			s.log.Error("write the API's document", "error", err)
			guard.WriteProblem(w, internalProblem())
			return
		}
		body.answer(w, r, kind, "private, no-cache")
	})
}
