package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/web/guard"
)

// maxAttachment is the size of an upload in bytes.
const maxAttachment = 25 << 20

// Attachment is an image that was uploaded to a session.
type Attachment struct {
	ID     string `json:"id"`
	Mime   string `json:"mime"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func (a *api) attachmentRoutes() {
	s := a.server
	register(a, route{method: "POST", path: "/sessions/{id}/attachments", id: "add-attachment", tag: "messages", status: http.StatusCreated,
		rule: guard.Rule{Access: guard.Owner, Body: guard.Bytes, MaxBytes: maxAttachment}, summary: "Upload an image for messages", errors: []int{404}},
		func(ctx context.Context, in *struct {
			SessionPath
			Type string `header:"Content-Type"`
		}) (*struct{ Body Attachment }, error) {
			kind, _, err := mime.ParseMediaType(in.Type)
			if err != nil {
				return nil, refuse(codeMediaType, "The request needs the image's media type.")
			}
			h, err := s.host.Session(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			defer h.Release()
			data, err := io.ReadAll(bodyOf(ctx))
			var big *http.MaxBytesError
			switch {
			case errors.As(err, &big):
				return nil, refuse(codeTooLarge, "An attachment may have 25 MiB.")
			case err != nil:
				return nil, refuse(codeBadJSON, "The upload did not arrive whole.")
			}
			id, err := h.Attach(ctx, kind, data)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(data)
			return &struct{ Body Attachment }{Attachment{ID: id, Mime: kind, Bytes: len(data), SHA256: hex.EncodeToString(sum[:])}}, nil
		})
	a.describeUpload()
	register(a, route{method: "GET", path: "/sessions/{id}/attachments/{aid}", id: "get-attachment", tag: "messages",
		rule: guard.Rule{Access: guard.Owner}, summary: "An uploaded image", errors: []int{404}},
		withSession(s, func(ctx context.Context, h *host.Session, in *struct {
			SessionPath
			Attachment string `path:"aid"`
		}) (*struct{ Body func(huma.Context) }, error) {
			data, kind, err := h.Attachment(ctx, in.Attachment)
			if err != nil {
				return nil, err
			}
			return &struct{ Body func(huma.Context) }{func(c huma.Context) {
				c.SetHeader("Content-Type", kind)
				c.SetHeader("Content-Disposition", "attachment")
				_, _ = c.BodyWriter().Write(data) // the peer may be gone; there is nobody else to tell
			}}, nil
		}))
	binary := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	get := a.OpenAPI().Paths[apiRoot+"/sessions/{id}/attachments/{aid}"].Get
	get.Responses["200"].Content = map[string]*huma.MediaType{"image/png": binary, "image/jpeg": binary, "image/gif": binary, "image/webp": binary}
}

// describeUpload puts the raw body into the document: the handler reads it itself, so huma doesn't know of it.
func (a *api) describeUpload() {
	op := a.OpenAPI().Paths[apiRoot+"/sessions/{id}/attachments"].Post
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
	for _, kind := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
		op.RequestBody.Content[kind] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
}

type bodyKey struct{}

// bodyOf is the request's body, for the handlers that read it themselves.
func bodyOf(ctx context.Context) io.Reader {
	if body, ok := ctx.Value(bodyKey{}).(io.Reader); ok {
		return body
	}
	return http.NoBody
}

// keepBody hands the body of an upload to its handler.
func keepBody(c huma.Context, next func(huma.Context)) {
	r, _ := humachi.Unwrap(c)
	next(huma.WithValue(c, bodyKey{}, io.Reader(r.Body)))
}
