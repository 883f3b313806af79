// Package sqlite keeps sessions in one SQLite database: the embedded default store.
//
// Durability: WAL with synchronous=FULL; Commit returns after the fsync. One writer connection, used without database/sql and with prepared
// statements; a few reader connections, opened when they are needed and set to query_only. One process per data directory, by a lock file.
// With cgo the driver is mattn/go-sqlite3, without it modernc.org/sqlite; the schema and the SQL are the same and use no virtual tables.
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// Names in the data directory.
const (
	databaseName = "dsh-web.db"
	lockName     = "lock"
	backupsName  = "backups"
)

// Options configure a store. The zero value works.
type Options struct {
	// Synchronous is "full" (the default: a commit survives a power cut) or "normal" (it survives the death of the process).
	Synchronous string
	// Now names backups; nil: time.Now.
	Now func() time.Time
}

// Store is the SQLite store. Close it.
type Store struct {
	dir     string
	logID   string
	unclean bool
	release func() error // of the directory's lock
	opened  bool         // the writer exists

	readers *sql.DB
	writer  chan *writer // one slot: whoever holds the writer may use it

	tending  chan struct{} // capacity 1: there is something to do, now or when the store is idle
	checking chan struct{} // one slot: whoever fills it may checkpoint; taken before the writer
	quit     chan struct{}
	tender   sync.WaitGroup
	written  atomic.Int64 // about how many bytes were written since the last checkpoint
	latest   atomic.Int64 // when the last commit ended, as time since began
	armed    atomic.Bool  // the tender looks at latest by itself, and needn't be woken for it
	began    time.Time

	mu   sync.Mutex // leaf
	rows map[string]int64
	// arrivals says for each row number which events are in the table arrival: ascending, and after all that are in event.
	arrivals map[int64][]place
	closed   bool
}

// place is where an arrived event is.
type place struct{ seq, n int64 }

var _ session.Store = (*Store)(nil)

// ErrNewer is the refusal of a database that a later version has written.
var ErrNewer = errors.New("the database was written by a newer version of dsh-web; use that version, or another data directory")

type pragmas struct {
	busyTimeout string
	synchronous string
	cacheSize   string
	queryOnly   bool
}

// readerConnections is how many pages can be read at once. Each connection keeps its cache while it is open.
const readerConnections = 4

// Open locks the data directory, makes it (0700) and the database when they are missing, and brings an older schema up to date after a
// backup into DIR/backups. A second process gets *session.LockedError, a newer database ErrNewer.
func Open(ctx context.Context, dir string, opts Options) (_ *Store, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	s := &Store{dir: dir, rows: map[string]int64{}, arrivals: map[int64][]place{}, writer: make(chan *writer, 1), tending: make(chan struct{}, 1), checking: make(chan struct{}, 1), began: time.Now(), quit: make(chan struct{})}
	if s.release, err = session.LockFile(filepath.Join(dir, lockName)); err != nil {
		return nil, fmt.Errorf("open data directory %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	path, err := filepath.Abs(filepath.Join(dir, databaseName))
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 {
		s.unclean = true
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite takes the mode over for its other files
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	_ = f.Close()
	synchronous := "FULL"
	switch opts.Synchronous {
	case "", "full":
	case "normal":
		synchronous = "NORMAL"
	default:
		return nil, fmt.Errorf("open database: synchronous is %q; use full or normal", opts.Synchronous)
	}
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	write := pragmas{busyTimeout: "5000", synchronous: synchronous, cacheSize: "-4096"}
	if err := migrate(ctx, path, filepath.Join(dir, backupsName), write, now); err != nil {
		return nil, err
	}
	w, err := openWriter(ctx, path, write)
	if err != nil {
		return nil, err
	}
	s.writer <- w
	s.opened = true
	if err := s.loadArrivals(w); err != nil {
		return nil, fmt.Errorf("open database: read arrivals: %w", err)
	}
	last, err := w.text("SELECT max(coalesce((SELECT max(n) FROM session), 0), coalesce((SELECT value FROM meta WHERE name = 'last_session'), 0))")
	if err == nil {
		w.last, err = strconv.ParseInt(last, 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("open database: read the number of its last session: %w", err)
	}
	if s.logID, err = w.text("SELECT value FROM meta WHERE name = 'log_id'"); err != nil {
		return nil, fmt.Errorf("open database: read its id: %w", err)
	}
	tender, err := connector{path, pragmas{busyTimeout: "5000", synchronous: synchronous, cacheSize: "-64"}}.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s.tender.Go(func() { s.tend(tender) })
	s.tending <- struct{}{} // for what the last process left
	s.readers = sql.OpenDB(readers{connector{path, pragmas{busyTimeout: "5000", synchronous: synchronous, cacheSize: "-512", queryOnly: true}}})
	s.readers.SetMaxOpenConns(readerConnections)
	s.readers.SetMaxIdleConns(2)
	s.readers.SetConnMaxIdleTime(time.Minute)
	return s, nil
}

// connector opens connections and reads their pragmas back.
type connector struct {
	path    string
	pragmas pragmas
}

func (c connector) Driver() driver.Driver { return openDriver() }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := openDriver().Open(dsn(c.path, c.pragmas))
	if err != nil {
		return nil, fmt.Errorf("open database connection: %w", err)
	}
	if err := checkPragmas(conn, c.pragmas); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkPragmas makes sure that the driver understood the DSN.
func checkPragmas(conn driver.Conn, p pragmas) error {
	synchronous, queryOnly := map[string]string{"OFF": "0", "NORMAL": "1", "FULL": "2"}[p.synchronous], "0"
	if p.queryOnly {
		queryOnly = "1"
	}
	for _, want := range [][2]string{
		{"journal_mode", "wal"}, {"synchronous", synchronous}, {"foreign_keys", "1"}, {"busy_timeout", p.busyTimeout}, {"query_only", queryOnly},
	} {
		got, err := queryText(conn, "PRAGMA "+want[0])
		if err != nil {
			return fmt.Errorf("read back pragma %s: %w", want[0], err)
		}
		if got != want[1] {
			return fmt.Errorf("open database connection: pragma %s is %q instead of %q", want[0], got, want[1])
		}
	}
	return nil
}

// queryText gives the first column of the first row; "" without one.
func queryText(conn driver.Conn, query string) (string, error) {
	stmt, err := conn.Prepare(query)
	if err != nil {
		return "", err
	}
	defer func() { _ = stmt.Close() }()
	return stmtText(stmt)
}

func stmtText(stmt driver.Stmt) (string, error) {
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err != nil {
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		return "", err
	}
	switch v := row[0].(type) {
	case []byte:
		return string(v), nil
	default:
		return fmt.Sprint(v), nil
	}
}

// LogID is random and belongs to the database for life.
func (s *Store) LogID() string { return s.logID }

// Unclean says that the last process didn't close the database.
func (s *Store) Unclean() bool { return s.unclean }

// Check looks for damage in the structure of the database, as long as ctx lets it: an unfinished check finds nothing.
func (s *Store) Check(ctx context.Context) error {
	var result string
	err := s.readers.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&result)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("check database: %w", err)
	case result != "ok":
		return fmt.Errorf("check database: %s", result)
	}
	return nil
}

// Backup writes a consistent copy to path, which must not exist.
func (s *Store) Backup(ctx context.Context, path string) error {
	conn, err := connector{filepath.Join(s.dir, databaseName), pragmas{busyTimeout: "5000", synchronous: "FULL", cacheSize: "-512"}}.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return vacuumInto(conn, path)
}

// Size is what the database and its write-ahead log take on disk.
func (s *Store) Size(context.Context) (int64, error) {
	var size int64
	for _, name := range []string{databaseName, databaseName + "-wal"} {
		info, err := os.Stat(filepath.Join(s.dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // the WAL is gone while nothing is open
		}
		if err != nil {
			return 0, fmt.Errorf("measure the database: %w", err)
		}
		size += info.Size()
	}
	return size, nil
}

func vacuumInto(conn driver.Conn, path string) error {
	if err := execText(conn, "VACUUM INTO '"+strings.ReplaceAll(path, "'", "''")+"'"); err != nil {
		return fmt.Errorf("back up database: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("back up database: %w", err)
	}
	return nil
}

func execText(conn driver.Conn, query string) error {
	stmt, err := conn.Prepare(query)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	_, err = stmt.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return err
}

// Close checkpoints the WAL and gives everything back. A second one does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	close(s.quit)
	s.tender.Wait()
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	if s.opened {
		w := <-s.writer // waits for a commit that runs
		close(s.writer)
		errs = append(errs, w.close()) // the last connection checkpoints and removes the WAL
	}
	if s.release != nil {
		errs = append(errs, s.release())
	}
	return errors.Join(errs...)
}

func newLogID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make log id: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// The packed keys of event and search.
const seqBits = 32

func eventKey(n, seq int64) int64 { return n<<seqBits | seq }

// keyRange gives the keys strictly between after and before.
func keyRange(n, after, before int64) (low, high int64) {
	after = max(after, -1)
	return n<<seqBits + after + 1, n<<seqBits + min(before, math.MaxUint32) - 1
}
