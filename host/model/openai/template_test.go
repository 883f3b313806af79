package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shapes are chunks as servers write them; %s stands for a text.
var shapes = []string{
	`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":%s},"logprobs":null,"finish_reason":null}]}`,
	`{"choices":[{"delta":{"content":%s,"reasoning_content":null}}],"usage":null}`,
	`{"choices":[{"delta":{"content":null,"reasoning_content":%s}}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning":%s},"finish_reason":null}]}`,
	`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}}]}`,
	`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":null,"function":{"name":null,"arguments":%s}}]}}]}`,
	`{"choices" : [ { "delta" : { "content" : %s } } ] }`,
	`{"choices":[{"delta":{"content":%s}},{"index":1,"delta":{"content":"other"}}]}`,
	`{"choices":[{"delta":{"content":"first","content":%s}}]}`,
	`{"choices":[{"delta":{"content":%s,"Content":"second"}}]}`,
	`{"x":{"content":%s},"choices":[{"delta":{"content":"y"}}]}`,
	`{"choices":[{"delta":{"content":%s},"finish_reason":"stop"}]}`,
	`{"choices":[{"delta":{"content":%s}}],"usage":{"prompt_tokens":1}}`,
}

// FuzzTemplate feeds streams of one shape with any texts, interleaved with other shapes, and compares with the full decoder.
func FuzzTemplate(f *testing.F) {
	f.Add(0, "hello", ` "world\n`, 2, "{\\\"a")
	f.Add(1, "\xff", "\u2028é", 5, `\u0041`)
	f.Add(8, `","content":"`, `"}}]}`, 3, `\`)
	f.Fuzz(func(t *testing.T, first int, a, b string, second int, raw string) {
		var tmpl templates
		x, y := shapes[uint(first)%uint(len(shapes))], shapes[uint(second)%uint(len(shapes))]
		stream := []string{
			fmt.Sprintf(x, quoted(a)), fmt.Sprintf(x, quoted(b)), fmt.Sprintf(y, quoted(a)), fmt.Sprintf(x, `"`+raw+`"`), fmt.Sprintf(y, `"`+raw+`"`),
			fmt.Sprintf(x, quoted(b+a)), strings.Replace(fmt.Sprintf(x, quoted(a)), "}", raw+"}", 1), fmt.Sprintf(y, quoted(b)), raw,
		}
		for i, s := range stream {
			checkMatch(t, &tmpl, i, s)
		}
	})
}

func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func checkMatch(t *testing.T, tmpl *templates, i int, s string) {
	t.Helper()
	c, err := decode([]byte(s))
	e, ok := tmpl.match([]byte(s))
	if ok {
		if err != nil {
			t.Fatalf("chunk %d: a template read what the decoder refuses (%v): %s", i, err, s)
		}
		if d := cmp.Diff(c.effects(nil), []effect{e}, cmp.AllowUnexported(effect{})); d != "" || !c.plain() {
			t.Fatalf("chunk %d: %s\nplain %v, difference (-decoder +template):\n%s", i, s, c.plain(), d)
		}
		return
	}
	if err == nil {
		if all := c.effects(nil); len(all) == 1 && c.plain() {
			tmpl.learn([]byte(s), all[0])
		}
	}
}

// A string under the right name in the wrong place isn't taken for the text.
func TestWrongPlacesAreNotLearned(t *testing.T) {
	for _, shape := range []string{
		`{"choices":[{"delta":{"content":%q,"content":"x"}}]}`,
		`{"x":{"content":%q},"choices":[{"delta":{"content":"x"}}]}`,
		`{"choices":[{"index":1,"delta":{"content":%q}},{"index":0,"delta":{"content":"x"}}]}`,
		`{"choices":[{"delta":{"reasoning":%q,"reasoning_content":"x"}}]}`,
	} {
		var tmpl templates
		for i, s := range []string{"a", "b", "c"} {
			checkMatch(t, &tmpl, i, fmt.Sprintf(shape, s))
		}
	}
}

func TestTemplatesHit(t *testing.T) {
	for _, shape := range shapes[:7] {
		var tmpl templates
		for i := range 50 {
			s := fmt.Sprintf(shape, quoted(fmt.Sprintf(" w%d\n", i)))
			if _, ok := tmpl.match([]byte(s)); ok != (i > 1) {
				t.Fatalf("chunk %d of %s: hit %v", i, shape, ok)
			}
			checkMatch(t, &tmpl, i, s)
		}
	}
}

// A stream whose chunks always differ around the text isn't learned over and over.
func TestLearningGivesUp(t *testing.T) {
	var tmpl templates
	learned := 0
	for i := range 5000 {
		s := fmt.Sprintf(`{"created":%d,"choices":[{"delta":{"content":"x"}}]}`, i)
		checkMatch(t, &tmpl, i, s)
		probe := tmpl // a copy, so that asking doesn't count as a hit
		if _, ok := probe.match([]byte(s)); ok {
			learned++
		}
	}
	if learned > 20 {
		t.Errorf("learned %d times in vain", learned)
	}
}

// FuzzAssembler feeds any sequence of fragments: whatever a server sends, every piece lands in exactly one call and ids are unique.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 9, 77, 200, 13, 5, 5, 5, 130})
	f.Fuzz(func(t *testing.T, script []byte) {
		var a *assembler
		streamed := map[int]string{}
		a = newAssembler(nil, collect(streamed))
		total := ""
		for i, b := range script {
			e := effect{kind: effectFragment, index: int(b&3) - 1, text: fmt.Sprint("<", i, ">")}
			if b&4 != 0 {
				e.id = fmt.Sprint("id", b>>6)
			}
			if b&8 != 0 {
				e.name = strings.Repeat("n", int(b>>4&3))
			}
			if b&48 == 48 {
				e = effect{kind: effectText + effectKind(b>>7), text: e.text}
			}
			a.apply(e)
			total += e.text
		}
		seen := map[string]bool{}
		got := 0
		for i, block := range a.content(false) {
			if block.ID != "" && seen[block.ID] {
				t.Fatalf("id %q twice", block.ID)
			}
			seen[block.ID] = true
			if streamed[i] != block.Text+block.Arguments {
				t.Fatalf("block %d: streamed %q, kept %q", i, streamed[i], block.Text+block.Arguments)
			}
			got += len(streamed[i])
		}
		if got != len(total) {
			t.Fatalf("%d bytes of %d kept", got, len(total))
		}
	})
}
