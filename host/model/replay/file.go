package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// readLines reads and checks a recording.
func readLines(r io.Reader) ([]Line, error) {
	var lines []Line
	at := map[Key]int{}
	in := bufio.NewReader(r)
	for n, done := 1, false; !done; n++ {
		raw, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		done = err == io.EOF
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		var line Line
		if err := json.Unmarshal(raw, &line); err != nil {
			return nil, fmt.Errorf("read recording, line %d: it is no recorded call: %w", n, err)
		}
		earlier, twice := at[line.Key]
		switch {
		case line.Version != version:
			return nil, fmt.Errorf("read recording, line %d: version %d isn't %d", n, line.Version, version)
		case line.Call < 1:
			return nil, fmt.Errorf("read recording, line %d: calls are numbered from 1, and this is %s", n, line.Key)
		case twice:
			return nil, fmt.Errorf("read recording, line %d: %s is on line %d already", n, line.Key, earlier)
		case Digest(Canonical(line.Request)) != line.Digest:
			return nil, fmt.Errorf("read recording, line %d: the digest isn't that of the request; one of them was changed (%s)", n, line.Key)
		}
		at[line.Key] = n
		lines = append(lines, line)
	}
	if lines == nil {
		return nil, ErrEmpty
	}
	return lines, nil
}

// ErrEmpty says that a recording holds no calls.
var ErrEmpty = errors.New("the recording holds no calls; only calls to HTTP providers are recorded, not those to the demo or to another recording")

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
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open recording: %s is no regular file", path) // to open a pipe would wait for its writer
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
