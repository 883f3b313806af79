package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// record is what an instance leaves in Options.Dir while it lives.
type record struct {
	Boot  string `json:"boot"`  // names one run of the kernel; tags mean nothing in another
	Tags  string `json:"tags"`  // the instance's space
	PID   int    `json:"pid"`   // of the host
	Start uint64 `json:"start"` // when that pid started: tells a recycled pid from the host
}

const recordSuffix = ".instance"

func writeRecord(dir string, tags space) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("record process instance: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return "", fmt.Errorf("record process instance: %w", err)
	}
	data, err := json.Marshal(record{Boot: boot, Tags: tags.String(), PID: os.Getpid(), Start: startOf(os.Getpid())})
	if err != nil {
		return "", fmt.Errorf("record process instance: %w", err)
	}
	path := filepath.Join(dir, tags.String()+recordSuffix)
	fresh := path + ".new" // others sweep this directory: they see a whole record or none
	if err := os.WriteFile(fresh, append(data, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("record process instance: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("record process instance: %w", err)
	}
	return path, nil
}

// Sweep ends what hosts left that are recorded in dir, ran under this boot, and are gone; it returns how many processes that were. Records
// of other boots, of swept instances and unreadable ones are removed; those of hosts that live are left alone.
func Sweep(ctx context.Context, dir string) (int, error) {
	boot, err := bootID()
	if err != nil {
		return 0, fmt.Errorf("sweep process instances: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sweep process instances: %w", err)
	}
	killed := 0
	for _, e := range entries {
		if ctx.Err() != nil {
			return killed, fmt.Errorf("sweep process instances: %w", ctx.Err())
		}
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has closed, or somebody else has swept it
		}
		if err != nil {
			return killed, fmt.Errorf("sweep process instances: %w", err)
		}
		var r record
		if s, ok := decodeRecord(data, &r); ok && r.Boot == boot {
			if start := startOf(r.PID); start != 0 && start == r.Start {
				continue
			}
			n, err := sweepSpace(s)
			killed += n
			if err != nil {
				return killed, err
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return killed, fmt.Errorf("sweep process instances: %w", err)
		}
	}
	return killed, nil
}

func decodeRecord(data []byte, r *record) (space, bool) {
	if json.Unmarshal(data, r) != nil {
		return space{}, false
	}
	s, err := parseSpace(r.Tags)
	return s, err == nil
}

// sweepSpace ends every process of another instance at once and returns how many it found.
func sweepSpace(s space) (int, error) {
	in := &Instance{tags: s, live: map[Tag]*agent{}}
	pids, err := in.find(s.base)
	if err != nil {
		return 0, err
	}
	err = in.Kill(context.Background(), s.base, 0)
	in.reaper.Wait()
	return len(pids), err
}
