package credential_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-web/dsh-web/host/credential"
)

type env map[string]string

func (e env) lookup(name string) (string, bool) { v, ok := e[name]; return v, ok }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOrderOfSources(t *testing.T) {
	dir, e := t.TempDir(), env{}
	s := credential.New(dir, e.lookup)
	find := func(want string, from credential.Source) {
		t.Helper()
		got, source, ok := s.Find("A_API_KEY")
		if got != want || source != from || ok != (want != "") {
			t.Errorf("found %q in %q, want %q in %q", got, source, want, from)
		}
	}
	find("", "")
	write(t, filepath.Join(dir, ".env"), "# comment\nexport A_API_KEY='from-dotenv' \nB=\"x # y\"\nC=plain # comment\n")
	find("from-dotenv", credential.SourceDotEnv)
	for name, want := range map[string]string{"B": "x # y", "C": "plain"} {
		if got, _ := s.Lookup(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if err := s.Set("A_API_KEY", " from-store\n"); err != nil {
		t.Fatal(err)
	}
	find("from-store", credential.SourceFile)
	e["A_API_KEY"] = "from-environment"
	find("from-environment", credential.SourceEnvironment)
	e["A_API_KEY"] = "  "
	find("from-store", credential.SourceFile)
	if err := s.Delete("A_API_KEY"); err != nil {
		t.Fatal(err)
	}
	find("from-dotenv", credential.SourceDotEnv)
	if err := s.Delete("NEVER_THERE"); err != nil {
		t.Error(err)
	}
}

func TestFileMode(t *testing.T) {
	dir := t.TempDir()
	s := credential.New(dir, env{}.lookup)
	if err := s.Set("A", "first-key"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "credentials.yaml")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a readable file: %v", err)
	}
	if err := s.Set("B", "second-key"); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("after a write: %v, %v", info.Mode(), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRefusals(t *testing.T) {
	s := credential.New(t.TempDir(), env{}.lookup)
	for _, key := range []string{"a b", "a\nb", "a\x00b", "kéy", "a\x7f"} {
		if err := s.Set("A", key); !errors.Is(err, credential.ErrUnsafe) || strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, name := range []string{"", "1A", "A-B", "A B", "../x", "A\n"} {
		if err := s.Set(name, "good-key"); !errors.Is(err, credential.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := s.Set("A", " \n"); err == nil {
		t.Error("an empty key was stored")
	}
	if err := credential.New("", env{}.lookup).Set("A", "good-key"); err == nil {
		t.Error("a key was stored nowhere")
	}
}

func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	s := credential.New(dir, env{"A": "from-environment"}.lookup)
	write(t, filepath.Join(dir, "credentials.yaml"), "A: [sk-hidden\n")
	write(t, filepath.Join(dir, ".env"), "sk-hidden without a sign\n")
	if v, ok := s.Lookup("A"); v != "from-environment" || !ok {
		t.Error("a damaged file hides the environment")
	}
	err := s.Check()
	if err == nil || !strings.Contains(err.Error(), "credentials.yaml") || !strings.Contains(err.Error(), "line 1") || strings.Contains(err.Error(), "sk-hidden") {
		t.Error(err)
	}
	if err := s.Set("B", "new-key-value"); err == nil {
		t.Error("a damaged file was overwritten")
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "credentials.yaml")); err != nil || string(raw) != "A: [sk-hidden\n" {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestValues(t *testing.T) {
	dir := t.TempDir()
	e := env{"D_API_KEY": "environment-secret", "A": "environment-over-stored", "OTHER": "not-asked-for"}
	s := credential.New(dir, e.lookup)
	write(t, filepath.Join(dir, ".env"), "X_TOKEN=dotenv-secret\nDEEPSEEK_BASE_URL=http://public.example\n")
	for name, key := range map[string]string{"A": "stored-secret", "SHORT": "short"} {
		if err := s.Set(name, key); err != nil {
			t.Fatal(err)
		}
	}
	release := s.Protect("session-secret-of-its-own")
	want := []string{"session-secret-of-its-own", "environment-over-stored", "environment-secret", "dotenv-secret", "stored-secret"}
	if got := s.Values("D_API_KEY"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	release()
	if slices.Contains(s.Values(), want[0]) {
		t.Error("released, and still there")
	}
}

// Two sessions may have the same own key; it stays protected until both are gone.
func TestProtectTwice(t *testing.T) {
	s := credential.New(t.TempDir(), env{}.lookup)
	one, two := s.Protect("a-shared-secret"), s.Protect("a-shared-secret")
	one()
	one()
	if len(s.Values()) != 1 {
		t.Error("released by the first")
	}
	two()
	if len(s.Values()) != 0 {
		t.Error("never released")
	}
}

func TestConcurrentWriters(t *testing.T) {
	s := credential.New(t.TempDir(), env{}.lookup)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := s.Set(fmt.Sprintf("K%d", i), "a-key-value"); err != nil {
				t.Error(err)
			}
			s.Lookup("K0")
		})
	}
	wg.Wait()
	for i := range 20 {
		if _, ok := s.Lookup(fmt.Sprintf("K%d", i)); !ok {
			t.Errorf("K%d is lost", i)
		}
	}
}
