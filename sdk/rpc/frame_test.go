package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

func TestParseRequest(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":1,"method":"m","params":{"a":1}}`: "m",
		"\t {\"method\":\"m\"} \r":               "m",
		`{"method":"m","params":[1]}`:            "m",
		`{"METHOD":"m"}`:                         "",
		`{"method":""}`:                          "",
		`{"id":1,"result":{}}`:                   "",
		`{"method":"m"`:                          "",
		`{"method":"m"} x`:                       "",
		`null`:                                   "",
	} {
		r, ok := parseRequest([]byte(line))
		if ok != (want != "") || ok && r.method != want {
			t.Errorf("%s: %v %q", line, ok, r.method)
		}
	}
	if r, _ := parseRequest([]byte(`{"method":"m","params":[1]}`)); len(r.params) != 0 {
		t.Errorf("params that are no object: %v", r.params)
	}
}

// FuzzFrame: no line breaks the reader, and every answer is one line of JSON with the id as it came.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"m","params":{}}`))
	f.Add([]byte(`{"id":{"a" : [ 1,"\n"]},"method":"m"}`))
	f.Add([]byte("\xff{"))
	f.Add([]byte("{\"id\":\"a\xff\",\"method\":\"m\"}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := parseRequest(line)
		if !ok {
			return
		}
		_, _ = r.blocks()
		_, _ = r.count("x")
		for _, err := range []error{nil, errors.New("line\nbreak"), &paramError{"p", "bad"}} {
			out := appendReply(nil, r.id, map[string]string{"a": "b\n"}, err)
			if bytes.Count(out, []byte("\n")) != 1 || out[len(out)-1] != '\n' {
				t.Fatalf("not one line: %q", out)
			}
			if !utf8.Valid(out) {
				t.Fatalf("not UTF-8: %q", out)
			}
			var back struct{ ID json.RawMessage }
			if e := json.Unmarshal(out, &back); e != nil {
				t.Fatalf("%v: %q", e, out)
			}
			var a, b any
			if r.id != nil && (json.Unmarshal(r.id, &a) != nil || json.Unmarshal(back.ID, &b) != nil) {
				t.Fatalf("id %q became %q", r.id, back.ID)
			}
		}
	})
}
