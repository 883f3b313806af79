package session

import (
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"

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

// scan reads compact JSON. The first surprise makes it bad, and then everything it gives is worthless.
type scan struct {
	b     []byte
	i     int
	comma bool // the next member or element needs one before it
	bad   bool
}

func (s *scan) peek() byte {
	if s.bad || s.i >= len(s.b) {
		s.bad = true
		return 0
	}
	return s.b[s.i]
}

func (s *scan) begin(open byte) {
	if s.peek() != open {
		s.bad = true
		return
	}
	s.i++
	s.comma = false
}

// more says whether another member or element follows, and steps over what stands before it.
func (s *scan) more(end byte) bool {
	c := s.peek()
	if s.bad {
		return false
	}
	if c == end {
		s.i++
		s.comma = true
		return false
	}
	if s.comma {
		if c != ',' {
			s.bad = true
			return false
		}
		s.i++
		if s.peek() == end {
			s.bad = true
			return false
		}
	}
	s.comma = true
	return true
}

// key reads a member's name. Names with escapes aren't ours.
func (s *scan) key() []byte {
	if s.peek() != '"' {
		s.bad = true
		return nil
	}
	for k := s.i + 1; k < len(s.b); k++ {
		switch c := s.b[k]; {
		case c == '"':
			name := s.b[s.i+1 : k]
			if s.i = k + 1; s.peek() != ':' {
				s.bad = true
			}
			s.i++
			return name
		case c == '\\' || c < ' ' || c > '~':
			s.bad = true
			return nil
		}
	}
	s.bad = true
	return nil
}

// once makes a repeated member a surprise.
func (s *scan) once(seen *uint32, member int) {
	if *seen&(1<<member) != 0 {
		s.bad = true
	}
	*seen |= 1 << member
}

func (s *scan) bool() bool {
	rest := s.b[min(s.i, len(s.b)):]
	switch {
	case len(rest) >= 4 && string(rest[:4]) == "true":
		s.i += 4
		return true
	case len(rest) >= 5 && string(rest[:5]) == "false":
		s.i += 5
		return false
	}
	s.bad = true
	return false
}

func (s *scan) int64() int64 {
	negative := s.peek() == '-'
	if negative {
		s.i++
	}
	var n int64
	first := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		n = n*10 + int64(s.b[s.i]-'0')
		s.i++
	}
	digits := s.i - first
	if digits == 0 || digits > 18 || digits > 1 && s.b[first] == '0' {
		s.bad = true
	}
	if s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.bad = true
	}
	if negative {
		n = -n
	}
	return n
}

func (s *scan) int() int { return int(s.int64()) }

// span gives the bytes between the quotes of a string, and whether they hold escapes.
func (s *scan) span() (raw []byte, escapes bool) {
	if s.peek() != '"' {
		s.bad = true
		return nil, false
	}
	start := s.i + 1
	ascii := true
	for k := start; k < len(s.b); k++ {
		switch c := s.b[k]; {
		case c == '"':
			s.i = k + 1
			raw = s.b[start:k]
			if !ascii && !utf8.Valid(raw) {
				s.bad = true
			}
			return raw, escapes
		case c == '\\':
			escapes = true
			k++
		case c < ' ':
			s.bad = true
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.bad = true
	return nil, false
}

func (s *scan) string() string {
	raw, escapes := s.span()
	if !escapes {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		i++
		switch raw[i] {
		case '"', '\\', '/':
			out = append(out, raw[i])
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			r, size := escaped(raw[i-1:])
			if size == 0 {
				s.bad = true
				return ""
			}
			out = utf8.AppendRune(out, r)
			i += size - 2
		default:
			s.bad = true
			return ""
		}
		i++
	}
	return string(out)
}

// escaped reads \uXXXX, or two of them for a surrogate pair, at the start of b; size is 0 when it can't. A lone surrogate becomes U+FFFD.
func escaped(b []byte) (r rune, size int) {
	r, ok := hex4(b)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) >= 12 {
		if low, ok := hex4(b[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
	}
	return utf8.RuneError, 6
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// raw takes a value as it is.
func (s *scan) raw() json.RawMessage {
	start, depth := s.i, 0
	for !s.bad {
		switch s.peek() {
		case '"':
			s.span()
		case '{', '[':
			depth++
			s.i++
		case '}', ']':
			if depth == 0 {
				s.bad = true
				return nil
			}
			depth--
			s.i++
		default:
			s.i++
		}
		if depth == 0 && s.i < len(s.b) && (s.b[s.i] == ',' || s.b[s.i] == '}' || s.b[s.i] == ']') {
			value := s.b[start:s.i]
			if !json.Valid(value) || string(value) == "null" {
				s.bad = true
			}
			return append(json.RawMessage(nil), value...)
		}
	}
	return nil
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
