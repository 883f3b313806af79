// Package migrations embeds the schema of the SQLite store: NNNN_topic.sql, applied in order. A released file never changes; a test keeps
// their checksums.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed *.sql
var files embed.FS

// Files are the migrations.
func Files() fs.FS { return files }

// Latest is the number of the last migration.
func Latest() (int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("list migrations: none are embedded (%w)", err)
	}
	last := names[len(names)-1] // Glob sorts
	number, _, _ := strings.Cut(last, "_")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("migration %s doesn't begin with its number: %w", last, err)
	}
	return n, nil
}
