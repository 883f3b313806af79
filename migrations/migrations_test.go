package migrations_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"regexp"
	"strconv"
	"testing"

	"github.com/dsh-web/dsh-web/migrations"
)

// released holds the checksum of every migration that was released. A line is added with a migration and never changed.
func released() map[string]string {
	return map[string]string{
		"0001_sessions.sql": "e25dea60879e0773bd3c02597b52410b7c86482fdce5d398276b289513346590",
	}
}

func TestReleasedMigrationsNeverChange(t *testing.T) {
	names, err := fs.Glob(migrations.Files(), "*")
	if err != nil {
		t.Fatal(err)
	}
	sums := released()
	for i, name := range names {
		if !regexp.MustCompile(`^\d{4}_[a-z_]+\.sql$`).MatchString(name) {
			t.Errorf("%s isn't named NNNN_topic.sql", name)
			continue
		}
		if n, err := strconv.Atoi(name[:4]); err != nil || n != i+1 {
			t.Errorf("%s isn't number %d", name, i+1)
		}
		content, err := fs.ReadFile(migrations.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != sums[name] {
			t.Errorf("%s has the checksum %s, recorded is %q; a released migration never changes", name, got, sums[name])
		}
		delete(sums, name)
	}
	for name := range sums {
		t.Errorf("%s is gone", name)
	}
	if latest, err := migrations.Latest(); err != nil || latest != int64(len(names)) {
		t.Errorf("latest is %d, %v", latest, err)
	}
}
