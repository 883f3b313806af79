-- Sessions, their events and what belongs to them. Times are epoch milliseconds. A released migration never changes.

-- +goose Up

-- log_id: random, for life; cursors are valid only beside it. epoch: of the present owner.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per session: the header, what the owner set, and the facts of the log that lists show, written in the commit that changes them.
CREATE TABLE session (
    n                INTEGER PRIMARY KEY,
    id               TEXT NOT NULL UNIQUE,
    header           BLOB NOT NULL,
    grp              TEXT NOT NULL,
    title            TEXT NOT NULL,
    preset           TEXT NOT NULL,
    preset_hash      TEXT NOT NULL,
    last_seq         INTEGER NOT NULL,
    last_hash        TEXT NOT NULL,
    updated_at       INTEGER NOT NULL,
    usage_input      INTEGER NOT NULL,
    usage_output     INTEGER NOT NULL,
    usage_read       INTEGER NOT NULL,
    usage_write      INTEGER NOT NULL,
    usage_reasoning  INTEGER NOT NULL,
    pending          INTEGER NOT NULL,
    queue            INTEGER NOT NULL,
    turns            INTEGER NOT NULL,
    turn_seq         INTEGER NOT NULL,
    step_seq         INTEGER NOT NULL,
    turn_open        INTEGER NOT NULL,
    blank            INTEGER NOT NULL,
    model_provider   TEXT NOT NULL,
    model_id         TEXT NOT NULL,
    archived         INTEGER NOT NULL,
    labels           TEXT NOT NULL,
    damage           TEXT NOT NULL
) STRICT;

CREATE INDEX session_group ON session (grp, n) WHERE grp <> '';

-- Events at rest. key is session.n << 32 | seq: one tree, no second index, and a session's events side by side. body is the canonical
-- encoding.
CREATE TABLE event (
    key  INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- Events as they arrive, over all sessions, so that a commit of many sessions writes few pages; moved to event in bulk. For one session all
-- that is here comes after all that is there.
CREATE TABLE arrival (
    n       INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    body    BLOB NOT NULL
) STRICT;

-- For people who look with the sqlite3 shell.
CREATE VIEW log AS
    SELECT session.id AS session, found.seq AS seq, CAST(found.body AS TEXT) AS body
    FROM (SELECT key >> 32 AS n, key & 4294967295 AS seq, body FROM event UNION ALL SELECT session, seq, body FROM arrival) AS found
    JOIN session ON session.n = found.n;

-- Case-folded text for the search. key is session.n << 32 | seq + 1; seq -1 is the title.
CREATE TABLE search (
    key  INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

-- What is private to a session and outside its log: pin, settings, annotations.
CREATE TABLE document (
    session INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
    kind    TEXT NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (session, kind)
) STRICT, WITHOUT ROWID;

-- Pieces of unfinished messages, in the order written; gone once the message is an event.
CREATE TABLE partial (
    n       INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
    turn    INTEGER NOT NULL,
    step    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    block   INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    call_id TEXT NOT NULL,
    text    TEXT NOT NULL
) STRICT;

CREATE INDEX partial_session ON partial (session, n);

-- +goose Down
DROP TABLE partial;
DROP TABLE document;
DROP TABLE search;
DROP VIEW log;
DROP TABLE arrival;
DROP TABLE event;
DROP TABLE session;
DROP TABLE meta;
