package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
)

func codeOf(err error) string {
	var refused *host.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

func writePreset(t *testing.T, root, id, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, id), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, id, "preset.yml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCreateIsIdempotent(t *testing.T) {
	r := newRig(t, options{})
	spec := host.Spec{ID: "s", Preset: "minimal", Workspace: r.ws, Title: "one"}
	var group sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		group.Go(func() {
			_, created, err := r.host.Create(context.Background(), spec)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if created {
				made++
			}
		})
	}
	group.Wait()
	if made != 1 {
		t.Errorf("made %d times, want once", made)
	}
	spec.Title = "two"
	if _, _, err := r.host.Create(r.ctx(), spec); codeOf(err) != host.CodeSessionConflict {
		t.Errorf("another specification: %v", err)
	}
}

func TestBatchIsOneCommitAndOneGroup(t *testing.T) {
	r := newRig(t, options{config: func(c *host.Config) { c.MaxLive = 5 }})
	infos, err := r.host.CreateBatch(r.ctx(), host.Spec{Preset: "minimal", Workspace: r.ws, Attempt: 1, Message: text("go")}, 4)
	r.must(err)
	for i, in := range infos {
		if in.Group != infos[0].Group || in.Group == "" || in.Attempt != i+1 {
			t.Errorf("sibling %d: group %q, attempt %d", i, in.Group, in.Attempt)
		}
		_, err := r.session(in.ID).WaitIdle(r.ctx())
		r.must(err)
	}
	// One more than there is room for leaves nothing.
	if _, err := r.host.CreateBatch(r.ctx(), host.Spec{Preset: "minimal", Workspace: r.ws}, 2); codeOf(err) != host.CodeLimit {
		t.Errorf("over the limit: %v", err)
	}
	list, err := r.host.List(r.ctx(), session.Query{})
	r.must(err)
	if len(list.Sessions) != 4 || r.host.Report().Live != 4 {
		t.Errorf("%d sessions, %d live, want 4 and 4", len(list.Sessions), r.host.Report().Live)
	}
}

func TestPresetSwitchOnlyWhileBlank(t *testing.T) {
	root := t.TempDir()
	writePreset(t, root, "polite", "version: 1\nextends: minimal\nrows:\n  - {id: persona, use: persona, with: {text: Be polite.}}\n")
	writePreset(t, root, "broken", "version: 1\nrows:\n  - {id: x, use: nothing-like-it}\n")
	r := newRig(t, options{roots: []string{root}})
	r.create("s", "minimal")
	s := r.session("s")
	to := func(id string) error {
		_, err := s.Patch(r.ctx(), host.Patch{Preset: &id})
		return err
	}
	if err := to("broken"); codeOf(err) != host.CodePresetBroken {
		t.Errorf("switch to a broken preset: %v", err)
	}
	prompt := func() string {
		v, err := s.Prompt(r.ctx())
		r.must(err)
		return v.System
	}
	if got := prompt(); got != minimalSystem {
		t.Errorf("after a failed switch: %q", got)
	}
	r.must(to("polite"))
	if got := prompt(); got != "Be polite." {
		t.Errorf("after the switch: %q", got)
	}
	info, err := s.Info(r.ctx())
	r.must(err)
	if info.Preset.ID != "polite" || info.Preset.Name != "polite" {
		t.Errorf("preset: %+v", info.Preset)
	}
	r.say("s", "hello")
	if err := to("minimal"); codeOf(err) != host.CodePresetLocked {
		t.Errorf("switch after a turn: %v", err)
	}
	for _, q := range r.wire.Requests() {
		if !strings.Contains(string(q.Body), "Be polite.") {
			t.Errorf("the request has another prompt: %s", q.Body)
		}
	}
	if n := count(r.events("s"), "agent-preset/selected"); n != 1 {
		t.Errorf("%d switches are logged, want 1", n)
	}
}

// TestResumeUsesWhatWasRecorded changes the preset's file between two lives of a session.
func TestResumeUsesWhatWasRecorded(t *testing.T) {
	root := t.TempDir()
	preset := "version: 1\nextends: minimal\nrows:\n  - {id: persona, use: persona, with: {text: The first text.}}\n"
	writePreset(t, root, "mine", preset)
	source := script.ByHistory(script.Turn{bash("c1", "export K=1; echo set")}, script.Turn{script.Text("one")}, script.Turn{bash("c2", "echo [$K]")}, script.Turn{script.Text("two")})
	r := newRig(t, options{roots: []string{root}, source: source})
	r.create("s", "mine")
	r.say("s", "go")
	r.stop()

	writePreset(t, root, "mine", strings.Replace(preset, "first", "second", 1))
	r2 := newRig(t, options{roots: []string{root}, source: source, dir: r.dir})
	info, err := r2.session("s").Info(r2.ctx())
	r2.must(err)
	if info.Live {
		t.Error("a session is live before anybody sent it a message")
	}
	r2.say("s", "again")
	requests := r2.wire.Requests()
	if len(requests) != 2 {
		t.Fatalf("%d requests", len(requests))
	}
	if b := string(requests[0].Body); !strings.Contains(b, "The first text.") || strings.Contains(b, "second") || !strings.Contains(b, "echo set") {
		t.Errorf("the resumed session sent %s", b)
	}
	p, err := r2.session("s").Proof(r2.ctx())
	r2.must(err)
	if !p.Contiguous || len(p.Requests) != 4 {
		t.Errorf("the chain breaks over a restart: %+v", p)
	}
	got := results(t, r2.events("s"))
	if len(got) != 2 || !strings.HasPrefix(got[1], "[]") || !strings.Contains(got[1], "new") {
		t.Errorf("the model isn't told that its shell is new: %q", got)
	}
}

func TestEvictionLeavesUsedShellsAlone(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	r := newRig(t, options{
		source: script.ByHistory(script.Turn{script.Text("1")}, script.Turn{script.Text("2")}),
		config: func(c *host.Config) {
			c.EvictIdle = 20 * time.Millisecond
			c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		},
	})
	r.create("idle", "minimal")
	r.create("used", "minimal")
	terminal, ok := r.session("used").Terminal()
	if !ok {
		t.Fatal("no terminal")
	}
	runShell(t, terminal)
	log, err := r.host.Journal().Open(r.ctx(), "idle")
	r.must(err)
	defer r.host.Journal().Release(log)
	mu.Lock()
	now = now.Add(time.Hour)
	mu.Unlock()
	for r.session("idle").Log().State().LastSeq < 0 {
		changed := log.Changed()
		if log.State().LastSeq >= 0 {
			break
		}
		select {
		case <-changed:
		case <-r.ctx().Done():
			t.Fatal("the idle agent is never evicted")
		}
	}
	if n := count(r.events("idle"), "agent/evicted"); n != 1 {
		t.Errorf("%d evictions are logged", n)
	}
	if info, err := r.session("used").Info(r.ctx()); err != nil || !info.Live {
		t.Errorf("an agent that used its shell was evicted: %+v, %v", info, err)
	}
	// A message brings the evicted one back.
	r.say("idle", "hello")
	if n := count(r.events("idle"), "turn/end"); n != 1 {
		t.Errorf("%d turns ended", n)
	}
}

// A shell isn't taken from under a person's hands.
func TestArchivingLeavesAHeldKeyboard(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{bash("call_1", "x=1")}, script.Turn{script.Text("done")})})
	r.create("s", "minimal")
	r.say("s", "go")
	s := r.session("s")
	terminal, ok := s.Terminal()
	if !ok {
		t.Fatal("no terminal")
	}
	keyboard, err := terminal.Take(r.ctx(), "owner")
	r.must(err)
	yes := true
	info, err := s.Patch(r.ctx(), host.Patch{Archived: &yes})
	r.must(err)
	if !info.Live || !info.Archived {
		t.Errorf("live %v, archived %v", info.Live, info.Archived)
	}
	r.must(keyboard.Release(r.ctx()))
	info, err = s.Patch(r.ctx(), host.Patch{Archived: &yes})
	r.must(err)
	if info.Live {
		t.Error("the agent stays when the keyboard is free again")
	}
}

// Archiving is how an owner gives back a finished agent's shell without losing its session.
func TestArchivingClosesAnIdleAgent(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, options{source: script.ByHistory(script.Turn{bash("call_1", "x=1")}, script.Turn{script.Text("done")}, script.Turn{script.Wait(release), script.Text("late")})})
	r.create("s", "minimal")
	r.say("s", "go")
	s := r.session("s")
	yes, no := true, false
	info, err := s.Patch(r.ctx(), host.Patch{Archived: &yes})
	r.must(err)
	if info.Live || !info.Archived || r.host.Report().Live != 0 {
		t.Errorf("after archiving: live %v, archived %v, %d agents", info.Live, info.Archived, r.host.Report().Live)
	}
	if n := count(r.events("s"), "agent/evicted"); n != 1 {
		t.Errorf("%d evictions are logged", n)
	}
	_, err = s.Patch(r.ctx(), host.Patch{Archived: &no})
	r.must(err)

	// One that runs goes on.
	_, err = s.Send(r.ctx(), host.Message{Content: text("again")})
	r.must(err)
	info, err = s.Patch(r.ctx(), host.Patch{Archived: &yes})
	r.must(err)
	if !info.Live {
		t.Error("archiving closed a running agent")
	}
	close(release)
	st, err := s.WaitIdle(r.ctx())
	r.must(err)
	if st.LastEnd == nil || st.LastEnd.Reason.Kind != session.EndCompleted || st.Turns != 2 {
		t.Errorf("the running turn ended with %+v", st.LastEnd)
	}
}

// What was filed away while it ran goes when it doesn't run any more, also an agent that else would be kept for its shell.
func TestArchivedAgentGoesAfterItsTurn(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, options{
		source: script.ByHistory(script.Turn{bash("call_1", "x=1")}, script.Turn{script.Wait(release), script.Text("done")}),
		config: func(c *host.Config) { c.EvictIdle = 20 * time.Millisecond },
	})
	r.create("s", "minimal")
	s := r.session("s")
	_, err := s.Send(r.ctx(), host.Message{Content: text("go")})
	r.must(err)
	yes := true
	info, err := s.Patch(r.ctx(), host.Patch{Archived: &yes})
	r.must(err)
	if !info.Live {
		t.Error("archiving closed a running agent")
	}
	log, err := r.host.Journal().Open(r.ctx(), "s")
	r.must(err)
	defer r.host.Journal().Release(log)
	close(release)
	for {
		changed := log.Changed()
		if count(r.events("s"), "agent/evicted") == 1 {
			break
		}
		select {
		case <-changed:
		case <-r.ctx().Done():
			t.Fatal("the archived agent stays")
		}
	}
	if st := log.State(); st.LastEnd == nil || st.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the turn ended with %+v", st.LastEnd)
	}
}

func TestForkCopiesUpToATurnEnd(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{script.Text("1")}, script.Turn{script.Text("2")}, script.Turn{script.Text("3")})})
	r.create("s", "minimal")
	r.say("s", "first")
	end := r.session("s").Log().State().LastSeq
	r.say("s", "second")
	before := len(r.events("s"))
	info, err := r.session("s").Fork(r.ctx(), &end, "")
	r.must(err)
	if info.Parent != "s" || info.Blank {
		t.Errorf("fork: %+v", info)
	}
	r.say(info.ID, "other")
	last := r.wire.Requests()[2]
	if b := string(last.Body); !strings.Contains(b, "first") || !strings.Contains(b, "other") || strings.Contains(b, "second") {
		t.Errorf("the fork's request: %s", b)
	}
	if len(r.events("s")) != before {
		t.Error("the parent changed")
	}
	middle := end - 1
	if _, err := r.session("s").Fork(r.ctx(), &middle, ""); codeOf(err) != host.CodeForkPoint {
		t.Errorf("fork inside a turn: %v", err)
	}
	standard, err := r.session("s").Fork(r.ctx(), nil, "standard")
	r.must(err)
	if standard.Preset.ID != "standard" {
		t.Errorf("fork into another preset: %+v", standard.Preset)
	}
}

func TestDeleteNeedsForceWhileRunning(t *testing.T) {
	stalled := make(chan struct{})
	r := newRig(t, options{source: script.Sequence(script.Turn{script.Do(func() { close(stalled) }), script.Stall()})})
	r.create("s", "minimal")
	_, err := r.session("s").Send(r.ctx(), host.Message{Content: text("go")})
	r.must(err)
	<-stalled
	if err := r.host.Delete(r.ctx(), "s", false); codeOf(err) != host.CodeSessionRunning {
		t.Errorf("delete while running: %v", err)
	}
	r.must(r.host.Delete(r.ctx(), "s", true))
	if _, err := r.host.Session(r.ctx(), "s"); codeOf(err) != host.CodeSessionNotFound {
		t.Errorf("after the delete: %v", err)
	}
	if n := r.host.Report().Live; n != 0 {
		t.Errorf("%d live agents are left", n)
	}
}

func TestDrainParksAtTheToolBoundary(t *testing.T) {
	started, gate := make(chan struct{}), make(chan struct{})
	r := newRig(t, options{source: script.ByHistory(
		script.Turn{script.Do(func() { close(started) }), script.Wait(gate), bash("c1", "echo one")}, script.Turn{script.Text("never")})})
	r.create("s", "minimal")
	_, err := r.session("s").Send(r.ctx(), host.Message{Content: text("go")})
	r.must(err)
	<-started
	r.host.Drain()
	close(gate)
	st, err := r.session("s").WaitIdle(r.ctx())
	r.must(err)
	if st.LastEnd == nil || st.LastEnd.Reason.By != "shutdown" {
		t.Errorf("end: %+v", st.LastEnd)
	}
	if got := results(t, r.events("s")); len(got) != 1 || got[0] != "one" {
		t.Errorf("the running step didn't finish: %q", got)
	}
	if _, _, err := r.host.Create(r.ctx(), host.Spec{Preset: "minimal", Workspace: r.ws}); codeOf(err) != host.CodeDraining {
		t.Errorf("create while draining: %v", err)
	}
	if _, err := r.session("s").Send(r.ctx(), host.Message{Content: text("more")}); codeOf(err) != host.CodeDraining {
		t.Errorf("send while draining: %v", err)
	}
}

func TestFeedGivesTheLatestValueOfEachSession(t *testing.T) {
	r := newRig(t, options{})
	r.create("a", "minimal")
	sub := r.host.Feed().Subscribe()
	defer sub.Close()
	first, err := sub.Next(r.ctx())
	r.must(err)
	if len(first.Sessions) != 1 || first.Sessions[0].ID != "a" {
		t.Fatalf("first frame: %+v", first)
	}
	r.create("b", "minimal")
	r.must(r.host.Delete(r.ctx(), "a", false))
	removed, added := false, false
	for !removed || !added {
		f, err := sub.Next(r.ctx())
		r.must(err)
		for _, id := range f.Removed {
			removed = removed || id == "a"
		}
		for _, s := range f.Sessions {
			added = added || s.ID == "b"
		}
	}
}

func TestModelSelectionIsPerSessionAndItsKeyIsNowhere(t *testing.T) {
	r := newRig(t, options{})
	key := "sk-own-secret-0123456789"
	_, _, err := r.host.Create(r.ctx(), host.Spec{ID: "s", Preset: "minimal", Workspace: r.ws, Model: model.Selection{
		Provider: "deepseek", Model: "any-model", BaseURL: r.server.URL, APIKey: key, Params: map[string]json.RawMessage{"temperature": json.RawMessage("0.5")},
	}})
	r.must(err)
	r.say("s", "hello")
	q := r.wire.Requests()[0]
	if !strings.Contains(string(q.Body), `"temperature":0.5`) || !strings.Contains(string(q.Body), "any-model") {
		t.Errorf("the request: %s", q.Body)
	}
	if got := q.Header.Get("Authorization"); got != "Bearer "+key {
		t.Errorf("authorization: %q", got)
	}
	info, err := r.session("s").Info(r.ctx())
	r.must(err)
	raw, err := json.Marshal(info)
	r.must(err)
	all, err := json.Marshal(r.events("s"))
	r.must(err)
	if strings.Contains(string(raw)+string(all), key) {
		t.Error("the key is in the log or the answer")
	}
}

func TestRetentionArchivesThenDeletes(t *testing.T) {
	now := time.Now()
	r := newRig(t, options{config: func(c *host.Config) { c.Now = func() time.Time { return now } }})
	for _, id := range []string{"old", "archived", "fresh"} {
		r.create(id, "minimal")
	}
	yes := true
	_, err := r.session("archived").Patch(r.ctx(), host.Patch{Archived: &yes})
	r.must(err)
	r.stop()

	now = now.Add(100 * time.Hour)
	later := newRig(t, options{dir: r.dir, config: func(c *host.Config) {
		c.Now = func() time.Time { return now }
	}})
	s := later.session("fresh")
	_, err = s.Send(later.ctx(), host.Message{Content: text("still here")})
	later.must(err)
	_, err = s.WaitIdle(later.ctx())
	later.must(err)
	later.stop()

	last := newRig(t, options{dir: r.dir, config: func(c *host.Config) {
		c.Now = func() time.Time { return now }
		c.Retention = host.Retention{Archive: 50 * time.Hour, Delete: 90 * time.Hour}
	}})
	sub := last.host.Feed().Subscribe()
	defer sub.Close()
	for {
		list, err := last.host.List(last.ctx(), session.Query{})
		last.must(err)
		state := map[string]bool{}
		for _, in := range list.Sessions {
			state[in.ID] = in.Archived
		}
		_, there := state["archived"]
		if !there && state["old"] {
			if state["fresh"] {
				t.Error("a session that was touched is archived")
			}
			return
		}
		if _, err := sub.Next(last.ctx()); err != nil {
			t.Fatalf("never: %v; the sessions: %v", err, state)
		}
	}
}
