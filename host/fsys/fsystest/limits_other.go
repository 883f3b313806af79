//go:build unix && !linux

package fsystest

// These need a thread's own rights and a small file system, which other systems don't give.
func editReadOnlyPlace(b *bench) { b.Skip("needs Linux") }
func editAttributes(b *bench)    { b.Skip("needs Linux") }
func overlay(b *bench)           { b.Skip("needs Linux") }
func diskFull(b *bench)          { b.Skip("needs Linux") }
