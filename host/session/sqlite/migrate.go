package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/dsh-web/dsh-web/migrations"
)

// migrate brings the schema up to date. PRAGMA user_version holds the number of the last migration, so that an up-to-date database costs one
// read and no migration library. Each migration runs in its own transaction.
func migrate(ctx context.Context, path, backups string, p pragmas, now func() time.Time) error {
	latest, err := migrations.Latest()
	if err != nil {
		return err
	}
	return migrateTo(ctx, path, backups, p, now, migrations.Files(), latest)
}

func migrateTo(ctx context.Context, path, backups string, p pragmas, now func() time.Time, files fs.FS, latest int64) error {
	setup := p
	if file, err := os.Stat(path); err != nil || file.Size() == 0 {
		// Nothing can be lost yet: the new database is synced once, when the connection that made the schema closes.
		setup.synchronous = "OFF"
	}
	conn, err := connector{path, setup}.Connect(ctx)
	if err != nil {
		return err
	}
	text, err := queryText(conn, "PRAGMA user_version")
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("read schema version: %w", err)
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("read schema version: %w", err)
	}
	if version > latest {
		_ = conn.Close()
		return fmt.Errorf("open database %s (schema %d, known %d): %w", path, version, latest, ErrNewer)
	}
	if version > 0 && version < latest {
		err = os.MkdirAll(backups, 0o700)
		if err == nil {
			err = vacuumInto(conn, filepath.Join(backups, fmt.Sprintf("schema-%d-%s.db", version, now().UTC().Format("20060102T150405.000"))))
		}
	}
	if closeErr := conn.Close(); err == nil {
		err = closeErr
	}
	if err != nil || version == latest {
		return err
	}
	return apply(ctx, path, setup, p.synchronous, files, latest)
}

// apply runs the migrations under setup and leaves the connection to close under the given synchronous mode.
func apply(ctx context.Context, path string, setup pragmas, synchronous string, files fs.FS, latest int64) error {
	db := sql.OpenDB(connector{path, setup})
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	id, err := newLogID()
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "INSERT OR IGNORE INTO meta (name, value) VALUES ('log_id', ?), ('epoch', 0)", id); err != nil {
		return fmt.Errorf("initialise database: %w", err)
	}
	if _, err := db.ExecContext(ctx, "PRAGMA user_version = "+strconv.FormatInt(latest, 10)); err != nil {
		return fmt.Errorf("record schema version: %w", err)
	}
	if _, err := db.ExecContext(ctx, "PRAGMA synchronous = "+synchronous); err != nil {
		return fmt.Errorf("initialise database: %w", err)
	}
	return nil
}
