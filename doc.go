// Package dshweb is the root of dsh-web, a multi-session web host for coding agents. The program is in cmd/dsh-web; the root holds the
// tests of the project's own structure.
package dshweb
