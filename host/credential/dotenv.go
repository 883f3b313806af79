package credential

import (
	"bufio"
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
)

func (s *Store) readDotEnv() (map[string]string, error) {
	if s.dir == "" {
		return nil, nil
	}
	all, err := s.dotEnv.read(filepath.Join(s.dir, ".env"))
	if err != nil {
		return nil, fmt.Errorf("read .env: %w", err)
	}
	return all, nil
}

func parseDotEnv(raw []byte) (map[string]string, error) {
	all := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		name, value, ok := dotEnvLine(lines.Text())
		if !ok {
			return nil, fmt.Errorf("line %d isn't NAME=VALUE", n)
		}
		if name != "" {
			all[name] = value
		}
	}
	return all, lines.Err()
}

// dotEnvLine reads NAME=VALUE, with or without "export" before it and quotes around the value. Nothing is expanded. A comment or an
// empty line gives an empty name.
func dotEnvLine(line string) (name, value string, ok bool) {
	line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
	if line == "" || strings.HasPrefix(line, "#") {
		return "", "", true
	}
	line = strings.TrimSpace(strings.TrimPrefix(line, "export "))
	name, value, found := strings.Cut(line, "=")
	name = strings.TrimSpace(name)
	if !found || !validName(name) {
		return "", "", false
	}
	value = strings.TrimSpace(value)
	if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') {
		if end := strings.IndexByte(value[1:], value[0]); end >= 0 {
			return name, value[1 : 1+end], true
		}
		return "", "", false
	}
	if i := strings.Index(value, " #"); i >= 0 {
		value = strings.TrimSpace(value[:i])
	}
	return name, value, true
}
