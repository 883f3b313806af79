package sqlite_test

import (
	"context"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/sqlite"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(dir string) (session.Store, error) {
		return sqlite.Open(context.Background(), dir, sqlite.Options{})
	})
}
