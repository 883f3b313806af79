package model_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
)

func TestPrefix(t *testing.T) {
	raw := func(list ...string) (out []json.RawMessage) {
		for _, s := range list {
			out = append(out, json.RawMessage(s))
		}
		return out
	}
	a := &model.Prepared{Encoder: "e/1", System: json.RawMessage(`"s"`), Messages: raw(`1`, `2`), Body: []byte("abc")}
	b := &model.Prepared{Encoder: "e/1", System: json.RawMessage(`"s"`), Messages: raw(`1`, `2`, `3`)}
	if ok, at := b.Extends(a); !ok || at != "" {
		t.Error("an extension isn't seen as one:", at)
	}
	if ok, _ := a.Extends(nil); !ok {
		t.Error("the first request extends nothing")
	}
	if b.PrefixSHA256(2) != a.PrefixSHA256(2) || b.PrefixSHA256(3) == a.PrefixSHA256(2) || a.PrefixSHA256(99) != a.PrefixSHA256(2) || a.PrefixSHA256(-1) != a.PrefixSHA256(0) {
		t.Error("prefix hashes")
	}
	sum := sha256.Sum256([]byte(`{"messages":[1,2],"system":"s","tools":null}`))
	if a.PrefixSHA256(2) != hex.EncodeToString(sum[:]) {
		t.Error("the prefix isn't what it says it is")
	}
	sum = sha256.Sum256([]byte("abc"))
	if a.BodySHA256() != hex.EncodeToString(sum[:]) {
		t.Error("body hash")
	}
	for want, c := range map[string]*model.Prepared{
		"encoder":     {Encoder: "e/2", System: a.System, Messages: a.Messages},
		"system":      {Encoder: "e/1", System: json.RawMessage(`"t"`), Messages: a.Messages},
		"tools":       {Encoder: "e/1", System: a.System, Tools: json.RawMessage(`[]`), Messages: a.Messages},
		"messages[1]": {Encoder: "e/1", System: a.System, Messages: raw(`1`, `9`, `3`)},
		"messages[0]": {Encoder: "e/1", System: a.System},
	} {
		if ok, at := c.Extends(a); ok || at != want {
			t.Errorf("want %s, got %v %s", want, ok, at)
		}
	}
}

func TestBlocksOnTheWire(t *testing.T) {
	for _, s := range []string{
		`{"type":"text","text":""}`, `{"type":"reasoning","text":""}`, `{"type":"reasoning","text":"a","signature":"s"}`, `{"type":"image","attachmentId":"x","mime":"image/png"}`,
		`{"type":"tool-call","id":"","name":"","arguments":""}`, `{"type":"tool-result","toolCallId":"c","content":[]}`, `{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"x"}],"isError":true}`,
	} {
		var b model.Block
		if err := json.Unmarshal([]byte(s), &b); err != nil {
			t.Fatal(err)
		}
		if raw, err := json.Marshal(b); err != nil || string(raw) != s {
			t.Errorf("%s became %s, %v", s, raw, err)
		}
	}
	var b model.Block
	if json.Unmarshal([]byte(`{"type":"hologram"}`), &b) == nil {
		t.Error("an unknown block was read")
	}
	if _, err := json.Marshal(model.Block{}); err == nil {
		t.Error("a block without a type was written")
	}
}
