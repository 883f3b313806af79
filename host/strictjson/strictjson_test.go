package strictjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/strictjson"
)

// many is an object of n names, and more.
func many(n int, more string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":{"a":1},`, i)
	}
	return "{" + b.String() + more + "}"
}

func TestTwice(t *testing.T) {
	for text, want := range map[string]string{
		`{"command":"touch x","command":null}`:              "command",
		` { "command" : 1 , "other":[{}], "command" : 2 } `: "command",
		`[{"a":1},{"a":{"b":[{"c":1,"c":2}]}}]`:             "c",
		`{"a":{"b":1},"c":{"b":1},"a":2}`:                   "a",
		`{"command":1,"c\u006fmmand":2}`:                    "command",
		`{"":1,"":2}`:                                       "",
		"{\"a\xff\":1,\"a\xfe\":2}":                         "a\uFFFD",
		`{"x\"":1,"x\"":2}`:                                 `x"`,
		`{"x\\":1,"x\\":2}`:                                 `x\`,
		many(200, `"k7":1`):                                 "k7",
		many(24, `"k7":1`):                                  "k7",
		many(24, `"z":{"k7":1},"z":1`):                      "z",
		many(200, `"z":{"k7":1,"k7":1}`):                    "k7",
	} {
		if name, found := strictjson.Twice([]byte(text)); !found || string(name) != want {
			t.Errorf("%.80s: %q, %v", text, name, found)
		}
	}
	for _, text := range []string{
		`{"a":{"a":{"a":["a","a",":"]}},"b":{"a":1}}`, `[{"a":1},{"a":1}]`, `{"a":"\"b\":1,\"b\":2","b":"\\"}`, `{"a":1,"A":2}`, `{"a":"a","b":"a"}`,
		many(200, `"z":{"k7":1}`), many(24, `"z":{"k7":1}`), `{}`, `"a"`, ``,
	} {
		if name, found := strictjson.Twice([]byte(text)); found {
			t.Errorf("%.80s: %q", text, name)
		}
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a_1":"Text: \"A\":","b":[{"c-d":"É"}]}`: true,
		`{"a":{"B":1}}`:  false,
		`{"\u0061":1}`:   false,
		"{\"\u017f\":1}": false,
		`{"A" : 1}`:      false,
		`{"A`:            true, // no name yet
		`"A":`:           false,
		``:               true,
	} {
		if got := strictjson.Plain([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestDepth(t *testing.T) {
	for text, want := range map[string]int{`1`: 0, `"[[{"`: 0, `[]`: 1, `[{},{"a":"\\","b":[]},{"[\"[":0}]`: 3, strings.Repeat("[", 65) + strings.Repeat("]", 65): 65} {
		if got := strictjson.Depth([]byte(text)); got != want {
			t.Errorf("%s: %d", text, got)
		}
	}
}

func TestFewNamesCostNothing(t *testing.T) {
	raw := []byte(`{"command":"go test ./... && echo \"done\"","restart":false,"in":[{"id":1},{"id":2}]}`)
	if n := testing.AllocsPerRun(100, func() { strictjson.Twice(raw); strictjson.Plain(raw); strictjson.Depth(raw) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzAgainstTheDecoder holds the scans against the decoder's own tokens.
func FuzzAgainstTheDecoder(f *testing.F) {
	for _, text := range []string{`{"a":{"b":[1,"a",{"b":2,"a":"\"a\":"}]},"c":"\\","a":1}`, many(30, `"k1":2`), `{"a":`, `"\`, `[[{"\"":[]}]]`, `{"\ud800":1,"\ud801":2}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		strictjson.Plain(raw) // of anything
		if !json.Valid(raw) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		twice, depth := look(t, d)
		if _, found := strictjson.Twice(raw); found != twice || strictjson.Depth(raw) != depth {
			t.Errorf("%q: twice %v, depth %d; want %v, %d", raw, found, strictjson.Depth(raw), twice, depth)
		}
	})
}

// look reads one value by its tokens.
func look(t *testing.T, d *json.Decoder) (twice bool, depth int) {
	token, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	delim, open := token.(json.Delim)
	if !open {
		return false, 0
	}
	var names []string
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			twice = twice || slices.Contains(names, name.(string))
			names = append(names, name.(string))
		}
		inside, n := look(t, d)
		twice, depth = twice || inside, max(depth, n)
	}
	_, _ = d.Token()
	return twice, depth + 1
}
