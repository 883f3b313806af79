// Package export writes sessions for other programs, and reads logs and bundles back.
//
// Formats: jsonl (the log itself, byte for byte, a header line first), openai (one line: chat messages and tools as they would be sent),
// atif (Agent Trajectory Interchange Format 1.4) and bundle (a zip that is shown offline). Private settings are never part of any of them.
// An export reads the log up to where it ended when the export began, and never makes the session live.
package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/openai"
	"github.com/dsh-web/dsh-web/host/session"
)

// Format names an export.
type Format string

// The formats.
const (
	JSONL  Format = "jsonl"
	OpenAI Format = "openai"
	ATIF   Format = "atif"
	Bundle Format = "bundle"
)

// ErrFormat is the refusal of an unknown format.
var ErrFormat = errors.New("the export format is unknown; use jsonl, openai, atif or bundle")

// Options configure an export.
type Options struct {
	// Version of the program, for formats that name it.
	Version string
	// Attachment opens an attachment of a session for a bundle; nil leaves attachments out.
	Attachment func(ctx context.Context, id, attachment string) (io.ReadCloser, error)
}

// Media gives the media type and the file name extension of a format.
func (f Format) Media() (mediaType, extension string, err error) {
	switch f {
	case JSONL:
		return "application/x-ndjson", "jsonl", nil
	case OpenAI:
		return "application/x-ndjson", "openai.jsonl", nil
	case ATIF:
		return "application/json", "atif.json", nil
	case Bundle:
		return "application/zip", "dsh-bundle.zip", nil
	}
	return "", "", ErrFormat
}

// Write exports one session.
func Write(ctx context.Context, w io.Writer, j *session.Journal, id string, f Format, opts Options) error {
	var err error
	switch f {
	case JSONL:
		err = writeLog(ctx, w, j, id, nil)
	case OpenAI:
		err = writeOpenAI(ctx, w, j, id)
	case ATIF:
		err = writeATIF(ctx, w, j, id, opts)
	case Bundle:
		err = writeBundle(ctx, w, j, id, opts)
	default:
		return ErrFormat
	}
	if err != nil {
		return fmt.Errorf("export session %s: %w", id, err)
	}
	return nil
}

// each calls f for every event of the log as it is now.
func each(ctx context.Context, j *session.Journal, id string, f func(e session.Event, encoded []byte) error) (session.Info, error) {
	l, err := j.View(ctx, id)
	if err != nil {
		return session.Info{}, err
	}
	defer j.Release(l)
	info := l.Info()
	for after := int64(-1); after < info.LastSeq; {
		page, err := l.Read(ctx, after, 1000, 1<<20)
		if err != nil {
			return info, err
		}
		for i, e := range page.Events {
			if e.Seq > info.LastSeq {
				return info, nil
			}
			if err := f(e, page.Encoded[i]); err != nil {
				return info, err
			}
			after = e.Seq
		}
	}
	return info, nil
}

// fold folds the log as it is now.
func fold(ctx context.Context, j *session.Journal, id string, seen func(session.Event)) (session.State, session.Info, error) {
	before, err := j.Info(ctx, id)
	if err != nil {
		return session.State{}, before, err
	}
	state := session.NewState(before.Header)
	info, err := each(ctx, j, id, func(_ session.Event, encoded []byte) error {
		next, e, err := session.Fold(state, encoded)
		if err != nil {
			return err
		}
		state = next
		if seen != nil {
			seen(e)
		}
		return nil
	})
	return state, info, err
}

// writeLog writes the header line and the events.
func writeLog(ctx context.Context, w io.Writer, j *session.Journal, id string, seen func(session.Event)) error {
	info, err := j.Info(ctx, id)
	if err != nil {
		return err
	}
	line, err := session.HeaderLine(info.Header)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	_, err = each(ctx, j, id, func(e session.Event, encoded []byte) error {
		if seen != nil {
			seen(e)
		}
		if _, err := w.Write(encoded); err != nil {
			return err
		}
		_, err := w.Write([]byte("\n"))
		return err
	})
	return err
}

// chat is the one line of the openai format. Sources says of each message who wrote it: model, tool, user or host.
type chat struct {
	Messages []json.RawMessage `json:"messages"`
	Tools    json.RawMessage   `json:"tools,omitempty"`
	Metadata chatMetadata      `json:"metadata"`
}

type chatMetadata struct {
	Session     string            `json:"session"`
	Preset      session.PresetRef `json:"preset"`
	Model       session.ModelRef  `json:"model"`
	Group       string            `json:"group,omitempty"`
	Attempt     int               `json:"attempt,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Sources     []string          `json:"sources"`
	Annotations json.RawMessage   `json:"annotations,omitempty"`
}

func writeOpenAI(ctx context.Context, w io.Writer, j *session.Journal, id string) error {
	state, info, err := fold(ctx, j, id, nil)
	if err != nil {
		return err
	}
	request := model.Request{Session: id}
	var adapter openai.Config
	adapter.BaseURL = func() string { return "http://localhost" }
	if state.Request != nil {
		h := state.Request.Header
		request.System, request.Tools = h.System, h.Tools
		adapter.Provider, adapter.Model = h.Config.Provider, h.Config.Model
	}
	var people []string // who wrote the messages with role user, in order
	for _, h := range state.History {
		request.Messages = append(request.Messages, h.Message)
		if h.Message.Role == model.RoleUser && h.Message.Source.Kind != model.SourceTool {
			people = append(people, string(h.Message.Source.Kind))
		}
	}
	prepared, err := openai.New(adapter).Prepare(request)
	if err != nil {
		return err
	}
	out := chat{Messages: []json.RawMessage{}, Tools: prepared.Tools, Metadata: chatMetadata{
		Session: id, Preset: info.Preset, Model: info.Model, Group: info.Group, Attempt: info.Attempt, Labels: info.Labels, Sources: []string{},
	}}
	if prepared.System != nil {
		out.Messages = append(out.Messages, prepared.System)
		out.Metadata.Sources = append(out.Metadata.Sources, string(model.SourceHost))
	}
	for _, m := range prepared.Messages {
		out.Messages = append(out.Messages, m)
		source, err := sourceOf(m, &people)
		if err != nil {
			return err
		}
		out.Metadata.Sources = append(out.Metadata.Sources, source)
	}
	if out.Metadata.Annotations, err = annotations(ctx, j, id); err != nil {
		return err
	}
	return writeJSON(w, out, "")
}

func sourceOf(message json.RawMessage, people *[]string) (string, error) {
	var m struct {
		Role string `json:"role"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return "", fmt.Errorf("read message: %w", err)
	}
	switch m.Role {
	case "assistant":
		return string(model.SourceModel), nil
	case "tool":
		return string(model.SourceTool), nil
	}
	if len(*people) == 0 {
		return string(model.SourceHost), nil // a repair of the history
	}
	source := (*people)[0]
	*people = (*people)[1:]
	return source, nil
}

// annotations are a trainer's notes, when they are JSON.
func annotations(ctx context.Context, j *session.Journal, id string) (json.RawMessage, error) {
	b, err := j.Annotations(ctx, id)
	if err != nil || !json.Valid(b) {
		return nil, err
	}
	return b, nil
}

func writeJSON(w io.Writer, v any, indent string) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(buf.Bytes())
	return err
}
