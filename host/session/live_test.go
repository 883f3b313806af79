package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/model"
)

func newLive() (*Live, *int) {
	changes := 0
	return &Live{changed: func() { changes++ }, dirty: func() {}}, &changes
}

func TestLiveBlocks(t *testing.T) {
	v, changes := newLive()
	a := v.Begin(1, 2, 1, model.DeltaText, "", "")
	b := v.Begin(1, 2, 1, model.DeltaTool, "", "")
	b.Name("bash", "c1")
	a.Append("he")
	a.Append("")
	a.Append("llo")
	want := []BlockView{{ID: a.ID(), Turn: 1, Step: 2, Attempt: 1, Kind: model.DeltaText, Len: 5}, {ID: b.ID(), Turn: 1, Step: 2, Attempt: 1, Kind: model.DeltaTool, Name: "bash", CallID: "c1"}}
	if diff := cmp.Diff(want, v.View().Blocks); diff != "" {
		t.Error(diff)
	}
	if *changes != 5 {
		t.Errorf("%d changes were told", *changes)
	}
	for offset, want := range map[int]string{-1: "hello", 0: "hello", 3: "lo", 5: "", 9: ""} {
		if got, ok := v.BlockText(a.ID(), offset); !ok || got != want {
			t.Errorf("from %d: %q, %v", offset, got, ok)
		}
	}
	again := v.Begin(1, 2, 2, model.DeltaText, "", "")
	v.Drop(1)
	a.Append("late")
	if got := v.View().Blocks; len(got) != 1 || got[0].ID != again.ID() || again.ID() == a.ID() {
		t.Errorf("after a retry: %+v", got)
	}
	if _, ok := v.BlockText(a.ID(), 0); ok {
		t.Error("a withdrawn block can be read")
	}
	v.Clear()
	if got := v.View(); len(got.Blocks) != 0 {
		t.Errorf("after Clear: %+v", got)
	}
}

func TestLiveCheckpoint(t *testing.T) {
	v, _ := newLive()
	dirty := 0
	v.dirty = func() { dirty++ }
	b := v.Begin(1, 1, 1, model.DeltaText, "", "")
	b.Append("one")
	b.Append("two")
	if dirty != 1 {
		t.Errorf("told %d times", dirty)
	}
	pieces, saved := v.unsaved()
	if len(pieces) != 1 || pieces[0].Text != "onetwo" {
		t.Errorf("pieces %+v", pieces)
	}
	if again, _ := v.unsaved(); len(again) != 1 || again[0].Text != "onetwo" {
		t.Errorf("what wasn't saved is lost: %+v", again)
	}
	b.Append("three")
	saved()
	if dirty != 2 {
		t.Errorf("what came meanwhile was told %d times", dirty)
	}
	if pieces, _ := v.unsaved(); len(pieces) != 1 || pieces[0].Text != "three" {
		t.Errorf("pieces %+v", pieces)
	}
}

func TestLiveOutput(t *testing.T) {
	v, _ := newLive()
	o := v.Output("c")
	if v.Output("c") != o {
		t.Error("two outputs for one call")
	}
	var all strings.Builder
	for n := range 3000 {
		line := fmt.Sprintf("line %d of the output, %s\n", n, strings.Repeat("x", n%97))
		all.WriteString(line)
		if _, err := o.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if n%500 != 0 {
			continue
		}
		view := v.View().Outputs[0]
		text, start, ok := v.OutputText("c", view.Start)
		if !ok || start != view.Start || view.End != int64(all.Len()) || text != all.String()[start:] {
			t.Fatalf("line %d: %+v, %d bytes from %d", n, view, len(text), start)
		}
		if view.Start > 0 && view.End-view.Start != outputKept {
			t.Errorf("%d bytes are kept", view.End-view.Start)
		}
	}
	if _, start, ok := v.OutputText("c", 5); !ok || start <= 5 {
		t.Errorf("from a skipped offset: %d, %v", start, ok)
	}
	big := strings.Repeat("y", 5*outputKept) + "end"
	if _, err := o.Write([]byte(big)); err != nil {
		t.Fatal(err)
	}
	if text, _, _ := v.OutputText("c", 0); len(text) != outputKept || !strings.HasSuffix(text, "yend") {
		t.Errorf("%d bytes are kept", len(text))
	}
	if text, start, ok := v.OutputText("c", 1<<40); !ok || text != "" || start != v.View().Outputs[0].End {
		t.Errorf("from beyond the end: %q from %d, %v", text, start, ok)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := v.OutputText("c", 0); ok || len(v.View().Outputs) != 0 {
		t.Error("a closed output can be read")
	}
}

// TestLiveConcurrently is for the race detector: a writer, readers by offset that must see every byte in order.
func TestLiveConcurrently(t *testing.T) {
	var mu sync.Mutex
	ch := make(chan struct{})
	v := &Live{dirty: func() {}, changed: func() {
		mu.Lock()
		defer mu.Unlock()
		close(ch)
		ch = make(chan struct{})
	}}
	wait := func() <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		return ch
	}
	b := v.Begin(1, 1, 1, model.DeltaText, "", "")
	const pieces = 2000
	want := strings.Repeat("ab", pieces)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			got := ""
			for len(got) < len(want) {
				changed := wait()
				text, ok := v.BlockText(b.ID(), len(got))
				if !ok {
					t.Error("the block is gone")
					return
				}
				if got += text; text == "" {
					<-changed
				}
			}
			if got != want {
				t.Error("a reader saw other text")
			}
		})
	}
	for range pieces {
		b.Append("ab")
	}
	wg.Wait()
}
