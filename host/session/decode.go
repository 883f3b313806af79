package session

import (
	"github.com/dsh-web/dsh-web/host/model"
)

// decodeFast reads the payloads that make up most of a log, as the committer writes them: no white space, known members, each once. It says
// no to everything else, and encoding/json reads that. Folding a log is mostly this, and it is several times faster than reflection. Where
// it says yes, encoding/json gives an equal value.
func decodeFast(eventType string, data []byte) (Payload, bool) {
	s := scan{b: data}
	var p Payload
	switch eventType {
	case "tool/result":
		p = s.toolResult()
	case "assistant/message":
		p = s.assistantMessage()
	case "user/message":
		p = UserMessage{Message: s.message()}
	case "tool/call":
		p = s.toolCall()
	case "agent/inbox/spliced":
		p = s.inboxSpliced()
	case "turn/start":
		turn, _ := s.turnStep(false)
		p = TurnStart{Turn: turn}
	case "turn/end":
		p = s.turnEnd()
	case "request/sent":
		p = s.requestSent()
	case "step/start":
		turn, step := s.turnStep(true)
		p = StepStart{Turn: turn, Step: step}
	case "step/end":
		turn, step := s.turnStep(true)
		p = StepEnd{Turn: turn, Step: step}
	default:
		return nil, false
	}
	return p, !s.bad && s.i == len(data)
}

func (s *scan) turnStep(withStep bool) (turn, step int) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "turn":
			s.once(&seen, 0)
			turn = s.int()
		case "step":
			s.once(&seen, 1)
			step = s.int()
			s.bad = s.bad || !withStep
		default:
			s.bad = true
		}
	}
	return turn, step
}

func (s *scan) turnEnd() (p TurnEnd) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "turn":
			s.once(&seen, 0)
			p.Turn = s.int()
		case "reason":
			s.once(&seen, 1)
			p.Reason = s.reason()
		default:
			s.bad = true
		}
	}
	return p
}

func (s *scan) reason() (r Reason) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "kind":
			s.once(&seen, 0)
			r.Kind = s.string()
		case "by":
			s.once(&seen, 1)
			r.By = s.string()
		case "code":
			s.once(&seen, 2)
			r.Code = s.string()
		case "message":
			s.once(&seen, 3)
			r.Message = s.string()
		case "status":
			s.once(&seen, 4)
			r.Status = s.int()
		default:
			s.bad = true
		}
	}
	return r
}

func (s *scan) requestSent() (p RequestSent) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "turn":
			s.once(&seen, 0)
			p.Turn = s.int()
		case "step":
			s.once(&seen, 1)
			p.Step = s.int()
		case "attempt":
			s.once(&seen, 2)
			p.Attempt = s.int()
		case "encoder":
			s.once(&seen, 3)
			p.Encoder = s.string()
		case "bodySha256":
			s.once(&seen, 4)
			p.BodySHA256 = s.string()
		case "prefixSha256":
			s.once(&seen, 5)
			p.PrefixSHA256 = s.string()
		case "chainSha256":
			s.once(&seen, 6)
			p.ChainSHA256 = s.string()
		case "messages":
			s.once(&seen, 7)
			p.Messages = s.int()
		case "bytes":
			s.once(&seen, 8)
			p.Bytes = s.int()
		case "contiguous":
			s.once(&seen, 9)
			p.Contiguous = s.bool()
		case "divergesAt":
			s.once(&seen, 10)
			p.DivergesAt = s.string()
		default:
			s.bad = true
		}
	}
	return p
}

func (s *scan) toolCall() (p ToolCall) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "turn":
			s.once(&seen, 0)
			p.Turn = s.int()
		case "step":
			s.once(&seen, 1)
			p.Step = s.int()
		case "callId":
			s.once(&seen, 2)
			p.CallID = s.string()
		case "name":
			s.once(&seen, 3)
			p.Name = s.string()
		case "arguments":
			s.once(&seen, 4)
			p.Arguments = s.string()
		default:
			s.bad = true
		}
	}
	return p
}

func (s *scan) toolResult() (p ToolResult) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "turn":
			s.once(&seen, 0)
			p.Turn = s.int()
		case "step":
			s.once(&seen, 1)
			p.Step = s.int()
		case "message":
			s.once(&seen, 2)
			p.Message = s.message()
		case "error":
			s.once(&seen, 3)
			p.Error = s.toolError()
		case "meta":
			s.once(&seen, 4)
			p.Meta = s.raw()
		default:
			s.bad = true
		}
	}
	return p
}

func (s *scan) toolError() *ToolError {
	var e ToolError
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "name":
			s.once(&seen, 0)
			e.Name = s.string()
		case "code":
			s.once(&seen, 1)
			e.Code = s.string()
		default:
			s.bad = true
		}
	}
	return &e
}

func (s *scan) assistantMessage() (p AssistantMessage) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "turn":
			s.once(&seen, 0)
			p.Turn = s.int()
		case "step":
			s.once(&seen, 1)
			p.Step = s.int()
		case "message":
			s.once(&seen, 2)
			p.Message = s.message()
		case "usage":
			s.once(&seen, 3)
			p.Usage = s.usage()
		case "timing":
			s.once(&seen, 4)
			p.Timing = s.timing()
		case "stop":
			s.once(&seen, 5)
			p.Stop = s.string()
		case "interrupted":
			s.once(&seen, 6)
			p.Interrupted = s.bool()
		case "tokens":
			s.once(&seen, 7)
			p.Tokens = s.raw()
		default:
			s.bad = true
		}
	}
	return p
}

func (s *scan) usage() *model.Usage {
	var u model.Usage
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "inputTokens":
			s.once(&seen, 0)
			u.InputTokens = s.int64()
		case "outputTokens":
			s.once(&seen, 1)
			u.OutputTokens = s.int64()
		case "cacheReadTokens":
			s.once(&seen, 2)
			u.CacheReadTokens = s.int64()
		case "cacheWriteTokens":
			s.once(&seen, 3)
			u.CacheWriteTokens = s.int64()
		case "reasoningTokens":
			s.once(&seen, 4)
			u.ReasoningTokens = s.int64()
		default:
			s.bad = true
		}
	}
	return &u
}

func (s *scan) timing() (t Timing) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "ttftMs":
			s.once(&seen, 0)
			t.TTFTMs = s.int64()
		case "totalMs":
			s.once(&seen, 1)
			t.TotalMs = s.int64()
		default:
			s.bad = true
		}
	}
	return t
}

func (s *scan) inboxSpliced() (p InboxSpliced) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "target":
			s.once(&seen, 0)
			p.Target = s.string()
		case "start":
			s.once(&seen, 1)
			p.Start = s.int()
		case "removedCount":
			s.once(&seen, 2)
			p.RemovedCount = s.int()
		case "inserted":
			s.once(&seen, 3)
			p.Inserted = []model.Message{}
			for s.begin('['); s.more(']'); {
				p.Inserted = append(p.Inserted, s.message())
			}
		case "outcome":
			s.once(&seen, 4)
			p.Outcome = s.string()
		default:
			s.bad = true
		}
	}
	return p
}

func (s *scan) message() (m model.Message) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "id":
			s.once(&seen, 0)
			m.ID = s.string()
		case "role":
			s.once(&seen, 1)
			m.Role = model.Role(s.word(string(model.RoleUser), string(model.RoleAssistant)))
		case "content":
			s.once(&seen, 2)
			m.Content = s.blocks(0)
		case "source":
			s.once(&seen, 3)
			m.Source = s.source()
		default:
			s.bad = true
		}
	}
	return m
}

// word reads a string that is mostly one of the given, without an allocation for those.
func (s *scan) word(known ...string) string {
	raw, escapes := s.span()
	if escapes {
		s.bad = true
		return ""
	}
	for _, k := range known {
		if string(raw) == k {
			return k
		}
	}
	return string(raw)
}

func (s *scan) source() (out model.Source) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "kind":
			s.once(&seen, 0)
			out.Kind = model.SourceKind(s.word(string(model.SourceTool), string(model.SourceModel), string(model.SourceUser), string(model.SourceHost)))
		case "callId":
			s.once(&seen, 1)
			out.CallID = s.string()
		case "provider":
			s.once(&seen, 2)
			out.Provider = s.string()
		case "model":
			s.once(&seen, 3)
			out.Model = s.string()
		case "name":
			s.once(&seen, 4)
			out.Name = s.string()
		default:
			s.bad = true
		}
	}
	return out
}

// maxNesting bounds blocks in blocks; a log has two levels.
const maxNesting = 8

func (s *scan) blocks(depth int) []model.Block {
	if depth > maxNesting {
		s.bad = true
		return nil
	}
	out := []model.Block{}
	for s.begin('['); s.more(']'); {
		out = append(out, s.block(depth))
	}
	return out
}

func (s *scan) block(depth int) (b model.Block) {
	var seen uint32
	for s.begin('{'); s.more('}'); {
		switch string(s.key()) {
		case "type":
			s.once(&seen, 0)
			b.Type = model.BlockType(s.word(string(model.BlockText), string(model.BlockToolResult), string(model.BlockToolCall), string(model.BlockReasoning), string(model.BlockImage)))
		case "text":
			s.once(&seen, 1)
			b.Text = s.string()
		case "signature":
			s.once(&seen, 2)
			b.Signature = s.string()
		case "attachmentId":
			s.once(&seen, 3)
			b.AttachmentID = s.string()
		case "mime":
			s.once(&seen, 4)
			b.Mime = s.string()
		case "id":
			s.once(&seen, 5)
			b.ID = s.string()
		case "name":
			s.once(&seen, 6)
			b.Name = s.string()
		case "arguments":
			s.once(&seen, 7)
			b.Arguments = s.string()
		case "toolCallId":
			s.once(&seen, 8)
			b.ToolCallID = s.string()
		case "content":
			s.once(&seen, 9)
			b.Content = s.blocks(depth + 1)
		case "isError":
			s.once(&seen, 10)
			b.IsError = s.bool()
		default:
			s.bad = true
		}
	}
	switch b.Type {
	case model.BlockText, model.BlockReasoning, model.BlockImage, model.BlockToolCall, model.BlockToolResult:
	default:
		s.bad = true
	}
	return b
}
