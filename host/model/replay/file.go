package replay

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
)

// Create records what goes through next to a new file that only its owner reads. Close it at the end.
func Create(path string, next http.RoundTripper) (*File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	return &File{Recorder: NewRecorder(next, f), file: f}, nil
}

// File is a recorder that owns its file.
type File struct {
	*Recorder
	file *os.File
}

// Close makes the recording durable and reports the first failure to write it. Calls that end later are lost.
func (f *File) Close() error {
	return errors.Join(f.Err(), f.file.Sync(), f.file.Close())
}

// Library holds the players of recordings by path, so that all routes to one recording share its place. The zero value is ready. It is safe for
// concurrent use.
type Library struct {
	Options Options

	mu      sync.Mutex
	players map[string]*Player
}

// Open gives the player of a file, reading it the first time.
func (l *Library) Open(path string) (*Player, error) {
	l.mu.Lock()
	known := l.players[path]
	l.mu.Unlock()
	if known != nil {
		return known, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	defer f.Close()
	p, err := NewPlayer(f, l.Options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.players[path]; known != nil {
		return known, nil // another one was faster
	}
	if l.players == nil {
		l.players = map[string]*Player{}
	}
	l.players[path] = p
	return p, nil
}

// Finish joins what the players have to report at the end.
func (l *Library) Finish() error {
	l.mu.Lock()
	players := maps.Clone(l.players)
	l.mu.Unlock()
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(players)) {
		if err := players[path].Finish(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}
