package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKilledWhileAnApprovalWaits kills the host with SIGKILL while a call waits for leave. The next one withdraws it with a reason, doesn't run
// the call, and the session goes on.
func TestKilledWhileAnApprovalWaits(t *testing.T) {
	data, ws := t.TempDir(), t.TempDir()
	preset := filepath.Join(data, "presets", "careful")
	if err := os.MkdirAll(preset, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "version: 1\nextends: minimal\nrows:\n  - {id: approvals, use: approvals, with: {tools: [bash]}}\n"
	if err := os.WriteFile(filepath.Join(preset, "preset.yml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	call := func(p *process, want int, method, path, body string) []byte {
		t.Helper()
		status, answer := p.try(ctx, method, "/api/v1"+path, body)
		if status != want {
			t.Fatalf("%s %s: %d %s, want %d", method, path, status, answer, want)
		}
		return answer
	}
	type list struct {
		Approvals []struct{ ID, ArgsHash string }
	}
	pending := func(p *process) (l list) {
		t.Helper()
		if err := json.Unmarshal(call(p, 200, "GET", "/approvals", ""), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}

	p := startProcess(t, data)
	call(p, 201, "POST", "/sessions", `{"id":"s","preset":"careful","workspace":"`+ws+`"}`)
	call(p, 202, "POST", "/sessions/s/messages", `{"content":"run: touch ran"}`)
	if err := p.await("s", "approval/asked", 1); err != nil {
		t.Fatal(err)
	}
	waits := pending(p)
	if len(waits.Approvals) != 1 {
		t.Fatalf("%+v", waits)
	}
	p.kill()

	p = startProcess(t, data)
	if left := pending(p); len(left.Approvals) != 0 {
		t.Errorf("still pending: %+v", left)
	}
	a := waits.Approvals[0]
	refused := call(p, 409, "POST", "/approvals/"+a.ID+"/decision", `{"decision":"allow","argsHash":"`+a.ArgsHash+`"}`)
	if !strings.Contains(string(refused), `"outcome":"cancelled"`) {
		t.Errorf("decided afterwards: %s", refused)
	}
	events := string(call(p, 200, "GET", "/sessions/s/events?after=-1", ""))
	for _, want := range []string{"The host stopped before this was decided.", "The host stopped before this call started. It was not run."} {
		if !strings.Contains(events, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	call(p, 202, "POST", "/sessions/s/messages", `{"content":"run: touch later"}`)
	if err := p.await("s", "approval/asked", 2); err != nil {
		t.Fatal(err)
	}
	a = pending(p).Approvals[0]
	call(p, 200, "POST", "/approvals/"+a.ID+"/decision", `{"decision":"allow","argsHash":"`+a.ArgsHash+`"}`)
	if err := p.await("s", "turn/end", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(ws, "ran")); err == nil {
		t.Error("the withdrawn call ran")
	}
	if _, err := os.Stat(filepath.Join(ws, "later")); err != nil {
		t.Error("the allowed call didn't run")
	}
}
