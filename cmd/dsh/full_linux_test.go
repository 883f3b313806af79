package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
	"github.com/dsh-web/dsh-web/host/model/script"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

// TestACommandFillsTheDisk: the turn ends all the same, the next prompt is refused with the reason, and the session works again when there is space.
func TestACommandFillsTheDisk(t *testing.T) {
	var fill script.Step
	r := newRig(t, func(q model.Request) (script.Turn, error) {
		switch len(q.Messages) {
		case 1:
			return script.Turn{fill}, nil
		case 3:
			return script.Turn{script.Text(strings.Repeat("x", 200<<10))}, nil // which uses up the room that is kept for the log
		}
		return script.Turn{script.Text("again")}, nil
	})
	r.home = storetest.SmallDisk(t, "1m")
	fill = bashCall("c1", "head -c 2M /dev/zero > "+r.home+"/filler; echo $?")
	c := r.start()
	defer func() { // before the disk goes
		_ = c.cmd.Process.Kill()
		<-c.exited
	}()
	c.initialize()
	if end := c.turn("s", "go").reason(); end.Kind != "completed" {
		t.Errorf("%+v", end)
	}
	if _, message := c.refused(2, "session/prompt", prompt("s", "more")); !strings.Contains(message, "no space left") {
		t.Error(message)
	}
	if err := os.Remove(filepath.Join(r.home, "filler")); err != nil {
		t.Fatal(err)
	}
	if end := c.turn("s", "more").reason(); end.Kind != "completed" {
		t.Errorf("%+v", end)
	}
	if _, lines := r.log("s"); strings.Count(strings.Join(lines, "\n"), `"tool/result"`) != 1 {
		t.Errorf("the log:\n%s", strings.Join(lines, "\n"))
	}
	_ = c.in.Close()
	if code := c.wait(); code != 0 {
		t.Errorf("exit %d\n%s", code, c.stderr.String())
	}
}
