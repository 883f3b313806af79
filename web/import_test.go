package web_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host"
)

// TestImportKeepsThePreset moves a session that asks to hosts that have its preset, have another one of that name, or don't have it.
func TestImportKeepsThePreset(t *testing.T) {
	from := newRig(t, options{presets: carefulPresets})
	from.create(map[string]any{"id": "one", "preset": "careful"})
	from.say("one", "say: hello")
	log := string(from.want(200, "GET", "/sessions/one/export", nil, nil).body)
	minimal := from.create(map[string]any{"id": "two"})
	head, events, _ := strings.Cut(log, "\n")
	var header map[string]any
	from.must(json.Unmarshal([]byte(head), &header))
	delete(header, "agentPreset")
	foreign, err := json.Marshal(header)
	from.must(err)

	upload := func(r *rig, query, log string) (answer, host.Info) {
		t.Helper()
		a := r.send("POST", "/api/v1/sessions/import?workspace="+r.ws+query, log, map[string]string{"Authorization": "Bearer " + r.token, "Content-Type": "application/x-ndjson"})
		var info host.Info
		if a.status == 201 {
			a.into(t, &info)
		}
		return a, info
	}
	a, info := upload(from, "", log)
	if a.status != 201 || info.Preset.ID != "careful" || eventTypes(from.log(info.ID)) != eventTypes(from.log("one")) {
		t.Errorf("%d %s", a.status, a.body)
	}
	from.begin(info.ID, "run: echo asked") // it still asks
	if asked := from.pending(info.ID); asked.Tool != "bash" {
		t.Errorf("%+v", asked)
	}
	a, info = upload(from, "", string(foreign)+"\n"+events)
	if a.status != 201 || info.Preset != minimal.Preset {
		t.Errorf("a log without a preset: %d %s", a.status, a.body)
	}
	a, info = upload(from, "&preset=minimal", log)
	if a.status != 201 || info.Preset != minimal.Preset || !strings.HasSuffix(eventTypes(from.log(info.ID)), "preset/selected\n") {
		t.Errorf("with another preset: %d %s", a.status, a.body)
	}
	// What it was given last is what counts when it moves on, not what it was created with.
	moved := string(from.want(200, "GET", "/sessions/"+info.ID+"/export", nil, nil).body)
	if a, info = upload(from, "", moved); a.status != 201 || info.Preset != minimal.Preset {
		t.Errorf("with a preset selected: %d %s", a.status, a.body)
	}

	for code, presets := range map[string]map[string]string{"preset-not-found": nil, "preset-changed": {"careful": "version: 1\nextends: minimal\n"}} {
		r := newRig(t, options{presets: presets})
		a, _ := upload(r, "", log)
		if a.status != 422 || a.code() != code || !strings.Contains(string(a.body), "?preset=") || !strings.Contains(string(a.body), `"known":["`) {
			t.Errorf("want %s: %d %s", code, a.status, a.body)
		}
		var list host.List
		if r.want(200, "GET", "/sessions", nil, &list); len(list.Sessions) != 0 {
			t.Errorf("left behind: %+v", list.Sessions)
		}
		if a, info := upload(r, "&preset=standard", log); a.status != 201 || info.Preset.ID != "standard" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a, _ := upload(r, "&preset=nope", log); a.status != 422 || a.code() != "preset-not-found" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}
