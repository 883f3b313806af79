package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/anthropic"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/script"
)

func adapters() map[string]func(thinking bool) model.Adapter {
	url := func() string { return "http://127.0.0.1:1" }
	return map[string]func(bool) model.Adapter{
		"openai": func(thinking bool) model.Adapter {
			return openai.New(openai.Config{Model: "m", BaseURL: url, Images: true, Thinking: thinking})
		},
		"anthropic": func(thinking bool) model.Adapter {
			return anthropic.New(anthropic.Config{Model: "m", BaseURL: url, Images: thinking})
		},
		"script": func(bool) model.Adapter { return script.New(script.Sequence()) },
	}
}

// grow adds a message of any kind, also of kinds that no sound history has: results that are late, twice there, or of no call, and broken calls.
func grow(rnd *rand.Rand, history []model.Message) []model.Message {
	n := len(history)
	m := model.Message{ID: fmt.Sprint("m", n, rnd.IntN(3)), Role: model.RoleUser, Source: model.Source{Kind: model.SourceUser}}
	id := func() string { return fmt.Sprint("c", rnd.IntN(4+n/4)) }
	switch rnd.IntN(8) {
	case 0, 1:
		m.Content = []model.Block{model.Text("say " + fmt.Sprint(rnd.IntN(5)))}
		if rnd.IntN(10) == 0 {
			m.Content = append(m.Content, model.Block{Type: model.BlockImage, Mime: "image/png", Data: []byte{1, 2, byte(rnd.IntN(5))}})
		}
	case 2, 3, 4:
		m.Role, m.Source = model.RoleAssistant, model.Source{Kind: model.SourceModel}
		if rnd.IntN(2) == 0 {
			m.Content = append(m.Content, model.Block{Type: model.BlockReasoning, Text: "hm"})
		}
		if rnd.IntN(3) > 0 {
			m.Content = append(m.Content, model.Text("I see"))
		}
		for range rnd.IntN(3) {
			args := []string{`{"a":1}`, `{"a":`, ""}[rnd.IntN(3)]
			m.Content = append(m.Content, model.Block{Type: model.BlockToolCall, ID: id(), Name: "bash", Arguments: args})
		}
	default:
		call := id()
		for i := len(history) - 1; i >= 0 && rnd.IntN(4) > 0; i-- {
			if calls := history[i].ToolCalls(); len(calls) > 0 {
				call = calls[rnd.IntN(len(calls))].ID
				break
			}
		}
		m.Source = model.Source{Kind: model.SourceTool, CallID: call}
		m.Content = []model.Block{{Type: model.BlockToolResult, ToolCallID: call, Content: []model.Block{model.Text("out " + fmt.Sprint(rnd.IntN(5)))}}}
	}
	return append(slices.Clip(history), m)
}

func same(t *testing.T, got, want *model.Prepared) {
	t.Helper()
	if !bytes.Equal(got.Body, want.Body) {
		t.Fatalf("body:\n got %s\nwant %s", got.Body, want.Body)
	}
	if !bytes.Equal(got.System, want.System) || !bytes.Equal(got.Tools, want.Tools) || !slices.EqualFunc(got.Messages, want.Messages, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		t.Fatal("the parts differ")
	}
	if got.BodySHA256() != want.BodySHA256() {
		t.Fatal("the body's hash differs")
	}
	for n := range len(want.Messages) + 1 {
		if got.PrefixSHA256(n) != want.PrefixSHA256(n) {
			t.Fatalf("the hash of %d messages differs", n)
		}
	}
}

// TestEarlierChangesNoByte: a request that goes on from an earlier one is the request that is made from nothing, whatever became of the history meanwhile.
func TestEarlierChangesNoByte(t *testing.T) {
	for name, make := range adapters() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				var history []model.Message
				var earlier *model.Prepared
				r := model.Request{System: "be brief", Tools: []model.Tool{{Name: "bash", Description: "run"}}}
				for range 40 {
					for range rnd.IntN(4) {
						history = grow(rnd, history)
					}
					switch rnd.IntN(25) {
					case 0: // what was said last is taken back
						history = slices.Clip(history[:len(history)-min(len(history), rnd.IntN(4))])
					case 1:
						r.System = strings.Repeat("x", rnd.IntN(3))
					case 2:
						r.RepairReasoning = !r.RepairReasoning
					case 4:
						r.Tools = []model.Tool{{Name: "bash", Description: "run", Parameters: json.RawMessage(fmt.Sprintf(`{"type": "object", "n": %d}`, rnd.IntN(2)))}}
					case 5:
						r.Tools = nil
					case 3: // read again from a log: equal, not shared
						for i := range history {
							history[i].Content = slices.Clone(history[i].Content)
						}
					}
					adapter := make(rnd.IntN(20) > 0)
					r.Messages = history
					r.Earlier = nil
					want, err := adapter.Prepare(r)
					if err != nil {
						t.Fatal(err)
					}
					r.Earlier = earlier
					got, err := adapter.Prepare(r)
					if err != nil {
						t.Fatal(err)
					}
					same(t, got, want)
					if rnd.IntN(3) > 0 { // else it never left, and the next one goes on from the one before
						earlier = got.Kept()
					}
				}
			}
		})
	}
}

// TestLongHistoryIsEncodedOnce: what a step's request costs depends on what is new.
func TestLongHistoryIsEncodedOnce(t *testing.T) {
	for name, make := range adapters() {
		t.Run(name, func(t *testing.T) {
			cost := func(steps int) float64 {
				var r model.Request
				for i := range steps {
					id := fmt.Sprint("c", i)
					r.Messages = append(r.Messages,
						model.Message{Role: model.RoleAssistant, Content: []model.Block{{Type: model.BlockToolCall, ID: id, Name: "bash", Arguments: `{"a":1}`}}},
						model.Message{Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: id}, Content: []model.Block{
							{Type: model.BlockToolResult, ToolCallID: id, Content: []model.Block{model.Text("out")}}}})
				}
				adapter := make(false)
				first, err := adapter.Prepare(r)
				if err != nil {
					t.Fatal(err)
				}
				r.Earlier = first.Kept()
				r.Messages = append(slices.Clip(r.Messages), model.Message{Role: model.RoleUser, Content: []model.Block{model.Text("go on")}})
				return testing.AllocsPerRun(10, func() {
					if _, err := adapter.Prepare(r); err != nil {
						t.Fatal(err)
					}
				})
			}
			if short, long := cost(2), cost(400); long > short+10 {
				t.Errorf("%v allocations after 2 steps, %v after 400", short, long)
			}
		})
	}
}
