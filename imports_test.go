package dshweb_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dsh-web/dsh-web"

// rule says what a package may import of the project, and why not more.
type rule struct {
	may []string
	why string
}

// mountable is what a preset's rows are made of.
var mountable = []string{
	"host/scope", "host/model", "host/session", "host/fsys", "host/term", "host/sandbox", "host/approval",
	"prompt", "tools", "tools/*", "agent", "agent/compact",
}

// rules is the import graph of docs/ARCHITECTURE.md. A package without a rule fails the test: give it a place first.
var rules = map[string]rule{
	"host/scope":             {nil, "the container knows no service"},
	"host/model":             {nil, "the vocabulary of models is below everything"},
	"host/model/replay":      {nil, "a round tripper works under any HTTP provider"},
	"host/fsys":              {nil, "file providers know files only"},
	"host/fsys/fsystest":     {[]string{"host/fsys"}, "a conformance suite knows only its contract"},
	"host/proc":              {nil, "process tags and kills know no session"},
	"host/credential":        {nil, "keys are handed out by name"},
	"migrations":             {nil, "SQL files only"},
	"host/strictjson":        {nil, "one look at JSON text, for every door that it comes in by"},
	"web/guard":              {[]string{"host/strictjson"}, "the guard judges requests, not sessions"},
	"web/socket":             {nil, "the one import of the websocket library is replaceable"},
	"host/model/wire":        {[]string{"host/model"}, "what the adapters share"},
	"host/model/script":      {[]string{"host/model"}, "a scripted model is an adapter"},
	"host/model/openai":      {[]string{"host/model", "host/model/wire"}, "an adapter knows its wire only"},
	"host/model/anthropic":   {[]string{"host/model", "host/model/wire"}, "an adapter knows its wire only"},
	"host/term":              {[]string{"host/proc"}, "a shell knows processes, not tools"},
	"host/sandbox":           {[]string{"host/proc"}, "confinement knows processes, not tools"},
	"host/session":           {[]string{"host/model"}, "the log holds messages; who writes them is above"},
	"host/session/sqlite":    {[]string{"host/session", "migrations"}, "a store keeps bytes"},
	"host/session/jsonl":     {[]string{"host/session"}, "a store keeps bytes"},
	"host/session/storetest": {[]string{"host/session", "host/model"}, "a conformance suite knows only its contract, and the messages it carries"},
	"host/session/export":    {[]string{"host/session", "host/model", "host/model/openai"}, "exports are read from a log"},
	"host/approval":          {[]string{"host/session"}, "an approval is a fact of the log"},
	"prompt":                 {[]string{"host/scope", "host/model"}, "the prompt is put together from scopes alone"},
	"tools":                  {[]string{"host/scope", "host/model", "host/session", "host/approval", "host/strictjson"}, "the pipeline serves every tool and knows none"},
	"tools/bash":             {[]string{"tools", "host/session", "host/term"}, "a tool knows its provider"},
	"tools/shell":            {[]string{"tools", "host/proc", "host/sandbox"}, "a tool knows its provider"},
	"tools/editor":           {[]string{"tools", "host/fsys"}, "a tool knows its provider"},
	"tools/search":           {[]string{"tools", "host/fsys"}, "a tool knows its provider"},
	"tools/files":            {[]string{"tools", "host/fsys", "tools/editor"}, "four definitions over the editor's engine"},
	"tools/todo":             {[]string{"tools", "host/session"}, "a tool knows its provider"},
	"tools/ask":              {[]string{"tools", "host/approval"}, "a tool knows its provider"},
	"agent":                  {[]string{"host/scope", "host/model", "host/session", "prompt", "tools"}, "the loop knows no preset and no concrete tool"},
	"agent/compact":          {[]string{"agent", "host/scope", "host/model", "host/session"}, "a policy of the loop"},
	"presets":                {mountable, "presets put services together"},
	"presets/shipped":        {nil, "preset files only"},
	"host":                   {append(slices.Clone(mountable), "presets", "host/proc", "host/credential", "host/session/export"), "live sessions are made of presets; HTTP is above"},
	"web": {[]string{"host", "presets", "host/model", "host/session", "host/session/export", "host/term", "host/approval", "web/guard", "web/socket"},
		"the API speaks to the host, never to its parts"},
	"sdk/profiles": {nil, "compositions as text"},
	"sdk/rpc":      {[]string{"host", "host/model", "host/session"}, "the stdio protocol is another face of the host"},
}

type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	Doc        string
	Imports    []string
	GoFiles    []string

	TestImports, XTestImports []string
}

func packages(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Doc,Imports,GoFiles,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if len(p.GoFiles) > 0 {
			all[rel] = p
		}
	}
	return all
}

func TestImportDirection(t *testing.T) {
	for name, p := range packages(t) {
		if name == "" || strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "bench") {
			continue // wiring may import anything
		}
		r, ok := rules[name]
		if !ok {
			t.Errorf("package %s has no place in the import graph: add a rule with its reason, and the line in docs/ARCHITECTURE.md", name)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module+"/")
			if ours && !slices.ContainsFunc(r.may, func(pattern string) bool { ok, _ := path.Match(pattern, to); return ok }) {
				t.Errorf("%s imports %s, but %s", name, to, r.why)
			}
		}
	}
}

func TestOneImportOfTheWebsocketLibrary(t *testing.T) {
	for name, p := range packages(t) {
		if name != "web/socket" && slices.Contains(slices.Concat(p.Imports, p.TestImports, p.XTestImports), "nhooyr.io/websocket") {
			t.Errorf("%s imports the websocket library; only web/socket may, so that it stays replaceable", name)
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	for name, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("package %s has no doc comment", name)
		}
	}
}

// TestSourceRules walks the syntax of every file: no init functions, and scope keys resolved under presets/ only.
func TestSourceRules(t *testing.T) {
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "node_modules" || name == ".git" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		inPresets := strings.HasPrefix(filepath.ToSlash(file), "presets/")
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s: an init function; construct things where they are used", fset.Position(n.Pos()))
				}
			case *ast.CallExpr:
				fun := n.Fun
				if ix, ok := fun.(*ast.IndexExpr); ok {
					fun = ix.X
				}
				sel, ok := fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				if ok && x.Name == "scope" && !inPresets && slices.Contains([]string{"Get", "Require"}, sel.Sel.Name) {
					t.Errorf("%s: scope.%s outside presets/: the container is not a service locator; take a constructor argument", fset.Position(n.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestGoStatements holds the list of every go statement: a goroutine without an owner is a leak that hasn't happened yet. Add a line here
// only with the owner that waits for it.
func TestGoStatements(t *testing.T) {
	var got []string
	fset := token.NewFileSet()
	for name, p := range packages(t) {
		for _, f := range p.GoFiles {
			parsed, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					if _, ok := n.(*ast.GoStmt); ok {
						got = append(got, path.Join(name, f)+" "+fn.Name.Name)
					}
					return true
				})
			}
		}
	}
	slices.Sort(got)
	golden := "testdata/go_statements.txt"
	text := strings.Join(got, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("the go statements changed; see who waits for each, then run UPDATE_GOLDEN=1 go test -run GoStatements .\ngot:\n%swant:\n%s", text, want)
	}
}
