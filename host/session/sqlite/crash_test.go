package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
)

// childDir tells a re-executed test binary to be the process that gets killed.
const childDir = "DSH_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const childSessions = 4

// child appends to some sessions until it is killed and says on a line of its own what was acknowledged.
func child(dir string, out io.Writer) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		return err
	}
	j := session.NewJournal(s, session.Options{CheckpointEvery: 5 * time.Millisecond})
	if err := j.Start(ctx); err != nil {
		return err
	}
	if _, err := j.Recover(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	var mu sync.Mutex
	say := func(id string, seq int64) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, id, seq)
	}
	var wg sync.WaitGroup
	errs := make([]error, childSessions)
	for i := range childSessions {
		wg.Go(func() { errs[i] = childSession(ctx, j, fmt.Sprint("s", i), say) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func childSession(ctx context.Context, j *session.Journal, id string, say func(string, int64)) error {
	l, err := j.Open(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		l, err = j.Create(ctx, session.Header{ID: id}, nil, session.Draft{Payload: session.Title{Title: id}})
	}
	if err != nil {
		return err
	}
	say(id, l.State().LastSeq)
	for {
		turn := l.State().Turns + 1
		message := model.Message{ID: fmt.Sprint("m", turn), Role: model.RoleUser, Source: model.Source{Kind: model.SourceUser}, Content: []model.Block{model.Text("hello")}}
		for _, p := range [][]session.Payload{
			{session.TurnStart{Turn: turn}, session.StepStart{Turn: turn, Step: 1}, session.UserMessage{Message: message}},
			nil,
			{session.AssistantMessage{Turn: turn, Step: 1, Message: model.Message{ID: fmt.Sprint("a", turn), Role: model.RoleAssistant, Content: []model.Block{model.Text(strings.Repeat("word ", turn%50))}}}},
			{session.ToolCall{Turn: turn, Step: 1, CallID: "c", Name: "bash"}, session.StepEnd{Turn: turn, Step: 1}, session.TurnEnd{Turn: turn}},
		} {
			if p == nil {
				b := l.Live().Begin(turn, 1, 1, model.DeltaText, "", "")
				for range 20 {
					b.Append("partial ")
				}
				continue
			}
			events, err := l.Update(ctx, func(session.State) ([]session.Draft, error) {
				var out []session.Draft
				for _, payload := range p {
					out = append(out, session.Draft{Payload: payload})
				}
				return out, nil
			})
			if err != nil {
				return err
			}
			say(id, events[len(events)-1].Seq)
		}
	}
}

func start(t *testing.T, dir string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	return cmd, r
}

func rounds(few, many int) int {
	if os.Getenv("DSH_SOAK") != "" {
		return many
	}
	if testing.Short() {
		return 1
	}
	return few
}

// TestKill kills a writing process at random moments: every acknowledged event is there, no gap, the database is sound.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string]int64{}
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for round := range rounds(8, 300) {
		if round%20 == 19 { // the logs have grown long
			dir, acknowledged = t.TempDir(), map[string]int64{}
		}
		cmd, out := start(t, dir)
		target := random.IntN(400) // lines to read before the kill
		for line := 0; ; line++ {
			if line == target {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			text, err := out.ReadString('\n')
			var id string
			var seq int64
			if n, _ := fmt.Sscanf(text, "%s %d\n", &id, &seq); n == 2 && strings.HasSuffix(text, "\n") {
				acknowledged[id] = max(seq, acknowledged[id])
			}
			if err != nil {
				break
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
		inspect(t, dir, func(j *session.Journal, s *sqlite.Store) {
			if !s.Unclean() {
				t.Error("a killed process left a clean database")
			}
			for id, seq := range acknowledged {
				l, err := j.Open(t.Context(), id)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				st := l.State()
				if st.Damage != "" || st.LastSeq < seq || st.TurnOpen {
					t.Fatalf("round %d: session %s ends at %d, acknowledged %d, damage %q", round, id, st.LastSeq, seq, st.Damage)
				}
				acknowledged[id] = st.LastSeq
				if left, err := s.Partials(t.Context(), id); err != nil || len(left) > 0 {
					t.Errorf("pieces after recovery: %v, %v", left, err)
				}
				j.Release(l)
			}
		})
	}
}

// inspect opens the directory, recovers, checks the database and closes it.
func inspect(t *testing.T, dir string, f func(*session.Journal, *sqlite.Store)) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := session.NewJournal(s, session.Options{})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := j.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	f(j, s)
}

// TestTwoProcesses: the second one names the first.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	cmd, out := start(t, dir)
	_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	var locked *session.LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("error %v, want one that names process %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // it was killed
	inspect(t, dir, func(*session.Journal, *sqlite.Store) {})
}

// TestDamagedWAL copies database and WAL at random commits and damages the WAL's tail: what opens is an exact prefix.
func TestDamagedWAL(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(2, uint64(time.Now().UnixNano())))
	inspect(t, dir, func(*session.Journal, *sqlite.Store) {}) // the schema is in the database, not in the WAL
	type snapshot struct{ db, wal []byte }
	var snapshots []snapshot
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	commits := 0
	j := session.NewJournal(s, session.Options{AfterCommit: func([]session.Committed) {
		if commits++; commits%23 == 0 {
			var c snapshot
			var err error
			if c.db, err = os.ReadFile(filepath.Join(dir, "dsh-web.db")); err != nil {
				t.Error(err)
			}
			if c.wal, err = os.ReadFile(filepath.Join(dir, "dsh-web.db-wal")); err != nil {
				t.Error(err)
			}
			snapshots = append(snapshots, c)
		}
	}})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	truth := map[string][]string{} // hashes by seq
	for i := range 3 {
		id := fmt.Sprint("s", i)
		l, err := j.Create(t.Context(), session.Header{ID: id}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 60 {
			if _, err := l.Update(t.Context(), func(session.State) ([]session.Draft, error) {
				return []session.Draft{{Payload: session.Title{Title: strings.Repeat(fmt.Sprint(n), 1+n%400)}}, {Payload: session.TodoWrite{}}}, nil
			}); err != nil {
				t.Fatal(err)
			}
			truth[id] = append(truth[id], l.State().Last)
		}
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, c := range snapshots {
		for range rounds(2, 40) {
			wal := append([]byte(nil), c.wal...)
			kind := "cut"
			if at := random.IntN(len(wal)); random.IntN(2) == 0 {
				wal = wal[:at]
			} else {
				kind = "garbled"
				for k := at; k < min(len(wal), at+64); k++ {
					wal[k] ^= 0x5a
				}
			}
			copied := t.TempDir()
			if err := errors.Join(os.WriteFile(filepath.Join(copied, "dsh-web.db"), c.db, 0o600), os.WriteFile(filepath.Join(copied, "dsh-web.db-wal"), wal, 0o600)); err != nil {
				t.Fatal(err)
			}
			inspect(t, copied, func(j *session.Journal, s *sqlite.Store) {
				for id, hashes := range truth {
					info, err := j.Info(t.Context(), id)
					if errors.Is(err, session.ErrNotFound) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					l, err := j.Open(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					st := l.State()
					if st.LastSeq%2 == 0 || st.Damage != "" || st.LastSeq >= 0 && st.Last != hashes[st.LastSeq/2] || info.LastSeq != st.LastSeq {
						t.Errorf("snapshot %d, WAL %s: session %s isn't a prefix: it ends at %d, damage %q", i, kind, id, st.LastSeq, st.Damage)
					}
					j.Release(l)
				}
			})
		}
	}
}
