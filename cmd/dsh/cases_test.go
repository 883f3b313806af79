//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
)

func say(text string) script.Source { return script.ByHistory(script.Turn{script.Text(text)}) }

func bashCall(id, command string) script.Step {
	return script.CallJSON(id, "bash", map[string]string{"command": command})
}

func TestWire(t *testing.T) {
	t.Run("ids keep their type", func(t *testing.T) {
		c := newRig(t, say("hi")).start()
		for _, id := range []string{`7`, `"a"`, `1.50`, `null`, `{"x": [1]}`} {
			c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"nope"}` + "\n")
			f := c.until("answer", func(frame) bool { return true })
			if got := strings.TrimPrefix(f.raw, `{"jsonrpc":"2.0","id":`); !strings.HasPrefix(got, strings.ReplaceAll(id, " ", "")+",") {
				t.Errorf("id %s: %s", id, f.raw)
			}
			if f.Error == nil || f.Error.Code != -32601 {
				t.Errorf("unknown method: %s", f.raw)
			}
		}
	})
	t.Run("what is no request is skipped", func(t *testing.T) {
		r := newRig(t, say("hi"))
		c := r.start()
		c.write("garbage\n[]\n\"x\"\n{}\n\n  \n{\"id\":1}\n{\"id\":2,\"method\":3}\n[1\n{\"method\":\"session/prompt\"}\n" + "\xff\xfe\n")
		c.initialize()
		if len(c.seen) != 1 {
			t.Errorf("%d frames, want 1: %s", len(c.seen), c.tail())
		}
		_ = c.in.Close()
		if code := c.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("a last line without its end is not processed", func(t *testing.T) {
		c := newRig(t, say("hi")).start()
		c.initialize()
		c.write(`{"id":9,"method":"session/list"}`)
		_ = c.in.Close()
		c.wait()
		for f := range c.frames {
			t.Errorf("frame %s", f.raw)
		}
	})
	t.Run("a block of 5 MiB", func(t *testing.T) {
		r := newRig(t, say("read"))
		c := r.start()
		c.initialize()
		c.turn("big", strings.Repeat("x", 5<<20))
		if n := len(r.Requests()[0].Body); n < 5<<20 {
			t.Errorf("the model got %d bytes", n)
		}
	})
	t.Run("two requests in one write", func(t *testing.T) {
		c := newRig(t, say("hi")).start()
		c.write(`{"id":1,"method":"nope"}` + "\n" + `{"id":2,"method":"nope"}` + "\n")
		c.reply(1)
		c.reply(2)
	})
	t.Run("bad params", func(t *testing.T) {
		r := newRig(t, say("hi"))
		c := r.start()
		c.initialize()
		for i, params := range []any{
			[]any{1}, "x", nil, map[string]any{}, map[string]any{"sessionId": ""}, map[string]any{"sessionId": 5, "contentBlocks": []any{}},
			map[string]any{"sessionId": "s"}, map[string]any{"sessionId": "s", "contentBlocks": []any{}},
			map[string]any{"sessionId": "s", "contentBlocks": []any{map[string]any{"type": "video"}}},
			map[string]any{"sessionId": "s", "contentBlocks": []any{map[string]any{"type": "image", "data": "%%%", "mimeType": "image/png"}}},
			map[string]any{"sessionId": strings.Repeat("x", 1025), "contentBlocks": []any{map[string]any{"type": "text", "text": "x"}}},
		} {
			if code, message := c.refused(i, "session/prompt", params); code != -32602 {
				t.Errorf("%v: %d %s", params, code, message)
			}
		}
		c.turn("s", "still here")
	})
	t.Run("initialize", func(t *testing.T) {
		r := newRig(t, say("hi"))
		c := r.start()
		if code, message := c.refused(1, "session/prompt", prompt("s", "x")); code != -32603 || !strings.Contains(message, "initialize") {
			t.Errorf("before initialize: %d %s", code, message)
		}
		for name, params := range map[string]map[string]any{
			"nope":            {"provider": "nope"},
			"model":           {"model": nil},
			"maxTokens":       {"maxTokens": 0},
			"reasoningEffort": {"reasoningEffort": 3},
			"cwd":             {"cwd": "relative"},
			"missing":         {"cwd": filepath.Join(r.ws, "missing")},
		} {
			all := map[string]any{"cwd": r.ws, "provider": "deepseek", "model": "m"}
			for k, v := range params {
				all[k] = v
			}
			if code, message := c.refused(name, "initialize", all); code != -32602 || !strings.Contains(message, name) {
				t.Errorf("%s: %d %s", name, code, message)
			}
		}
		for _, bad := range []any{1.5, -1, "5", 1 << 60} {
			if code, _ := c.refused("n", "initialize", map[string]any{"cwd": r.ws, "provider": "deepseek", "model": "m", "maxTokens": bad}); code != -32602 {
				t.Errorf("maxTokens %v: %d", bad, code)
			}
		}
		c.params["provider"], c.params["maxTokens"] = "deepseek-official", 77
		var hello struct {
			ServerInfo   struct{ Name, Version string }
			Capabilities map[string]any
		}
		if err := json.Unmarshal(c.call("i", "initialize", c.params), &hello); err != nil {
			t.Fatal(err)
		}
		if hello.ServerInfo.Name != "deepseek-harness-sdk-runtime" || hello.ServerInfo.Version == "" || hello.Capabilities == nil {
			t.Errorf("hello %+v", hello)
		}
		c.turn("first", "x")
		c.params["model"] = "second-model"
		c.initialize()
		c.turn("first", "x")
		c.turn("second", "x")
		for i, want := range []string{"test-model", "test-model", "second-model"} {
			if body := string(r.Requests()[i].Body); !strings.Contains(body, `"model":"`+want+`"`) || !strings.Contains(body, `77`) {
				t.Errorf("request %d: %.200s", i, body)
			}
		}
	})
}

// TestMinimalReader is a client that knows the receipt, assistant/message, turn/end with its kind, and idle; nothing else.
func TestMinimalReader(t *testing.T) {
	r := newRig(t, say("the answer"))
	c := r.start()
	c.initialize()
	c.send(1, "session/prompt", prompt("s", "question"))
	var order []string
	var receipt struct{ MessageID string }
	c.until("idle", func(f frame) bool {
		switch {
		case string(f.ID) == "1":
			order = append(order, "receipt")
			if err := json.Unmarshal(f.Result, &receipt); err != nil {
				t.Fatal(err)
			}
		case f.event("agent/inbox/spliced") && strings.Contains(string(f.Params.Event.Data), `"inserted":[{"id":"`+receipt.MessageID):
			order = append(order, "queued")
		case f.event("assistant/message"):
			if !strings.Contains(string(f.Params.Event.Data), "the answer") {
				t.Errorf("answer %s", f.Params.Event.Data)
			}
			order = append(order, "answer")
		case f.event("turn/start"), f.event("turn/end"):
			order = append(order, f.Params.Event.Type)
		case f.Method == "session.status":
			order = append(order, f.Params.Status)
		}
		if f.event("turn/end") && f.reason().Kind != "completed" {
			t.Errorf("end %+v", f.reason())
		}
		return f.Params.Status == "idle"
	})
	if got := strings.Join(order, " "); got != "receipt queued running turn/start answer turn/end idle" {
		t.Errorf("order: %s", got)
	}
}

func TestTurns(t *testing.T) {
	t.Run("no key", func(t *testing.T) {
		r := newRig(t, say("hi"))
		c := r.start("DEEPSEEK_API_KEY=")
		c.initialize()
		if end := c.turn("s", "x").reason(); end.Kind != "error" || end.Code != "MISSING_CREDENTIAL" {
			t.Errorf("end %+v", end)
		}
	})
	t.Run("two prompts back to back", func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, script.Sequence(script.Turn{script.Wait(gate), script.Text("1")}, script.Turn{script.Text("2")}))
		c := r.start()
		c.initialize()
		c.send(1, "session/prompt", prompt("s", "one"))
		c.send(2, "session/prompt", prompt("s", "two"))
		c.reply(1)
		c.reply(2)
		close(gate)
		c.until("idle", func(f frame) bool { return f.Params.Status == "idle" })
		turns, statuses := 0, ""
		for _, f := range c.seen {
			if f.event("turn/end") {
				turns++
			}
			if f.Method == "session.status" {
				statuses += f.Params.Status + " "
			}
		}
		if turns != 2 || statuses != "running idle " {
			t.Errorf("%d turns, statuses %s", turns, statuses)
		}
	})
	t.Run("two sessions at once", func(t *testing.T) {
		r := newRig(t, script.ByHistory(append(script.Turn{}, script.Pieces(strings.Repeat("word ", 50), 5)...)))
		c := r.start()
		c.initialize()
		c.send(1, "session/prompt", prompt("A", "x"))
		c.send(2, "session/prompt", prompt("B", "x"))
		idle := 0
		c.until("both idle", func(f frame) bool {
			if f.Params.Status == "idle" {
				idle++
			}
			return idle == 2
		})
		next := map[string]int64{}
		for _, f := range c.seen {
			if f.Method != "session.event" {
				continue
			}
			if f.Params.Event.Seq != next[f.Params.SessionID] {
				t.Fatalf("session %s: seq %d, want %d", f.Params.SessionID, f.Params.Event.Seq, next[f.Params.SessionID])
			}
			next[f.Params.SessionID]++
		}
		if len(next) != 2 || next["A"] != next["B"] {
			t.Errorf("events %v", next)
		}
	})
	t.Run("simultaneous first prompts share one creation", func(t *testing.T) {
		r := newRig(t, say("hi"))
		c := r.start()
		c.initialize()
		for i := range 8 {
			c.send(i, "session/prompt", prompt("s", fmt.Sprint("m", i)))
		}
		ends := 0
		c.until("8 turns", func(f frame) bool {
			if f.Error != nil {
				t.Fatalf("refused: %s", f.raw)
			}
			if f.event("turn/end") {
				ends++
			}
			return ends == 8
		})
		r.log("s")
	})
	t.Run("live text only when asked for", func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, script.Sequence(script.Turn{script.Text("one "), script.Wait(gate), script.Text("two")}, script.Turn{script.Text("quiet")}))
		c := r.start()
		c.params["deltas"] = true
		c.initialize()
		c.send(1, "session/prompt", prompt("s", "x"))
		c.until("a delta", func(f frame) bool { return f.Method == "session.delta" && f.Params.Text == "one " })
		close(gate)
		c.until("idle", func(f frame) bool { return f.Params.Status == "idle" })
		c.params["deltas"] = false
		c.initialize()
		c.seen = nil
		c.turn("other", "x")
		for _, f := range c.seen {
			if f.Method == "session.delta" {
				t.Errorf("unasked: %s", f.raw)
			}
		}
	})
	t.Run("cancel of one message", func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, script.Sequence(script.Turn{script.Text("half"), script.Wait(gate), script.Text(" and whole")}))
		c := r.start()
		c.initialize()
		c.call(1, "session/prompt", prompt("s", "x"))
		r.await("the request", func() bool { return len(r.Requests()) > 0 })
		var queued struct{ MessageID string }
		if err := json.Unmarshal(c.call(2, "session/prompt", prompt("s", "queued")), &queued); err != nil {
			t.Fatal(err)
		}
		c.call(3, "session/cancel", map[string]any{"sessionId": "s", "messageId": queued.MessageID})
		close(gate)
		if end := c.until("end", func(f frame) bool { return f.event("turn/end") }).reason(); end.Kind != "completed" {
			t.Errorf("end of the other message's turn: %+v", end)
		}
		c.until("idle", func(f frame) bool { return f.Params.Status == "idle" })
		c.call(4, "session/cancel", map[string]any{"sessionId": "s", "messageId": queued.MessageID}) // once more is fine
		if code, message := c.refused(5, "session/cancel", map[string]any{"sessionId": "s", "messageId": "nobody's"}); code != -32603 || !strings.Contains(message, "no such message") {
			t.Error(code, message)
		}
		if code, _ := c.refused(6, "session/cancel", map[string]any{"sessionId": "s", "messageId": 7}); code != -32602 {
			t.Errorf("a messageId that is no text: %d", code)
		}
	})
	t.Run("cancel, close, list", func(t *testing.T) {
		r := newRig(t, script.Sequence(script.Turn{script.Text("half"), script.Stall()}, script.Turn{script.Text("whole")}))
		c := r.start()
		c.initialize()
		c.call(1, "session/prompt", prompt("s", "x"))
		r.await("the request", func() bool { return len(r.Requests()) > 0 }) // it is logged before it leaves, and a cancel in between keeps it here
		c.call(2, "session/prompt", prompt("s", "queued"))
		c.call(3, "session/cancel", map[string]any{"sessionId": "s"})
		end := c.until("end", func(f frame) bool { return f.event("turn/end") }).reason()
		if end.Kind != "aborted" || end.By != "user" {
			t.Errorf("end %+v", end)
		}
		c.until("idle", func(f frame) bool { return f.Params.Status == "idle" })
		c.call(4, "session/close", map[string]any{"sessionId": "s"})
		c.call(5, "session/close", map[string]any{"sessionId": "s"})
		if list := string(c.call(6, "session/list", map[string]any{})); !strings.Contains(list, `"id":"s"`) {
			t.Errorf("list %s", list)
		}
		// Another process may have it now.
		d := r.start()
		d.initialize()
		d.turn("s", "again")
		if code, _ := c.refused(7, "session/cancel", map[string]any{"sessionId": "s"}); code != -32603 {
			t.Errorf("cancel of a closed session: %d", code)
		}
	})
}

func TestMinimalContract(t *testing.T) {
	r := newRig(t, nil)
	file := filepath.Join(r.ws, "note.txt")
	h := script.ByHistory(
		script.Turn{bashCall("c1", "cd /; export MARK=kept; echo $MARK")},
		script.Turn{bashCall("c2", "echo $PWD $MARK; printf '%s%s\\n' \"$DEEPSEEK_API_KEY\" sk-test- key-123")},
		script.Turn{script.CallJSON("c3", "str_replace_editor", map[string]string{"command": "create", "path": file, "file_text": "by the editor"})},
		script.Turn{script.Text("done")},
	)
	r2 := newRig(t, h)
	r2.ws = r.ws
	c := r2.start("DSH_SYSTEM_PROMPT=You are {{odd}}.", "DSH_CONTEXT_WINDOW=12345", "DSH_MODEL=ignored")
	c.initialize()
	if end := c.turn("s", "go").reason(); end.Kind != "completed" {
		t.Fatalf("end %+v", end)
	}
	system, _, tools, body := requestOf(t, r2.Requests()[0])
	if system != "You are {{odd}}." || tools != 2 || !strings.Contains(body, `"bash"`) || !strings.Contains(body, `"str_replace_editor"`) {
		t.Errorf("system %q, %d tools", system, tools)
	}
	if _, messages, _, _ := requestOf(t, r2.Requests()[0]); messages != 1 {
		t.Errorf("%d messages in the first request: a runtime context?", messages)
	}
	_, _, _, last := requestOf(t, r2.Requests()[3])
	if !strings.Contains(last, "/ kept") {
		t.Errorf("the shell isn't one: %s", last)
	}
	if strings.Contains(last, "sk-test-key-123") {
		t.Error("the key reached the model")
	}
	if raw, err := os.ReadFile(file); err != nil || !strings.Contains(string(raw), "by the editor") {
		t.Errorf("the editor's file: %q %v", raw, err)
	}
	found := false
	for _, f := range c.seen {
		found = found || f.event("request/context") && strings.Contains(string(f.Params.Event.Data), `"contextWindow":12345`)
	}
	if !found {
		t.Error("the capacity isn't DSH_CONTEXT_WINDOW")
	}
	path, lines := r2.log("s")
	var header struct {
		Type            string
		Version         *int
		ID, Cwd         string
		CreatedAt       int64
		DelegationDepth *int
	}
	if err := json.Unmarshal([]byte(lines[0]), &header); err != nil || header.Type != "session" || header.Version == nil || *header.Version != 0 ||
		header.ID != "s" || header.Cwd != r.ws || header.CreatedAt == 0 || header.DelegationDepth == nil || *header.DelegationDepth != 0 {
		t.Errorf("header %s %v", lines[0], err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log file %v %v", info, err)
	}
	// The plain sentence without the variable.
	d := r2.start()
	d.initialize()
	d.turn("t", "go")
	all := r2.Requests()
	if system, _, _, _ := requestOf(t, all[len(all)-1]); system != "You are a helpful software engineer assistant." {
		t.Errorf("system %q", system)
	}
}

func TestResume(t *testing.T) {
	r := newRig(t, say("first answer"))
	c := r.start()
	c.initialize()
	c.turn("x", "first question")
	if code, message := func() (int, string) {
		d := r.start()
		d.initialize()
		return d.refused(1, "session/prompt", prompt("x", "mine"))
	}(); code != -32603 || !strings.Contains(message, fmt.Sprint(c.cmd.Process.Pid)) {
		t.Errorf("a second process: %d %s", code, message)
	}
	c.call("bye", "shutdown", nil)
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d := r.start("DSH_SYSTEM_PROMPT=Another prompt.")
	d.initialize()
	if _, message := d.refused(1, "session/resume", map[string]any{"sessionId": "nobody"}); !strings.Contains(message, "nobody") {
		t.Errorf("resume of nothing: %s", message)
	}
	d.call(2, "session/resume", map[string]any{"sessionId": "x"})
	d.turn("x", "second question")
	all := r.Requests()
	system, messages, _, body := requestOf(t, all[len(all)-1])
	if system != "Another prompt." || messages != 3 || !strings.Contains(body, "first answer") {
		t.Errorf("system %q, %d messages", system, messages)
	}
	var header, contiguous bool
	for _, f := range d.seen {
		header = header || f.event("request/header") && strings.Contains(string(f.Params.Event.Data), `"reason":"resume"`)
		contiguous = contiguous || f.event("request/sent") && strings.Contains(string(f.Params.Event.Data), `"contiguous":false`)
	}
	if !header || !contiguous {
		t.Errorf("request/header of the resume: %v; contiguous: false: %v", header, contiguous)
	}
}

func TestOddIDs(t *testing.T) {
	r := newRig(t, say("hi"))
	c := r.start()
	c.initialize()
	for _, id := range []string{"../../etc/x", "a/b", "~", ".", "..", strings.Repeat("n", 300), "🙂", " "} {
		c.turn(id, "x")
	}
	inside, err := filepath.Glob(filepath.Join(r.home, "sessions", "--*--", "*", "session.jsonl"))
	if err != nil || len(inside) != 8 {
		t.Errorf("%d sessions in the root: %v %v", len(inside), inside, err)
	}
}

func TestShutdown(t *testing.T) {
	t.Run("idle, twice, then a prompt", func(t *testing.T) {
		c := newRig(t, say("hi")).start()
		c.initialize()
		begin := time.Now()
		c.send(1, "shutdown", nil)
		c.send(2, "shutdown", nil)
		c.send(3, "session/prompt", prompt("s", "x"))
		if f := c.reply(1); string(f.Result) != "{}" {
			t.Errorf("first: %s", f.raw)
		}
		if f := c.reply(2); string(f.Result) != "{}" {
			t.Errorf("second: %s", f.raw)
		}
		if f := c.reply(3); f.Error == nil {
			t.Errorf("prompt: %s", f.raw)
		}
		if code := c.wait(); code != 0 || time.Since(begin) > 5*time.Second {
			t.Errorf("exit code %d after %s", code, time.Since(begin))
		}
	})
	// In mid-turn: whatever ends it, the log ends with turn/end and no process is left.
	end := map[string]struct {
		how  func(*client)
		code int
	}{
		"shutdown": {func(c *client) { c.call("bye", "shutdown", nil) }, 0},
		"end of file": {func(c *client) {
			_ = c.in.Close()
		}, 0},
		"SIGTERM":       {func(c *client) { _ = c.cmd.Process.Signal(syscall.SIGTERM) }, 0},
		"SIGINT":        {func(c *client) { _ = c.cmd.Process.Signal(syscall.SIGINT) }, 130},
		"output closed": {func(c *client) { _ = c.out.Close() }, 0},
	}
	for name, e := range end {
		t.Run(name, func(t *testing.T) {
			marker := "31" + fmt.Sprint(time.Now().UnixNano())[10:]
			r := newRig(t, script.ByHistory(script.Turn{bashCall("c1", "trap '' TERM HUP; (setsid sleep "+marker+" &); echo ready; sleep "+marker)}))
			c := r.start()
			c.initialize()
			c.call(1, "session/prompt", prompt("s", "x"))
			c.until("the call", func(f frame) bool { return f.event("tool/call") })
			r.await("both sleeps run", func() bool { return len(r.marked(marker)) == 2 })
			begin := time.Now()
			e.how(c)
			if code := c.wait(); code != e.code {
				t.Errorf("exit code %d, want %d", code, e.code)
			}
			t.Logf("ended after %s", time.Since(begin))
			if left := r.marked(marker); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			_, lines := r.log("s")
			last := lines[len(lines)-1]
			if typeOf(last) != "turn/end" || !strings.Contains(last, `"by":"shutdown"`) {
				t.Errorf("the log ends with %s", last)
			}
			if name == "shutdown" {
				var told []string
				for _, f := range c.seen {
					if f.event("turn/end") || f.Params.Status == "idle" || string(f.ID) == `"bye"` {
						told = append(told, f.Params.Event.Type+f.Params.Status+string(f.ID))
					}
				}
				if got := strings.Join(told, " "); got != `turn/end idle "bye"` {
					t.Errorf("told: %s", got)
				}
			}
		})
	}
}

func TestCrash(t *testing.T) {
	t.Run("kill -9 while a tool runs", func(t *testing.T) {
		marker := "32" + fmt.Sprint(time.Now().UnixNano())[10:]
		r := newRig(t, func(q model.Request) (script.Turn, error) {
			if len(q.Messages) == 1 {
				return script.Turn{bashCall("c1", "sleep "+marker)}, nil
			}
			return script.Turn{script.Text("on we go")}, nil
		})
		c := r.start()
		c.initialize()
		c.call(1, "session/prompt", prompt("s", "x"))
		c.until("the call", func(f frame) bool { return f.event("tool/call") })
		_ = c.cmd.Process.Kill()
		c.wait()
		d := r.start()
		d.initialize()
		if end := d.turn("s", "next").reason(); end.Kind != "completed" {
			t.Errorf("end %+v", end)
		}
		_, lines := r.log("s")
		log := strings.Join(lines, "\n")
		if !strings.Contains(log, `"kind":"interrupted"`) || !strings.Contains(log, `"isError":true`) {
			t.Errorf("log:\n%s", log)
		}
		_, messages, _, body := requestOf(t, r.Requests()[1])
		if messages != 4 || !strings.Contains(body, `"tool_call_id":"c1"`) {
			t.Errorf("%d messages: %s", messages, body)
		}
		r.await("the keeper ended everything", func() bool { return len(r.marked(marker)) == 0 })
	})
	t.Run("half a line", func(t *testing.T) {
		r := newRig(t, say("hi"))
		c := r.start()
		c.initialize()
		c.turn("s", "x")
		_ = c.in.Close()
		c.wait()
		path, before := r.log("s")
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(`{"seq":99,"time":1,"type":"turn/sta`); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		d := r.start()
		d.initialize()
		d.turn("s", "y")
		_, after := r.log("s")
		for i, line := range before {
			if after[i] != line {
				t.Fatalf("line %d changed", i+1)
			}
		}
		if strings.Contains(strings.Join(after, "\n"), `"seq":99,`) {
			t.Error("the half line is still there")
		}
	})
	t.Run("a corrupt line in the middle", func(t *testing.T) {
		r := newRig(t, say("hi"))
		c := r.start()
		c.initialize()
		c.turn("s", "x")
		_ = c.in.Close()
		c.wait()
		path, lines := r.log("s")
		lines[4] = strings.Replace(lines[4], "{", "<", 1)
		broken := strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		d := r.start()
		d.initialize()
		for i, method := range []string{"session/prompt", "session/resume"} {
			code, message := d.refused(i, method, prompt("s", "y"))
			if code != -32603 || !strings.Contains(message, path) || !strings.Contains(message, "line 5 ") {
				t.Errorf("%s: %d %s", method, code, message)
			}
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != broken {
			t.Error("the file was touched")
		}
		d.turn("other", "x")
	})
}
