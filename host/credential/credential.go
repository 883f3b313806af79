// Package credential finds, keeps and forgets keys.
//
// A key is looked up by name, for example DEEPSEEK_API_KEY, in the process environment, then in DIR/credentials.yaml, then in DIR/.env,
// anew for every lookup: a key that changes on disk counts for the next request. A file is read again when it isn't the one that was read;
// every lookup asks. Stored keys are write-only for everybody but the adapters: nothing here prints one, and errors never hold one.
package credential

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Source says where a value was found.
type Source string

// The sources, in the order in which they are asked.
const (
	SourceEnvironment Source = "environment"
	SourceFile        Source = "credentials.yaml"
	SourceDotEnv      Source = ".env"
)

// ErrUnsafe means that a key can't travel in an HTTP header.
var ErrUnsafe = errors.New("the key holds spaces, line breaks or other characters that no HTTP header can carry")

// ErrName means that a name isn't one of an environment variable.
var ErrName = errors.New("a key's name must look like an environment variable")

// minSecret is the length below which a value isn't redacted: short ones would black out ordinary text.
const minSecret = 8

// Store reads and writes the keys of one data directory. It is safe for concurrent use within one process.
type Store struct {
	dir string
	env func(string) (string, bool)

	stored, dotEnv cache

	writing sync.Mutex // serialises writers of the file

	mu    sync.Mutex
	extra map[string]int // values that live elsewhere but must be redacted, with how many want it
}

// New makes a store over a data directory; dir "" means the environment alone. env is os.LookupEnv outside tests.
func New(dir string, env func(string) (string, bool)) *Store {
	return &Store{
		dir: dir, env: env, extra: map[string]int{},
		stored: cache{young: young, parse: parseStored}, dotEnv: cache{young: young, parse: parseDotEnv},
	}
}

// Lookup finds a value by name. Damaged files count as empty here; Check reports them.
func (s *Store) Lookup(name string) (string, bool) {
	value, _, ok := s.Find(name)
	return value, ok
}

// Find is Lookup that also says where the value is.
func (s *Store) Find(name string) (value string, from Source, ok bool) {
	if v, ok := s.env(name); ok && strings.TrimSpace(v) != "" {
		return v, SourceEnvironment, true
	}
	if stored, err := s.readFile(); err == nil {
		if v, ok := stored[name]; ok && v != "" {
			return v, SourceFile, true
		}
	}
	if dot, err := s.readDotEnv(); err == nil {
		if v, ok := dot[name]; ok && v != "" {
			return v, SourceDotEnv, true
		}
	}
	return "", "", false
}

// Check reports files that can't be read or that others can read.
func (s *Store) Check() error {
	_, errFile := s.readFile()
	_, errDot := s.readDotEnv()
	var errMode error
	if s.dir != "" {
		if info, err := os.Stat(s.path()); err == nil && info.Mode().Perm()&0o077 != 0 {
			errMode = fmt.Errorf("%s is readable by others (mode %#o); run: chmod 600 %s", s.path(), info.Mode().Perm(), s.path())
		}
	}
	return errors.Join(errFile, errDot, errMode)
}

// Set stores a key durably in credentials.yaml (0600). It refuses what an HTTP header can't carry.
func (s *Store) Set(name, key string) error {
	key, err := HeaderSafe(key)
	if err != nil {
		return err
	}
	if key == "" {
		return errors.New("the key is empty")
	}
	return s.change(name, func(all map[string]string) { all[name] = key })
}

// Delete forgets a stored key. Forgetting what isn't there is fine. The environment and .env are left as they are.
func (s *Store) Delete(name string) error {
	return s.change(name, func(all map[string]string) { delete(all, name) })
}

// Protect adds a value that must be redacted though it isn't stored here, such as a session's own key; release takes it back.
func (s *Store) Protect(value string) (release func()) {
	value = strings.TrimSpace(value)
	if len(value) < minSecret {
		return func() {}
	}
	s.mu.Lock()
	s.extra[value]++
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.extra[value]--; s.extra[value] == 0 {
			delete(s.extra, value)
		}
	})
}

// Values lists the secret values to redact, longest first: every stored key and what the environment has under its name, what the environment
// has under the given names, every value in .env whose name says that it is one (it ends in _KEY, _TOKEN, _SECRET or _PASSWORD), and every
// protected value. Values of fewer than 8 characters are left out.
func (s *Store) Values(names ...string) []string {
	set := map[string]struct{}{}
	add := func(v string) {
		if v = strings.TrimSpace(v); len(v) >= minSecret {
			set[v] = struct{}{}
		}
	}
	for _, n := range names {
		if v, ok := s.env(n); ok {
			add(v)
		}
	}
	if stored, err := s.readFile(); err == nil {
		for name, v := range stored {
			add(v)
			if e, ok := s.env(name); ok {
				add(e)
			}
		}
	}
	if dot, err := s.readDotEnv(); err == nil {
		for name, v := range dot {
			if secretName(name) {
				add(v)
			}
		}
	}
	s.mu.Lock()
	for v := range s.extra {
		add(v)
	}
	s.mu.Unlock()
	out := make([]string, 0, len(set))
	for v := range set {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return out
}

func secretName(name string) bool {
	for _, end := range []string{"_KEY", "_TOKEN", "_SECRET", "_PASSWORD"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// HeaderSafe trims a key and refuses one that isn't made of visible ASCII characters.
func HeaderSafe(key string) (string, error) {
	key = strings.TrimSpace(key)
	for i := range len(key) {
		if key[i] <= ' ' || key[i] >= 0x7f {
			return "", ErrUnsafe
		}
	}
	return key, nil
}

func (s *Store) path() string { return filepath.Join(s.dir, "credentials.yaml") }

func (s *Store) readFile() (map[string]string, error) {
	if s.dir == "" {
		return nil, nil
	}
	all, err := s.stored.read(s.path())
	if errors.Is(err, errNotMap) {
		return nil, fmt.Errorf("read stored keys: %s %w", s.path(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("read stored keys: %w", err)
	}
	return all, nil
}

// errNotMap takes the place of the parser's own text, which may quote a value.
var errNotMap = errors.New("isn't a YAML map of names to keys")

func parseStored(raw []byte) (all map[string]string, err error) {
	if yaml.Unmarshal(raw, &all) != nil {
		return nil, errNotMap
	}
	return all, nil
}

func (s *Store) change(name string, edit func(map[string]string)) error {
	if !validName(name) {
		return ErrName
	}
	if s.dir == "" {
		return errors.New("there is no data directory to store a key in")
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	all, err := s.readFile()
	if err != nil {
		return err
	}
	if all = maps.Clone(all); all == nil {
		all = map[string]string{}
	}
	edit(all)
	raw, err := yaml.Marshal(all)
	if err != nil {
		return fmt.Errorf("store key: %w", err)
	}
	return replaceFile(s.path(), raw)
}

// replaceFile writes a 0600 file so that a crash leaves the old or the new one.
func replaceFile(path string, raw []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".credentials-*")
	if err != nil {
		return fmt.Errorf("store key: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(raw) // CreateTemp makes it 0600
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("store key: %w", err)
	}
	return nil
}

func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '_', i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return name != ""
}
