package fsys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// RootedConfig says where a Rooted is confined to.
type RootedConfig struct {
	// Workspace is an absolute directory of the host.
	Workspace string
	// Temp is the session's temporary directory, absolute; empty for none. It stays writable in every mode, as a sandboxed shell's is.
	Temp string
	// TempAs is the path by which the model knows Temp, for example /tmp; empty when it is Temp itself.
	TempAs string
	// Mode is the sandbox mode to begin with.
	Mode Mode
	// Protected are names that are never written, at any depth of the workspace, nor the files they name at its top by another name.
	// Nil means DefaultProtected.
	Protected []string
	// Locks is shared with the providers that may meet this one in a file; nil means there are none.
	Locks *Locks
}

// DefaultProtected are the names that other programs on the host read and act on: repositories, editor and agent configuration.
func DefaultProtected() []string {
	return []string{".git", ".dsh-web", ".vscode", ".idea", ".zed", ".cursor", ".claude", ".codex", ".mcp.json", ".envrc"}
}

// Rooted is confined to a workspace and a temporary directory. Every path is walked from a directory handle that was opened at the start,
// one name at a time, and what is opened is compared with what was looked at: a link that appears in between makes the operation fail, never
// escape. Links are followed as far as they stay inside, absolute ones too.
//
// In mode danger-full-access nothing is confined and a Rooted works as a Local.
type Rooted struct {
	anchors   []anchor
	protected []string
	locks     *Locks
	local     *Local

	mu   sync.Mutex // a leaf
	mode Mode       // guarded by mu
}

var _ Provider = (*Rooted)(nil)

// anchor is one tree that may be used.
type anchor struct {
	names     []string // paths that lead to it, cleaned; the first is the one to show
	root      *os.Root
	top       *os.File // the directory of root, for questions that need no walk
	workspace bool
}

// OpenRooted opens the workspace and the temporary directory. Close the result.
func OpenRooted(cfg RootedConfig) (*Rooted, error) {
	if err := checkMode(cfg.Mode); err != nil {
		return nil, err
	}
	if cfg.Locks == nil {
		cfg.Locks = new(Locks)
	}
	r := &Rooted{protected: cfg.Protected, locks: cfg.Locks, local: NewLocal(cfg.Locks), mode: cfg.Mode}
	if r.protected == nil {
		r.protected = DefaultProtected()
	}
	if err := r.open(cfg.Workspace, "", true); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if cfg.Temp != "" {
		if err := r.open(cfg.Temp, cfg.TempAs, false); err != nil {
			return nil, errors.Join(fmt.Errorf("open temporary directory: %w", err), r.Close())
		}
	}
	return r, nil
}

func (r *Rooted) open(dir, as string, workspace bool) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q: %w", dir, ErrNotAbsolute)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return classify(err)
	}
	top, err := root.Open(".")
	if err != nil {
		return errors.Join(classify(err), root.Close())
	}
	names := []string{filepath.Clean(dir)}
	if as != "" {
		names = []string{filepath.Clean(as), names[0]}
	}
	// A shell may report its directory with all links resolved.
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != names[len(names)-1] {
		names = append(names, real)
	}
	r.anchors = append(r.anchors, anchor{names: names, root: root, top: top, workspace: workspace})
	return nil
}

// Close releases the directory handles. Operations that run finish; later ones fail.
func (r *Rooted) Close() error {
	var errs []error
	for _, a := range r.anchors {
		errs = append(errs, a.root.Close(), a.top.Close())
	}
	return errors.Join(errs...)
}

// Sandbox gives the mode in force.
func (r *Rooted) Sandbox() (Mode, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mode, true
}

// SetMode changes the mode for the operations that begin later.
func (r *Rooted) SetMode(mode Mode) error {
	if err := checkMode(mode); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = mode
	return nil
}

func checkMode(mode Mode) error {
	switch mode {
	case ReadOnly, WorkspaceWrite, DangerFullAccess:
		return nil
	}
	return fmt.Errorf("unknown sandbox mode %q", mode)
}

// Stat implements Provider.
func (r *Rooted) Stat(ctx context.Context, path string) (Info, error) {
	w, err := r.begin(path)
	if err != nil {
		return Info{}, err
	}
	if w.mode == DangerFullAccess {
		return r.local.Stat(ctx, path)
	}
	defer w.close()
	p, fi, err := w.find(path)
	if err != nil {
		return Info{}, err
	}
	return infoOf(p.path, fi), nil
}

// Open implements Provider.
func (r *Rooted) Open(ctx context.Context, path string) (io.ReadCloser, Info, error) {
	w, err := r.begin(path)
	if err != nil {
		return nil, Info{}, err
	}
	if w.mode == DangerFullAccess {
		return r.local.Open(ctx, path)
	}
	defer w.close()
	p, found, err := w.find(path)
	if err != nil {
		return nil, Info{}, err
	}
	f, fi, err := p.open(found)
	if err != nil {
		return nil, Info{}, err
	}
	return f, infoOf(p.path, fi), nil
}

// ReadDir implements Provider.
func (r *Rooted) ReadDir(ctx context.Context, path string, visit func(Entry) bool) error {
	w, err := r.begin(path)
	if err != nil {
		return err
	}
	if w.mode == DangerFullAccess {
		return r.local.ReadDir(ctx, path, visit)
	}
	defer w.close()
	p, fi, err := w.find(path)
	if err != nil {
		return err
	}
	return p.list(ctx, fi, visit)
}

// Edit implements Provider.
func (r *Rooted) Edit(ctx context.Context, path string, change func([]byte, Info) (Splice, error)) (Info, error) {
	w, err := r.begin(path)
	if err != nil {
		return Info{}, err
	}
	if w.mode == DangerFullAccess {
		return r.local.Edit(ctx, path, change)
	}
	defer w.close()
	p, fi, err := w.find(path)
	if err != nil {
		return Info{}, err
	}
	return p.edit(ctx, r.locks, fi, change)
}

// Remove implements Provider.
func (r *Rooted) Remove(ctx context.Context, path string, check func([]byte, Info) error) error {
	w, err := r.begin(path)
	if err != nil {
		return err
	}
	if w.mode == DangerFullAccess {
		return r.local.Remove(ctx, path, check)
	}
	defer w.close()
	p, fi, err := w.find(path)
	if err != nil {
		return err
	}
	return p.remove(ctx, r.locks, fi, check)
}

// Create implements Provider.
func (r *Rooted) Create(ctx context.Context, path string, data []byte) (Info, error) {
	w, err := r.begin(path)
	if err != nil {
		return Info{}, err
	}
	if w.mode == DangerFullAccess {
		return r.local.Create(ctx, path, data)
	}
	defer w.close()
	name, err := newName(path)
	if err != nil {
		return Info{}, err
	}
	w.makes = true
	info, err := w.create(path, name, data)
	if err != nil {
		w.unmake()
	}
	return info, err
}

func (w *walk) create(path, name string, data []byte) (Info, error) {
	parent := strings.TrimSuffix(path, name)
	if strings.Contains(parent, "..") {
		// What is missing can't be gone back from; a directory made for that would only be left over.
		probe := &walk{rooted: w.rooted, mode: w.mode, asked: w.asked}
		_, _, err := probe.find(parent)
		probe.close()
		if errors.Is(err, fs.ErrNotExist) {
			parent = lexical(parent)
		}
	}
	if err := w.into(parent); err != nil {
		return Info{}, err
	}
	return w.place(name, nil).create(data)
}

// begin starts a walk under the mode in force.
func (r *Rooted) begin(path string) (*walk, error) {
	if err := usable(path); err != nil {
		return nil, err
	}
	mode, _ := r.Sandbox()
	return &walk{rooted: r, mode: mode, asked: path}, nil
}

// locate finds the anchor that path lies in and the rest of the path. The longest name wins, as one anchor may lie in another.
func (r *Rooted) locate(path string) (a *anchor, rest string, ok bool) {
	longest := -1
	for i := range r.anchors {
		for _, name := range r.anchors[i].names {
			if len(name) > longest && (path == name || strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/")) {
				longest, a, rest = len(name), &r.anchors[i], path[len(name):]
			}
		}
	}
	return a, rest, a != nil
}

// isProtected says whether a write at the place would touch protected configuration: by name at any depth, by identity at the workspace's top.
func (r *Rooted) isProtected(a *anchor, names []string, seen []fs.FileInfo) bool {
	if !a.workspace {
		return false
	}
	for _, p := range r.protected {
		for _, name := range names {
			if strings.EqualFold(name, p) {
				return true
			}
		}
	}
	for _, p := range present(a.top, r.protected) {
		fi, err := a.root.Stat(p)
		if err != nil {
			continue
		}
		for _, s := range seen {
			if os.SameFile(fi, s) {
				return true
			}
		}
	}
	return false
}
