package web_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
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

var update = flag.Bool("update", false, "write the golden document")

// TestDocumentKeepsItsPromises fails when a client of the recorded document would break: something it uses is gone or of another type, or
// something it never sent is required. Additions pass; record them with -update.
func TestDocumentKeepsItsPromises(t *testing.T) {
	r := newRig(t, options{})
	now := r.want(200, "GET", "/openapi.json", nil, nil).body
	const golden = "testdata/openapi.json"
	if *update {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, now, "", " "); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, append(pretty.Bytes(), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range breaches(t, before, now) {
		t.Error(breach)
	}
	t.Run("notices breaches", func(t *testing.T) {
		for name, edit := range map[string][2]string{
			"operation gone":     {`"operationId":"create-session"`, `"operationId":"make-session"`},
			"member gone":        {`"lastSeq"`, `"lastSequence"`},
			"newly required":     {`"required":["workspace"]`, `"required":["workspace","title"]`},
			"other type":         {`"blank":{"type":"boolean"`, `"blank":{"type":"string"`},
			"parameter required": {`"name":"cursor"`, `"required":true,"name":"cursor"`},
		} {
			edited := strings.ReplaceAll(string(now), edit[0], edit[1])
			if edited == string(now) || len(breaches(t, before, []byte(edited))) == 0 {
				t.Errorf("%s: passes", name)
			}
		}
	})
}

// breaches compares two documents.
func breaches(t testing.TB, before, now []byte) (found []string) {
	t.Helper()
	var a, b map[string]any
	if err := json.Unmarshal(before, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(now, &b); err != nil {
		t.Fatal(err)
	}
	var compare func(at string, a, b any)
	compare = func(at string, a, b any) {
		switch a := a.(type) {
		case map[string]any:
			other, ok := b.(map[string]any)
			if !ok {
				found = append(found, at+" is gone or something else")
				return
			}
			for key, value := range a {
				switch key {
				case "description", "title", "summary", "examples", "default", "tags", "info", "required", "parameters", "enum":
					continue
				}
				if _, ok := other[key]; !ok {
					found = append(found, at+"/"+key+" is gone")
					continue
				}
				compare(at+"/"+key, value, other[key])
			}
			found = append(found, newlyRequired(at, a, other)...)
		case []any:
			other, _ := b.([]any)
			if len(other) < len(a) {
				found = append(found, at+" is shorter")
				return
			}
			for i := range a {
				compare(fmt.Sprint(at, "/", i), a[i], other[i])
			}
		default:
			if !reflect.DeepEqual(a, b) {
				found = append(found, fmt.Sprintf("%s was %v and is %v", at, a, b))
			}
		}
	}
	compare("", a["paths"], b["paths"])
	compare("", a["components"], b["components"])
	return found
}

// newlyRequired finds members of a schema, and parameters of an operation, that were not required.
func newlyRequired(at string, a, b map[string]any) (found []string) {
	names := func(v any) []string {
		var out []string
		list, _ := v.([]any)
		for _, item := range list {
			switch item := item.(type) {
			case string:
				out = append(out, item)
			case map[string]any:
				if item["required"] == true {
					out = append(out, fmt.Sprint(item["in"], " ", item["name"]))
				}
			}
		}
		return out
	}
	properties, _ := a["properties"].(map[string]any)
	for _, key := range []string{"required", "parameters"} {
		for _, name := range names(b[key]) {
			_, known := properties[name]
			if (key == "parameters" || known) && !slices.Contains(names(a[key]), name) {
				found = append(found, at+": "+name+" is required now")
			}
		}
	}
	return found
}
