package credential

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// aged is a store that trusts a file however young it is, and the path of its file.
func aged(t testing.TB, text string) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s := New(dir, func(string) (string, bool) { return "", false })
	s.stored.young, s.dotEnv.young = -time.Hour, -time.Hour
	path := filepath.Join(dir, "credentials.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, path
}

func (s *Store) reads(t testing.TB) (count func() int) {
	n, parse := 0, s.stored.parse
	s.stored.parse = func(raw []byte) (map[string]string, error) { n++; return parse(raw) }
	return func() int { return n }
}

func TestUnchangedFileIsReadOnce(t *testing.T) {
	s, _ := aged(t, "A: first-secret\n")
	reads := s.reads(t)
	for range 5 {
		if got := s.Values(); !slices.Equal(got, []string{"first-secret"}) {
			t.Errorf("%q", got)
		}
	}
	if _, known := changeTime(must(os.Stat(s.path()))); known && reads() != 1 {
		t.Errorf("read %d times", reads())
	}
	if err := s.Set("B", "second-secret"); err != nil {
		t.Fatal(err)
	}
	if got := s.Values(); !slices.Equal(got, []string{"second-secret", "first-secret"}) {
		t.Errorf("%q", got)
	}
}

// A file that was just written is read every time: its times may not tell a second write from the first.
func TestYoungFileIsReadAgain(t *testing.T) {
	s, _ := aged(t, "A: first-secret\n")
	s.stored.young = time.Hour
	reads := s.reads(t)
	s.Values()
	s.Values()
	if reads() != 2 {
		t.Errorf("read %d times", reads())
	}
}

// However a key changes, the new one counts from the next call on.
func TestEveryChangeOfTheFileCounts(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"longer":    func(path string) error { return os.WriteFile(path, []byte("A: other-secret\nB: longer\n"), 0o600) },
		"same size": func(path string) error { return os.WriteFile(path, []byte("A: other-secret\n"), 0o600) },
		"same size and time of writing": func(path string) error {
			fi := must(os.Stat(path))
			if err := os.WriteFile(path, []byte("A: other-secret\n"), 0o600); err != nil {
				return err
			}
			return os.Chtimes(path, fi.ModTime(), fi.ModTime())
		},
		"replaced": func(path string) error {
			fi := must(os.Stat(path))
			if err := os.WriteFile(path+".new", []byte("A: other-secret\n"), 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(path+".new", fi.ModTime(), fi.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, path := aged(t, "A: first-secret\n")
			before := must(os.Stat(path))
			s.Values()
			// A store that trusts young files needs the clock of the files to have moved on.
			for moved := false; !moved; {
				if err := change(path); err != nil {
					t.Fatal(err)
				}
				moved = !same(before, must(os.Stat(path)))
			}
			if got := s.Values(); !slices.Equal(got, []string{"other-secret"}) {
				t.Errorf("%q", got)
			}
		})
	}
	s, path := aged(t, "A: first-secret\n")
	s.Values()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := s.Values(); len(got) != 0 {
		t.Errorf("removed: %q", got)
	}
}

func must(fi os.FileInfo, err error) os.FileInfo {
	if err != nil {
		panic(err)
	}
	return fi
}

// BenchmarkValues is what redaction asks at every tool call.
func BenchmarkValues(b *testing.B) {
	for name, age := range map[string]time.Duration{"unchanged": -time.Hour, "young": time.Hour} {
		b.Run(name, func(b *testing.B) {
			s, path := aged(b, "DEEPSEEK_API_KEY: sk-first-secret\nOPENAI_API_KEY: sk-second-secret\n")
			s.stored.young, s.dotEnv.young = age, age
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), ".env"), []byte("X_TOKEN=dotenv-secret\nY=z\n"), 0o600); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Values("DEEPSEEK_API_KEY", "OPENAI_API_KEY")
			}
		})
	}
}
