package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

// TestDiskFull: the commit fails, reading works, writing works again when there is space.
func TestDiskFull(t *testing.T) {
	dir := storetest.SmallDisk(t, "2m")
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	inspect(t, filepath.Join(dir, "data"), func(j *session.Journal, s *sqlite.Store) {
		l, err := j.Create(t.Context(), session.Header{ID: "a"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		write := func() error {
			_, err := l.Update(t.Context(), func(session.State) ([]session.Draft, error) {
				return []session.Draft{{Payload: session.Title{Title: strings.Repeat("x", 8<<10)}}}, nil
			})
			return err
		}
		var failure error
		for n := 0; n < 1000 && failure == nil; n++ {
			failure = write()
		}
		if failure == nil {
			t.Fatal("the disk never filled up")
		}
		last := l.State().LastSeq
		if page, err := j.Read(t.Context(), "a", -1, 0, 0); err != nil || len(page.Events) == 0 || page.LastSeq != last {
			t.Errorf("reading from a full disk: %d events up to %d, %v", len(page.Events), page.LastSeq, err)
		}
		if err := write(); err == nil {
			t.Error("writing to a full disk worked")
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Error("writing after space was freed:", err)
		}
		if l.State().LastSeq != last+1 {
			t.Errorf("the log ends at %d, want %d", l.State().LastSeq, last+1)
		}
	})
}
