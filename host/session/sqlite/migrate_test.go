package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/migrations"
)

func withSecond(t *testing.T, sql string) fs.FS {
	t.Helper()
	first, err := fs.ReadFile(migrations.Files(), "0001_sessions.sql")
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"0001_sessions.sql": {Data: first}, "0002_more.sql": {Data: []byte("-- +goose Up\n" + sql + "\n")}}
}

func TestMigrations(t *testing.T) {
	p := pragmas{busyTimeout: "5000", synchronous: "FULL", cacheSize: "-512"}
	now := func() time.Time { return time.UnixMilli(0) }
	prepare := func(t *testing.T) (dir, path string) {
		t.Helper()
		dir = t.TempDir()
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		epoch, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		info := session.Info{Header: session.Header{ID: "a"}}
		if err := s.Commit(epoch, []session.Change{{ID: "a", Create: true, Info: &info}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return dir, filepath.Join(dir, databaseName)
	}
	text := func(t *testing.T, path, query string) string {
		t.Helper()
		conn, err := connector{path, p}.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		got, err := queryText(conn, query)
		if err != nil {
			return err.Error()
		}
		return got
	}

	t.Run("an older database is backed up and brought up to date", func(t *testing.T) {
		dir, path := prepare(t)
		id := text(t, path, "SELECT value FROM meta WHERE name = 'log_id'")
		backups := filepath.Join(dir, backupsName)
		if err := migrateTo(t.Context(), path, backups, p, now, withSecond(t, "CREATE TABLE more (x INTEGER) STRICT;"), 2); err != nil {
			t.Fatal(err)
		}
		if got := text(t, path, "PRAGMA user_version"); got != "2" {
			t.Error("version", got)
		}
		if got := text(t, path, "SELECT count(*) FROM more"); got != "0" {
			t.Error("new table:", got)
		}
		if got := text(t, path, "SELECT value FROM meta WHERE name = 'log_id'"); got != id {
			t.Error("the log id changed")
		}
		backup := filepath.Join(backups, "schema-1-19700101T000000.000.db")
		if got := text(t, backup, "PRAGMA user_version"); got != "1" {
			t.Error("the backup has version", got)
		}
		if got := text(t, backup, "SELECT id FROM session"); got != "a" {
			t.Error("the backup has", got)
		}
		if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 {
			t.Error("mode of the backup:", info.Mode(), err)
		}
	})

	t.Run("a failed migration changes nothing", func(t *testing.T) {
		dir, path := prepare(t)
		err := migrateTo(t.Context(), path, filepath.Join(dir, backupsName), p, now, withSecond(t, "CREATE TABLE more (x INTEGER) STRICT;\nINSERT INTO nowhere VALUES (1);"), 2)
		if err == nil {
			t.Fatal("no error")
		}
		if got := text(t, path, "PRAGMA user_version"); got != "1" {
			t.Error("version", got)
		}
		if got := text(t, path, "SELECT count(*) FROM more"); !strings.Contains(got, "no such table") {
			t.Error("half a migration is there:", got)
		}
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Info(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	t.Run("a newer database is refused", func(t *testing.T) {
		dir, path := prepare(t)
		if err := migrateTo(t.Context(), path, filepath.Join(dir, backupsName), p, now, withSecond(t, "SELECT 1;"), 2); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, ErrNewer) {
			t.Error(err)
		}
	})
}

// TestReleasedSchemas opens a database of every released schema.
func TestReleasedSchemas(t *testing.T) {
	fixtures, err := filepath.Glob("testdata/schema-*.db")
	if err != nil || len(fixtures) == 0 {
		t.Fatal(fixtures, err)
	}
	for _, f := range fixtures {
		t.Run(filepath.Base(f), func(t *testing.T) {
			content, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, databaseName), content, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			j := session.NewJournal(s, session.Options{})
			if err := j.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := j.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			if got, err := j.Recover(t.Context()); err != nil || got.Sessions != 1 {
				t.Error(got, err)
			}
			l, err := j.Open(t.Context(), "fixture")
			if err != nil {
				t.Fatal(err)
			}
			if st := l.State(); st.Title != "A fixture" || st.TurnOpen || st.Damage != "" || len(st.History) != 1 {
				t.Errorf("state %+v", st)
			}
			if pin, err := j.Pin(t.Context(), "fixture"); err != nil || string(pin) != "pin" {
				t.Error(string(pin), err)
			}
		})
	}
}
