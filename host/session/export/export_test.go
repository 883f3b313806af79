package export_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/export"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
)

var update = flag.Bool("update", false, "rewrite golden files")

func journal(t *testing.T, dir string, readOnly bool) *session.Journal {
	t.Helper()
	store, err := jsonl.Open(dir, jsonl.Options{ReadOnly: readOnly})
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_700_000_000_000)
	j := session.NewJournal(store, session.Options{Now: func() time.Time { now = now.Add(time.Second); return now }})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return j
}

// sample is a session with two steps, a failed call, broken arguments, an image and an interrupted answer.
func sample(t *testing.T, j *session.Journal) *session.Log {
	t.Helper()
	tool := model.Source{Kind: model.SourceTool}
	result := func(call, text string, failed *session.ToolError) session.ToolResult {
		source := tool
		source.CallID = call
		return session.ToolResult{Turn: 1, Step: 1, Error: failed, Message: model.Message{ID: "r" + call, Role: model.RoleUser, Source: source,
			Content: []model.Block{{Type: model.BlockToolResult, ToolCallID: call, IsError: failed != nil, Content: []model.Block{model.Text(text)}}}}}
	}
	assistant := model.Source{Kind: model.SourceModel, Provider: "p", Model: "m-1"}
	var header session.RequestHeader
	header.Reason = "initial"
	header.Header.Config = session.RequestConfig{Provider: "p", Model: "m-1", ReasoningEffort: "high"}
	header.Header.System = "You are <helpful> & kind."
	header.Header.Tools = []model.Tool{{Name: "bash", Description: "Run.", Parameters: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}}}`)}}
	ask := model.Message{ID: "u1", Role: model.RoleUser, Source: model.Source{Kind: model.SourceUser}, Content: []model.Block{
		model.Text("look at this: 😀"), {Type: model.BlockImage, AttachmentID: "pic/1", Mime: "image/png"},
	}}
	l, err := j.CreateAll(t.Context(), []session.Creation{{
		Header: session.Header{ID: "s 1", CreatedAt: 1_699_999_999_000, Cwd: "/work", AgentPreset: session.PresetRef{ID: "minimal", Hash: "abc"}, Labels: map[string]string{"task": "t"}, Group: "g", Attempt: 3},
		Pin:    session.Pin("the pin"), Settings: []byte(`{"apiKey":"sk-SECRET"}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	payloads := []session.Payload{
		session.InboxSpliced{Target: session.TargetNextTurn, Inserted: []model.Message{ask}},
		session.TurnStart{Turn: 1}, session.InboxSpliced{Target: session.TargetNextTurn, RemovedCount: 1, Inserted: []model.Message{}, Outcome: "claimed"},
		session.StepStart{Turn: 1, Step: 1}, session.UserMessage{Message: ask}, header,
		session.UserMessage{Message: model.Message{ID: "h1", Role: model.RoleUser, Source: model.Source{Kind: model.SourceHost, Name: "runtime-context"}, Content: []model.Block{model.Text("the time")}}},
		session.AssistantMessage{Turn: 1, Step: 1, Usage: &model.Usage{InputTokens: 10, OutputTokens: 5, CacheReadTokens: 7},
			Tokens: json.RawMessage(`{"prompt_token_ids":[1,2],"chunks":[{"token_ids":[3]},{"token_ids":[4,5]}]}`),
			Message: model.Message{ID: "a1", Role: model.RoleAssistant, Source: assistant, Content: []model.Block{
				{Type: model.BlockReasoning, Text: "hm"}, model.Text("I run two."),
				{Type: model.BlockToolCall, ID: "c1", Name: "bash", Arguments: `{"command": "ls"}`}, {Type: model.BlockToolCall, ID: "c2", Name: "bash", Arguments: `{"comm`},
			}}},
		session.ToolCall{Turn: 1, Step: 1, CallID: "c1", Name: "bash", Arguments: `{"command": "ls"}`}, session.ToolCall{Turn: 1, Step: 1, CallID: "c2", Name: "bash", Arguments: `{"comm`},
		result("c1", "a\nb", nil), result("c2", "bad arguments", &session.ToolError{Name: "bash", Code: "ARGUMENTS"}),
		session.StepEnd{Turn: 1, Step: 1}, session.StepStart{Turn: 1, Step: 2},
		session.AssistantMessage{Turn: 1, Step: 2, Interrupted: true, Usage: &model.Usage{InputTokens: 20, OutputTokens: 1},
			Message: model.Message{ID: "a2", Role: model.RoleAssistant, Source: assistant, Content: []model.Block{model.Text("Tw")}}},
		session.StepEnd{Turn: 1, Step: 2}, session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: session.EndAborted, By: "user"}},
	}
	if _, err := l[0].Update(t.Context(), func(session.State) ([]session.Draft, error) {
		var out []session.Draft
		for _, p := range payloads {
			out = append(out, session.Draft{Payload: p})
		}
		return out, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.SetAnnotations(t.Context(), "s 1", []byte(`{"reward":0.5}`)); err != nil {
		t.Fatal(err)
	}
	return l[0]
}

func write(t *testing.T, j *session.Journal, id string, f export.Format, opts export.Options) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := export.Write(t.Context(), &buf, j, id, f, opts); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(buf.Bytes(), []byte("SECRET")) {
		t.Errorf("%s holds the session's key", f)
	}
	return buf.Bytes()
}

func TestGolden(t *testing.T) {
	j := journal(t, t.TempDir(), false)
	sample(t, j)
	for _, f := range []export.Format{export.JSONL, export.OpenAI, export.ATIF} {
		t.Run(string(f), func(t *testing.T) {
			got := write(t, j, "s 1", f, export.Options{Version: "1.2.3"})
			_, extension, err := f.Media()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "sample."+extension)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error("golden differs (-want +got), -update rewrites:\n" + diff)
			}
		})
	}
	if err := export.Write(t.Context(), io.Discard, j, "s 1", "xml", export.Options{}); !errors.Is(err, export.ErrFormat) {
		t.Error("unknown format:", err)
	}
	if err := export.Write(t.Context(), io.Discard, j, "nobody", export.JSONL, export.Options{}); !errors.Is(err, session.ErrNotFound) {
		t.Error("unknown session:", err)
	}
}

func TestImportGivesTheSameLog(t *testing.T) {
	j := journal(t, t.TempDir(), false)
	l := sample(t, j)
	log := write(t, j, "s 1", export.JSONL, export.Options{})
	again, err := export.Import(t.Context(), bytes.NewReader(log), j, export.ImportOptions{ID: "copy"})
	if err != nil {
		t.Fatal(err)
	}
	want, got := l.State(), again.State()
	if diff := cmp.Diff(want.History, got.History); diff != "" || got.Last != want.Last || got.LastSeq != want.LastSeq {
		t.Errorf("last %d %s, want %d %s\n%s", got.LastSeq, got.Last, want.LastSeq, want.Last, diff)
	}
	if again.Info().Model.Model != "m-1" || again.Header().Cwd != "/work" {
		t.Errorf("info %+v", again.Info())
	}
	if _, err := export.Import(t.Context(), bytes.NewReader(log), j, export.ImportOptions{}); !errors.Is(err, session.ErrExists) {
		t.Error("taken id:", err)
	}
}

func TestImport(t *testing.T) {
	head := `{"type":"session","version":0,"id":"x","createdAt":1,"cwd":"/w","delegationDepth":0}` + "\n"
	event := func(seq int, kind, data string) string {
		return fmt.Sprintf(`{"seq": %d, "time": 5, "type": %q, "data": %s}`+"\n", seq, kind, data)
	}
	first := session.EncodeEvent(session.Event{Type: "turn/start", Data: json.RawMessage(`{"turn":1}`)})
	hashed := string(session.EncodeEvent(session.Event{Seq: 1, Type: "turn/end", Data: json.RawMessage(`{"turn":1,"reason":{"kind":"completed"}}`), Prev: session.HashEvent(first)})) + "\n"
	for _, tc := range []struct{ name, log, err string }{
		{"without hashes", head + event(0, "turn/start", `{"turn":1}`) + event(1, "turn/end", `{"turn":1,"reason":{"kind":"completed"}}`), ""},
		{"with hashes", head + string(first) + "\n" + hashed, ""},
		{"an open turn is closed", head + event(0, "turn/start", `{"turn":1}`), ""},
		{"only a header", head, ""},
		{"torn last line", head + event(0, "session/title", `{"title":"t"}`) + `{"seq":1,"ti`, ""},
		{"last line without its end", head + strings.TrimSuffix(event(0, "session/title", `{"title":"t"}`), "\n"), ""},
		{"unknown but ignorable", head + `{"seq":0,"time":1,"type":"x/y","data":{},"ignorable":true}` + "\n", ""},
		{"empty", "", "the log can't be imported: it is empty"},
		{"no header", event(0, "turn/start", `{"turn":1}`), "line 1"},
		{"torn middle line", head + `{"seq":0,"ti` + "\n" + event(1, "turn/start", `{"turn":1}`), "line 2"},
		{"a gap", head + event(0, "session/title", `{"title":"t"}`) + event(2, "turn/start", `{"turn":1}`), "line 3"},
		{"unknown type", head + event(0, "x/y", `{}`), `line 2: session x is damaged and read-only: event 0 has the type "x/y"`},
		{"bad payload", head + event(0, "turn/start", `{"turn":"one"}`), "line 2"},
		{"a wrong hash", head + strings.Replace(string(first), `"turn":1`, `"turn":2`, 1) + "\n" + hashed, "line 3"},
		{"a hash over another form", head + string(first) + "\n" + strings.Replace(hashed, `"time":`, `"time": `, 1), "line 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := journal(t, t.TempDir(), false)
			l, err := export.Import(t.Context(), strings.NewReader(tc.log), j, export.ImportOptions{})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				if _, err := j.Info(t.Context(), "x"); !errors.Is(err, session.ErrNotFound) {
					t.Error("something was left behind:", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if st := l.State(); st.TurnOpen || st.Damage != "" {
				t.Errorf("state %+v", st)
			}
		})
	}
}

func TestImportTakesNoLeaveAlong(t *testing.T) {
	lines := []string{`{"type":"session","version":0,"id":"x","createdAt":1,"cwd":"/w","delegationDepth":0}`}
	for i, e := range []string{
		`"turn/start","data":{"turn":1}`,
		`"approval/asked","data":{"id":"a~x","tool":"bash","callId":"c","arguments":"{\"command\":\"git status\"}","argsHash":"h","reason":"r"}`,
		`"approval/decided","data":{"id":"a~x","outcome":"allowed","scope":"session","by":"owner"}`,
		`"approval/policy","data":{"policy":"full"}`,
		`"approval/asked","data":{"id":"b~x","tool":"bash","callId":"c","argsHash":"h","reason":"r"}`,
	} {
		lines = append(lines, fmt.Sprintf(`{"seq":%d,"time":1,"type":%s}`, i, e))
	}
	j := journal(t, t.TempDir(), false)
	l, err := export.Import(t.Context(), strings.NewReader(strings.Join(lines, "\n")+"\n"), j, export.ImportOptions{ID: "y"})
	if err != nil {
		t.Fatal(err)
	}
	if st := l.State(); len(st.Grants) != 0 || st.Policy != session.PolicyAsk || len(st.Approvals) != 0 || l.Info().Pending != 0 {
		t.Errorf("grants %+v, policy %q, pending %+v", st.Grants, st.Policy, st.Approvals)
	}
}

func TestBundle(t *testing.T) {
	j := journal(t, t.TempDir(), false)
	l := sample(t, j)
	picture := func(_ context.Context, id, attachment string) (io.ReadCloser, error) {
		if id != "s 1" || attachment != "pic/1" {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(strings.NewReader("PNG")), nil
	}
	file := filepath.Join(t.TempDir(), "b.zip")
	if err := os.WriteFile(file, write(t, j, "s 1", export.Bundle, export.Options{Version: "1.2.3", Attachment: picture}), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m, err := export.Unpack(file, dir)
	if err != nil || len(m.Sessions) != 1 || m.Sessions[0] != "s 1" || m.Program != "1.2.3" {
		t.Fatal(m, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "--bundle--", "s%201", "attachments", "pic%2F1")); err != nil || string(b) != "PNG" {
		t.Error(string(b), err)
	}
	view := journal(t, dir, true)
	shown, err := view.Open(t.Context(), "s 1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l.State(), shown.State()); diff != "" {
		t.Error(diff)
	}
	if pin, err := view.Pin(t.Context(), "s 1"); err != nil || string(pin) != "the pin" {
		t.Error(string(pin), err)
	}
	if settings, err := view.Settings(t.Context(), "s 1"); err != nil || settings != nil {
		t.Error(string(settings), err)
	}
	if list, err := view.List(t.Context(), session.Query{Text: "LOOK AT"}); err != nil || len(list.Sessions) != 1 {
		t.Error(list, err)
	}
	if _, err := shown.Update(t.Context(), func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Payload: session.Title{Title: "x"}}}, nil
	}); !errors.Is(err, session.ErrReadOnly) {
		t.Error("a bundle was written to:", err)
	}
	j.Release(l)
}

func TestUnpackRefuses(t *testing.T) {
	manifest := `{"format":"dsh-web-bundle","version":1,"sessions":[]}`
	for name, entries := range map[string]map[string]string{
		"up":              {"manifest.json": manifest, "../x/session.jsonl": ""},
		"up inside":       {"manifest.json": manifest, "--bundle--/../session.jsonl": ""},
		"absolute":        {"manifest.json": manifest, "/etc/x": ""},
		"backslash":       {"manifest.json": manifest, `--bundle--/a/..\x`: ""},
		"another folder":  {"manifest.json": manifest, "other/a/session.jsonl": ""},
		"no manifest":     {"--bundle--/a/session.jsonl": ""},
		"a newer version": {"manifest.json": strings.Replace(manifest, `:1,`, `:9,`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			z := zip.NewWriter(&buf)
			for entry, content := range entries {
				f, err := z.Create(entry)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(f, content); err != nil {
					t.Fatal(err)
				}
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "b.zip")
			if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "inner")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if _, err := export.Unpack(file, dir); err == nil {
				t.Error("accepted")
			}
			if beside, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(beside) != 1 {
				t.Error("something was written outside:", beside, err)
			}
		})
	}
}
