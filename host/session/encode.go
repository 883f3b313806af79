package session

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/model"
)

// encodeFast writes the payloads that make up most of a log: the same JSON as encoding/json's without HTML escapes, several times faster.
// It says no to every other payload.
func encodeFast(buf *bytes.Buffer, payload Payload) bool {
	w := writer{b: buf.AvailableBuffer()}
	switch p := payload.(type) {
	case ToolResult:
		w.turnStep(p.Turn, p.Step)
		w.raw(`,"message":`)
		w.message(p.Message)
		if p.Error != nil {
			w.raw(`,"error":{"name":`)
			w.string(p.Error.Name)
			w.raw(`,"code":`)
			w.string(p.Error.Code)
			w.raw("}")
		}
		w.json(`,"meta":`, p.Meta)
	case AssistantMessage:
		w.turnStep(p.Turn, p.Step)
		w.raw(`,"message":`)
		w.message(p.Message)
		if p.Usage != nil {
			w.usage(*p.Usage)
		}
		w.int(`,"timing":{"ttftMs":`, p.Timing.TTFTMs)
		w.int(`,"totalMs":`, p.Timing.TotalMs)
		w.raw("}")
		w.optional(`,"stop":`, p.Stop)
		if p.Interrupted {
			w.raw(`,"interrupted":true`)
		}
		w.json(`,"tokens":`, p.Tokens)
	case ToolCall:
		w.turnStep(p.Turn, p.Step)
		w.raw(`,"callId":`)
		w.string(p.CallID)
		w.raw(`,"name":`)
		w.string(p.Name)
		w.raw(`,"arguments":`)
		w.string(p.Arguments)
	case RequestSent:
		w.requestSent(p)
	case InboxSpliced:
		w.inboxSpliced(p)
	case TurnStart:
		w.int(`{"turn":`, int64(p.Turn))
	case TurnEnd:
		w.int(`{"turn":`, int64(p.Turn))
		w.reason(p.Reason)
	case StepStart:
		w.turnStep(p.Turn, p.Step)
	case StepEnd:
		w.turnStep(p.Turn, p.Step)
	case UserMessage:
		w.message(p.Message)
		buf.Write(w.b)
		return !w.bad
	default:
		return false
	}
	w.raw("}")
	if w.bad {
		return false
	}
	buf.Write(w.b)
	return true
}

// writer appends JSON. What it can't write makes it bad.
type writer struct {
	b   []byte
	bad bool
}

func (w *writer) raw(s string) { w.b = append(w.b, s...) }

func (w *writer) int(before string, n int64) {
	w.raw(before)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *writer) turnStep(turn, step int) {
	w.int(`{"turn":`, int64(turn))
	w.int(`,"step":`, int64(step))
}

// optional writes a member that is left out when it is empty.
func (w *writer) optional(before, s string) {
	if s != "" {
		w.raw(before)
		w.string(s)
	}
}

// json writes a member that holds JSON already, compact; it is left out when it is empty.
func (w *writer) json(before string, v json.RawMessage) {
	if len(v) == 0 {
		return
	}
	w.raw(before)
	var compact bytes.Buffer
	if err := json.Compact(&compact, v); err != nil {
		w.bad = true
		return
	}
	w.b = append(w.b, compact.Bytes()...)
}

func (w *writer) requestSent(p RequestSent) {
	w.turnStep(p.Turn, p.Step)
	w.int(`,"attempt":`, int64(p.Attempt))
	for _, f := range [...]struct{ before, s string }{
		{`,"encoder":`, p.Encoder}, {`,"bodySha256":`, p.BodySHA256}, {`,"prefixSha256":`, p.PrefixSHA256}, {`,"chainSha256":`, p.ChainSHA256},
	} {
		w.raw(f.before)
		w.string(f.s)
	}
	w.int(`,"messages":`, int64(p.Messages))
	w.int(`,"bytes":`, int64(p.Bytes))
	w.raw(`,"contiguous":`)
	w.b = strconv.AppendBool(w.b, p.Contiguous)
	w.optional(`,"divergesAt":`, p.DivergesAt)
}

func (w *writer) inboxSpliced(p InboxSpliced) {
	w.raw(`{"target":`)
	w.string(p.Target)
	w.int(`,"start":`, int64(p.Start))
	if p.RemovedCount != 0 {
		w.int(`,"removedCount":`, int64(p.RemovedCount))
	}
	w.raw(`,"inserted":`)
	if p.Inserted == nil {
		w.raw("null")
	} else {
		w.raw("[")
		for i, m := range p.Inserted {
			if i > 0 {
				w.raw(",")
			}
			w.message(m)
		}
		w.raw("]")
	}
	w.optional(`,"outcome":`, p.Outcome)
}

func (w *writer) reason(r Reason) {
	w.raw(`,"reason":{"kind":`)
	w.string(r.Kind)
	w.optional(`,"by":`, r.By)
	w.optional(`,"code":`, r.Code)
	w.optional(`,"message":`, r.Message)
	if r.Status != 0 {
		w.int(`,"status":`, int64(r.Status))
	}
	w.raw("}")
}

func (w *writer) usage(u model.Usage) {
	w.int(`,"usage":{"inputTokens":`, u.InputTokens)
	w.int(`,"outputTokens":`, u.OutputTokens)
	for _, f := range [...]struct {
		before string
		n      int64
	}{{`,"cacheReadTokens":`, u.CacheReadTokens}, {`,"cacheWriteTokens":`, u.CacheWriteTokens}, {`,"reasoningTokens":`, u.ReasoningTokens}} {
		if f.n != 0 {
			w.int(f.before, f.n)
		}
	}
	w.raw("}")
}

func (w *writer) message(m model.Message) {
	w.raw(`{"id":`)
	w.string(m.ID)
	w.raw(`,"role":`)
	w.string(string(m.Role))
	w.raw(`,"content":`)
	if m.Content == nil {
		w.raw("null")
	} else {
		w.blocks(m.Content)
	}
	w.raw(`,"source":{"kind":`)
	w.string(string(m.Source.Kind))
	w.optional(`,"callId":`, m.Source.CallID)
	w.optional(`,"provider":`, m.Source.Provider)
	w.optional(`,"model":`, m.Source.Model)
	w.optional(`,"name":`, m.Source.Name)
	w.raw("}}")
}

func (w *writer) blocks(content []model.Block) {
	w.raw("[")
	for i := range content {
		if i > 0 {
			w.raw(",")
		}
		w.block(&content[i])
	}
	w.raw("]")
}

// block writes what model.Block.MarshalJSON writes.
func (w *writer) block(b *model.Block) {
	w.raw(`{"type":`)
	w.string(string(b.Type))
	switch b.Type {
	case model.BlockText:
		w.raw(`,"text":`)
		w.string(b.Text)
	case model.BlockReasoning:
		w.raw(`,"text":`)
		w.string(b.Text)
		w.optional(`,"signature":`, b.Signature)
	case model.BlockImage:
		w.optional(`,"attachmentId":`, b.AttachmentID)
		w.optional(`,"mime":`, b.Mime)
	case model.BlockToolCall:
		w.raw(`,"id":`)
		w.string(b.ID)
		w.raw(`,"name":`)
		w.string(b.Name)
		w.raw(`,"arguments":`)
		w.string(b.Arguments)
	case model.BlockToolResult:
		w.raw(`,"toolCallId":`)
		w.string(b.ToolCallID)
		w.raw(`,"content":`)
		w.blocks(b.Content)
		if b.IsError {
			w.raw(`,"isError":true`)
		}
	default:
		w.bad = true
	}
	w.raw("}")
}

const hexDigits = "0123456789abcdef"

// string writes s as encoding/json does: what isn't UTF-8 becomes U+FFFD.
func (w *writer) string(s string) {
	w.b = append(w.b, '"')
	start := 0
	for i := 0; i < len(s); {
		if i += plain(s[i:]); i == len(s) {
			break
		}
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			w.b = append(w.b, s[start:i]...)
			switch c {
			case '"', '\\':
				w.b = append(w.b, '\\', c)
			case '\n':
				w.b = append(w.b, '\\', 'n')
			case '\r':
				w.b = append(w.b, '\\', 'r')
			case '\t':
				w.b = append(w.b, '\\', 't')
			case '\b':
				w.b = append(w.b, '\\', 'b')
			case '\f':
				w.b = append(w.b, '\\', 'f')
			default:
				w.b = append(w.b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
			w.b = append(w.b, s[start:i]...)
			w.b = append(w.b, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			i += size
			start = i
			continue
		}
		i += size
	}
	w.b = append(append(w.b, s[start:]...), '"')
}
