// Package fsystest is the conformance suite of file providers.
package fsystest
