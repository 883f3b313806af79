package jsonl_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/host/session/jsonl"
	"github.com/dsh-web/dsh-web/host/session/storetest"
)

func openRoot(root string) (session.Store, error) { return jsonl.Open(root, jsonl.Options{}) }

func BenchmarkAppend50Sessions(b *testing.B) { storetest.BenchmarkAppend(b, openRoot) }

func BenchmarkAppendToVisible(b *testing.B) { storetest.BenchmarkAppendToVisible(b, openRoot) }

// BenchmarkOpen opens the root and folds the log, as a process that resumes one session does; "again" only folds it.
func BenchmarkOpen(b *testing.B) {
	for _, results := range []int{999, 9999} {
		b.Run(fmt.Sprint(results+1), func(b *testing.B) {
			root := b.TempDir()
			j := storetest.Start(b, openRoot, root, session.Options{})
			storetest.Add(b, storetest.Begin(b, j, "s"), storetest.ToolResults(results)...)
			if err := j.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s, err := jsonl.Open(root, jsonl.Options{ReadOnly: true})
				if err != nil {
					b.Fatal(err)
				}
				j := session.NewJournal(s, session.Options{})
				if err := j.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				storetest.Open(b, j, "s", results)
				if err := j.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/again", results+1), func(b *testing.B) { storetest.BenchmarkOpen(b, openRoot, results) })
	}
}
