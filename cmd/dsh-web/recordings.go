package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/anthropic"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/model/replay"
)

// recordings are what the providers of kind replay answer from.
type recordings struct {
	logger          *slog.Logger
	strict, lenient replay.Library
}

// openRecordings reads the recordings of the configured providers, and gives the providers with what the recordings say about them: the models,
// and whether they think.
func openRecordings(configured []model.Provider, logger *slog.Logger) (*recordings, []model.Provider, error) {
	r := &recordings{logger: logger}
	r.strict.Options.Report = func(err error) { logger.Error("replay", "problem", err) }
	r.lenient.Options = replay.Options{Lenient: true, Report: func(err error) { logger.Warn("replay, accepted", "problem", err) }}
	providers := slices.Clone(configured)
	for i := range providers {
		p := &providers[i]
		if p.Kind != model.KindReplay {
			continue
		}
		player, err := r.library(p.Lenient).Open(p.File)
		if err != nil {
			return nil, nil, fmt.Errorf("model provider %q: %w", p.ID, err)
		}
		sessions, err := recordedSessions(player)
		if err != nil {
			return nil, nil, fmt.Errorf("model provider %q: %s: %w", p.ID, p.File, err)
		}
		describe(p, sessions)
	}
	return r, providers, nil
}

// describe fills in what the configuration leaves open.
func describe(p *model.Provider, sessions []*recordedSession) {
	thinks := slices.ContainsFunc(sessions, func(s *recordedSession) bool { return s.thinking })
	if p.Dialect.Thinking == "" {
		p.Dialect.Thinking = "off"
		if thinks {
			p.Dialect.Thinking = "on"
		}
	}
	if p.Models != nil {
		return
	}
	for _, s := range sessions {
		if !slices.ContainsFunc(p.Models, func(m model.Catalog) bool { return m.ID == s.selection.Model }) {
			p.Models = append(p.Models, model.Catalog{ID: s.selection.Model})
		}
	}
}

func (r *recordings) library(lenient bool) *replay.Library {
	if lenient {
		return &r.lenient
	}
	return &r.strict
}

// adapter makes the adapter of a route that answers from a recording: that of the wire that was recorded, on the recorded URL, whose host decides on
// the dialect.
func (r *recordings) adapter(b model.Binding) (model.Adapter, error) {
	player, err := r.library(b.Lenient).Open(b.File) // it has been read
	if err != nil {
		return nil, err
	}
	base := player.URL()
	b.BaseURL = func() string { return base }
	b.Key = nil
	if strings.HasSuffix(base, "/messages") {
		return anthropic.Factory(anthropic.Config{Transport: player, Annotate: replay.Annotate})(b)
	}
	return openai.Factory(openai.Config{Transport: player, Annotate: replay.Annotate})(b)
}

// finish warns of calls that were recorded and never made.
func (r *recordings) finish() {
	if err := errors.Join(r.strict.Finish(), r.lenient.Finish()); err != nil {
		r.logger.Warn("replay", "unused", err)
	}
}

// checkRecording says what is wrong with a provider's settings about recordings.
func checkRecording(p model.Provider) error {
	switch {
	case p.Kind == model.KindReplay && p.File == "":
		return fmt.Errorf("providers: %q replays a recording; file must name it", p.ID)
	case p.Kind == model.KindReplay && (p.BaseURL != "" || p.BaseURLEnv != ""):
		return fmt.Errorf("providers: %q replays a recording and calls no server; take out baseUrl and baseUrlEnv", p.ID)
	case p.Kind == model.KindReplay && p.APIKeyEnv != "":
		return fmt.Errorf("providers: %q replays a recording and needs no key; take out apiKeyEnv", p.ID)
	case p.Kind != model.KindReplay && p.File != "":
		return fmt.Errorf("providers: %q has a file, which is only for kind: replay", p.ID)
	case p.Kind != model.KindReplay && p.Lenient:
		return fmt.Errorf("providers: %q is lenient, which is only for kind: replay", p.ID)
	}
	return nil
}
