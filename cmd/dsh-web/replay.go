package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/credential"
	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/anthropic"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/replay"
	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/tools"
)

// replayOptions are the flags of the command.
type replayOptions struct {
	tools     string // live, recorded
	lenient   bool
	preset    string
	workspace string
}

// replayCommand drives the sessions of a recording again, offline: the models answer from the file, the tools run for real.
func (p *program) replayCommand() *cobra.Command {
	var o replayOptions
	c := &cobra.Command{Use: "replay FILE", Short: "Drive recorded sessions again, offline", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if o.tools != "live" && o.tools != "recorded" {
			return fmt.Errorf("--tools %q is neither live nor recorded", o.tools)
		}
		c, err := loadConfig(cmd.Flags(), p.env)
		if err != nil {
			return err
		}
		return p.replay(cmd.Context(), c, args[0], o)
	}}
	c.Flags().StringVar(&o.tools, "tools", "live", "live runs the tools, recorded answers with the recorded results")
	c.Flags().BoolVar(&o.lenient, "lenient", false, "accept requests that differ from the recorded ones")
	c.Flags().StringVar(&o.preset, "preset", "", "preset of all the sessions (default: the configured one); a recording doesn't know presets")
	c.Flags().StringVar(&o.workspace, "workspace", "", "folder the agents work in (default: a temporary one)")
	return c
}

// recordedSession is what a recording says of one session.
type recordedSession struct {
	id        string
	url       string
	selection model.Selection
	thinking  bool
	messages  []string          // what users said, in order
	results   map[string]string // by call id
}

func (p *program) replay(ctx context.Context, c *config, file string, o replayOptions) (err error) {
	lib := &replay.Library{Options: replay.Options{Lenient: o.lenient}}
	player, err := lib.Open(file)
	if err != nil {
		return err
	}
	sessions, err := recordedSessions(player)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	dir, err := os.MkdirTemp("", "dsh-web-replay-*")
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.workspace == "" {
		o.workspace = filepath.Join(dir, "workspace")
		if err := os.Mkdir(o.workspace, 0o755); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	h, closeHost, err := replayHost(ctx, c, filepath.Join(dir, "data"), player, sessions, newLogger(p.stderr, c))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeHost()) }()
	if o.tools == "recorded" {
		if err := h.Tools().Guard(h.Scope(), "recorded results", recordedResults(sessions)); err != nil {
			return err
		}
	}
	var errs []error
	for _, s := range sessions {
		if err := p.drive(ctx, h, s, o); err != nil {
			errs = append(errs, fmt.Errorf("session %s: %w", s.id, err))
		}
	}
	for _, d := range player.Drifts() {
		fmt.Fprintln(p.stderr, "accepted:", d)
	}
	return errors.Join(append(errs, lib.Finish())...)
}

// recordedSessions derives from the requests of each session what its users said and how its model was called.
func recordedSessions(player *replay.Player) ([]*recordedSession, error) {
	byID := map[string]*recordedSession{}
	var out []*recordedSession
	for _, line := range player.Lines() {
		s := byID[line.Session]
		if s == nil {
			s = &recordedSession{id: line.Session, url: line.URL, results: map[string]string{}}
			byID[line.Session] = s
			out = append(out, s)
		}
		if err := s.learn(line.Request); err != nil {
			return nil, fmt.Errorf("read recording, %s: %w", line.Key, err)
		}
	}
	return out, nil
}

// learn takes in one request; a later one of a session holds all that an earlier one did.
func (s *recordedSession) learn(body json.RawMessage) error {
	var params map[string]json.RawMessage
	if err := json.Unmarshal(body, &params); err != nil {
		return fmt.Errorf("the request is no JSON object: %w", err)
	}
	var head struct {
		Model           string `json:"model"`
		MaxTokens       int    `json:"max_tokens"`
		ReasoningEffort string `json:"reasoning_effort"`
		Messages        []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"tool_call_id"`
			Reasoning  *string         `json:"reasoning_content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return err
	}
	s.messages = nil
	for _, m := range head.Messages {
		s.thinking = s.thinking || m.Reasoning != nil
		text := textOf(m.Content)
		switch {
		case m.Role == "tool":
			s.results[m.ToolCallID] = text
		case m.Role == "user" && text != "":
			s.messages = append(s.messages, text)
		}
	}
	for _, known := range []string{"model", "messages", "tools", "stream", "stream_options", "max_tokens", "reasoning_effort", "system"} {
		delete(params, known)
	}
	s.selection = model.Selection{Provider: "recorded-" + s.id, Model: head.Model, MaxTokens: head.MaxTokens, ReasoningEffort: head.ReasoningEffort}
	if len(params) > 0 {
		s.selection.Params = params
	}
	return nil
}

// textOf reads a message's content: a string, or a list of which the text parts count.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var out strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			out.WriteString(p.Text)
		}
	}
	return out.String()
}

// replayHost is a host on a store of its own whose providers answer from the player.
func replayHost(ctx context.Context, c *config, data string, player *replay.Player, sessions []*recordedSession, logger *slog.Logger) (_ *host.Host, _ func() error, err error) {
	var providers []model.Provider
	for _, s := range sessions {
		p := model.Provider{ID: s.selection.Provider, Kind: "openai", BaseURL: strings.TrimSuffix(s.url, "/chat/completions")}
		if base, ok := strings.CutSuffix(s.url, "/messages"); ok {
			p.Kind, p.BaseURL = "anthropic", base
		}
		p.Dialect.Thinking = "off"
		if s.thinking {
			p.Dialect.Thinking = "on"
		}
		providers = append(providers, p)
	}
	router, err := model.NewRouter(model.Config{Providers: providers, Kinds: map[string]model.Factory{
		"openai":         openai.Factory(openai.Config{Transport: player, Annotate: replay.Annotate}),
		"anthropic":      anthropic.Factory(anthropic.Config{Transport: player, Annotate: replay.Annotate}),
		model.KindScript: func(model.Binding) (model.Adapter, error) { return nil, errors.New("a replay has no scripted model") },
	}})
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlite.Open(ctx, data, sqlite.Options{Synchronous: "normal"})
	if err != nil {
		return nil, nil, err
	}
	processes, err := proc.Open(proc.Options{Keeper: true})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	h := host.New(host.Config{
		Store: store, Router: router, Credentials: credential.New("", func(string) (string, bool) { return "", false }), Roster: newRoster(c),
		Proc: processes, DefaultPreset: c.DefaultPreset, KeepRecorded: true, Unattended: true, Logger: logger,
	})
	closeHost := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return errors.Join(h.Close(ctx), processes.Close(ctx))
	}
	if err := h.Start(ctx); err != nil {
		return nil, nil, errors.Join(err, closeHost())
	}
	return h, closeHost, nil
}

// recordedResults answers calls from the recording; one that it doesn't hold fails.
func recordedResults(sessions []*recordedSession) tools.Guard {
	results := map[string]string{}
	for _, s := range sessions {
		for id, text := range s.results {
			results[id] = text
		}
	}
	return func(_ context.Context, call tools.Call, _ func(context.Context, tools.Call) (tools.Result, error)) (tools.Result, error) {
		text, ok := results[call.ID]
		if !ok {
			return tools.ErrorResult(call.Name, "NOT_RECORDED", "The recording holds no result of this call."), nil
		}
		return tools.TextResult(text), nil
	}
}

// drive sends a session's messages one by one and prints what came of it, without what differs from run to run.
func (p *program) drive(ctx context.Context, h *host.Host, s *recordedSession, o replayOptions) error {
	if _, _, err := h.Create(ctx, host.Spec{ID: s.id, Preset: o.preset, Workspace: o.workspace, Model: s.selection}); err != nil {
		return err
	}
	handle, err := h.Session(ctx, s.id)
	if err != nil {
		return err
	}
	defer handle.Release()
	for i, text := range s.messages {
		if _, err := handle.Send(ctx, host.Message{ID: fmt.Sprintf("m%d", i+1), Content: []model.Block{model.Text(text)}}); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, time.Hour)
		st, err := handle.WaitIdle(wait)
		cancel()
		if err != nil {
			return err
		}
		if st.LastEnd.Reason.Kind == session.EndError {
			err = fmt.Errorf("turn %d: %s", st.LastEnd.Turn, st.LastEnd.Reason.Message)
		}
		if err != nil {
			return errors.Join(err, p.printSession(ctx, h, s.id))
		}
	}
	return p.printSession(ctx, h, s.id)
}

// printSession prints the messages, calls, results and turn ends of a log, one JSON object a line.
func (p *program) printSession(ctx context.Context, h *host.Host, id string) error {
	enc := json.NewEncoder(p.stdout)
	enc.SetEscapeHTML(false)
	for after := int64(-1); ; {
		page, err := h.Journal().Read(ctx, id, after, 1000, 1<<20)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			after = e.Seq
			payload, known, err := session.DecodePayload(e)
			if err != nil || !known {
				continue
			}
			line := map[string]any{"session": id, "type": e.Type}
			switch d := payload.(type) {
			case session.UserMessage:
				line["content"] = d.Content
			case session.AssistantMessage:
				line["content"] = d.Message.Content
			case session.ToolResult:
				line["content"] = d.Message.Content
			case session.TurnEnd:
				line["turn"], line["reason"] = d.Turn, d.Reason
			default:
				continue
			}
			if err := enc.Encode(line); err != nil {
				return err
			}
		}
		if !page.HasMore {
			return nil
		}
	}
}
