package editor

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// FuzzParseArguments reads arguments as encoding/json does.
func FuzzParseArguments(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `null`, `[]`, `{"a":1}`, `{"a" : -1.5e3 , "b":"x\"}{" }`, `{"a":null,"a":2,"b":2,"b":null}`, `{"\u0061":[1,{"x":"]"}],"é":"\ud83d\ude00\/"}`,
		`{"a":true}`, "{\"a\"\n:\t{\"b\":{}}\r}", `{"a":"`, `{"a"}`, ``, ` `, `{`, `{"a":1,}`, "{\"a\":\"\xff\"}", "{\"\xff\":1,\"\xfe\":2}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal(raw, &want)
		maps.DeleteFunc(want, func(_ string, v json.RawMessage) bool { return string(v) == "null" })
		got, err := parseArguments(raw)
		if wantErr != nil || want == nil {
			if err == nil {
				t.Fatalf("%q was taken", raw)
			}
			return
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("%q: %v, %v", raw, slices.Collect(maps.Keys(got)), err)
		}
		for name, value := range want {
			if string(got[name]) != string(value) {
				t.Errorf("%q: %s is %s", raw, name, got[name])
			}
			var s string
			wantErr := json.Unmarshal(value, &s)
			if text, err := text(value); (err == nil) != (wantErr == nil) || text != s {
				t.Errorf("%q as text: %q, %v", value, text, err)
			}
		}
	})
}
