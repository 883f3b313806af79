package credential

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func (s *Store) readDotEnv() (map[string]string, error) {
	if s.dir == "" {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(s.dir, ".env"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read .env: %w", err)
	}
	defer f.Close()
	all := map[string]string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		name, value, ok := dotEnvLine(lines.Text())
		if !ok {
			return nil, fmt.Errorf("read .env: line %d isn't NAME=VALUE", n)
		}
		if name != "" {
			all[name] = value
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read .env: %w", err)
	}
	return all, nil
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
