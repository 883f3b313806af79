// Package fsys is the file provider: how file tools read and write, and where they may.
//
// There are two providers. [Local] is the bare file system of the host, with the rights of the host's user and no sandbox mode. [Rooted]
// is confined to a workspace and a temporary directory by handles that were opened once, so no symbolic link, however it is timed, leads
// out. Both take the absolute paths a model gives and pass the conformance suite in fsystest.
//
// What a writer may count on: an edit is one critical section (read, decide, check, replace), so edits of one file by any number of
// goroutines all land; bytes reach the file whole or not at all; a failed write leaves the original and no temporary file. Critical
// sections are per file and per [Locks], which one process shares among its providers. Other programs take no part in them: a write of theirs
// between our read and our replace is noticed and reported as [ErrChanged], apart from the few microseconds between the last look and the rename.
// Nothing is flushed to the disk: after a power cut a file has its old or its new contents where the file system sees to that when a file
// is renamed over another, as ext4 and btrfs do.
package fsys

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// MaxEdit is the largest file, in bytes, that Edit and Remove read.
const MaxEdit = 10 << 20

// Provider is a file system as file tools see it. Paths are absolute, in the words of the model. All methods may be called from any
// goroutine; errors match the sentinels of this package, fs.ErrNotExist, fs.ErrExist, fs.ErrPermission or *DeniedError.
type Provider interface {
	// Sandbox gives the mode that confines the provider; ok is false when nothing does.
	Sandbox() (mode Mode, ok bool)
	// Stat describes what path leads to, through symbolic links.
	Stat(ctx context.Context, path string) (Info, error)
	// Open opens a regular file for reading from its start. Anything else is refused before it is opened.
	Open(ctx context.Context, path string) (io.ReadCloser, Info, error)
	// ReadDir calls visit for each entry of a directory, in no particular order, until visit returns false.
	ReadDir(ctx context.Context, path string, visit func(Entry) bool) error
	// Create writes a new regular file with mode 0666 less the umask, and the directories above it. It never replaces anything:
	// whatever is at path, a dangling link too, gives fs.ErrExist. The file appears whole.
	Create(ctx context.Context, path string, data []byte) (Info, error)
	// Edit makes the change that change returns to the regular file that path leads to, in one critical section. Mode, owner and links are
	// kept. When change returns an error, or the bytes that are there already, nothing is written. change must not use the provider, nor
	// keep or write to old.
	Edit(ctx context.Context, path string, change func(old []byte, info Info) (Splice, error)) (Info, error)
	// Remove deletes the regular file that path leads to, in one critical section, unless check returns an error. check must not keep old.
	Remove(ctx context.Context, path string, check func(old []byte, info Info) error) error
}

// Splice is a change of a file: Cut bytes at Off give way to Text.
type Splice struct {
	Off, Cut int
	Text     []byte
	// Later, when it isn't nil, may be given what is left to do once the change stands: giving back the room that the old contents take on
	// the disk, which can be slower than all the rest. It must be called, the sooner the better. With nil, Edit does it before it returns.
	Later func(settle func())
}

// Kind is what a path leads to.
type Kind int

// Kinds. The zero value is none of the usable ones.
const (
	Other     Kind = iota // pipe, socket, device
	File                  // regular file
	Directory             //
	Link                  // symbolic link; only in an Entry
)

// Info describes a file or directory.
type Info struct {
	// Path is the canonical path: absolute, links resolved, in the provider's own words.
	Path    string
	Kind    Kind
	Size    int64 // bytes
	Mode    fs.FileMode
	ModTime time.Time
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Kind Kind
}

// Mode is a sandbox mode.
type Mode string

// The sandbox modes of a confined provider.
const (
	ReadOnly         Mode = "read-only"
	WorkspaceWrite   Mode = "workspace-write"
	DangerFullAccess Mode = "danger-full-access"
)

func kindOf(mode fs.FileMode) Kind {
	switch {
	case mode.IsRegular():
		return File
	case mode.IsDir():
		return Directory
	case mode&fs.ModeSymlink != 0:
		return Link
	default:
		return Other
	}
}

func infoOf(path string, fi fs.FileInfo) Info {
	return Info{Path: path, Kind: kindOf(fi.Mode()), Size: fi.Size(), Mode: fi.Mode(), ModTime: fi.ModTime()}
}
