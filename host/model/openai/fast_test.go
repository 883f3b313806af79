package openai

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// payloads are chunks of many servers; those marked are read fast.
var payloads = map[string]bool{
	`{"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`:          true,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"bash","arguments":""}}]}}],"usage":null}`:                                        true,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}},{"index":1,"id":null,"function":{"name":null,"arguments":{"b":[1,{"c":"]"}]}}}]}}]}`:           true,
	` { "choices" : [ { "delta" : { "content" : "a \"quoted\" \\ \u00e9 word" } , "finish_reason" : "stop" } ] , "usage" : { "prompt_tokens" : 3, "completion_tokens" : 4, "total_tokens": 7 } } `: true,
	`{"choices":[],"usage":{"prompt_tokens":3}}`: true,
	`{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5}]},"token_ids":[97]}],"prompt_token_ids":[1,2]}`: true,
	`{"error":{"message":"down","code":500}}`: true,
	`{"choices":[{"message":{"content":[{"type":"text","text":"a"}],"refusal":null,"reasoning":"r","reasoning_content":"s"}}]}`: true,
	`{"choices":[{"delta":{"function_call":{"name":"f","arguments":"x"}}}]}`:                                                    true,
	`{}`: true,

	`{"choices":null}`:                                        false,
	`{"choices":[null]}`:                                      false,
	`{"choices":[{"delta":null}]}`:                            false,
	`{"choices":[{"index":-1}]}`:                              false,
	`{"choices":[{"index":1.5}]}`:                             false,
	`{"choices":[{"index":"0"}]}`:                             false,
	`{"choices":[],"choices":[{"index":1}]}`:                  false,
	`{"Choices":[{"index":1}]}`:                               false,
	"{\"choice\u017f\":[{\"index\":1}]}":                      false,
	`{"object":"\u0065rror"}`:                                 false,
	`{"object":7}`:                                            false,
	`{"usage":{"prompt_tokens_details":{"cached_tokens":1}}}`: false,
	`{"usage":{"prompt_tokens":1e3}}`:                         false,
	`{"choices":[{"delta":{"tool_calls":[{"id":7}]}}]}`:       false,
	`{"choices":[{"delta":{"content":"a"}}`:                   false,
	`[]`:                                                      false,
	`"x"`:                                                     false,
	``:                                                        false,
	`{"choices":[{"delta":{"tool_calls":[{"id":"` + "\xff" + `"}]}}]}`: false,
}

func TestDecodeFast(t *testing.T) {
	for data, want := range payloads {
		if got := sameAsSlow(t, []byte(data)); got != want {
			t.Errorf("%s: read fast: %v", data, got)
		}
	}
}

// What is kept beyond a payload isn't a part of the buffer that the next one is read into.
func TestKeptTokensAreCopies(t *testing.T) {
	data := []byte(`{"choices":[{"delta":{"content":"a"},"logprobs":{"x":1},"token_ids":[97]}],"prompt_token_ids":[1,2],"prompt_logprobs":[3]}`)
	c, ok := decodeFast(data)
	if !ok {
		t.Fatal("not read fast")
	}
	var kept tokens
	kept.add(c)
	clear(data)
	if got := string(kept.raw()); got != `{"prompt_token_ids":[1,2],"prompt_logprobs":[3],"chunks":[{"token_ids":[97],"logprobs":{"x":1}}]}` {
		t.Error(got)
	}
}

func sameAsSlow(t *testing.T, data []byte) bool {
	t.Helper()
	got, ok := decodeFast(data)
	if !ok {
		return false
	}
	want, err := decodeAny(data)
	if err != nil {
		t.Fatalf("read fast what encoding/json refuses (%v): %q", err, data)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%q (-encoding/json +fast):\n%s", data, d)
	}
	var plain chunk // types that encoding/json skips over with an error aren't read fast
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return true
}

func FuzzDecodeFast(f *testing.F) {
	for data := range payloads {
		f.Add([]byte(data))
	}
	for _, s := range shapes {
		f.Add(fmt.Appendf(nil, s, `"a"`))
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsSlow(t, data) })
}
