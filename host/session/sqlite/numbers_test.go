package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
)

// TestNumbers: a session's number is never given again, not even by the next process.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	number := func(id string, remove bool) string {
		j := openJournal(t, dir)
		l, err := j.Create(t.Context(), session.Header{ID: id}, nil)
		if err != nil {
			t.Fatal(err)
		}
		j.Release(l)
		conn, err := connector{filepath.Join(dir, databaseName), pragmas{busyTimeout: "5000", synchronous: "FULL", cacheSize: "-512"}}.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n, err := queryText(conn, "SELECT n FROM session WHERE id = '"+id+"'")
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if remove {
			if err := j.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		closeJournal(t, j)
		return n
	}
	a, b, c, d := number("a", false), number("b", true), number("c", true), number("d", false)
	if a != "1" || b != "2" || c != "3" || d != "4" {
		t.Errorf("the numbers are %s, %s, %s, %s", a, b, c, d)
	}
}
