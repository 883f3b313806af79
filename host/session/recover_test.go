package session

import (
	"testing"

	"github.com/dsh-web/dsh-web/host/model"
)

func TestClosingIsSilentWithoutAnOpenTurn(t *testing.T) {
	if drafts, counts := Closing(NewState(Header{}), []Partial{{Text: "x"}}); drafts != nil || counts != (Recovered{}) {
		t.Error(drafts, counts)
	}
}

func TestPartialContent(t *testing.T) {
	text := func(turn, step, attempt, block int, kind model.DeltaKind, s string) Partial {
		return Partial{Turn: turn, Step: step, Attempt: attempt, Block: block, Kind: kind, Text: s}
	}
	got := partialContent([]Partial{
		text(1, 1, 1, 1, model.DeltaText, "old step"), text(1, 2, 1, 2, model.DeltaText, "old attempt"),
		text(1, 2, 2, 3, model.DeltaReasoning, "thi"), text(1, 2, 2, 4, model.DeltaText, "say"), text(1, 2, 2, 3, model.DeltaReasoning, "nk"),
		text(1, 2, 2, 5, model.DeltaTool, `{"x`),
	})
	if len(got) != 2 || got[0].Type != model.BlockReasoning || got[0].Text != "think" || got[1].Type != model.BlockText || got[1].Text != "say" {
		t.Errorf("%+v", got)
	}
	if got := partialContent(nil); got != nil {
		t.Error(got)
	}
}
