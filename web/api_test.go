package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web"
)

func hello() script.Source { return script.ByHistory(script.Turn{script.Text("hello")}) }

func TestCreateSessions(t *testing.T) {
	r := newRig(t, options{source: hello(), presets: map[string]string{"broken": "version: 1\nrows:\n  - {id: a, use: nothing-like-it}\n"}})
	file := filepath.Join(r.ws, "file")
	r.must(os.WriteFile(file, nil, 0o600))
	spec := map[string]any{"id": "one", "preset": "minimal", "workspace": r.ws, "title": "A title", "labels": map[string]string{"a": "b"}}
	var first, again host.Info
	a := r.want(201, "POST", "/sessions", spec, &first)
	if at := a.header.Get("Location"); at != "/api/v1/sessions/one" {
		t.Errorf("Location %q", at)
	}
	t.Run("twice", func(t *testing.T) {
		r.want(200, "POST", "/sessions", spec, &again)
		if again.ID != first.ID || again.CreatedAt != first.CreatedAt {
			t.Errorf("got %+v", again)
		}
	})
	t.Run("other specification", func(t *testing.T) {
		r.refused(409, "session-conflict", "POST", "/sessions", map[string]any{"id": "one", "workspace": r.ws, "title": "Another"})
	})
	t.Run("generated id", func(t *testing.T) {
		if info := r.create(map[string]any{}); len(info.ID) != 36 || info.Preset.ID != "minimal" || !info.Blank {
			t.Errorf("got %+v", info)
		}
	})
	before := len(r.sessions())
	for name, c := range map[string]struct {
		status int
		code   string
		body   any
	}{
		"unknown preset":     {422, "preset-not-found", map[string]any{"workspace": r.ws, "preset": "nope"}},
		"broken preset":      {422, "preset-broken", map[string]any{"workspace": r.ws, "preset": "broken"}},
		"no workspace":       {422, "validation", map[string]any{}},
		"empty workspace":    {422, "workspace-invalid", map[string]any{"workspace": ""}},
		"relative workspace": {422, "workspace-invalid", map[string]any{"workspace": "a/b"}},
		"missing workspace":  {422, "workspace-invalid", map[string]any{"workspace": filepath.Join(r.ws, "no")}},
		"file as workspace":  {422, "workspace-invalid", map[string]any{"workspace": file}},
		"id up":              {422, "id-invalid", map[string]any{"workspace": r.ws, "id": "../x"}},
		"id slash":           {422, "id-invalid", map[string]any{"workspace": r.ws, "id": "a/b"}},
		"id NUL":             {422, "id-invalid", map[string]any{"workspace": r.ws, "id": "a\x00b"}},
		"id long":            {422, "id-invalid", map[string]any{"workspace": r.ws, "id": strings.Repeat("a", 300)}},
		"unknown provider":   {422, "validation", map[string]any{"workspace": r.ws, "model": map[string]any{"provider": "nope"}}},
		"unknown field":      {422, "validation", map[string]any{"workspace": r.ws, "colour": "red"}},
		"field in capitals":  {422, "validation", map[string]any{"Workspace": r.ws}},
		"wrong type":         {422, "validation", map[string]any{"workspace": 1}},
		"empty message":      {422, "validation", map[string]any{"workspace": r.ws, "message": ""}},
		"not JSON":           {400, "bad-json", `{"workspace":`},
		"no body":            {400, "bad-json", ``},
		"key twice":          {400, "bad-json", `{"workspace":"/tmp","workspace":"/tmp"}`},
		"array":              {422, "validation", `[]`},
		"null":               {422, "validation", `null`},
	} {
		t.Run(name, func(t *testing.T) { r.refused(c.status, c.code, "POST", "/sessions", c.body) })
	}
	if after := len(r.sessions()); after != before {
		t.Errorf("refusals left %d sessions behind", after-before)
	}
	t.Run("says what is known", func(t *testing.T) {
		var p struct{ Known []string }
		r.refused(422, "preset-not-found", "POST", "/sessions", map[string]any{"workspace": r.ws, "preset": "nope"}).into(t, &p)
		if !slices.Contains(p.Known, "minimal") {
			t.Errorf("known presets: %v", p.Known)
		}
	})
	t.Run("never repeats values", func(t *testing.T) {
		a := r.call("POST", "/sessions", map[string]any{"workspace": r.ws, "model": map[string]any{"apiKey": []string{"sk-secret-value"}}})
		if a.status != 422 || bytes.Contains(a.body, []byte("sk-secret-value")) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func (r *rig) sessions() []host.Info {
	r.t.Helper()
	var list host.List
	r.want(200, "GET", "/sessions?limit=1000", nil, &list)
	return list.Sessions
}

func TestBatch(t *testing.T) {
	r := newRig(t, options{source: hello()})
	var out struct {
		Group    string
		Sessions []host.Info
	}
	r.want(201, "POST", "/sessions/batch", map[string]any{"spec": map[string]any{"workspace": r.ws, "group": "g"}, "count": 3}, &out)
	if len(out.Sessions) != 3 || out.Group != "g" || out.Sessions[2].Attempt != 2 {
		t.Fatalf("got %+v", out)
	}
	var list host.List
	r.want(200, "GET", "/sessions?group=g", nil, &list)
	if len(list.Sessions) != 3 {
		t.Errorf("listed %d", len(list.Sessions))
	}
	r.refused(422, "validation", "POST", "/sessions/batch", map[string]any{"spec": map[string]any{"workspace": r.ws}, "count": 0})
	r.refused(422, "preset-not-found", "POST", "/sessions/batch", map[string]any{"spec": map[string]any{"workspace": r.ws, "preset": "x"}, "count": 2})
	if n := len(r.sessions()); n != 3 {
		t.Errorf("%d sessions", n)
	}
}

func TestListSessions(t *testing.T) {
	r := newRig(t, options{source: hello()})
	for i := range 5 {
		r.create(map[string]any{"id": fmt.Sprint("s", i), "title": fmt.Sprint("Title ", i)})
	}
	var ids []string
	cursor := ""
	for {
		var list host.List
		r.want(200, "GET", "/sessions?limit=2&cursor="+cursor, nil, &list)
		for _, s := range list.Sessions {
			ids = append(ids, s.ID)
		}
		if cursor = list.NextCursor; cursor == "" {
			break
		}
	}
	if !slices.Equal(ids, []string{"s4", "s3", "s2", "s1", "s0"}) {
		t.Errorf("listed %v", ids)
	}
	var list host.List
	r.want(200, "GET", "/sessions?q=TITLE+3", nil, &list)
	if len(list.Sessions) != 1 || list.Sessions[0].ID != "s3" {
		t.Errorf("found %+v", list)
	}
	r.want(200, "PATCH", "/sessions/s1", map[string]any{"archived": true}, nil)
	r.want(200, "GET", "/sessions?archived=true", nil, &list)
	if len(list.Sessions) != 1 || list.Sessions[0].ID != "s1" {
		t.Errorf("archived %+v", list)
	}
	r.refused(422, "validation", "GET", "/sessions?limit=0", nil)
	r.refused(422, "validation", "GET", "/sessions?colour=red", nil)
	r.refused(422, "validation", "GET", "/sessions?status=happy", nil)
	r.refused(422, "validation", "GET", "/sessions?archived=maybe", nil)
}

func TestPatchSessions(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one"})
	var info host.Info
	r.want(200, "PATCH", "/sessions/one", map[string]any{"title": "New", "labels": map[string]string{"k": "v"}, "preset": "standard"}, &info)
	if info.Title != "New" || info.Labels["k"] != "v" || info.Preset.ID != "standard" {
		t.Errorf("got %+v", info)
	}
	info = host.Info{}
	r.want(200, "PATCH", "/sessions/one", map[string]any{"preset": "minimal", "labels": map[string]string{}}, &info)
	if len(info.Labels) != 0 {
		t.Errorf("labels %v", info.Labels)
	}
	r.say("one", "hi")
	r.refused(409, "preset-locked", "PATCH", "/sessions/one", map[string]any{"preset": "standard"})
	r.refused(409, "not-confined", "PATCH", "/sessions/one", map[string]any{"sandboxMode": "read-only"})
	r.refused(409, "not-confined", "PATCH", "/sessions/one", map[string]any{"approvalPolicy": "ask"})
	r.refused(422, "validation", "PATCH", "/sessions/one", map[string]any{"title": ""})
	r.refused(404, "session-not-found", "PATCH", "/sessions/nobody", map[string]any{"title": "x"})
}

func TestIDsInPaths(t *testing.T) {
	r := newRig(t, options{})
	for _, id := range []string{"nobody", "..%2fx", "%2e%2e", "a%2fb", "a%00b", strings.Repeat("a", 300), "%ff"} {
		a := r.call("GET", "/sessions/"+id, nil)
		if a.status != 404 && a.status != 422 {
			t.Errorf("%s: %d %s", id, a.status, a.body)
		}
	}
}

func TestMessages(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, options{source: script.Sequence(
		script.Turn{script.Text("first")}, script.Turn{script.Text("second"), script.Wait(gate)}, script.Turn{script.Text("third")}, script.Turn{script.Text("fourth")})})
	r.create(map[string]any{"id": "one"})
	t.Run("wait", func(t *testing.T) {
		sent := r.say("one", "hi")
		if sent.Status != "idle" || sent.FinalResponse == nil || *sent.FinalResponse != "first" || sent.TurnEnd == nil || sent.TurnEnd.Reason.Kind != "completed" {
			t.Errorf("got %+v", sent)
		}
	})
	t.Run("same id twice", func(t *testing.T) {
		var a, b web.Sent
		r.want(202, "POST", "/sessions/one/messages", map[string]any{"id": "m1", "content": []any{map[string]any{"type": "text", "text": "more"}}}, &a)
		r.want(202, "POST", "/sessions/one/messages", map[string]any{"id": "m1", "content": "more"}, &b)
		if a.MessageID != "m1" || b.MessageID != "m1" {
			t.Errorf("%+v %+v", a, b)
		}
	})
	t.Run("wait ends first", func(t *testing.T) {
		var sent web.Sent
		r.want(200, "POST", "/sessions/one/messages?wait=idle&timeout=20ms", map[string]any{"id": "m2", "content": "queued"}, &sent)
		if sent.Status != "running" {
			t.Errorf("got %+v", sent)
		}
	})
	t.Run("queue", func(t *testing.T) {
		var info host.Info
		r.want(200, "GET", "/sessions/one", nil, &info)
		if info.Status != "running" || len(info.Queue) != 1 || info.Queue[0].ID != "m2" {
			t.Fatalf("got %+v", info)
		}
		r.want(200, "PATCH", "/sessions/one/messages/m2", map[string]any{"content": "edited"}, nil)
		r.want(202, "POST", "/sessions/one/messages", map[string]any{"id": "m3", "content": "also"}, nil)
		r.want(204, "DELETE", "/sessions/one/messages/m3", nil, nil)
		r.refused(409, "message-started", "PATCH", "/sessions/one/messages/m1", map[string]any{"content": "late"})
		r.refused(404, "message-not-found", "DELETE", "/sessions/one/messages/nobody", nil)
	})
	close(gate)
	r.say("one", "last")
	starts := 0
	for _, e := range r.log("one") {
		if e.Type == "turn/start" {
			starts++
		}
	}
	if starts != 4 {
		t.Errorf("%d turns", starts)
	}
	for _, timeout := range []string{"x", "-1s", "2h", "60"} {
		r.refused(422, "validation", "POST", "/sessions/one/messages?wait=idle&timeout="+timeout, map[string]any{"content": "hi"})
	}
	r.refused(422, "validation", "POST", "/sessions/one/messages?wait=always", map[string]any{"content": "hi"})
	r.refused(422, "validation", "POST", "/sessions/one/messages", map[string]any{"content": []any{}})
	r.refused(422, "validation", "POST", "/sessions/one/messages", map[string]any{"content": []any{map[string]any{"type": "tool-call", "id": "x"}}})
	r.refused(404, "session-not-found", "POST", "/sessions/nobody/messages", map[string]any{"content": "hi"})
}

// TestFinalResponseIsOfTheLastTurn has a turn fail before it says anything: what the turn before said is no answer to it.
func TestFinalResponseIsOfTheLastTurn(t *testing.T) {
	r := newRig(t, options{source: script.Sequence(
		script.Turn{script.Text("first")}, script.Turn{script.Fail(&model.Error{Code: model.CodeInvalidRequest, Message: "no"})}, script.Turn{script.Text("third")})})
	r.create(map[string]any{"id": "one"})
	for _, want := range []string{"first", "", "third"} {
		sent := r.say("one", "hi")
		got := ""
		if sent.FinalResponse != nil {
			got = *sent.FinalResponse
		}
		if got != want || sent.TurnEnd == nil || (sent.FinalResponse == nil) != (sent.TurnEnd.Reason.Kind == session.EndError) {
			t.Errorf("%q after %+v, want %q", got, sent.TurnEnd, want)
		}
	}
}

func TestMessageUnarchives(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one"})
	r.want(200, "POST", "/sessions/one/messages?wait=idle", map[string]any{"id": "m1", "content": "hi"}, nil)
	archived := func() bool {
		var info host.Info
		r.want(200, "GET", "/sessions/one", nil, &info)
		return info.Archived
	}
	r.want(200, "PATCH", "/sessions/one", map[string]any{"archived": true}, nil)
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"id": "m1", "content": "hi"}, nil)
	r.refused(422, "validation", "POST", "/sessions/one/messages", map[string]any{"content": []any{}})
	if !archived() {
		t.Error("a message that changed nothing took the session out of the archive")
	}
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "work"}, nil)
	if archived() {
		t.Error("a session that works is archived")
	}
}

func TestCancel(t *testing.T) {
	t.Run("while streaming", func(t *testing.T) {
		r := newRig(t, options{source: script.ByHistory(script.Turn{script.Text("so far"), script.Stall()})})
		r.create(map[string]any{"id": "one"})
		v := r.view()
		v.subscribe("one", -1)
		r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
		v.until("text", isType("delta"))
		r.want(202, "POST", "/sessions/one/cancel", map[string]any{}, nil)
		r.want(202, "POST", "/sessions/one/cancel", nil, nil)
		got := v.until("turn/end", isEvent("turn/end"))
		kept := false
		for _, e := range eventsOf(got) {
			kept = kept || e.Type == "assistant/message" && bytes.Contains(e.Data, []byte("so far")) && bytes.Contains(e.Data, []byte(`"interrupted":true`))
		}
		if !kept {
			t.Error("the text so far isn't kept as interrupted")
		}
	})
	t.Run("while a tool runs", func(t *testing.T) {
		r := newRig(t, options{source: script.ByHistory(script.Turn{script.CallJSON("c1", "bash", map[string]string{"command": "sleep 1000"})})})
		r.create(map[string]any{"id": "one"})
		v := r.view()
		v.subscribe("one", -1)
		r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
		v.until("tool/call", isEvent("tool/call"))
		r.want(202, "POST", "/sessions/one/cancel", map[string]any{"keepQueue": true}, nil)
		got := eventTypes(eventsOf(v.until("turn/end", isEvent("turn/end"))))
		if !strings.Contains(got, "tool/result") {
			t.Errorf("the call has no result: %s", got)
		}
	})
	t.Run("when nothing runs", func(t *testing.T) {
		r := newRig(t, options{source: hello()})
		r.create(map[string]any{"id": "one"})
		r.want(202, "POST", "/sessions/one/cancel", map[string]any{}, nil)
		r.refused(404, "session-not-found", "POST", "/sessions/nobody/cancel", map[string]any{})
	})
}

func TestDelete(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{script.Text("x"), script.Stall()})})
	r.create(map[string]any{"id": "one"})
	v := r.view()
	v.subscribe("one", -1)
	r.want(202, "POST", "/sessions/one/messages", map[string]any{"content": "hi"}, nil)
	v.until("text", isType("delta"))
	r.refused(409, "session-running", "DELETE", "/sessions/one", nil)
	r.want(204, "DELETE", "/sessions/one?force=true", nil, nil)
	r.refused(404, "session-not-found", "GET", "/sessions/one", nil)
	r.refused(404, "session-not-found", "DELETE", "/sessions/one", nil)
	for {
		f := v.next()
		if f.Type == "error" {
			if f.Code != "session-not-found" || f.Session != "one" {
				t.Errorf("got %+v", f)
			}
			return
		}
	}
}

func TestEventPages(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one"})
	type page struct {
		Events []struct {
			Seq  int64
			Prev string
		}
		LastSeq int64
		HasMore bool
	}
	var p page
	r.want(200, "GET", "/sessions/one/events", nil, &p)
	if len(p.Events) != 0 || p.LastSeq != -1 || p.HasMore {
		t.Errorf("empty: %+v", p)
	}
	r.say("one", "hi")
	all := r.log("one")
	n := int64(len(all))
	for path, want := range map[string][3]int64{ // first, last, more
		"after=-1&limit=3":  {0, 2, 1},
		"after=2":           {3, n - 1, 0},
		"before=4&limit=2":  {2, 3, 1},
		"before=2":          {0, 1, 0},
		"limit=2":           {n - 2, n - 1, 1},
		"":                  {0, n - 1, 0},
		"before=3&limit=10": {0, 2, 0},
	} {
		p = page{}
		r.want(200, "GET", "/sessions/one/events?"+path, nil, &p)
		if len(p.Events) == 0 || p.Events[0].Seq != want[0] || p.Events[len(p.Events)-1].Seq != want[1] || p.HasMore != (want[2] == 1) || p.LastSeq != n-1 {
			t.Errorf("%q: %+v, want %v", path, p, want)
		}
	}
	p = page{}
	r.want(200, "GET", fmt.Sprintf("/sessions/one/events?after=%d", n-1), nil, &p)
	if len(p.Events) != 0 {
		t.Errorf("at the end: %+v", p)
	}
	r.refused(422, "cursor-ahead", "GET", "/sessions/one/events?after=1000", nil)
	r.refused(422, "validation", "GET", "/sessions/one/events?limit=1001", nil)
	r.refused(422, "validation", "GET", "/sessions/one/events?after=x", nil)
	r.refused(422, "validation", "GET", "/sessions/one/events?after=1&before=3", nil)
	r.refused(404, "session-not-found", "GET", "/sessions/nobody/events", nil)
}

// stream opens events as they come, with more header lines.
func (r *rig) stream(ctx context.Context, path string, header map[string]string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", r.base+"/api/v1"+path, nil)
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Accept", "text/event-stream")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := r.client.Do(req)
	r.must(err)
	return res
}

func TestEventsOverSSE(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one"})
	r.say("one", "hi")
	n := len(r.log("one"))
	read := func(header map[string]string, count int) []string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		res := r.stream(ctx, "/sessions/one/events?after=-1", header)
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		var ids []string
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for len(ids) < count && lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids = append(ids, id)
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !json.Valid([]byte(data)) {
				t.Errorf("data %s", data)
			}
		}
		return ids
	}
	for id, code := range map[string]string{"1000": "cursor-ahead", "x": "validation"} {
		a := r.send("GET", "/api/v1/sessions/one/events", nil, map[string]string{"Authorization": "Bearer " + r.token, "Accept": "text/event-stream", "Last-Event-ID": id})
		if a.status != 422 || a.code() != code {
			t.Errorf("Last-Event-ID %s: %d %s", id, a.status, a.body)
		}
	}
	for _, query := range []string{"before=3", "limit=2", "after=-1&limit=2", "before=3&limit=2"} {
		a := r.send("GET", "/api/v1/sessions/one/events?"+query, nil, map[string]string{"Authorization": "Bearer " + r.token, "Accept": "text/event-stream"})
		if a.status != 422 || a.code() != "validation" {
			t.Errorf("a stream with %s: %d %s", query, a.status, a.body)
		}
	}
	if ids := read(nil, n); len(ids) != n || ids[0] != "0" || ids[n-1] != fmt.Sprint(n-1) {
		t.Errorf("ids %v", ids)
	}
	live := make(chan []string, 1)
	go func() { live <- read(map[string]string{"Last-Event-ID": fmt.Sprint(n - 2)}, 2) }()
	r.want(200, "PATCH", "/sessions/one", map[string]any{"title": "New"}, nil)
	if ids := <-live; !slices.Equal(ids, []string{fmt.Sprint(n - 1), fmt.Sprint(n)}) {
		t.Errorf("resumed with %v", ids)
	}
}

// TestStreamWithoutACursor begins where a page without one does: with the last events.
func TestStreamWithoutACursor(t *testing.T) {
	r := newRig(t, options{})
	r.create(map[string]any{"id": "one"})
	for i := range 230 {
		r.want(200, "PATCH", "/sessions/one", map[string]any{"title": fmt.Sprint("title ", i)}, nil)
	}
	var page struct{ Events []session.Event }
	r.want(200, "GET", "/sessions/one/events", nil, &page)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res := r.stream(ctx, "/sessions/one/events", nil)
	defer func() { _ = res.Body.Close() }()
	first, err := bufio.NewReader(res.Body).ReadString('\n')
	r.must(err)
	if len(page.Events) != 200 || first != fmt.Sprintf("id: %d\n", page.Events[0].Seq) {
		t.Errorf("%d events, the stream begins with %q", len(page.Events), first)
	}
}

func TestPromptProofAndScope(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one"})
	var prompt host.PromptView
	r.want(200, "GET", "/sessions/one/prompt", nil, &prompt)
	if prompt.System != "You are a helpful software engineer assistant." || len(prompt.Tools) != 2 || prompt.Hash == "" {
		t.Errorf("got %+v", prompt)
	}
	r.say("one", "hi")
	var proof host.Proof
	r.want(200, "GET", "/sessions/one/proof", nil, &proof)
	if len(proof.Requests) != 1 || !proof.Contiguous {
		t.Errorf("got %+v", proof)
	}
	if a := r.want(200, "GET", "/sessions/one/scope", nil, nil); !bytes.Contains(a.body, []byte("bash")) {
		t.Errorf("scope %s", a.body)
	}
}

func TestPresets(t *testing.T) {
	r := newRig(t, options{presets: map[string]string{"broken": "version: 1\nrows: 7\n"}})
	var list struct{ Presets []web.PresetSummary }
	r.want(200, "GET", "/presets", nil, &list)
	found := map[string]web.PresetSummary{}
	for _, p := range list.Presets {
		found[p.ID] = p
	}
	if !found["minimal"].Default || found["minimal"].Origin != "shipped" || found["broken"].Broken == "" || found["standard"].Hash == "" {
		t.Errorf("listed %+v", list)
	}
	var detail web.PresetDetail
	r.want(200, "GET", "/presets/minimal", nil, &detail)
	if detail.Prompt != "You are a helpful software engineer assistant." || len(detail.Tools) != 2 || len(detail.Rows) != 3 || detail.Text == "" {
		t.Errorf("got %+v", detail)
	}
	r.want(200, "GET", "/presets/broken", nil, &detail)
	if detail.Problem == nil || detail.Problem.Line == 0 {
		t.Errorf("got %+v", detail)
	}
	r.refused(404, "preset-not-found", "GET", "/presets/nobody", nil)
	r.want(201, "POST", "/presets", map[string]any{"id": "mine", "from": "minimal"}, &detail)
	r.refused(409, "preset-exists", "POST", "/presets", map[string]any{"id": "mine", "from": "minimal"})
	r.refused(409, "preset-shipped", "DELETE", "/presets/minimal", nil)
	r.refused(422, "id-invalid", "POST", "/presets", map[string]any{"id": "../x", "from": "minimal"})
	r.refused(404, "preset-not-found", "POST", "/presets", map[string]any{"id": "other", "from": "nobody"})
	text := strings.Replace(detail.Text, "helpful", "very helpful", 1)
	r.want(200, "PUT", "/presets/mine", map[string]any{"text": text}, &detail)
	if !strings.Contains(detail.Prompt, "very helpful") {
		t.Errorf("prompt %q", detail.Prompt)
	}
	r.refused(422, "preset-broken", "PUT", "/presets/mine", map[string]any{"text": "version: 1\nrows: 7\n"})
	var check web.PresetCheck
	r.want(200, "POST", "/presets/check", map[string]any{"text": "version: 1\nrows: 7\n"}, &check)
	if check.Problem == nil {
		t.Error("a broken text passes")
	}
	check = web.PresetCheck{}
	r.want(200, "POST", "/presets/check", map[string]any{"text": text}, &check)
	if check.Problem != nil || len(check.Tools) != 2 {
		t.Errorf("got %+v", check)
	}
	r.want(204, "DELETE", "/presets/mine", nil, nil)
	r.want(204, "DELETE", "/presets/broken", nil, nil)
}

func TestModelsAndKeys(t *testing.T) {
	r := newRig(t, options{})
	var models struct {
		Models  []struct{ Provider, Model string }
		Default struct{ Provider, Model string }
	}
	r.want(200, "GET", "/models", nil, &models)
	if models.Default.Provider != "demo" || len(models.Models) == 0 {
		t.Errorf("got %+v", models)
	}
	r.want(204, "PUT", "/providers/deepseek/credential", map[string]any{"key": "sk-planted-0123456789"}, nil)
	a := r.want(200, "GET", "/providers", nil, nil)
	if !bytes.Contains(a.body, []byte(`"hasKey":true`)) || bytes.Contains(a.body, []byte("sk-planted")) {
		t.Errorf("got %s", a.body)
	}
	r.refused(404, "provider-not-found", "PUT", "/providers/nobody/credential", map[string]any{"key": "x"})
	r.refused(422, "validation", "PUT", "/providers/deepseek/credential", map[string]any{"key": ""})
	r.want(204, "DELETE", "/providers/deepseek/credential", nil, nil)
}

func TestWorkspaces(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.must(os.MkdirAll(filepath.Join(r.ws, "a"), 0o700))
	r.must(os.WriteFile(filepath.Join(r.ws, "file"), nil, 0o600))
	r.create(map[string]any{"id": "one"})
	var w web.Workspaces
	r.want(200, "GET", "/workspaces?path="+r.ws, nil, &w)
	if w.Path != r.ws || w.Parent == "" || len(w.Entries) != 1 || w.Entries[0].Name != "a" || !slices.Equal(w.Recent, []string{r.ws}) {
		t.Errorf("got %+v", w)
	}
	r.want(200, "GET", "/workspaces", nil, nil)
	made := filepath.Join(r.ws, "new")
	r.want(200, "POST", "/workspaces", map[string]any{"path": made}, &w)
	r.want(200, "POST", "/workspaces", map[string]any{"path": made}, &w)
	if info, err := os.Stat(made); err != nil || !info.IsDir() {
		t.Error("no directory was made")
	}
	r.refused(422, "workspace-invalid", "GET", "/workspaces?path=relative", nil)
	r.refused(404, "path-not-found", "GET", "/workspaces?path="+r.ws+"/no", nil)
	r.refused(422, "workspace-invalid", "GET", "/workspaces?path="+r.ws+"/file", nil)
	r.refused(404, "path-not-found", "POST", "/workspaces", map[string]any{"path": r.ws + "/no/deeper"})
}

func TestAttachments(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one"})
	png := "\x89PNG\r\n\x1a\nnot really"
	auth := map[string]string{"Authorization": "Bearer " + r.token, "Content-Type": "image/png"}
	a := r.send("POST", "/api/v1/sessions/one/attachments", png, auth)
	var kept web.Attachment
	a.into(t, &kept)
	if a.status != 201 || kept.Bytes != len(png) || kept.Mime != "image/png" || kept.SHA256 == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := r.call("GET", "/sessions/one/attachments/"+kept.ID, nil); a.status != 200 || string(a.body) != png || a.header.Get("Content-Type") != "image/png" {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.refused(404, "attachment-not-found", "GET", "/sessions/one/attachments/..%2f..%2ftoken", nil)
	r.refused(404, "session-not-found", "GET", "/sessions/nobody/attachments/x", nil)
	auth["Content-Type"] = "text/html"
	if a := r.send("POST", "/api/v1/sessions/one/attachments", png, auth); a.status != 422 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestDrain(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one"})
	if a := r.send("GET", "/readyz", nil, nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.want(202, "POST", "/host/drain", map[string]any{}, nil)
	if a := r.send("GET", "/readyz", nil, nil); a.status != 503 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.send("GET", "/healthz", nil, nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.refused(503, "draining", "POST", "/sessions", map[string]any{"workspace": r.ws})
	r.refused(503, "draining", "POST", "/sessions/one/messages", map[string]any{"content": "hi"})
	r.want(200, "GET", "/sessions/one/events", nil, nil)
}

func TestBasePath(t *testing.T) {
	r := newRig(t, options{source: hello(), web: func(c *web.Config) { c.BasePath = "/dsh/" }})
	if a := r.send("GET", "/", nil, map[string]string{"Accept-Encoding": "identity"}); !bytes.Contains(a.body, []byte(`<base href="/dsh/">`)) {
		t.Errorf("%s", a.body)
	}
	a := r.want(201, "POST", "/sessions", map[string]any{"id": "one", "workspace": r.ws}, nil)
	if at := a.header.Get("Location"); at != "/dsh/api/v1/sessions/one" {
		t.Errorf("Location %q", at)
	}
	res, err := r.client.Get("http://" + r.addr + "/healthz")
	r.must(err)
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("outside the base path: %d", res.StatusCode)
	}
	for _, bad := range []string{"dsh", "/a b", "/a\"b", "/../x", "//x"} {
		if _, err := web.New(web.Config{Host: r.host, BasePath: bad}); err == nil {
			t.Errorf("base path %q passes", bad)
		}
	}
}

func TestLogin(t *testing.T) {
	r := newRig(t, options{})
	code, _ := r.keys.NewCode()
	var login struct{ Token, ID string }
	a := r.send("POST", "/api/v1/auth/exchange", map[string]any{"code": code}, map[string]string{"User-Agent": "Browser/1"})
	a.into(t, &login)
	if a.status != 200 || login.Token == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := r.send("POST", "/api/v1/auth/exchange", map[string]any{"code": code}, nil); a.status != 401 || a.code() != "unauthorized" {
		t.Errorf("a second time: %d %s", a.status, a.body)
	}
	if a := r.send("GET", "/api/v1/host", nil, map[string]string{"Authorization": "Bearer " + login.Token}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	var tokens struct{ Tokens []struct{ ID, Label string } }
	r.want(200, "GET", "/auth/tokens", nil, &tokens)
	if len(tokens.Tokens) != 1 || tokens.Tokens[0].ID != login.ID || tokens.Tokens[0].Label != "Browser/1" {
		t.Errorf("got %+v", tokens)
	}
	var fresh struct{ Code string }
	r.want(200, "POST", "/auth/code", map[string]any{}, &fresh)
	if a := r.send("POST", "/api/v1/auth/exchange", map[string]any{"code": fresh.Code}, nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.want(204, "DELETE", "/auth/tokens/"+login.ID, nil, nil)
	r.refused(404, "token-not-found", "DELETE", "/auth/tokens/"+login.ID, nil)
	if a := r.send("GET", "/api/v1/host", nil, map[string]string{"Authorization": "Bearer " + login.Token}); a.status != 401 {
		t.Errorf("revoked: %d", a.status)
	}
	limited := 0
	for range 100 {
		if a := r.send("POST", "/api/v1/auth/exchange", map[string]any{"code": "guess"}, nil); a.status == 429 {
			limited++
		}
	}
	if limited < 70 {
		t.Errorf("only %d of 100 guesses were limited", limited)
	}
}

func TestWithoutAuthority(t *testing.T) {
	r := newRig(t, options{source: hello(), noAuth: true})
	r.create(map[string]any{"id": "one"})
	r.say("one", "hi")
	v := r.view()
	v.subscribe("one", -1)
	v.until("caughtUp", isType("caughtUp"))
	r.want(200, "POST", "/auth/ticket", map[string]any{}, nil)
}

func TestForkExportImport(t *testing.T) {
	r := newRig(t, options{source: hello()})
	r.create(map[string]any{"id": "one", "title": "Parent"})
	r.refused(409, "fork-point", "POST", "/sessions/one/fork", map[string]any{"atSeq": 0})
	r.say("one", "hi")
	r.say("one", "again")
	var end int64
	for _, e := range r.log("one") {
		if e.Type == "turn/end" {
			end = e.Seq
			break
		}
	}
	var fork host.Info
	a := r.want(201, "POST", "/sessions/one/fork", map[string]any{"atSeq": end, "preset": "standard"}, &fork)
	if fork.Parent != "one" || fork.Preset.ID != "standard" || a.header.Get("Location") != "/api/v1/sessions/"+fork.ID {
		t.Errorf("got %+v", fork)
	}
	r.want(201, "POST", "/sessions/one/fork", nil, nil)
	r.refused(422, "preset-not-found", "POST", "/sessions/one/fork", map[string]any{"preset": "nope"})
	r.refused(404, "session-not-found", "POST", "/sessions/nobody/fork", map[string]any{})

	var note host.Annotation
	r.want(200, "POST", "/sessions/one/annotations", map[string]any{"reward": 0.5, "labels": map[string]string{"a": "b"}}, nil)
	r.want(200, "POST", "/sessions/one/annotations", map[string]any{"note": "good"}, &note)
	if note.Reward == nil || *note.Reward != 0.5 || note.Note == nil || note.Labels["a"] != "b" {
		t.Errorf("got %+v", note)
	}
	for _, format := range []string{"jsonl", "openai", "atif", "bundle"} {
		a := r.want(200, "GET", "/sessions/one/export?format="+format, nil, nil)
		if len(a.body) < 100 || !strings.HasPrefix(a.header.Get("Content-Disposition"), `attachment; filename="one.`) {
			t.Errorf("%s: %d bytes, %v", format, len(a.body), a.header)
		}
	}
	r.refused(422, "validation", "GET", "/sessions/one/export?format=xml", nil)
	r.refused(404, "session-not-found", "GET", "/sessions/nobody/export", nil)
	log := r.want(200, "GET", "/sessions/one/export", nil, nil)
	auth := map[string]string{"Authorization": "Bearer " + r.token, "Content-Type": "application/x-ndjson"}
	back := r.send("POST", "/api/v1/sessions/import?workspace="+r.ws, string(log.body), auth)
	var imported host.Info
	back.into(t, &imported)
	if back.status != 201 || imported.ID == "one" || eventTypes(r.log(imported.ID)) != eventTypes(r.log("one")) {
		t.Errorf("%d %s", back.status, back.body)
	}
	for _, body := range []any{nil, "", "\n"} {
		if a := r.send("POST", "/api/v1/sessions/import", body, auth); a.status != 422 || a.code() != "validation" || body != "\n" && !strings.Contains(string(a.body), "it is empty") {
			t.Errorf("an empty log: %d %s", a.status, a.body)
		}
	}
	if a := r.send("POST", "/api/v1/sessions/import", "nonsense\n", auth); a.status != 422 || a.code() != "validation" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
