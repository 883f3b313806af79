package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
)

func collect(into map[int]string) func(model.Delta) {
	return func(d model.Delta) { into[d.Block] += d.Text }
}

// canned answers every request with the same bytes, so that the adapter alone is measured.
type canned []byte

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(c)),
	}, nil
}

const benchChunks = 10_000

func benchStream(b *testing.B, chunk func(i int) string) {
	var raw strings.Builder
	for i := range benchChunks {
		fmt.Fprintf(&raw, "data: %s\n\n", chunk(i))
	}
	raw.WriteString("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	a := New(Config{Model: "m", BaseURL: func() string { return "http://127.0.0.1:1" }, Transport: canned(raw.String())})
	p, err := a.Prepare(model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: []model.Block{model.Text("hi")}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, err := a.Stream(context.Background(), p, func(model.Delta) { n++ }); err != nil {
			b.Fatal(err)
		}
	}
	if n != b.N*benchChunks {
		b.Fatalf("%d pieces", n)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/chunk")
}

func BenchmarkStreamText(b *testing.B) {
	benchStream(b, func(i int) string { return fmt.Sprintf(shapes[0], quoted(fmt.Sprintf(" w%d", i%100))) })
}

func BenchmarkStreamEscapes(b *testing.B) {
	benchStream(b, func(i int) string { return fmt.Sprintf(shapes[0], `"\n\u00e9"`) })
}

func BenchmarkStreamToolArguments(b *testing.B) {
	benchStream(b, func(i int) string { return fmt.Sprintf(shapes[5], `"abc"`) })
}

// Every chunk carries something new around its text, so the full decoder does the work.
func BenchmarkStreamUnlearnable(b *testing.B) {
	benchStream(b, func(i int) string {
		return fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","created":%d,"model":"m","choices":[{"index":0,"delta":{"content":"abc"},"logprobs":null,"finish_reason":null}]}`, i)
	})
}

func benchHistory(steps int) model.Request {
	r := model.Request{System: "You are a helpful software engineer assistant.", Tools: []model.Tool{{Name: "bash", Parameters: json.RawMessage(`{"type":"object"}`)}}}
	out := strings.Repeat("a line of output with \"quotes\"\n", 66) // 2 KiB
	for i := range steps {
		id := fmt.Sprint("call_", i)
		r.Messages = append(r.Messages,
			model.Message{Role: model.RoleAssistant, Content: []model.Block{model.Text("I look at it."), {Type: model.BlockToolCall, ID: id, Name: "bash", Arguments: `{"command":"ls -la"}`}}},
			model.Message{Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: id}, Content: []model.Block{{Type: model.BlockToolResult, ToolCallID: id, Content: []model.Block{model.Text(out)}}}})
	}
	return r
}

func BenchmarkPrepare(b *testing.B) {
	for _, steps := range []int{1, 50, 500} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			r := benchHistory(steps)
			a := New(Config{Model: "m", BaseURL: func() string { return "http://127.0.0.1:1" }})
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				p, err := a.Prepare(r)
				if err != nil {
					b.Fatal(err)
				}
				n = len(p.Body)
			}
			b.SetBytes(int64(n))
		})
	}
}

// BenchmarkPrepareNext is a step's request after the one before it, hashes included.
func BenchmarkPrepareNext(b *testing.B) {
	for _, steps := range []int{1, 50, 500, 5000} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			r := benchHistory(steps)
			a := New(Config{Model: "m", BaseURL: func() string { return "http://127.0.0.1:1" }})
			first, err := a.Prepare(model.Request{System: r.System, Tools: r.Tools, Messages: r.Messages[:len(r.Messages)-2]})
			if err != nil {
				b.Fatal(err)
			}
			r.Earlier = first.Kept()
			b.ReportAllocs()
			for b.Loop() {
				p, err := a.Prepare(r)
				if err != nil {
					b.Fatal(err)
				}
				_, _, _ = p.BodySHA256(), p.PrefixSHA256(len(first.Messages)), p.PrefixSHA256(len(p.Messages))
			}
		})
	}
}

func BenchmarkHashes(b *testing.B) {
	a := New(Config{Model: "m", BaseURL: func() string { return "http://127.0.0.1:1" }})
	p, err := a.Prepare(benchHistory(50))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(2 * len(p.Body)))
	for b.Loop() {
		_, _ = p.BodySHA256(), p.PrefixSHA256(len(p.Messages))
	}
}
