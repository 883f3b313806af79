package jsonl_test

import (
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

func TestStore(t *testing.T) {
	for _, synchronous := range []string{"full", "normal"} {
		t.Run(synchronous, func(t *testing.T) {
			storetest.Run(t, func(dir string) (session.Store, error) {
				return jsonl.Open(dir, jsonl.Options{Synchronous: synchronous})
			})
		})
	}
	if _, err := jsonl.Open(t.TempDir(), jsonl.Options{Synchronous: "off"}); err == nil {
		t.Error("a store opened with a mode that doesn't exist")
	}
}
