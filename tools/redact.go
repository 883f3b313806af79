package tools

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/dsh-web/dsh-web/host/model"
)

// redacted stands for a secret.
const redacted = "[redacted]"

func (r *Runner) secrets() []string {
	if r.Secrets == nil {
		return nil
	}
	return r.Secrets()
}

// redact removes the secrets from what the model and the log get.
func (r *Runner) redact(res Result) Result {
	secrets := r.secrets()
	if len(secrets) == 0 {
		return res
	}
	for i, b := range res.Content {
		if b.Type == model.BlockText {
			res.Content[i].Text = redact(b.Text, secrets)
		}
	}
	if res.Meta != nil {
		if raw, err := encode(res.Meta); err == nil {
			if mayHold(raw, secrets) {
				raw = redactJSON(raw, secrets)
			}
			res.Meta = json.RawMessage(raw)
		}
	}
	return res
}

// redact replaces every secret in text; they come longest first, so that one inside another doesn't leave a rest.
func redact(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return text
}

// encode is json.Marshal without escapes that JSON doesn't ask for: mayHold can't see through them.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// mayHold says that a secret may be in the strings of valid JSON. No is certain: a text of plain characters reads as it is written, unless
// they are written as \u or, a slash, as \/.
func mayHold(raw []byte, secrets []string) bool {
	if bytes.Contains(raw, []byte(`\u`)) || bytes.Contains(raw, []byte(`\/`)) {
		return true
	}
	for _, s := range secrets {
		for i := range len(s) {
			if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
				return true
			}
		}
		if bytes.Contains(raw, []byte(s)) {
			return true
		}
	}
	return false
}

// redactJSON redacts the strings in valid JSON, as they read and not as they are escaped.
func redactJSON(raw []byte, secrets []string) []byte {
	var out []byte
	kept := 0
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		from := i
		for i++; raw[i] != '"'; i++ {
			if raw[i] == '\\' {
				i++
			}
		}
		if quoted := raw[from+1 : i]; bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) && redact(string(quoted), secrets) == string(quoted) {
			continue
		}
		var text string
		if json.Unmarshal(raw[from:i+1], &text) != nil {
			continue
		}
		clean := redact(text, secrets)
		if clean == text {
			continue
		}
		quoted, err := json.Marshal(clean)
		if err != nil {
			continue // a string is always fit
		}
		out = append(append(out, raw[kept:from]...), quoted...)
		kept = i + 1
	}
	return append(out, raw[kept:]...)
}

// guardOutput redacts live output.
func (r *Runner) guardOutput(w io.Writer) io.Writer {
	if r.Secrets == nil {
		return w
	}
	return &redactWriter{w: w, ask: r.Secrets}
}

// redactWriter redacts a stream. An end of a piece that may be the beginning of a secret is held back until the next piece decides; what is
// held back when the call ends is in its result.
type redactWriter struct {
	w   io.Writer // only puts bytes into memory, so it is called with mu held to keep the order
	ask func() []string

	mu      sync.Mutex
	secrets []string // from the first Write on
	first   [256]bool
	held    []byte
}

func (r *redactWriter) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ask != nil {
		r.secrets, r.ask = r.ask(), nil
		for _, s := range r.secrets {
			r.first[s[0]] = true
		}
	}
	text := p
	if len(r.held) > 0 {
		text = append(r.held, p...)
	}
	var out []byte
	kept := 0
	i := 0
scan:
	for i < len(text) {
		if !r.first[text[i]] {
			i++
			continue
		}
		switch n, open := r.at(text[i:]); {
		case open:
			break scan
		case n > 0:
			out = append(append(out, text[kept:i]...), redacted...)
			i += n
			kept = i
		default:
			i++
		}
	}
	send := text[kept:i]
	if out != nil {
		send = append(out, send...)
	}
	var err error
	if len(send) > 0 {
		_, err = r.w.Write(send)
	}
	r.held = append([]byte(nil), text[i:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// at gives the length of the secret that text begins with; open says that more text could make it another, or a first one.
func (r *redactWriter) at(text []byte) (n int, open bool) {
	for _, s := range r.secrets { // longest first
		if len(s) <= len(text) {
			if string(text[:len(s)]) == s {
				return len(s), false
			}
		} else if strings.HasPrefix(s, string(text)) {
			return 0, true
		}
	}
	return 0, false
}
