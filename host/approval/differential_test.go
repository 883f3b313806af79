package approval

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// asBash evaluates each text of its input as the agent's shell does and writes what ran to descriptor 3: a record for each command, its words
// ended by 0x1f, and an empty record after each text. Nothing but the functions and what the shell has inside can be found.
const asBash = `
ran() { local IFS=$'\x1f'; printf '%s\x1f\0' "$*" >&3; return "$status"; }
a() { ran a "$@"; }
b() { ran b "$@"; }
c() { ran c "$@"; }
command_not_found_handle() { ran "$@"; }
while IFS= read -r -d '' text; do
	for status in 0 1; do
		( eval "$text" ) </dev/null >/dev/null 2>&1
	done
	printf '\0' >&3
done
`

// bashRuns gives, for each text, the commands that the real shell ran, once with every command succeeding and once with every one failing:
// between the two, each command behind && and || has had its turn.
func bashRuns(ctx context.Context, t *testing.T, bash string, texts []string) []map[string]bool {
	t.Helper()
	dir := t.TempDir()
	ran, err := os.Create(filepath.Join(t.TempDir(), "ran"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ran.Close() }()
	cmd := exec.CommandContext(ctx, bash, "--noprofile", "--norc", "-c", asBash)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir, "LC_ALL=C.UTF-8"}
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(strings.Join(texts, "\x00")+"\x00"), []*os.File{ran}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("bash: %v\n%s", err, out)
	}
	raw, err := os.ReadFile(ran.Name())
	if err != nil {
		t.Fatal(err)
	}
	out := []map[string]bool{}
	now := map[string]bool{}
	for record := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte{0}), []byte{0}) {
		if len(record) == 0 {
			out, now = append(out, now), map[string]bool{}
			continue
		}
		now[string(record)] = true
	}
	if len(out) != len(texts) {
		t.Fatalf("%d texts, answers to %d", len(texts), len(out))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("something was written: %v, %v", left, err)
	}
	return out
}

// TestTheParserAndTheShellAgree holds, on random texts that a grant may cover, that the real shell runs the very commands that were read out of
// them.
func TestTheParserAndTheShellAgree(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	const batch = 100
	seed, rounds := uint64(1), 4
	if os.Getenv("DSH_SOAK") == "1" {
		seed, rounds = uint64(time.Now().UnixNano()), 60
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // texts for a test
	// Each stands as often as it is to come up.
	tokens := append(strings.Split("a b c a b c a b c ; && || | # # \\ \\ \" ' \" ' \"\" '' & ! = in time if then a=b >/dev/null 2>&1 > < # ~ a~ ( { }", " "),
		" ", " ", " ", " ", " ", " ", "\t", "\n", "\n", "\n", "\\\n", "# \\\n", "\r", "é")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tried := 0
	for range rounds {
		var texts []string
		var want []map[string]bool
		for len(texts) < batch {
			var b strings.Builder
			for range 2 + r.IntN(12) {
				b.WriteString(tokens[r.IntN(len(tokens))])
			}
			tried++
			commands, never := Commands(b.String())
			if never != "" {
				continue
			}
			runs := map[string]bool{}
			for _, words := range commands {
				runs[strings.Join(words, "\x1f")+"\x1f"] = true
			}
			texts, want = append(texts, b.String()), append(want, runs)
		}
		for i, got := range bashRuns(ctx, t, bash, texts) {
			if !maps.Equal(got, want[i]) {
				t.Errorf("%q: the shell ran %q, the parser says %q", texts[i], slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want[i])))
			}
		}
	}
	t.Logf("%d texts tried, %d of them may be covered", tried, rounds*batch)
}
