package tools_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/tools"
)

// What stands twice is read in one way by the tool and in another by who allows the call.
func TestANameTwiceIsRefused(t *testing.T) {
	b := newBench(t)
	ran := false
	b.add(t, tools.Tool{Name: "tool", Parameters: object, Run: func(context.Context, tools.Call) tools.Result { ran = true; return tools.TextResult("ran") }})
	for arguments, name := range map[string]string{
		`{"command":"touch x","command":null}`:              "command",
		` { "command" : 1 , "other":[{}], "command" : 2 } `: "command",
		`{"a":{"b":[{"c":1,"c":2}]}}`:                       "c",
		`{"command":1,"c\u006fmmand":2}`:                    "command",
		`{"":1,"":2}`:                                       "",
		"{\"a\xff\":1,\"a\xfe\":2}":                         "a\uFFFD",
		`{"x\"":1,"x\"":2}`:                                 `x\"`,
	} {
		res := b.run(context.Background(), "tool", arguments)
		if codeOf(res) != tools.CodeBadArguments || !strings.Contains(res.Text(), `"`+name+`" twice`) || ran {
			t.Errorf("%.80s: %q %q", arguments, codeOf(res), res.Text())
		}
		ran = false
	}
	for _, arguments := range []string{
		`{"a":{"a":{"a":["a","a",":"]}},"b":{"a":1}}`, `{"a":[{"a":1},{"a":1}]}`, `{"a":"\"b\":1,\"b\":2","b":"\\"}`, `{"a":1,"A":2}`, `{"a":"a","b":"a"}`,
		`{}`, ``, ` {"a" : "b" } `,
	} {
		if res := b.run(context.Background(), "tool", arguments); res.IsError {
			t.Errorf("%.80s: %q", arguments, res.Text())
		}
	}
}

type decoded struct {
	Command string   `json:"command"`
	Restart bool     `json:"restart"`
	Items   []*thing `json:"items,omitempty"`
	In      thing    `json:"in"`
}

type thing struct {
	ID string `json:"id"`
}

func TestArgumentsAreNamedExactly(t *testing.T) {
	for arguments, want := range map[string]decoded{
		`{"command":"shown","Command":"hidden"}`:                      {Command: "shown"},
		`{"Command":"hidden","command":"shown"}`:                      {Command: "shown"},
		`{"COMMAND":"hidden"}`:                                        {},
		`{"command":"shown","re\u017ftart":true}`:                     {Command: "shown"},
		"{\"command\":\"shown\",\"re\u017ftart\":true}":               {Command: "shown"},
		`{"c\u006fmmand":"shown"}`:                                    {Command: "shown"},
		`{"items":[{"id":"a","ID":"b"},null,{"Id":"c"}],"other":[]}`:  {Items: []*thing{{ID: "a"}, nil, {}}},
		`{"in":{"id":"a","ID":"b"},"IN":{"id":"c"}}`:                  {In: thing{ID: "a"}},
		`{"command":"has \"Command\": in it","x":{"command":"deep"}}`: {Command: `has "Command": in it`},
		`{"command":null,"restart":true,"Unknown":1}`:                 {Restart: true},
	} {
		var got decoded
		if err := tools.DecodeArguments(json.RawMessage(arguments), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", arguments, got, err)
		}
	}
	for _, broken := range []string{`{"command":1}`, `{"Command":`, `{"Command":"x"`, `{"Command":"`, `[]`, `"`, ``, `{"items":{"ID":1}}`, `{"items":[1],"A":1}`} {
		var got decoded
		if err := tools.DecodeArguments(json.RawMessage(broken), &got); err == nil || !strings.Contains(err.Error(), "do not fit the tool's schema") {
			t.Errorf("%s: %+v, %v", broken, got, err)
		}
	}
}

// The path of every call allocates nothing more for being looked at.
func TestDecodingCostsWhatTheDecoderCosts(t *testing.T) {
	raw := json.RawMessage(`{"command":"go test ./... && echo \"done\"","restart":false}`)
	var v decoded
	plain := testing.AllocsPerRun(100, func() { _ = json.Unmarshal(raw, &v) })
	ours := testing.AllocsPerRun(100, func() { _ = tools.DecodeArguments(raw, &v) })
	if ours > plain {
		t.Errorf("%v allocations, the decoder alone has %v", ours, plain)
	}
}

// FuzzDecodeArguments refuses nothing that the decoder takes.
func FuzzDecodeArguments(f *testing.F) {
	f.Add(`{"command":"x","Command":1,"items":[{"ID":2},null],"in":{"id":"a"}}`)
	f.Add(`{"Command":`)
	f.Fuzz(func(t *testing.T, text string) {
		var ours, plain decoded
		if err := tools.DecodeArguments(json.RawMessage(text), &ours); err != nil && json.Unmarshal([]byte(text), &plain) == nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
