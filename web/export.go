package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/session/export"
	"github.com/dsh-web/dsh-web/web/guard"
)

// maxImport is the size of an imported log in bytes.
const maxImport = 1 << 30

// NewFork says where a fork begins and on what.
type NewFork struct {
	AtSeq  *int64 `json:"atSeq,omitempty" doc:"The seq of a turn/end; the last one when absent."`
	Preset string `json:"preset,omitempty" doc:"The parent's when absent."`
}

func (a *api) exportRoutes() {
	s := a.server
	owner := guard.Rule{Access: guard.Owner}
	body := guard.Rule{Access: guard.Owner, Body: guard.JSON}
	register(a, route{method: "POST", path: "/sessions/{id}/fork", id: "fork-session", tag: "sessions", rule: body, status: http.StatusCreated,
		summary: "A new session that begins as a copy up to a turn's end", errors: []int{404, 409, 429, 503}},
		withSession(s, func(ctx context.Context, h *host.Session, in *struct {
			SessionPath
			Body *NewFork
		}) (*createOut, error) {
			var fork NewFork
			if in.Body != nil {
				fork = *in.Body
			}
			info, err := h.Fork(ctx, fork.AtSeq, fork.Preset)
			if err != nil {
				return nil, err
			}
			return &createOut{Status: http.StatusCreated, Location: s.sessionPath(info.ID), Body: info}, nil
		}))
	register(a, route{method: "POST", path: "/sessions/import", id: "import-session", tag: "sessions", status: http.StatusCreated,
		rule: guard.Rule{Access: guard.Owner, Body: guard.Bytes, MaxBytes: maxImport}, summary: "A session of an exported log (jsonl)", errors: []int{409, 503}},
		func(ctx context.Context, in *struct {
			Workspace string `query:"workspace" doc:"An absolute path, instead of the log's own."`
			Preset    string `query:"preset" doc:"Instead of the one that the log ran on, which this host must else have, unchanged. A log that names none gets the default."`
		}) (*createOut, error) {
			info, err := s.host.Import(ctx, bodyOf(ctx), host.ImportSpec{Workspace: in.Workspace, Preset: in.Preset})
			var big *http.MaxBytesError
			if errors.As(err, &big) {
				return nil, refuse(codeTooLarge, "A log may have 1 GiB.")
			}
			if err != nil {
				return nil, err
			}
			return &createOut{Status: http.StatusCreated, Location: s.sessionPath(info.ID), Body: info}, nil
		})
	imports := a.OpenAPI().Paths[apiRoot+"/sessions/import"].Post
	imports.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/x-ndjson": {Schema: &huma.Schema{Type: huma.TypeString, Description: "A header line, then one event a line."}}}}
	register(a, route{method: "POST", path: "/sessions/{id}/annotations", id: "annotate-session", tag: "sessions", rule: body,
		summary: "A trainer's word on a session; exported with it", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *struct {
			SessionPath
			Body host.Annotation
		}) (*struct{ Body host.Annotation }, error) {
			now, err := h.Annotate(ctx, in.Body)
			return &struct{ Body host.Annotation }{now}, err
		}))
	register(a, route{method: "GET", path: "/sessions/{id}/export", id: "export-session", tag: "sessions",
		rule: guard.Rule{Access: owner.Access, Stream: true}, summary: "Download a session", errors: []int{404, 409}}, s.export)
	download := a.OpenAPI().Paths[apiRoot+"/sessions/{id}/export"].Get
	download.Responses["200"].Content = map[string]*huma.MediaType{}
	for _, f := range []export.Format{export.JSONL, export.OpenAI, export.ATIF, export.Bundle} {
		media, _, err := f.Media()
		if err == nil {
			download.Responses["200"].Content[media] = &huma.MediaType{}
		}
	}
}

// held is how much of an export is made before its answer begins, so that a failure at the start still has a status of its own.
const held = 64 << 10

func (s *Server) export(ctx context.Context, in *struct {
	SessionPath
	Format string `query:"format" enum:"jsonl,openai,atif,bundle" default:"jsonl"`
}) (*struct{ Body func(huma.Context) }, error) {
	h, err := s.host.Session(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	format := export.Format(in.Format)
	media, extension, err := format.Media()
	if err != nil {
		h.Release()
		return nil, err
	}
	return &struct{ Body func(huma.Context) }{func(c huma.Context) {
		defer h.Release()
		_, w := humachi.Unwrap(c)
		out := &late{w: w, header: func() {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Content-Disposition", `attachment; filename="`+h.ID()+"."+extension+`"`)
		}}
		err := export.Write(ctx, out, s.host.Journal(), h.ID(), format, export.Options{Version: s.cfg.Version,
			Attachment: func(ctx context.Context, _, attachment string) (io.ReadCloser, error) {
				data, _, err := h.Attachment(ctx, attachment)
				return io.NopCloser(bytes.NewReader(data)), err
			}})
		if err != nil && !out.begun {
			guard.WriteProblem(w, *s.problem(ctx, "export-session", err))
			return
		}
		if err == nil {
			err = out.flush()
		}
		if err != nil && ctx.Err() == nil {
			s.log.Error("export", "session", h.ID(), "error", err)
			panic(http.ErrAbortHandler) // a download that ends well would pass for a whole one
		}
	}}, nil
}

// late writes an answer whose beginning is held back. Each write that goes out has a deadline of its own.
type late struct {
	w      http.ResponseWriter
	header func()
	buf    []byte
	begun  bool
}

// Write takes a piece.
func (l *late) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p...)
	if len(l.buf) < held {
		return len(p), nil
	}
	if err := l.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (l *late) flush() error {
	if !l.begun {
		l.begun = true
		l.header()
	}
	_ = http.NewResponseController(l.w).SetWriteDeadline(time.Now().Add(sseWrite)) // without deadlines the kernel's own limits hold
	_, err := l.w.Write(l.buf)
	l.buf = l.buf[:0]
	return err
}
