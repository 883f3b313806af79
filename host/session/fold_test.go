package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dsh-web/dsh-web/host/model"
)

// text draws strings that break encoders: quotes, control characters, markup, half characters, surrogates.
func text(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "<b>&\"'\\", "line\nline\r\ttab", "\x00\x1f\x7f", "\xff\xfe half \xc3", "\u2028\u2029", "😀é漢", `{"a":[1,2]}`, "\\u0041"}),
		rapid.String(),
	).Draw(t, label)
}

func drawBlock(t *rapid.T, depth int) model.Block {
	kinds := []model.BlockType{model.BlockText, model.BlockReasoning, model.BlockImage, model.BlockToolCall}
	if depth == 0 {
		kinds = append(kinds, model.BlockToolResult)
	}
	b := model.Block{Type: rapid.SampledFrom(kinds).Draw(t, "block")}
	switch b.Type {
	case model.BlockText:
		b.Text = text(t, "text")
	case model.BlockReasoning:
		b.Text, b.Signature = text(t, "text"), text(t, "signature")
	case model.BlockImage:
		b.AttachmentID, b.Mime = text(t, "attachment"), "image/png"
		if rapid.Bool().Draw(t, "filled") {
			b.Data = []byte("never logged")
		}
	case model.BlockToolCall:
		b.ID, b.Name, b.Arguments = text(t, "id"), "bash", text(t, "arguments")
	case model.BlockToolResult:
		b.ToolCallID, b.IsError = text(t, "call"), rapid.Bool().Draw(t, "error")
		for range rapid.IntRange(0, 2).Draw(t, "inner") {
			b.Content = append(b.Content, drawBlock(t, depth+1))
		}
	}
	return b
}

func drawMessage(t *rapid.T) model.Message {
	m := model.Message{
		ID: text(t, "id"), Role: rapid.SampledFrom([]model.Role{model.RoleUser, model.RoleAssistant}).Draw(t, "role"),
		Source: model.Source{
			Kind:   rapid.SampledFrom([]model.SourceKind{model.SourceUser, model.SourceModel, model.SourceTool, model.SourceHost}).Draw(t, "kind"),
			CallID: text(t, "callId"), Provider: text(t, "provider"), Model: text(t, "model"), Name: text(t, "name"),
		},
	}
	for range rapid.IntRange(0, 3).Draw(t, "blocks") {
		m.Content = append(m.Content, drawBlock(t, 0))
	}
	return m
}

func drawRaw(t *rapid.T) json.RawMessage {
	return rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"a": [1, {"b":"}]"}], "c": null}`), json.RawMessage(`"x"`), json.RawMessage(`3.5e2`), json.RawMessage(`[]`)}).Draw(t, "raw")
}

// drawPayload draws an event that can follow s.
func drawPayload(t *rapid.T, s State) Payload {
	n := func(label string) int { return rapid.IntRange(-3, 1_000_000).Draw(t, label) }
	switch rapid.IntRange(0, 23).Draw(t, "payload") {
	case 0, 1:
		p := InboxSpliced{Target: rapid.SampledFrom([]string{TargetNextTurn, TargetNextStep}).Draw(t, "target"), Outcome: text(t, "outcome")}
		queue := s.NextTurn
		if p.Target == TargetNextStep {
			queue = s.NextStep
		}
		p.Start = rapid.IntRange(0, len(queue)).Draw(t, "start")
		p.RemovedCount = rapid.IntRange(0, len(queue)-p.Start).Draw(t, "removed")
		for range rapid.IntRange(0, 2).Draw(t, "inserted") {
			p.Inserted = append(p.Inserted, drawMessage(t))
		}
		return p
	case 2:
		return TurnStart{Turn: s.Turns + 1}
	case 3:
		return TurnEnd{Turn: s.Turns, Reason: Reason{Kind: EndError, By: text(t, "by"), Code: text(t, "code"), Message: text(t, "message"), Status: n("status")}}
	case 4:
		return StepStart{Turn: s.Turns, Step: s.Step + 1}
	case 5:
		return StepEnd{Turn: s.Turns, Step: s.Step}
	case 6, 7:
		return UserMessage{Message: drawMessage(t)}
	case 8:
		var p RequestHeader
		p.Reason = text(t, "reason")
		p.Header.System = text(t, "system")
		p.Header.Config = RequestConfig{Provider: text(t, "provider"), Model: text(t, "model"), Params: map[string]json.RawMessage{"k": json.RawMessage(`{"x": 1}`)}}
		p.Header.Tools = []model.Tool{{Name: "bash", Parameters: json.RawMessage(`{ "type" : "object" }`)}}
		return p
	case 9:
		return RequestContext{Provider: text(t, "provider"), ContextWindow: n("window")}
	case 10:
		return RequestSent{
			Turn: n("turn"), Step: n("step"), Attempt: n("attempt"), Encoder: "openai/1", BodySHA256: "ab", PrefixSHA256: text(t, "prefix"), ChainSHA256: text(t, "chain"),
			Messages: n("messages"), Bytes: n("bytes"), Contiguous: rapid.Bool().Draw(t, "contiguous"), DivergesAt: text(t, "diverges"),
		}
	case 11, 12:
		p := AssistantMessage{Turn: n("turn"), Step: n("step"), Message: drawMessage(t), Timing: Timing{TTFTMs: 1, TotalMs: int64(n("total"))}, Stop: text(t, "stop"), Interrupted: rapid.Bool().Draw(t, "interrupted"), Tokens: drawRaw(t)}
		if rapid.Bool().Draw(t, "usage") {
			p.Usage = &model.Usage{InputTokens: int64(n("in")), OutputTokens: 2, CacheReadTokens: int64(n("read")), CacheWriteTokens: 4, ReasoningTokens: 5}
		}
		return p
	case 13:
		return ToolCall{Turn: n("turn"), Step: n("step"), CallID: text(t, "call"), Name: text(t, "name"), Arguments: text(t, "arguments")}
	case 14, 15:
		p := ToolResult{Turn: n("turn"), Step: n("step"), Message: drawMessage(t), Meta: drawRaw(t)}
		if len(s.OpenCalls) > 0 && rapid.Bool().Draw(t, "answers") {
			p.Message.Source.CallID = s.OpenCalls[0].CallID
		}
		if rapid.Bool().Draw(t, "failed") {
			p.Error = &ToolError{Name: text(t, "name"), Code: "X"}
		}
		return p
	case 16:
		return ApprovalAsked{ID: fmt.Sprint(n("id")), Tool: "bash", CallID: text(t, "call"), Detail: drawRaw(t)}
	case 17:
		if len(s.Approvals) == 0 {
			return ApprovalPolicy{Policy: "ask"}
		}
		return ApprovalDecided{ID: s.Approvals[0].ID, Outcome: OutcomeAllowed, Answer: drawRaw(t)}
	case 18:
		return Title{Title: text(t, "title")}
	case 19:
		return EndSeed{}
	case 20:
		return TodoWrite{Items: []TodoItem{{Content: text(t, "item"), Status: "pending"}}}
	case 21:
		return CompactionSummary{CompactionID: "c", Message: drawMessage(t), KeepFrom: s.LastSeq - 3}
	case 22:
		return PresetSelected{AgentPreset: PresetRef{ID: text(t, "preset")}}
	default:
		return &ShellReset{Cause: text(t, "cause")} // a pointer is a payload too
	}
}

// TestFold: a random log folds to the same state event by event as it is appended, and from scratch from its bytes; states stay what they were.
func TestFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Header{ID: "s", CreatedAt: 5, AgentPreset: PresetRef{ID: "minimal"}}
		c := applier{encoder: newEncoder()}
		w := &work{state: NewState(h)}
		type kept struct {
			state  State
			before string
		}
		var states []kept
		for i := range rapid.IntRange(1, 20).Draw(t, "events") {
			p := drawPayload(t, w.state)
			if err := c.appendOne(w, int64(i), Draft{Payload: p}); err != nil {
				t.Fatalf("append %s: %v", p.EventType(), err)
			}
			sealed := w.state
			sealed.seal()
			k := kept{state: sealed}
			if i%8 == 0 {
				k.before = describe(t, sealed)
			}
			states = append(states, k)
		}
		scratch := NewState(h)
		for i, e := range w.encoded {
			next, event, err := Fold(scratch, e.Data)
			if err != nil {
				t.Fatal(err)
			}
			if string(EncodeEvent(event)) != string(e.Data) {
				t.Fatalf("event %d isn't canonical: %s", i, e.Data)
			}
			if !json.Valid(e.Data) || strings.ContainsAny(string(e.Data), "\n\r") {
				t.Fatalf("event %d isn't one line of JSON: %s", i, e.Data)
			}
			scratch = next
			if i%4 != 0 && i != len(w.encoded)-1 {
				continue
			}
			if diff := cmp.Diff(states[i].state, scratch, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("after event %d (%s) (-appended +from scratch):\n%s", i, event.Type, diff)
			}
		}
		for i, k := range states {
			if k.before != "" && describe(t, k.state) != k.before {
				t.Fatalf("the state after event %d was changed by a later one", i)
			}
		}
	})
}

func describe(t *rapid.T, s State) string {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDecodeFast: where the fast decoder answers, encoding/json gives the same.
func TestDecodeFast(t *testing.T) {
	fast := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPayload(t, State{NextTurn: make([]model.Message, 2), OpenCalls: []ToolCall{{CallID: "c"}}})
		e := Event{Type: p.EventType()}
		if _, err := newEncoder().encode(&e, p); err != nil {
			t.Fatal(err)
		}
		if compareDecoders(t, e.Type, e.Data) {
			fast++
		}
	})
	if fast < 20 {
		t.Errorf("only %d payloads took the fast path", fast)
	}
}

func compareDecoders(t interface {
	Helper()
	Fatalf(string, ...any)
}, eventType string, data []byte) bool {
	t.Helper()
	got, ok := decodeFast(eventType, data)
	if !ok {
		return false
	}
	if !json.Valid(data) {
		t.Fatalf("the fast decoder read %q, which isn't JSON", data)
	}
	want, err := decoderOf(eventType)(data)
	if err != nil {
		t.Fatalf("encoding/json refuses %s %s: %v", eventType, data, err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s %s (-encoding/json +fast):\n%s", eventType, data, diff)
	}
	return true
}

// An escaped backslash comes first: what follows it isn't an escape.
var withoutHTMLEscapes = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// TestEncodeFast: the fast encoder writes what encoding/json writes, but for the HTML escapes of nested blocks.
func TestEncodeFast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPayload(t, State{NextTurn: make([]model.Message, 2), OpenCalls: []ToolCall{{CallID: "c"}}})
		var fast, slow bytes.Buffer
		if !encodeFast(&fast, p) {
			return
		}
		enc := json.NewEncoder(&slow)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
		want := withoutHTMLEscapes.Replace(strings.TrimSuffix(slow.String(), "\n"))
		if got := fast.String(); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// TestPlain compares with a look at each byte.
func TestPlain(t *testing.T) {
	for special := range 256 {
		for at := range 24 {
			for _, other := range []byte{' ', '!', '#', '[', ']', '~', 0x7f} {
				b := bytes.Repeat([]byte{other}, 24)
				b[at] = byte(special)
				want := 24
				if special < ' ' || special >= 0x80 || special == '"' || special == '\\' {
					want = at
				}
				if got := plain(b); got != want || plain(string(b)) != want {
					t.Fatalf("%q: %d, want %d", b, got, want)
				}
				if got := plain(b[:23]); got != min(want, 16) && got != want {
					t.Fatalf("%q: %d, want %d", b[:23], got, want)
				}
			}
		}
	}
}

func FuzzDecodeFast(f *testing.F) {
	for _, seed := range []string{
		`{"turn":1,"step":2,"callId":"c","name":"n","arguments":"{\"a\":\"\\u00e9\"}"}`,
		`{"turn":1,"step":2,"message":{"id":"i","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"\ud83d\ude00"}],"isError":true}],"source":{"kind":"tool","callId":"c"}},"error":{"name":"n","code":"c"},"meta":{"a":[1,2]}}`,
		`{"id":"i","role":"user","content":[],"source":{"kind":"user"}}`,
		`{"target":"next-turn","start":0,"inserted":[]}`, `{"turn":-0}`, `{"turn":1,"turn":2}`, `{"turn":1,}`, `{"Turn":1}`,
		`{"turn":1,"reason":{"kind":"error","by":"user","code":"C","message":"m","status":500}}`,
		`{"turn":1,"step":2,"attempt":1,"encoder":"e","bodySha256":"a","prefixSha256":"b","chainSha256":"c","messages":2,"bytes":3,"contiguous":true,"divergesAt":"system"}`,
	} {
		for _, kind := range []string{"tool/call", "tool/result", "user/message", "agent/inbox/spliced", "turn/start", "assistant/message", "turn/end", "request/sent"} {
			f.Add(kind, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) { compareDecoders(t, kind, data) })
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"seq":0,"time":1,"type":"turn/start","data":{"turn":1},"prev":""}`))
	f.Add(EncodeEvent(Event{Seq: 7, Time: -5, Type: "x \"y", Data: json.RawMessage(`{"a":"<&>"}`), Prev: strings.Repeat("0a", 32), Ignorable: true}))
	f.Add([]byte(`{"seq":1,"time":1,"type":"t","data":"\",\"prev\":\"","prev":""}`))
	f.Add([]byte(` {"type":"t","data":null,"seq":3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEvent(b)
		if err != nil {
			return
		}
		var in struct {
			Seq       int64
			Time      int64
			Type      string
			Data      json.RawMessage
			Prev      string
			Ignorable bool
		}
		if err := json.Unmarshal(b, &in); err != nil {
			t.Fatalf("ParseEvent reads %q, encoding/json says %v", b, err)
		}
		if in.Seq != e.Seq || in.Time != e.Time || in.Type != e.Type || in.Prev != e.Prev || in.Ignorable != e.Ignorable {
			t.Fatalf("%q: %+v, encoding/json says %+v", b, e, in)
		}
		again, err := ParseEvent(EncodeEvent(e))
		if err != nil || cmp.Diff(e, again) != "" {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

func TestHash(t *testing.T) {
	first := EncodeEvent(Event{Time: 1_700_000_000_000, Type: "turn/start", Data: json.RawMessage(`{"turn":1}`)})
	if got := string(first); got != `{"seq":0,"time":1700000000000,"type":"turn/start","data":{"turn":1},"prev":""}` {
		t.Error(got)
	}
	// printf '%s' '...' | sha256sum
	if got := HashEvent(first); got != "bd45d7b058c6babb93d5224dd72603b3e39cc2564a0e890e502d95f60430f559" {
		t.Error(got)
	}
}

func TestFoldRefuses(t *testing.T) {
	event := func(seq int64, kind, data, prev string, skip bool) []byte {
		return EncodeEvent(Event{Seq: seq, Type: kind, Data: json.RawMessage(data), Prev: prev, Ignorable: skip})
	}
	for name, tc := range map[string]struct {
		encoded []byte
		reason  string
	}{
		"a gap":                {event(1, "turn/start", `{"turn":1}`, "", false), "event 1 stands where event 0 belongs"},
		"another chain":        {event(0, "turn/start", `{"turn":1}`, strings.Repeat("a", 64), false), "hash"},
		"an unknown type":      {event(0, "x/y", `{}`, "", false), `"x/y"`},
		"not JSON":             {[]byte(`{"seq":0,`), "decode event"},
		"data that isn't JSON": {event(0, "x/y", `{`, "", true), "isn't JSON"},
		"a bad payload":        {event(0, "turn/start", `{"turn":"x"}`, "", false), "turn/start"},
		"an unknown queue":     {event(0, "agent/inbox/spliced", `{"target":"x","start":0,"inserted":[]}`, "", false), "queue"},
		"too many removed":     {event(0, "agent/inbox/spliced", `{"target":"next-turn","start":0,"removedCount":1,"inserted":[]}`, "", false), "queue of 0"},
		"an unknown block":     {event(0, "user/message", `{"id":"","role":"user","content":[{"type":"video"}],"source":{"kind":"user"}}`, "", false), "video"},
	} {
		s := NewState(Header{ID: "s"})
		got, _, err := Fold(s, tc.encoded)
		var damage *DamageError
		if !errors.As(err, &damage) || !strings.Contains(err.Error(), tc.reason) || !errors.Is(err, ErrReadOnly) || got.LastSeq != -1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, _, err := Fold(NewState(Header{}), event(0, "x/y", `{"any":1}`, "", true)); err != nil || got.LastSeq != 0 {
		t.Error("an unknown type that may be skipped:", err)
	}
}

func TestFoldText(t *testing.T) {
	for _, pair := range [][2]string{{"Straße", "STRAẞE"}, {"ΣΊΣΥΦΟΣ", "σίσυφος"}, {"K", "\u212a"}, {"ДОМ", "дом"}, {"漢字", "漢字"}} {
		if FoldText(pair[0]) != FoldText(pair[1]) {
			t.Errorf("%q and %q differ: %q, %q", pair[0], pair[1], FoldText(pair[0]), FoldText(pair[1]))
		}
	}
	if got := FoldText(strings.Repeat("é", 64<<10)); len(got) > 64<<10 {
		t.Error(len(got))
	}
}
