//go:build !cgo

package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"net/url"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// DriverName says which SQLite this build uses.
const DriverName = "modernc.org/sqlite"

func openDriver() driver.Driver { return &sqlite.Driver{} }

// dsn builds the name of a connection with its pragmas in it.
func dsn(path string, p pragmas) string {
	v := url.Values{}
	v.Add("_pragma", "busy_timeout("+p.busyTimeout+")")
	v.Add("_pragma", "journal_mode(WAL)")
	v.Add("_pragma", "foreign_keys(1)")
	v.Add("_pragma", "synchronous("+p.synchronous+")")
	v.Add("_pragma", "cache_size("+p.cacheSize+")")
	if p.queryOnly {
		v.Add("_pragma", "query_only(1)")
	}
	v.Set("_txlock", "immediate")
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
}

// execStmt runs a statement without rows.
func execStmt(stmt driver.Stmt, args []driver.NamedValue) error {
	_, err := stmt.(driver.StmtExecContext).ExecContext(context.Background(), args)
	return err
}

// isCorrupt says whether SQLite met damaged pages.
func isCorrupt(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

// isUnique says whether a row with the same key exists.
func isUnique(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}
