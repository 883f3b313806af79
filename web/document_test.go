package web_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dsh-web/dsh-web/web"
)

func writePreset(t testing.TB, dir, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/preset.yml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// validate checks a value against a schema of the document.
func validate(t testing.TB, doc *huma.OpenAPI, what string, schema *huma.Schema, data []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Errorf("%s: %v in %.300s", what, err, data)
		return
	}
	res := &huma.ValidateResult{}
	huma.Validate(doc.Components.Schemas, schema, huma.NewPathBuffer([]byte{}, 0), huma.ModeReadFromServer, v, res)
	for _, err := range res.Errors {
		t.Errorf("%s isn't as documented: %v in %.600s", what, err, data)
	}
}

// checkAnswer holds an answer of the API against the document.
func checkAnswer(t testing.TB, s *web.Server, method, path string, a answer) {
	t.Helper()
	doc := web.Document(s)
	path, _, _ = strings.Cut(path, "?")
	op := findOperation(doc, method, path)
	if op == nil {
		return
	}
	what := method + " " + path + " " + http.StatusText(a.status)
	response := op.Responses[itoa(a.status)]
	if response == nil {
		response = op.Responses["default"]
	}
	if response == nil {
		t.Errorf("%s (%s): the document lacks status %d", what, op.OperationID, a.status)
		return
	}
	if a.status == http.StatusNoContent || method == http.MethodHead {
		if len(a.body) != 0 {
			t.Errorf("%s has a body", what)
		}
		return
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	media := response.Content[kind]
	if media == nil {
		t.Errorf("%s: the document lacks media type %q: %.200s", what, kind, a.body)
		return
	}
	if strings.HasSuffix(kind, "json") && media.Schema != nil {
		validate(t, doc, what, media.Schema, a.body)
	}
}

func itoa(n int) string {
	return string([]byte{byte('0' + n/100), byte('0' + n/10%10), byte('0' + n%10)})
}

func findOperation(doc *huma.OpenAPI, method, path string) *huma.Operation {
	var best *huma.PathItem
	holes := 99
	for template, item := range doc.Paths {
		if n, ok := matches(template, path); ok && n < holes {
			best, holes = item, n
		}
	}
	if best == nil {
		return nil
	}
	return map[string]*huma.Operation{"GET": best.Get, "POST": best.Post, "PUT": best.Put, "PATCH": best.Patch, "DELETE": best.Delete}[method]
}

func matches(template, path string) (holes int, ok bool) {
	a, b := strings.Split(template, "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return 0, false
	}
	for i := range a {
		if strings.HasPrefix(a[i], "{") {
			holes++
		} else if a[i] != b[i] {
			return 0, false
		}
	}
	return holes, true
}

func isNil(op any) bool {
	o, ok := op.(*huma.Operation)
	return !ok || o == nil
}
