package credential

import (
	"errors"
	"os"
	"sync"
	"time"
)

// young is how long after its last change a file is read again every time: file systems stamp files with clocks that tick, some once in
// two seconds, so a second change may look like the first.
const young = 2 * time.Second

// cache keeps what a file says for as long as the file is the one that was read. Every use asks the system whether it is, so a change counts
// from the next use on.
type cache struct {
	young time.Duration
	parse func(raw []byte) (map[string]string, error)

	mu   sync.Mutex // a leaf; guards what follows
	info os.FileInfo
	all  map[string]string
}

// read gives what the file at path says; nil when there is none. Nobody may write to the result.
func (c *cache) read(path string) (map[string]string, error) {
	began := time.Now()
	now, err := os.Stat(path) // before it is read: what is read is at least as new
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	info, all := c.info, c.all
	c.mu.Unlock()
	if info != nil && same(info, now) {
		return all, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if all, err = c.parse(raw); err != nil {
		return nil, err
	}
	if changed, known := changeTime(now); known && began.Sub(changed) > c.young && began.Sub(now.ModTime()) > c.young {
		c.mu.Lock()
		c.info, c.all = now, all
		c.mu.Unlock()
	}
	return all, nil
}

// same says that nobody has written to a file or put another in its place. The time of change can't be set back as that of writing can.
func same(a, b os.FileInfo) bool {
	changedA, _ := changeTime(a)
	changedB, _ := changeTime(b)
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && changedA.Equal(changedB)
}
