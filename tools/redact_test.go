package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/tools"
)

// leak runs a tool that writes the pieces and returns meta.
func leak(t *testing.T, secrets []string, meta any, pieces ...string) (live string, res tools.Result) {
	t.Helper()
	b := newBench(t)
	b.runner.Secrets = func() []string { return secrets }
	b.add(t, tools.Tool{Name: "leak", Parameters: object, Run: func(_ context.Context, c tools.Call) tools.Result {
		for _, p := range pieces {
			if n, err := c.Output.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("write %q: %d, %v", p, n, err)
			}
		}
		out := tools.TextResult(strings.Join(pieces, ""))
		out.Meta = meta
		return out
	}})
	var out strings.Builder
	res = b.runner.Run(context.Background(), b.registry.Visible(b.scope), session.ToolCall{Name: "leak", Arguments: "{}"}, &out)
	return out.String(), res
}

// A secret shows in live output neither whole nor in parts, wherever the pieces are cut.
func TestTornSecretsDontShow(t *testing.T) {
	secrets := []string{"abcdefgh-and-more", "abcdefgh", "xxabcdef"}
	text := "1 abcdefgh 2 abcdefgh-and-more 3 xxabcdefgh 4 abcdefg 5 abcdefgh-and-mor."
	want := "1 [redacted] 2 [redacted] 3 [redacted]gh 4 abcdefg 5 [redacted]-and-mor."
	for size := 1; size <= len(text); size++ {
		var pieces []string
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if live, _ := leak(t, secrets, nil, pieces...); live != want {
			t.Errorf("pieces of %d: %q", size, live)
		}
	}
	if live, _ := leak(t, secrets, nil, "so far abcd"); live != "so far " {
		t.Errorf("what may be a secret shows: %q", live)
	}
}

// Secrets are found in presentation data also where JSON escapes them.
func TestSecretsInMetaAreFoundEscaped(t *testing.T) {
	for _, secret := range []string{`pass<word>&1`, `pass"word\1`, "pässwörd-1", "pass\tword"} {
		meta := map[string]any{"diff": "+key=" + secret + "\n", "n": 12345678901234567, secret: []string{"ok", secret}}
		_, res := leak(t, []string{secret}, meta, "x")
		raw, err := json.Marshal(res.Meta)
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if all := fmt.Sprint(back); strings.Contains(all, secret) || strings.Count(all, "[redacted]") != 3 || back["diff"] != "+key=[redacted]\n" {
			t.Errorf("%q: %s", secret, raw)
		}
		if !strings.Contains(string(raw), "12345678901234567") {
			t.Errorf("a number changed: %s", raw)
		}
	}
}

// A secret is found however the JSON of a tool's own making writes it.
func TestSecretsInMetaAreFoundAsWrittenByOthers(t *testing.T) {
	for _, c := range []struct{ secret, meta, want string }{
		{"sk-12345678", `{"a":"x sk-12345678 y"}`, `{"a":"x [redacted] y"}`},
		{"sk-12345678", `{"a":"x \u0073k-12345678 y"}`, `{"a":"x [redacted] y"}`},
		{"abcd/efgh", `{"a":"abcd\/efgh"}`, `{"a":"[redacted]"}`},
		{"nabcdefgh", `{"a":"\nabcdefgh"}`, `{"a":"\nabcdefgh"}`},
		{"abcdefgh", `{"a":"\nabcdefgh"}`, `{"a":"\n[redacted]"}`},
		{"abcd,efgh", `{"a":[1,"abcd","efgh"]}`, `{"a":[1,"abcd","efgh"]}`},
	} {
		_, res := leak(t, []string{c.secret}, json.RawMessage(c.meta), "x")
		if got, err := json.Marshal(res.Meta); err != nil || string(got) != c.want {
			t.Errorf("%s in %s: %s, %v", c.secret, c.meta, got, err)
		}
	}
}
