//! The tables, and the steps from one version of them to the next. They may lie in a file with tables of others, so their
//! version is in a table of its own.
//!
//! A type, and each tag, is a key of its event. Keys are filed some time after their events, and `events_filed` says how
//! far that is. Tags are stored with the character NUL between them, which none has.

use rusqlite::{Connection, OptionalExtension};
use sluicegate_sqlite_file::APPLICATION_ID;

/// Each step from one version to the next; the version is how many were taken.
const STEPS: &[&str] = &[
    "
    CREATE TABLE events (
        position INTEGER PRIMARY KEY,
        type TEXT NOT NULL,
        tags BLOB NOT NULL,
        data TEXT NOT NULL,
        time INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE event_keys (
        key TEXT NOT NULL,
        position INTEGER NOT NULL,
        PRIMARY KEY (key, position)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE events_filed (position INTEGER NOT NULL) STRICT;
    INSERT INTO events_filed (position) VALUES (0);
",
    "
    CREATE TABLE event_cursors (
        name TEXT PRIMARY KEY,
        turn INTEGER NOT NULL,
        state TEXT
    ) STRICT, WITHOUT ROWID;
",
];

/// The latest version that is known.
pub(crate) const KNOWN: i64 = STEPS.len() as i64;

/// The version that was found is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newer(pub(crate) i64);

/// Brings the tables up to what this version knows, within the transaction of the caller. Tables that are newer are left
/// as they are.
pub(crate) fn migrate(connection: &Connection) -> rusqlite::Result<Result<(), Newer>> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS events_version (version INTEGER NOT NULL) STRICT",
    )?;
    let found = connection
        .query_row("SELECT version FROM events_version", (), |row| row.get::<_, i64>(0))
        .optional()?
        .unwrap_or(0);
    if found > KNOWN {
        return Ok(Err(Newer(found)));
    }
    if found == KNOWN {
        return Ok(Ok(()));
    }
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        connection.execute_batch(step)?;
    }
    connection.execute("DELETE FROM events_version", ())?;
    connection.execute("INSERT INTO events_version (version) VALUES (?1)", [KNOWN])?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    Ok(Ok(()))
}
