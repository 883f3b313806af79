package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-web/dsh-web/host/model/replay"
)

// update records the model's answers anew, from the scripted model server: go test ./cmd/dsh-web -run TestScripts -update
var update = flag.Bool("update", false, "record testdata/recordings anew")

const recordingDir = "testdata/recordings"

// recording is what answers for a script's model: a file of recorded traffic, or with -update a model server whose traffic is recorded. Every request
// must be the recorded one, and every recorded one must be made: a script fails at the first field that differs.
type recording struct {
	name string // "" for none
}

func (r recording) file() string { return filepath.Join(recordingDir, r.name+".jsonl") }

func cmdModel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: model NAME")
	}
	h := hostOf(ts.Value("host"))
	if h.name = args[0]; h.name == "-" {
		h.name = ""
	}
	switch {
	case h.name == "":
		ts.Setenv("DEEPSEEK_BASE_URL", "")
		ts.Setenv("DEEPSEEK_API_KEY", "")
	case *update:
		cmdModelServer(ts, false, nil)
	}
}

// flags make a host use the recording.
func (r recording) flags(ts *testscript.TestScript) []string {
	if r.name == "" {
		return nil
	}
	file, err := filepath.Abs(r.file())
	ts.Check(err)
	if *update {
		ts.Check(os.MkdirAll(recordingDir, 0o755))
		if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		return []string{"--record", file}
	}
	config := ts.MkAbs("model.yaml")
	ts.Check(os.WriteFile(config, fmt.Appendf(nil, "providers: [{id: deepseek, kind: replay, file: %q}]\n", file), 0o600))
	return []string{"--config", config}
}

// drifted fails when the host has met a request that isn't the recorded one.
func (h *scriptHost) drifted(ts *testscript.TestScript) {
	if h.name == "" || *update {
		return
	}
	if log := h.stderr.String(); strings.Contains(log, "msg=replay") {
		ts.Fatalf("the requests aren't those of %s; if they should differ, record it anew with -update\n%s", h.file(), log)
	}
}

// settle checks a stopped host, or tidies what it has recorded.
func (h *scriptHost) settle(ts *testscript.TestScript) {
	h.drifted(ts)
	if h.name != "" && *update {
		ts.Check(tidy(h.file()))
	}
}

// tidy takes out of a recording what is another at each run: ports, times, and the order of sessions that ran side by side.
func tidy(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var lines []replay.Line
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		var line replay.Line
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		u, err := url.Parse(line.URL)
		if err != nil {
			return err
		}
		u.Host = u.Hostname()
		line.URL = u.String()
		for i := range line.Pieces {
			line.Pieces[i].Ms = 0
		}
		lines = append(lines, line)
	}
	slices.SortStableFunc(lines, func(a, b replay.Line) int {
		if c := strings.Compare(a.Session, b.Session); c != 0 {
			return c
		}
		return a.Call - b.Call
	})
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// TestRecordingsAreUsed: every recording belongs to a script, and no script ends early: stop is a command of testscript's.
func TestRecordingsAreUsed(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, s := range scripts {
		raw, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(raw)
		if bytes.Contains(raw, []byte("\nstop\n")) {
			t.Errorf("%s ends at its first stop; halt stops the host", s)
		}
	}
	files, err := filepath.Glob(recordingDir + "/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".jsonl")
		if !strings.Contains(all.String(), "\nmodel "+name+"\n") {
			t.Errorf("no script uses %s", f)
		}
	}
}
