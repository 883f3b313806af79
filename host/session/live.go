package session

import (
	"slices"
	"sync"

	"github.com/dsh-web/dsh-web/host/model"
)

// outputKept is how much of a running call's output can be read back.
const outputKept = 64 << 10

// Live holds what is provisional in a session: the text of the step in progress and the output of running calls. Nothing of it is part of
// the log, and everything of it goes away when the durable event stands: the text with assistant/message or turn/end, an output with its
// tool/result. Readers pull by offset, so a slow one loses nothing but the head of a long output. Safe for concurrent use; writers never
// wait for readers.
type Live struct {
	changed func() // tells the log's readers
	dirty   func() // tells the journal that there is text to checkpoint

	mu      sync.Mutex
	next    int
	blocks  []*Block
	outputs []*Output
}

// BlockView is the place of a block: Len counts the bytes of UTF-8 so far. ID is unique within the log's time in memory and never used again.
type BlockView struct {
	ID      int
	Turn    int
	Step    int
	Attempt int
	Kind    model.DeltaKind
	Name    string
	CallID  string
	Len     int
}

// OutputView is the place of a running call's output: bytes Start up to End can be read; what is before Start has been skipped.
type OutputView struct {
	CallID string
	Start  int64
	End    int64
}

// LiveView is what there is to read. Take it before reading events: then a block that is gone from it has its event in that read or an
// earlier one, or was withdrawn.
type LiveView struct {
	Blocks  []BlockView
	Outputs []OutputView
}

// Block is the provisional text of one content block of the step in progress.
type Block struct {
	live *Live
	view BlockView
	text []byte // guarded by live.mu
	gone bool   // guarded by live.mu
	// saved counts the bytes that the last checkpoint made durable. Guarded by live.mu.
	saved int
}

// Output is the output of one running call.
type Output struct {
	live   *Live
	callID string
	tail   []byte // guarded by live.mu; at most twice outputKept
	end    int64  // guarded by live.mu
	closed bool   // guarded by live.mu
}

// Begin opens a block. Only the loop calls it.
func (v *Live) Begin(turn, step, attempt int, kind model.DeltaKind, name, callID string) *Block {
	v.mu.Lock()
	v.next++
	b := &Block{live: v, view: BlockView{ID: v.next, Turn: turn, Step: step, Attempt: attempt, Kind: kind, Name: name, CallID: callID}}
	v.blocks = append(v.blocks, b)
	v.mu.Unlock()
	v.changed()
	return b
}

// ID is the block's id.
func (b *Block) ID() int { return b.view.ID }

// Append adds text. On a block that was withdrawn it does nothing.
func (b *Block) Append(text string) {
	if text == "" {
		return
	}
	b.live.mu.Lock()
	if b.gone {
		b.live.mu.Unlock()
		return
	}
	first := len(b.text) == b.saved
	b.text = append(b.text, text...)
	b.live.mu.Unlock()
	if first {
		b.live.dirty()
	}
	b.live.changed()
}

// Name sets the tool's name and call id once they are known.
func (b *Block) Name(name, callID string) {
	b.live.mu.Lock()
	b.view.Name, b.view.CallID = name, callID
	b.live.mu.Unlock()
	b.live.changed()
}

// Drop withdraws the blocks of one attempt, as a retry does.
func (v *Live) Drop(attempt int) {
	v.remove(func(b *Block) bool { return b.view.Attempt == attempt })
}

// Clear withdraws all blocks. Outputs stay.
func (v *Live) Clear() { v.remove(func(*Block) bool { return true }) }

func (v *Live) remove(which func(*Block) bool) {
	v.mu.Lock()
	before := len(v.blocks)
	v.blocks = slices.DeleteFunc(v.blocks, func(b *Block) bool {
		b.gone = b.gone || which(b)
		return b.gone
	})
	after := len(v.blocks)
	v.mu.Unlock()
	if after != before {
		v.changed()
	}
}

// Output opens the output of a running call, or gives the one that is open.
func (v *Live) Output(callID string) *Output {
	v.mu.Lock()
	defer v.mu.Unlock()
	if o := v.outputLocked(callID); o != nil {
		return o
	}
	o := &Output{live: v, callID: callID}
	v.outputs = append(v.outputs, o)
	return o
}

func (v *Live) outputLocked(callID string) *Output {
	for _, o := range v.outputs {
		if o.callID == callID {
			return o
		}
	}
	return nil
}

// Write adds output. It never fails; after Close it does nothing.
func (o *Output) Write(p []byte) (int, error) {
	o.live.mu.Lock()
	if o.closed {
		o.live.mu.Unlock()
		return len(p), nil
	}
	o.end += int64(len(p))
	keep := p
	if len(keep) > outputKept {
		keep = keep[len(keep)-outputKept:]
	}
	if len(o.tail)+len(keep) > 2*outputKept {
		from := max(0, len(o.tail)-(outputKept-len(keep)))
		o.tail = o.tail[:copy(o.tail, o.tail[from:])]
	}
	o.tail = append(o.tail, keep...)
	o.live.mu.Unlock()
	o.live.changed()
	return len(p), nil
}

// Close takes the output away. A second one does nothing.
func (o *Output) Close() error {
	o.live.mu.Lock()
	o.closed = true
	o.live.outputs = slices.DeleteFunc(o.live.outputs, func(x *Output) bool { return x == o })
	o.live.mu.Unlock()
	o.live.changed()
	return nil
}

// keptLocked is what can be read: the last outputKept bytes.
func (o *Output) keptLocked() []byte { return o.tail[max(0, len(o.tail)-outputKept):] }

// View lists what there is to read.
func (v *Live) View() LiveView {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out LiveView
	for _, b := range v.blocks {
		view := b.view
		view.Len = len(b.text)
		out.Blocks = append(out.Blocks, view)
	}
	for _, o := range v.outputs {
		out.Outputs = append(out.Outputs, OutputView{CallID: o.callID, Start: o.end - int64(len(o.keptLocked())), End: o.end})
	}
	return out
}

// BlockText copies the text of a block from offset on, a count of bytes. ok is false when the block is gone.
func (v *Live) BlockText(id, offset int) (text string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range v.blocks {
		if b.view.ID == id {
			return string(b.text[min(max(0, offset), len(b.text)):]), true
		}
	}
	return "", false
}

// OutputText copies the output of a running call from offset on; start is where the copy begins, later than offset when output was
// skipped. ok is false when the output is gone. A cut may fall inside a character.
func (v *Live) OutputText(callID string, offset int64) (text string, start int64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := v.outputLocked(callID)
	if o == nil {
		return "", 0, false
	}
	kept := o.keptLocked()
	first := o.end - int64(len(kept))
	start = min(max(offset, first), o.end)
	return string(kept[start-first:]), start, true
}

// unsaved gives the pieces that the last checkpoint lacks. The returned function says that they are durable now.
func (v *Live) unsaved() (pieces []Partial, saved func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	type mark struct {
		b  *Block
		to int
	}
	var marks []mark
	for _, b := range v.blocks {
		if len(b.text) == b.saved {
			continue
		}
		pieces = append(pieces, Partial{
			Turn: b.view.Turn, Step: b.view.Step, Attempt: b.view.Attempt, Block: b.view.ID, Kind: b.view.Kind, Name: b.view.Name,
			CallID: b.view.CallID, Text: string(b.text[b.saved:]),
		})
		marks = append(marks, mark{b, len(b.text)})
	}
	return pieces, func() {
		v.mu.Lock()
		more := false
		for _, m := range marks {
			m.b.saved = m.to
			more = more || len(m.b.text) > m.to && !m.b.gone
		}
		v.mu.Unlock()
		if more {
			v.dirty()
		}
	}
}

// settle drops what the committed events stand for.
func (v *Live) settle(clear bool, results []string) {
	if clear {
		v.Clear()
	}
	for _, callID := range results {
		v.mu.Lock()
		o := v.outputLocked(callID)
		v.mu.Unlock()
		if o != nil {
			_ = o.Close() // it never fails
		}
	}
}
