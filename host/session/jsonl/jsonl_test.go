package jsonl_test

import (
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(dir string) (session.Store, error) { return jsonl.Open(dir, jsonl.Options{}) })
}
