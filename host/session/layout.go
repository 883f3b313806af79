package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxID is the longest id in bytes, maxName the longest escaped form before it is hashed.
const (
	maxID   = 1024
	maxName = 200
)

// FileName is the name of a session in a file system: letters, digits, dot, dash and underscore stay, except a dot in front; every other byte
// becomes %XX. A longer name than 200 bytes becomes a hash. Two ids never share a name.
func FileName(id string) (string, error) {
	if id == "" {
		return "", errors.New("the session id is empty")
	}
	if len(id) > maxID {
		return "", fmt.Errorf("the session id has %d bytes; at most %d are allowed", len(id), maxID)
	}
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() > maxName {
		sum := sha256.Sum256([]byte(id))
		return "%hash-" + hex.EncodeToString(sum[:]), nil
	}
	return b.String(), nil
}

// headerLine is the first line of a log file of JSON lines.
type headerLine struct {
	Type            string `json:"type"`
	DelegationDepth int    `json:"delegationDepth"`
	Header
}

// HeaderLine is the first line of a log file, without its newline.
func HeaderLine(h Header) ([]byte, error) {
	b, err := json.Marshal(headerLine{Type: "session", Header: h})
	if err != nil {
		return nil, fmt.Errorf("encode header: %w", err)
	}
	return b, nil
}

// ParseHeaderLine reads the first line of a log file.
func ParseHeaderLine(line []byte) (Header, error) {
	var h headerLine
	if err := json.Unmarshal(line, &h); err != nil {
		return Header{}, fmt.Errorf("decode header: %w", err)
	}
	if h.Type != "session" || h.ID == "" {
		return Header{}, errors.New("decode header: it isn't the header of a session")
	}
	return h.Header, nil
}
