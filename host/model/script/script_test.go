package script_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	bash   = model.Tool{Name: "bash", Parameters: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"},"restart":{"type":"boolean"}}}`)}
	editor = model.Tool{Name: "str_replace_editor", Parameters: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"},"path":{"type":"string"},"file_text":{"type":"string"}}}`)}
	reads  = model.Tool{Name: "read_file", Parameters: json.RawMessage(`{"type":"object","properties":{"file_path":{"type":"string"}}}`)}
	writes = model.Tool{Name: "write_file", Parameters: json.RawMessage(`{"type":"object","properties":{"file_path":{"type":"string"},"content":{"type":"string"}}}`)}
)

var standard = []model.Tool{
	{Name: "create", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{},"file_text":{}}}`)},
	{Name: "find_files", Parameters: json.RawMessage(`{"type":"object","properties":{"files":{},"path":{}}}`)},
	{Name: "insert", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{},"insert_line":{},"new_str":{}}}`)},
	{Name: "view", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{},"view_range":{}}}`)},
}

func user(s string) model.Message {
	return model.Message{Role: model.RoleUser, Content: []model.Block{model.Text(s)}, Source: model.Source{Kind: model.SourceUser}}
}

func toolResult(id, s string, failed bool) model.Message {
	return model.Message{Role: model.RoleUser, Source: model.Source{Kind: model.SourceTool, CallID: id},
		Content: []model.Block{{Type: model.BlockToolResult, ToolCallID: id, Content: []model.Block{model.Text(s)}, IsError: failed}}}
}

func stream(ctx context.Context, t testing.TB, a model.Adapter, r model.Request, emit func(model.Delta)) (*model.Response, error) {
	t.Helper()
	p, err := a.Prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(p.Body) || len(p.Messages) != len(r.Messages) {
		t.Fatalf("prepared %s", p.Body)
	}
	return a.Stream(ctx, p, emit)
}

func code(t *testing.T, err error) model.Code {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T %v, want a *model.Error", err, err)
	}
	return e.Code
}

// drive runs a small agent: it asks, runs the calls with run, and stops when an answer makes none. It returns what happened, a line each.
func drive(t *testing.T, source script.Source, tools []model.Tool, text string, run func(name, args string) (string, bool)) (log []model.Message, lines []string) {
	t.Helper()
	log = []model.Message{user(text)}
	for n := 1; n < 60; n++ {
		resp, err := stream(t.Context(), t, script.New(source), model.Request{Tools: tools, Messages: log, Call: n}, func(model.Delta) {})
		if err != nil {
			lines = append(lines, "error "+string(code(t, err)))
			if _, again := model.RetryDelay(err, 1, 0.5); !again {
				return log, lines
			}
			continue
		}
		log = append(log, model.Message{Role: model.RoleAssistant, Content: resp.Content, Source: model.Source{Kind: model.SourceModel}})
		for _, b := range resp.Content {
			switch b.Type {
			case model.BlockText:
				lines = append(lines, "text "+b.Text)
			case model.BlockReasoning:
				lines = append(lines, "think "+b.Text)
			case model.BlockToolCall:
				lines = append(lines, "call "+b.Name+" "+b.Arguments)
				out, failed := run(b.Name, b.Arguments)
				log = append(log, toolResult(b.ID, out, failed))
			}
		}
		if len(model.Message{Content: resp.Content}.ToolCalls()) == 0 {
			return log, append(lines, "end "+string(resp.Stop))
		}
	}
	t.Fatal("the script never ends:\n" + strings.Join(lines, "\n"))
	return nil, nil
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

func TestDemoInstructions(t *testing.T) {
	fine := func(string, string) (string, bool) { return "ok", false }
	cases := []struct {
		name, text string
		tools      []model.Tool
		run        func(string, string) (string, bool)
		want       []string
	}{
		{"all of them", "say: Hello there\nthink: hm\nrun: echo 'a b' && ls\n\nwrite /tmp/x.txt: some text\nview /tmp/x.txt\nrestart\nsay: bye", []model.Tool{bash, editor}, fine, []string{
			"text Hello there", "think hm", `call bash {"command":"echo 'a b' && ls"}`, `call str_replace_editor {"command":"create","file_text":"some text","path":"/tmp/x.txt"}`,
			`call str_replace_editor {"command":"view","path":"/tmp/x.txt"}`, `call bash {"restart":true}`, "text bye", "end stop"}},
		{"one command", "run: true", []model.Tool{bash}, fine, []string{`call bash {"command":"true"}`, "text Done.", "end stop"}},
		{"a command that fails", "run: false", []model.Tool{bash}, func(string, string) (string, bool) { return "exit 1", true },
			[]string{`call bash {"command":"false"}`, "text The last tool call reported an error; its result says why.", "end stop"}},
		{"other tools", "write /a: b\nview /a", []model.Tool{reads, writes}, fine,
			[]string{`call write_file {"content":"b","file_path":"/a"}`, `call read_file {"file_path":"/a"}`, "text Done.", "end stop"}},
		{"no shell", "run: true", []model.Tool{editor}, fine, []string{"text This agent has no shell that I know how to use, so I leave that out.", "end stop"}},
		{"no editor, then a command", "view /x\nrun: true\nsay: done", []model.Tool{bash}, fine, []string{
			"text This agent has no editor that I know how to use, so I leave that out.", `call bash {"command":"true"}`, "text done", "end stop"}},
		{"slow", "slow: 3", nil, fine, []string{"text 1 2 3 ", "end stop"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, lines := drive(t, script.Demo(script.Options{}), c.tools, c.text, c.run)
			same(t, lines, c.want)
		})
	}
}

// The tour really looks around with the shell and then writes, or the second time views, a file in the directory that the shell named.
func TestDemoTour(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	run := func(name, args string) (string, bool) {
		var a map[string]string
		if err := json.Unmarshal([]byte(args), &a); err != nil {
			t.Fatal(err)
		}
		switch {
		case name == "bash":
			out := dir + "\n.\n..\n"
			for path := range files {
				out += filepath.Base(path) + "\n"
			}
			return out, false
		case a["command"] == "create":
			files[a["path"]] = a["file_text"]
			return "created", false
		}
		return files[a["path"]], files[a["path"]] == ""
	}
	calls := func(lines []string) string {
		var out []string
		for _, l := range lines {
			if rest, is := strings.CutPrefix(l, "call "); is {
				out = append(out, rest)
			}
		}
		return strings.Join(out, "\n")
	}
	tools := []model.Tool{bash, editor}
	_, lines := drive(t, script.Demo(script.Options{}), tools, "Hello!", run)
	file := filepath.Join(dir, "dsh-demo.md")
	if files[file] == "" || !strings.Contains(calls(lines), `"pwd && ls`) || !strings.Contains(lines[len(lines)-2], "Done.") {
		t.Errorf("%s\nfiles: %v", strings.Join(lines, "\n"), files)
	}
	if !strings.Contains(lines[0], "not a language model") {
		t.Errorf("the demo doesn't say what it is: %s", lines[0])
	}
	_, lines = drive(t, script.Demo(script.Options{}), tools, "run it again", run)
	if !strings.Contains(calls(lines), `"command":"view","path":"`+file) {
		t.Errorf("second time: %s", strings.Join(lines, "\n"))
	}
	for name, set := range map[string][]model.Tool{"none": nil, "shell": {bash}, "editor": {editor}, "files": {reads, writes}, "strange": {{Name: "x", Parameters: json.RawMessage(`[]`)}}} {
		_, lines := drive(t, script.Demo(script.Options{}), set, "Hello!", run)
		for _, l := range lines {
			if rest, is := strings.CutPrefix(l, "call "); is {
				called, _, _ := strings.Cut(rest, " ")
				known := false
				for _, tool := range set {
					known = known || tool.Name == called
				}
				if !known {
					t.Errorf("%s: called %s", name, called)
				}
			}
		}
		if last := lines[len(lines)-1]; last != "end stop" {
			t.Errorf("%s: %s", name, last)
		}
	}
	// Without a shell the workspace is the one that the host named, and the file tools are used.
	source := func(r model.Request) (script.Turn, error) {
		r.System = "You work in the workspace `/work/space`."
		return script.Demo(script.Options{})(r)
	}
	for listing, want := range map[string]string{
		"nothing":                 `create {"file_text"`,
		"/work/space/dsh-demo.md": `view {"path":"/work/space/dsh-demo.md"}`,
	} {
		_, lines = drive(t, source, standard, "Hello!", func(string, string) (string, bool) { return listing, false })
		if got := calls(lines); !strings.Contains(got, `find_files {"files":"*.md"}`) || !strings.Contains(got, want) || !strings.Contains(got, "/work/space/dsh-demo.md") {
			t.Errorf("%s: %s", listing, strings.Join(lines, "\n"))
		}
	}
	// A shell that fails doesn't stop the demo.
	_, lines = drive(t, script.Demo(script.Options{}), tools, "Hello!", func(string, string) (string, bool) { return "no", true })
	if lines[len(lines)-1] != "end stop" {
		t.Error(lines)
	}
}

func TestDemoStreamsInSmallPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var pieces int
		longest := 0
		a, err := script.Factory(script.Options{Pause: script.DefaultPause})(model.Binding{Model: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream(t.Context(), t, a, model.Request{Messages: []model.Message{user("Hello!")}}, func(d model.Delta) {
			pieces++
			longest = max(longest, len(d.Text))
		})
		if err != nil || pieces < 20 || longest > 40 || time.Since(began) != time.Duration(pieces-1)*script.DefaultPause {
			t.Errorf("%d pieces of at most %d bytes in %v, %v", pieces, longest, time.Since(began), err)
		}
	})
}

func TestSlowIsCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
		defer cancel()
		began := time.Now()
		resp, err := stream(ctx, t, script.New(script.Demo(script.Options{})), model.Request{Messages: []model.Message{user("slow: 1000")}}, func(model.Delta) {})
		if code(t, err) != model.CodeAborted || model.JoinText(resp.Content) != "1 2 3 4 5 " || time.Since(began) != 90*time.Millisecond {
			t.Errorf("%v, %v after %v", resp, err, time.Since(began))
		}
	})
}

func TestSteps(t *testing.T) {
	cases := []struct {
		name    string
		turn    script.Turn
		content []model.Block
		stop    model.StopReason
		code    model.Code
	}{
		{"text and calls", script.Turn{script.Reasoning("r"), script.Text("a"), script.Text("b"), script.Call("c", "x", "{}"), script.Call("c", "x", "{}"), script.Text("d")}, []model.Block{
			{Type: model.BlockReasoning, Text: "r"}, model.Text("ab"), {Type: model.BlockToolCall, ID: "c", Name: "x", Arguments: "{}"},
			{Type: model.BlockToolCall, ID: "c-2", Name: "x", Arguments: "{}"}, model.Text("d")}, model.StopTools, ""},
		{"stop", script.Turn{script.Text("a"), script.Stop(model.StopMaxTokens)}, []model.Block{model.Text("a")}, model.StopMaxTokens, ""},
		{"empty", script.Turn{}, nil, "", model.CodeEmptyResponse},
		{"fail", script.Turn{script.Text("a"), script.Fail(&model.Error{Code: model.CodeServer})}, []model.Block{model.Text("a")}, "", model.CodeServer},
		{"cut", script.Turn{script.Text("a"), script.Cut()}, []model.Block{model.Text("a")}, "", model.CodeStreamClosed},
		{"reset", script.Turn{script.Reset()}, nil, "", model.CodeTransport},
		{"stall", script.Turn{script.Text("a"), script.Stall()}, []model.Block{model.Text("a")}, "", model.CodeAborted},
		{"wait", nil, nil, "", model.CodeAborted},
		{"pause", script.Turn{script.Pause(time.Hour)}, nil, "", model.CodeAborted},
		{"repeat", script.Turn{script.Repeat(3, "x")}, []model.Block{model.Text("xxx")}, model.StopEnd, ""},
		{"raw", script.Turn{script.Raw("x")}, nil, "", model.CodeInvalidRequest},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if c.turn == nil {
					c.turn = script.Turn{script.Wait(make(chan struct{}))} // a channel of this bubble
				}
				resp, err := stream(ctx, t, script.New(script.Sequence(c.turn)), model.Request{}, func(model.Delta) {})
				if err != nil {
					same(t, code(t, err), c.code)
				} else {
					same(t, resp.Stop, c.stop)
				}
				if resp != nil {
					same(t, resp.Content, c.content)
				} else if c.content != nil {
					t.Errorf("nothing arrived: %v", err)
				}
			})
		})
	}
}

func TestDoAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, gone := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			<-here
			close(gone)
		})
		turn := script.Turn{script.Do(func() { close(here) }), script.Wait(gone), script.Text("after")}
		resp, err := stream(t.Context(), t, script.New(script.Sequence(turn)), model.Request{}, func(model.Delta) {})
		if err != nil || model.JoinText(resp.Content) != "after" {
			t.Error(resp, err)
		}
	})
}

func TestSources(t *testing.T) {
	one, two := script.Turn{script.Text("1")}, script.Turn{script.Text("2")}
	ask := func(s script.Source, messages ...model.Message) string {
		resp, err := stream(t.Context(), t, script.New(s), model.Request{Messages: messages}, func(model.Delta) {})
		if err != nil {
			return string(code(t, err))
		}
		return model.JoinText(resp.Content)
	}
	sequence := script.Sequence(one, two)
	same(t, []string{ask(sequence), ask(sequence), ask(sequence)}, []string{"1", "2", "INVALID_REQUEST"})
	assistant := model.Message{Role: model.RoleAssistant}
	history := script.ByHistory(one, two)
	same(t, []string{ask(history), ask(history, assistant), ask(history, assistant, assistant), ask(history)}, []string{"1", "2", "2", "1"})
	if _, err := script.Factory(script.Options{})(model.Binding{Model: "gpt"}); err == nil {
		t.Error("an unknown script was made")
	}
}

// Every message goes through every trouble and still ends.
func TestChaos(t *testing.T) {
	for _, tools := range [][]model.Tool{{bash, editor}, {editor}, nil} {
		synctest.Test(t, func(t *testing.T) {
			log, lines := drive(t, script.Chaos(script.Options{}), tools, "go", func(string, string) (string, bool) { return "ok", false })
			all := strings.Join(lines, "\n")
			if tools != nil {
				for _, want := range []string{`{"command": "echo one`, "no_such_tool", "error STREAM_CLOSED", "error TIMEOUT", "error SERVER"} {
					if strings.Count(all, want) != 1 {
						t.Errorf("%q isn't there once in\n%s", want, all)
					}
				}
			}
			if lines[len(lines)-1] != "end max-tokens" {
				t.Error(all)
			}
			ids := map[string]bool{}
			for _, m := range log {
				for _, c := range m.ToolCalls() {
					ids[c.ID] = true
				}
			}
			if tools != nil && len(ids) != 6 {
				t.Errorf("call ids %v", ids)
			}
		})
	}
}

func post(t *testing.T, url, body string) (*http.Response, string, error) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp, string(raw), err
}

func TestHandler(t *testing.T) {
	h := script.NewHandler(script.Sequence(
		script.Turn{script.Reasoning("r"), script.Text("a\"b"), script.Call("", "bash", `{"command":"ls"}`), script.Usage(model.Usage{InputTokens: 3, OutputTokens: 2, CacheReadTokens: 1})},
		script.Turn{script.Fail(&model.Error{Code: model.CodeRateLimit, Message: "slow", RetryAfter: 2 * time.Second})},
		script.Turn{script.Text("a"), script.Fail(&model.Error{Code: model.CodeServer, Status: 529, Message: "busy"})},
		script.Turn{script.Text("half"), script.Cut()},
		script.Turn{script.Reset()},
		script.Turn{script.Head(200, http.Header{"Content-Type": {"text/html"}}), script.Raw("<html>")},
		script.Turn{script.Raw(": hi\n\n"), script.Raw("data: [DONE]\n\n")},
		script.Turn{script.Repeat(1000, "x"), script.Stop(model.StopMaxTokens)},
	))
	srv := httptest.NewServer(h)
	defer srv.Close()
	url := srv.URL + "/v1/chat/completions?rollout=7"
	const body = `{"model":"m",  "messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}]}`
	_, got, err := post(t, url, body)
	if err != nil {
		t.Fatal(err)
	}
	head := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[`
	part := func(delta string) string {
		return head + `{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":null}]}` + "\n\n"
	}
	same(t, got, part(`{"role":"assistant","content":""}`)+part(`{"reasoning_content":"r"}`)+part(`{"content":"a\"b"}`)+
		part(`{"tool_calls":[{"index":0,"id":"call_1_0","type":"function","function":{"name":"bash","arguments":""}}]}`)+
		part(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\":\"ls\"}"}}]}`)+
		head+`{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}`+"\n\n"+
		head+`],"usage":{"prompt_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0}}}`+"\n\ndata: [DONE]\n\n")
	resp, got, err := post(t, url, body)
	if err != nil || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "2" || !strings.Contains(got, `"slow"`) {
		t.Errorf("%v %s %v", resp, got, err)
	}
	if _, got, _ = post(t, url, body); !strings.Contains(got, `{"error":{"message":"busy","type":"SERVER","code":529}}`) {
		t.Error(got)
	}
	if _, got, err = post(t, url, body); err != nil || strings.Contains(got, `"stop"`) || strings.Contains(got, "DONE") {
		t.Error(got, err)
	}
	if _, _, err = post(t, url, body); err == nil {
		t.Error("no reset")
	}
	if resp, got, _ = post(t, url, body); got != "<html>" || resp.Header.Get("Content-Type") != "text/html" {
		t.Error(got)
	}
	if _, got, _ = post(t, url, body); got != ": hi\n\ndata: [DONE]\n\n" {
		t.Error(got)
	}
	if _, got, _ = post(t, url, body); strings.Count(got, `"content":"x"`) != 1000 || !strings.Contains(got, `"length"`) {
		t.Errorf("%d bytes", len(got))
	}
	if resp, _, _ = post(t, url, body); resp.StatusCode != 400 {
		t.Error("an exhausted script answers", resp.StatusCode)
	}
	if resp, _, _ = post(t, srv.URL+"/v1/models", body); resp.StatusCode != 404 {
		t.Error("another path answers", resp.StatusCode)
	}
	first := h.Requests()[0]
	if string(first.Body) != body || first.Path != "/v1/chat/completions" || first.Query != "rollout=7" || len(h.Requests()) != 10 {
		t.Errorf("recorded %+v", first)
	}
}

// The demo serves over HTTP as well: the handler reads the history back.
func TestHandlerReadsTheHistory(t *testing.T) {
	srv := httptest.NewServer(script.NewHandler(script.Demo(script.Options{})))
	defer srv.Close()
	tools := fmt.Sprintf(`[{"type":"function","function":{"name":"bash","description":"","parameters":%s}}]`, bash.Parameters)
	messages := `{"role":"user","content":[{"type":"text","text":"run: one\nrun: two"}]}`
	ask := func() string {
		_, got, err := post(t, srv.URL+"/chat/completions", `{"model":"m","tools":`+tools+`,"messages":[`+messages+`]}`)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := ask(); !strings.Contains(got, `\"one\"`) {
		t.Error(got)
	}
	messages += `,{"role":"assistant","content":"","reasoning_content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"bash","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}`
	if got := ask(); !strings.Contains(got, `\"two\"`) {
		t.Error(got)
	}
}

func TestHandlerStallEndsWithItsClient(t *testing.T) {
	here := make(chan struct{})
	h := script.NewHandler(script.Sequence(script.Turn{script.Text("a"), script.Do(func() { close(here) }), script.Stall()}))
	srv := httptest.NewServer(h)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/chat/completions", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Fatal(line, err)
	}
	<-here
	cancel()
	_ = resp.Body.Close()
	srv.Close() // waits for the handler
}

func BenchmarkModel(b *testing.B) {
	a := script.New(script.ByHistory(script.Turn{script.Repeat(10_000, " token")}))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stream(context.Background(), b, a, model.Request{}, func(model.Delta) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/token")
}
