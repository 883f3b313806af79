package export

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
)

// A bundle is a zip: manifest.json, and below --bundle--/ one folder for each session, laid out as the JSONL store has it, so that an
// unpacked bundle is opened by that store, read-only.
const (
	manifestName  = "manifest.json"
	bundleProject = "--bundle--"
	bundleFormat  = "dsh-web-bundle"
	bundleVersion = 1
)

// maxUnpacked bounds what a bundle may unpack to, in bytes.
const maxUnpacked = 4 << 30

// Manifest says what a bundle holds.
type Manifest struct {
	Format   string   `json:"format"`
	Version  int      `json:"version"`
	Program  string   `json:"program,omitempty"`
	Sessions []string `json:"sessions"`
}

func writeBundle(ctx context.Context, w io.Writer, j *session.Journal, id string, opts Options) error {
	z := zip.NewWriter(w)
	manifest, err := z.Create(manifestName)
	if err != nil {
		return err
	}
	if err := writeJSON(manifest, Manifest{Format: bundleFormat, Version: bundleVersion, Program: opts.Version, Sessions: []string{id}}, "  "); err != nil {
		return err
	}
	name, err := session.FileName(id)
	if err != nil {
		return err
	}
	dir := path.Join(bundleProject, name)
	log, err := z.Create(path.Join(dir, "session.jsonl"))
	if err != nil {
		return err
	}
	var attachments []string
	err = writeLog(ctx, log, j, id, func(e session.Event) {
		for _, a := range attachmentsOf(e) {
			if !slices.Contains(attachments, a) {
				attachments = append(attachments, a)
			}
		}
	})
	if err != nil {
		return err
	}
	pin, err := j.Pin(ctx, id)
	if err != nil {
		return err
	}
	notes, err := j.Annotations(ctx, id)
	if err != nil {
		return err
	}
	for kind, body := range map[session.DocumentKind][]byte{session.DocPin: pin, session.DocAnnotations: notes} {
		if body == nil {
			continue
		}
		if err := writeEntry(z, path.Join(dir, "document-"+string(kind)), body); err != nil {
			return err
		}
	}
	if opts.Attachment != nil {
		for _, a := range attachments {
			if err := writeAttachment(ctx, z, dir, id, a, opts); err != nil {
				return err
			}
		}
	}
	return z.Close()
}

func writeEntry(z *zip.Writer, name string, body []byte) error {
	f, err := z.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	return err
}

func writeAttachment(ctx context.Context, z *zip.Writer, dir, id, attachment string, opts Options) error {
	name, err := session.FileName(attachment)
	if err != nil {
		return err
	}
	r, err := opts.Attachment(ctx, id, attachment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the log says that it was there
	}
	if err != nil {
		return fmt.Errorf("open attachment %s: %w", attachment, err)
	}
	defer func() { _ = r.Close() }()
	f, err := z.Create(path.Join(dir, "attachments", name))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return err
}

// attachmentsOf lists the images that an event refers to.
func attachmentsOf(e session.Event) []string {
	p, _, err := session.DecodePayload(e)
	if err != nil {
		return nil // the log shows what it holds
	}
	var out []string
	var walk func([]model.Block)
	walk = func(content []model.Block) {
		for _, b := range content {
			if b.Type == model.BlockImage && b.AttachmentID != "" {
				out = append(out, b.AttachmentID)
			}
			walk(b.Content)
		}
	}
	switch p := p.(type) {
	case session.UserMessage:
		walk(p.Content)
	case session.AssistantMessage:
		walk(p.Message.Content)
	case session.ToolResult:
		walk(p.Message.Content)
	case session.InboxSpliced:
		for _, m := range p.Inserted {
			walk(m.Content)
		}
	}
	return out
}

// Unpack writes a bundle's sessions into dir, an empty directory that exists, and gives its manifest. The result is a root of the JSONL
// store. Entries that no bundle has are refused, and nothing can be written outside dir.
func Unpack(file, dir string) (Manifest, error) {
	var m Manifest
	z, err := zip.OpenReader(file)
	if err != nil {
		return m, fmt.Errorf("open bundle %s: %w", file, err)
	}
	defer func() { _ = z.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, fmt.Errorf("unpack bundle: %w", err)
	}
	defer func() { _ = root.Close() }()
	left := int64(maxUnpacked)
	for _, f := range z.File {
		if f.Name == manifestName {
			if m, err = readManifest(f); err != nil {
				return m, err
			}
			continue
		}
		parts := strings.Split(f.Name, "/")
		known := (len(parts) == 3 || len(parts) == 4 && parts[2] == "attachments") && parts[0] == bundleProject && !f.FileInfo().IsDir()
		if !known || !fs.ValidPath(f.Name) || strings.ContainsAny(f.Name, `\:`) {
			return m, fmt.Errorf("unpack bundle: it has the entry %q, which no bundle has", f.Name)
		}
		if left, err = unpackEntry(root, f, left); err != nil {
			return m, fmt.Errorf("unpack bundle entry %q: %w", f.Name, err)
		}
	}
	if m.Format != bundleFormat {
		return m, fmt.Errorf("open bundle %s: it isn't a bundle of dsh-web", file)
	}
	return m, nil
}

func readManifest(f *zip.File) (Manifest, error) {
	var m Manifest
	r, err := f.Open()
	if err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	defer func() { _ = r.Close() }()
	if err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	if m.Version > bundleVersion {
		return m, fmt.Errorf("the bundle has version %d and was written by a newer dsh-web; version %d is known", m.Version, bundleVersion)
	}
	return m, nil
}

func unpackEntry(root *os.Root, f *zip.File, left int64) (int64, error) {
	if err := root.MkdirAll(path.Dir(f.Name), 0o700); err != nil {
		return left, err
	}
	in, err := f.Open()
	if err != nil {
		return left, err
	}
	defer func() { _ = in.Close() }()
	out, err := root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return left, err
	}
	n, err := io.Copy(out, io.LimitReader(in, left+1))
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err == nil && n > left {
		err = fmt.Errorf("the bundle unpacks to more than %d bytes", int64(maxUnpacked))
	}
	return left - n, err
}
