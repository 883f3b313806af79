//go:build !linux

package jsonl

import "os"

// syncData makes the content of f durable, and its length.
func syncData(f *os.File) error { return f.Sync() }
