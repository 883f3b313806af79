package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dsh-web/dsh-web/host/model/replay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func post(t *testing.T, rt http.RoundTripper, url, session string, call int, body string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer sk-secret")
	if session != "" {
		r = replay.Annotate(r, session, call)
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

// record drives a server and returns what was recorded.
func record(t *testing.T, handler http.HandlerFunc, drive func(rt http.RoundTripper, url string)) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	defer srv.Close()
	var out bytes.Buffer
	rec := replay.NewRecorder(srv.Client().Transport, &out)
	drive(rec, srv.URL+"/v1/chat/completions?key=sk-secret")
	if err := rec.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Set-Cookie", "secret=1")
	for _, s := range []string{"data: ", "\xe2\x82", "\xac\n\n", string(body)} {
		_, _ = io.WriteString(w, s)
		_ = http.NewResponseController(w).Flush()
	}
}

func TestRecordAndPlay(t *testing.T) {
	drive := func(rt http.RoundTripper, url string) []string {
		var got []string
		for i, session := range []string{"a", "b", "a", "a"} {
			status, body, err := post(t, rt, url, session, max(i, 1), fmt.Sprintf(`{"b":%d.0, "a":"<x>"}`, i))
			got = append(got, fmt.Sprint(status, body, err))
		}
		return got
	}
	var live []string
	file := record(t, echo, func(rt http.RoundTripper, url string) { live = drive(rt, url) })
	if strings.Contains(file, "sk-secret") || strings.Contains(file, "secret=1") {
		t.Errorf("the recording holds a secret:\n%s", file)
	}
	if n := strings.Count(file, "\n"); n != 4 {
		t.Errorf("%d lines", n)
	}
	for range 2 { // playing twice gives the same
		p, err := replay.NewPlayer(strings.NewReader(file), replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(live, drive(p, "http://elsewhere/x")); d != "" {
			t.Errorf("played differently (-live +played):\n%s", d)
		}
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]string{"a", "b"}, p.Sessions()); d != "" {
			t.Error(d)
		}
	}
}

func TestKeyOrderDoesNotMatter(t *testing.T) {
	a, b := replay.Canonical([]byte(`{"a": 1, "b": [1.0, "é"]}`)), replay.Canonical([]byte(`{"b":[1.0,"é"],"a":1}`))
	if replay.Digest(a) != replay.Digest(b) {
		t.Errorf("%s and %s", a, b)
	}
	if replay.Digest(a) == replay.Digest(replay.Canonical([]byte(`{"a": 1, "b": [1, "é"]}`))) {
		t.Error("1.0 and 1 are other bytes on the wire")
	}
}

func TestDrift(t *testing.T) {
	long := strings.Repeat("x", 500)
	recorded := `{"model":"m","messages":[{"role":"user","content":"` + long + `a"}],"old":true}`
	file := record(t, echo, func(rt http.RoundTripper, url string) { _, _, _ = post(t, rt, url, "s", 1, recorded) })
	drifted := `{"model":"n","messages":[{"role":"user","content":"` + long + `b"},{"role":"user"}],"new":{}}`
	want := []string{
		`messages[0].content: ..."` + strings.Repeat("x", 20) + `a" -> ..."` + strings.Repeat("x", 20) + `b"`,
		`messages[1]: (absent) -> {"role":"user"}`, `model: "m" -> "n"`, `new: (absent) -> {}`, `old: true -> (absent)`,
	}
	t.Run("strict", func(t *testing.T) {
		p, err := replay.NewPlayer(strings.NewReader(file), replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = post(t, p, "http://x", "s", 1, drifted)
		var drift *replay.DriftError
		if !errors.As(err, &drift) || !strings.Contains(err.Error(), `call 1 of session "s"`) {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, drift.Fields); d != "" {
			t.Error(d)
		}
		if err := p.Finish(); err != nil {
			t.Errorf("it was asked for: %v", err)
		}
		if status, _, err := post(t, p, "http://x", "s", 2, recorded); status != 200 || err != nil {
			t.Errorf("the request that differed used up the call: %d, %v", status, err)
		}
	})
	t.Run("lenient", func(t *testing.T) {
		p, err := replay.NewPlayer(strings.NewReader(file), replay.Options{Lenient: true})
		if err != nil {
			t.Fatal(err)
		}
		if status, _, err := post(t, p, "http://x", "s", 1, drifted); status != 200 || err != nil {
			t.Fatal(status, err)
		}
		if len(p.Drifts()) != 1 || p.Finish() != nil {
			t.Errorf("%v, %v", p.Drifts(), p.Finish())
		}
	})
}

// numbered drives n calls of a session whose requests hold their number.
func numbered(t *testing.T, n int) string {
	return record(t, echo, func(rt http.RoundTripper, url string) {
		for i := range n {
			_, _, _ = post(t, rt, url, "s", i+1, fmt.Sprintf(`{"n":%d}`, i+1))
		}
	})
}

func player(t *testing.T, file string, o replay.Options) *replay.Player {
	t.Helper()
	p, err := replay.NewPlayer(strings.NewReader(file), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTooManyAndTooFew(t *testing.T) {
	p := player(t, numbered(t, 3), replay.Options{})
	var missing *replay.MissingCallsError
	for n := 1; n <= 3; n++ {
		if err := p.Finish(); !errors.As(err, &missing) || len(missing.Calls) != 4-n || !strings.Contains(err.Error(), `call 3 of session "s"`) {
			t.Error(err)
		}
		if _, _, err := post(t, p, "http://x", "s", n, fmt.Sprintf(`{"n":%d}`, n)); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(missing.Error(), "1 recorded call was never made") {
		t.Error(missing)
	}
	if err := p.Finish(); err != nil {
		t.Error(err)
	}
	var extra *replay.ExtraCallError
	for _, session := range []string{"s", "t"} {
		want := map[string]string{"s": `call 4 of session "s"`, "t": `call 1 of session "t"`}[session]
		if _, _, err := post(t, p, "http://x", session, 1, `{"n":4}`); !errors.As(err, &extra) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

// A player that meets a session in the middle goes on there: what comes before was played by another process.
func TestGoesOnInTheMiddle(t *testing.T) {
	for _, lenient := range []bool{false, true} {
		p := player(t, numbered(t, 3), replay.Options{Lenient: lenient})
		for n := 2; n <= 3; n++ {
			if _, body, err := post(t, p, "http://x", "s", n-1, fmt.Sprintf(`{"n":%d}`, n)); err != nil || !strings.Contains(body, fmt.Sprint(n)) {
				t.Errorf("%q, %v", body, err)
			}
		}
		if err := p.Finish(); err != nil || len(p.Drifts()) != 0 {
			t.Error(err, p.Drifts())
		}
	}
	// Only its first request may skip calls.
	p := player(t, numbered(t, 3), replay.Options{})
	if _, _, err := post(t, p, "http://x", "s", 1, `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	var drift *replay.DriftError
	if _, _, err := post(t, p, "http://x", "s", 2, `{"n":3}`); !errors.As(err, &drift) || drift.Call != 2 {
		t.Error(err)
	}
}

// An agent that was put away and made live again begins its numbers anew; a retry may carry the number of what it repeats. The recording goes on.
func TestRepeatedNumbers(t *testing.T) {
	n := 0
	file := record(t, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(529)
		}
		_, _ = io.WriteString(w, fmt.Sprint(n))
	}, func(rt http.RoundTripper, url string) {
		for range 2 {
			_, _, _ = post(t, rt, url, "s", 1, `{}`)
		}
	})
	p := player(t, file, replay.Options{})
	for _, want := range []string{"529 1", "200 2"} {
		status, body, err := post(t, p, "http://x", "s", 1, `{}`)
		if got := fmt.Sprint(status, " ", body); got != want || err != nil {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

// What can't be a recording is refused when it is read, with the line.
func TestRecordingsThatAreRefused(t *testing.T) {
	whole := numbered(t, 3)
	for name, c := range map[string]struct{ file, says string }{
		"empty":            {"\n", "no calls"},
		"a changed digest": {strings.Replace(whole, replay.Digest([]byte(`{"n":2}`)), strings.Repeat("0", 64), 1), "line 2: the digest"},
		"a changed body":   {strings.Replace(whole, `"request":{"n":3}`, `"request":{"n":4}`, 1), "line 3: the digest"},
		"twice the file":   {whole + whole, `line 4: call 1 of session "s" is on line 1`},
		"a newer one":      {`{"v":9,"session":"s","call":1}`, "version 9"},
		"no number":        {`{"v":1}`, "line 1: calls are numbered from 1"},
		"a cut line":       {whole[:len(whole)-20], "line 3"},
		"another file":     {"first line of a text\n", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := replay.NewPlayer(strings.NewReader(c.file), replay.Options{}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Error(err)
			}
		})
	}
	spaced := strings.Replace(whole, `"request":{"n":3}`, `"request": {"n": 3 }`, 1)
	if spaced == whole {
		t.Fatal("nothing was replaced")
	}
	player(t, spaced, replay.Options{}) // the digest is over the canonical form
}

func TestFailures(t *testing.T) {
	file := record(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, func(rt http.RoundTripper, url string) {
		if _, body, err := post(t, rt, url, "", 0, `not JSON`); body != "half" || err == nil {
			t.Errorf("live: %q, %v", body, err)
		}
	})
	p, err := replay.NewPlayer(strings.NewReader(file), replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, body, err := post(t, p, "http://x", "", 0, `not JSON`); body != "half" || err == nil {
		t.Errorf("played: %q, %v", body, err)
	}
	var out bytes.Buffer
	rec := replay.NewRecorder(&http.Transport{}, &out)
	if _, _, err := post(t, rec, "http://127.0.0.1:1/", "s", 1, `{}`); err == nil {
		t.Fatal("port 1 answers")
	}
	if p, err = replay.NewPlayer(&out, replay.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := post(t, p, "http://x", "s", 1, `{}`); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

func TestTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := `{"v":1,"session":"s","call":1,"digest":"` + replay.Digest([]byte("{}")) + `","request":{},"status":200,"pieces":[{"ms":10,"text":"a"},{"ms":2000,"text":"b"}]}`
		p, err := replay.NewPlayer(strings.NewReader(file), replay.Options{Timed: true})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, body, err := post(t, p, "http://x", "s", 1, "{}"); body != "ab" || err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%q after %v, %v", body, time.Since(began), err)
		}
		if p, err = replay.NewPlayer(strings.NewReader(file), replay.Options{Timed: true}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.RoundTrip(replay.Annotate(r, "s", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestConcurrentRecording(t *testing.T) {
	file := record(t, echo, func(rt http.RoundTripper, url string) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { _, _, _ = post(t, rt, url, fmt.Sprint("s", i), 1, `{}`) })
		}
		wg.Wait()
	})
	if p, err := replay.NewPlayer(strings.NewReader(file), replay.Options{}); err != nil || len(p.Sessions()) != 20 {
		t.Error(err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriterFails(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	defer srv.Close()
	rec := replay.NewRecorder(srv.Client().Transport, full{})
	if status, _, err := post(t, rec, srv.URL, "s", 1, `{}`); status != 200 || err != nil {
		t.Errorf("the call failed with the recording: %v", err)
	}
	if err := rec.Err(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	defer srv.Close()
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	f, err := replay.Create(path, srv.Client().Transport)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, _, err := post(t, f, srv.URL+"/v1/chat/completions", "s", i+1, fmt.Sprintf(`{"n":%d}`, i+1)); err != nil {
			t.Fatal(err)
		}
		if f.Written() != i+1 {
			t.Errorf("%d calls were written", f.Written())
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if _, err := replay.Create(path, nil); err == nil {
		t.Error("a recording was overwritten")
	}
	var l replay.Library
	one, err := l.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.Open(path)
	if err != nil || one != two || one.URL() != srv.URL+"/v1/chat/completions" {
		t.Error(err, one.URL())
	}
	if _, _, err := post(t, one, one.URL(), "s", 1, `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "call 2") {
		t.Error(err)
	}
	if _, err := l.Open(path + ".none"); err == nil {
		t.Error("a missing recording was opened")
	}
}
