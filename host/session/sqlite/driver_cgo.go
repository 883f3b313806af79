//go:build cgo

package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"net/url"

	"github.com/mattn/go-sqlite3"
)

// DriverName says which SQLite this build uses.
const DriverName = "mattn/go-sqlite3"

func openDriver() driver.Driver { return &sqlite3.SQLiteDriver{} }

// dsn builds the name of a connection with its pragmas in it.
func dsn(path string, p pragmas) string {
	v := url.Values{}
	v.Set("_busy_timeout", p.busyTimeout)
	v.Set("_foreign_keys", "1")
	v.Set("_journal_mode", "WAL")
	v.Set("_synchronous", p.synchronous)
	v.Set("_cache_size", p.cacheSize)
	v.Set("_txlock", "immediate")
	v.Set("_mutex", "no")
	if p.queryOnly {
		v.Set("_query_only", "1")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
}

// execStmt runs a statement without rows. The driver binds the arguments of a query in one call into C, and those of an exec one by one.
func execStmt(stmt driver.Stmt, args []driver.NamedValue) error {
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return err
	}
	return rows.Close()
}

// isCorrupt says whether SQLite met damaged pages.
func isCorrupt(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB)
}

// isUnique says whether a row with the same key exists.
func isUnique(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.ExtendedCode == sqlite3.ErrConstraintUnique || e.ExtendedCode == sqlite3.ErrConstraintPrimaryKey)
}
