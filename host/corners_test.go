package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/prompt"
)

// store lets a test look into commits before they happen. An error of its function is the commit's.
type store struct {
	session.Store
	mu     sync.Mutex
	before func([]session.Change) error
}

func (s *store) Commit(epoch int64, changes []session.Change) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(changes); err != nil {
			return err
		}
	}
	return s.Store.Commit(epoch, changes)
}

func (s *store) set(before func([]session.Change) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// watched wraps the host's store.
func (s *store) config(c *host.Config) { s.Store, c.Store = c.Store, s }

// entered is a context that tells when somebody begins to wait for its end.
type entered struct {
	context.Context
	once sync.Once
	ch   chan struct{}
}

func (e *entered) Done() <-chan struct{} {
	e.once.Do(func() { close(e.ch) })
	return e.Context.Done()
}

func (r *rig) entered() *entered { return &entered{Context: r.ctx(), ch: make(chan struct{})} }

// A fork into another preset is sent that preset's prompt and tools, not those that its parent's log recorded.
func TestForkIntoAnotherPresetHasItsPrompt(t *testing.T) {
	root := t.TempDir()
	writePreset(t, root, "polite", "version: 1\nextends: minimal\nrows:\n  - {id: persona, use: persona, with: {text: Be polite.}}\n")
	o := options{roots: []string{root}, source: script.ByHistory(script.Turn{script.Text("1")}, script.Turn{script.Text("2")})}
	r := newRig(t, o)
	r.create("s", "minimal")
	r.say("s", "first")
	fork, err := r.session("s").Fork(r.ctx(), nil, "polite")
	r.must(err)
	view, err := r.session(fork.ID).Prompt(r.ctx())
	r.must(err)
	if view.System != "Be polite." {
		t.Errorf("the fork shows the prompt %q", view.System)
	}
	r.stop() // also when another life of it sends the first request
	o.dir = r.dir
	r = newRig(t, o)
	r.say(fork.ID, "second")
	if b := string(r.wire.Requests()[0].Body); !strings.Contains(b, "Be polite.") || strings.Contains(b, minimalSystem) {
		t.Errorf("the fork sent %s", b)
	}
}

// A switch is one commit: what is recorded as the session's preset and what it is resumed on can't differ.
func TestPresetSwitchIsOneCommit(t *testing.T) {
	root := t.TempDir()
	writePreset(t, root, "polite", "version: 1\nextends: minimal\nrows:\n  - {id: persona, use: persona, with: {text: Be polite.}}\n")
	var s store
	r := newRig(t, options{roots: []string{root}, config: s.config})
	r.create("s", "minimal")
	full := errors.New("the disk is full")
	s.set(func(changes []session.Change) error {
		for _, c := range changes {
			if slices.ContainsFunc(c.Documents, func(d session.Document) bool { return d.Kind == session.DocPin }) {
				return full
			}
		}
		return nil
	})
	to := "polite"
	if _, err := r.session("s").Patch(r.ctx(), host.Patch{Preset: &to}); !errors.Is(err, full) {
		t.Fatalf("switch: %v", err)
	}
	info, err := r.session("s").Info(r.ctx())
	r.must(err)
	if info.Preset.ID != "minimal" || len(r.events("s")) != 0 {
		t.Errorf("half a switch is left: %+v, %v", info.Preset, types(r.events("s")))
	}
	s.set(nil)
	_, err = r.session("s").Patch(r.ctx(), host.Patch{Preset: &to})
	r.must(err)
	r.must(r.session("s").Close(r.ctx()))
	r.say("s", "hello")
	if b := string(r.wire.Requests()[0].Body); !strings.Contains(b, "Be polite.") {
		t.Errorf("the resumed session sent %s", b)
	}
}

// A switch that meets a turn which is about to begin is refused: the turn would carry the prompt of the preset that is on its way out.
func TestPresetSwitchMeetsABeginningTurn(t *testing.T) {
	building, gate := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(building); <-gate })
	r := newRig(t, options{onStart: func(h *host.Host) {
		err := h.Prompts().AddSection(h.Scope(), prompt.Section{Name: "slow", Order: 5, Text: func(context.Context) (string, error) { once(); return "SLOW", nil }})
		if err != nil {
			t.Fatal(err)
		}
	}})
	r.create("s", "standard")
	s := r.session("s")
	_, err := s.Send(r.ctx(), host.Message{Content: text("go")})
	r.must(err)
	<-building
	to := "minimal"
	_, switched := s.Patch(r.ctx(), host.Patch{Preset: &to})
	close(gate)
	_, err = s.WaitIdle(r.ctx())
	r.must(err)
	info, err := s.Info(r.ctx())
	r.must(err)
	body := string(r.wire.Requests()[0].Body)
	if minimal := strings.Contains(body, minimalSystem); (info.Preset.ID == "minimal") != minimal || (switched == nil) != minimal {
		t.Errorf("switch: %v; preset %s; sent %.300s", switched, info.Preset.ID, body)
	}
	if switched != nil && codeOf(switched) != host.CodePresetLocked {
		t.Errorf("refused with %v", switched)
	}
}

// Nothing is changed by a patch of which a part can't be.
func TestPatchIsCheckedBeforeItBegins(t *testing.T) {
	r := newRig(t, options{})
	r.create("s", "minimal")
	to, title := "standard", ""
	for _, p := range []host.Patch{{Preset: &to, Title: &title}, {Preset: &to, Model: &model.Selection{Provider: "nobody", Model: "x"}}} {
		if _, err := r.session("s").Patch(r.ctx(), p); codeOf(err) != host.CodeValidation {
			t.Errorf("patch: %v", err)
		}
	}
	info, err := r.session("s").Info(r.ctx())
	r.must(err)
	if info.Preset.ID != "minimal" || len(r.events("s")) > 0 {
		t.Errorf("a refused patch changed %+v, %v", info.Preset, types(r.events("s")))
	}
}

// Whoever waits for a session hears that it was closed, though messages stay queued.
func TestWaitIdleEndsWithTheAgent(t *testing.T) {
	streaming := make(chan struct{})
	r := newRig(t, options{source: script.Sequence(script.Turn{script.Do(func() { close(streaming) }), script.Stall()}, script.Turn{script.Text("never")})})
	r.create("s", "minimal")
	s := r.session("s")
	for _, m := range []string{"one", "two"} {
		_, err := s.Send(r.ctx(), host.Message{Content: text(m)})
		r.must(err)
	}
	<-streaming
	ctx := r.entered()
	done := make(chan error, 1)
	go func() {
		st, err := s.WaitIdle(ctx)
		if err == nil && (st.TurnOpen || st.Queued() != 1) {
			err = errors.New("it ended too early")
		}
		done <- err
	}()
	<-ctx.ch
	r.must(s.Close(r.ctx()))
	select {
	case err := <-done:
		r.must(err)
	case <-time.After(patience / 6):
		t.Error("WaitIdle goes on after the agent has ended")
		r.stop()
		<-done
	}
}

// A message whose agent is closed between its acceptance and the wake-up runs all the same.
func TestSendMeetsAClosingAgent(t *testing.T) {
	var st store
	r := newRig(t, options{config: st.config})
	r.create("s", "minimal")
	s := r.session("s")
	st.set(func(changes []session.Change) error {
		if len(changes) == 0 || len(changes[0].Events) == 0 || !strings.Contains(string(changes[0].Events[0].Data), "agent/inbox/spliced") {
			return nil
		}
		st.set(nil)
		return s.Close(context.Background()) // it appends nothing, as no turn runs
	})
	_, err := s.Send(r.ctx(), host.Message{ID: "m", Content: text("go"), Steer: true}) // which is always queued before the loop hears of it
	r.must(err)
	state, err := s.WaitIdle(r.ctx())
	r.must(err)
	if state.Turns != 1 || state.Queued() != 0 {
		t.Errorf("the message is stranded: %d turns, %d queued", state.Turns, state.Queued())
	}
}

// An agent that is made while the host begins to drain starts no turn.
func TestCreateMeetsADrain(t *testing.T) {
	var st store
	r := newRig(t, options{config: st.config})
	st.set(func(changes []session.Change) error {
		if changes[0].Create {
			r.host.Drain()
		}
		return nil
	})
	_, _, err := r.host.Create(r.ctx(), host.Spec{ID: "s", Workspace: r.ws, Message: text("go")})
	r.must(err)
	_, err = r.session("s").WaitIdle(r.ctx())
	r.must(err)
	r.stop()
	if n := len(r.wire.Requests()); n != 0 {
		t.Errorf("%d requests left while the host drained", n)
	}
}

// The time for eviction counts from the end of the last turn, not from the message that began it.
func TestALongTurnIsNoIdleTime(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	streaming, gate := make(chan struct{}), make(chan struct{})
	r := newRig(t, options{
		source: script.Sequence(script.Turn{script.Do(func() { close(streaming) }), script.Wait(gate), script.Text("done")}),
		config: func(c *host.Config) {
			c.EvictIdle = 30 * time.Minute
			c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		},
	})
	later := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	r.create("s", "minimal")
	s := r.session("s")
	_, err := s.Send(r.ctx(), host.Message{Content: text("go")})
	r.must(err)
	<-streaming
	later(time.Hour)
	close(gate)
	_, err = s.WaitIdle(r.ctx())
	r.must(err)
	live := func() bool {
		r.must(r.host.Evict(r.ctx()))
		info, err := s.Info(r.ctx())
		r.must(err)
		return info.Live
	}
	later(29 * time.Minute)
	if !live() {
		t.Error("evicted 29 minutes after the end of its turn")
	}
	later(2 * time.Minute)
	deadline := r.ctx()
	for live() { // the agent may still be on its way out of the turn
		if deadline.Err() != nil {
			t.Fatal("not evicted after 31 minutes")
		}
		runtime.Gosched()
	}
}

// An image that isn't there would fail every turn from then on, so no message may name one.
func TestMessagesNameOnlyImagesThatExist(t *testing.T) {
	r := newRig(t, options{})
	missing := []model.Block{model.Text("look"), {Type: model.BlockImage, AttachmentID: strings.Repeat("a", 64) + ".png", Mime: "image/png"}}
	if _, _, err := r.host.Create(r.ctx(), host.Spec{ID: "t", Workspace: r.ws, Message: missing}); codeOf(err) != host.CodeAttachmentNotFound {
		t.Errorf("create: %v", err)
	}
	r.create("s", "minimal")
	s := r.session("s")
	if _, err := s.Send(r.ctx(), host.Message{Content: missing}); codeOf(err) != host.CodeAttachmentNotFound {
		t.Errorf("send: %v", err)
	}
	if err := s.EditQueued(r.ctx(), "m", host.Edit{Content: missing}); codeOf(err) != host.CodeAttachmentNotFound {
		t.Errorf("edit: %v", err)
	}
	id, err := s.Attach(r.ctx(), "image/png", []byte("\x89PNG\r\n\x1a\n"))
	r.must(err)
	missing[1].AttachmentID = id
	_, err = s.Send(r.ctx(), host.Message{Content: missing})
	r.must(err)
	st, err := s.WaitIdle(r.ctx())
	r.must(err)
	if st.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("end: %+v", st.LastEnd)
	}
}

// A fork whose images can't be copied doesn't come to be.
func TestForkIsAllOrNothing(t *testing.T) {
	r := newRig(t, options{})
	r.create("s", "minimal")
	s := r.session("s")
	_, err := s.Attach(r.ctx(), "image/png", []byte("\x89PNG\r\n\x1a\n"))
	r.must(err)
	r.say("s", "hello")
	folder := filepath.Join(r.dir, "attachments")
	r.must(os.Mkdir(filepath.Join(folder, "s", strings.Repeat("b", 64)+".png"), 0o700)) // a folder can't be linked
	if _, err := s.Fork(r.ctx(), nil, ""); err == nil {
		t.Error("the fork lacks an image, and nobody says so")
	}
	list, err := r.host.List(r.ctx(), session.Query{})
	r.must(err)
	left, err := os.ReadDir(folder)
	r.must(err)
	if len(list.Sessions) != 1 || len(left) != 1 || r.host.Report().Live != 1 {
		t.Errorf("%d sessions, %d folders, %d live are left", len(list.Sessions), len(left), r.host.Report().Live)
	}
}

// An upload to a session that is gone leaves nothing.
func TestAttachToADeletedSession(t *testing.T) {
	r := newRig(t, options{})
	r.create("s", "minimal")
	s := r.session("s")
	r.must(r.host.Delete(r.ctx(), "s", false))
	if _, err := s.Attach(r.ctx(), "image/png", []byte("\x89PNG\r\n\x1a\n")); codeOf(err) != host.CodeSessionNotFound {
		t.Errorf("attach: %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "attachments", "s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder is left: %v", err)
	}
}

// A crash between the two halves of a delete leaves images; the next start removes them, and nobody else's.
func TestImagesWithoutASessionAreSwept(t *testing.T) {
	r := newRig(t, options{})
	r.create("s", "minimal")
	_, err := r.session("s").Attach(r.ctx(), "image/png", []byte("\x89PNG\r\n\x1a\n"))
	r.must(err)
	folder := filepath.Join(r.dir, "attachments")
	for _, name := range []string{"gone", "%2E", "a b"} {
		r.must(os.Mkdir(filepath.Join(folder, name), 0o700))
	}
	r.must(os.WriteFile(filepath.Join(folder, "file"), nil, 0o600))
	r.must(r.host.SweepAttachments(r.ctx()))
	left, err := os.ReadDir(folder)
	r.must(err)
	var names []string
	for _, f := range left {
		names = append(names, f.Name())
	}
	if got := strings.Join(names, " "); got != "%2E a b file s" {
		t.Errorf("left: %s", got)
	}
}

func types(events []session.Event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.Type
	}
	return out
}

// The same create gives the same session, also when its folder is gone by now.
func TestRepeatedCreateNeedsNoWorkspace(t *testing.T) {
	r := newRig(t, options{})
	spec := host.Spec{ID: "s", Workspace: filepath.Join(r.ws, "work")}
	r.must(os.Mkdir(spec.Workspace, 0o700))
	_, _, err := r.host.Create(r.ctx(), spec)
	r.must(err)
	r.must(os.Remove(spec.Workspace))
	info, created, err := r.host.Create(r.ctx(), spec)
	if err != nil || created || info.ID != "s" {
		t.Errorf("again: %+v, %v, %v", info, created, err)
	}
}

// An image whose file is gone, as in an imported log, is named to the model; the session goes on.
func TestAMissingImageFailsNoTurn(t *testing.T) {
	r := newRig(t, options{source: script.ByHistory(script.Turn{script.Text("1")}, script.Turn{script.Text("2")})})
	r.create("s", "minimal")
	s := r.session("s")
	id, err := s.Attach(r.ctx(), "image/png", []byte("\x89PNG\r\n\x1a\n"))
	r.must(err)
	_, err = s.Send(r.ctx(), host.Message{Content: []model.Block{model.Text("look"), {Type: model.BlockImage, AttachmentID: id, Mime: "image/png"}}})
	r.must(err)
	_, err = s.WaitIdle(r.ctx())
	r.must(err)
	r.must(os.RemoveAll(filepath.Join(r.dir, "attachments")))
	st := r.say("s", "and now?")
	if st.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("end: %+v", st.LastEnd.Reason)
	}
	if b := string(r.wire.Requests()[1].Body); !strings.Contains(b, "no longer there") {
		t.Errorf("the request: %s", b)
	}
	if _, _, err := s.Attachment(r.ctx(), id); codeOf(err) != host.CodeAttachmentNotFound {
		t.Errorf("reading it: %v", err)
	}
}

// Who was told that a session is idle may delete it.
func TestDeleteRightAfterTheTurn(t *testing.T) {
	r := newRig(t, options{})
	for n := range 20 {
		id := string(rune('a' + n))
		r.create(id, "minimal")
		r.say(id, "hello")
		r.must(r.host.Delete(r.ctx(), id, false))
	}
}
