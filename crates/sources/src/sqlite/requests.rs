//! What is known of requests and their sessions after a restart. The texts are the caller's: nothing here reads them.
//!
//! 1. What was written is on the disk before anyone is told so.
//! 2. What is over is kept for a week, and so many requests, and so many bytes of them; sessions for 90 days after their
//!    last use. What is too old goes a few at a time, with what is written: nobody waits for a great delete.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::SourceError;

use super::store::Store;
use super::writer::{ROW_BYTES, Write};

/// How long a request that is over is kept.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many requests are kept.
const MOST: i64 = 100_000;
/// How many bytes of outcomes are kept.
const MOST_BYTES: i64 = 4 * 1024 * 1024 * 1024;
/// How long a session is kept after its last use.
const SESSION_KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 3600);
/// How many rows go with each write, of each kind: more than come.
const GO: i64 = 4;

/// A request that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    /// Its id.
    pub id: String,
    /// Its session.
    pub session: String,
    /// To whom the session belongs, if it is not known yet.
    pub owner: String,
    /// How it was let in.
    pub admitted: String,
}

/// A request that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRequest {
    /// Its id.
    pub id: String,
    /// Its session.
    pub session: String,
    /// Whether the session has begun; `None` leaves that as it is.
    pub begun: Option<bool>,
    /// What came of it.
    pub outcome: String,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRequest {
    /// How it was let in.
    pub admitted: String,
    /// What came of it, if it is over.
    pub outcome: Option<String>,
}

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSession {
    /// To whom it belongs.
    pub owner: String,
    /// Whether it has begun.
    pub begun: bool,
}

impl Store {
    /// Writes down that a request was let in, and to whom its session belongs.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn add_request(&self, request: NewRequest) -> Result<(), SourceError> {
        let now = self.inner.clock.now();
        self.inner.writer.write(|| Add { request, now }).await
    }

    /// Writes down that a session begins.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn begin_session(&self, session: String) -> Result<(), SourceError> {
        let now = self.inner.clock.now();
        self.inner.writer.write(|| Begin { session, now }).await
    }

    /// Writes down what came of a request.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn end_request(&self, request: EndedRequest) -> Result<(), SourceError> {
        let now = self.inner.clock.now();
        self.inner.writer.write(|| End { request, now }).await
    }

    /// Ends every request that is not over: for a start, when whoever ran them is gone. Says how many there were.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn end_open_requests(&self, outcome: String) -> Result<usize, SourceError> {
        let now = self.inner.clock.now();
        self.inner.writer.write(|| EndOpen { outcome, now }).await
    }

    /// What is known of a request.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn request(&self, id: &str) -> Result<Option<StoredRequest>, SourceError> {
        let id = id.to_owned();
        let read = move |connection: &Connection| {
            let mut statement = connection
                .prepare_cached("SELECT admitted, outcome FROM requests WHERE id = ?1")?;
            let read = |row: &rusqlite::Row<'_>| {
                Ok(StoredRequest { admitted: row.get(0)?, outcome: row.get(1)? })
            };
            statement.query_row([id], read).optional()
        };
        self.inner.readers.read(read).await
    }

    /// What is known of a session.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn session(&self, id: &str) -> Result<Option<StoredSession>, SourceError> {
        let id = id.to_owned();
        let read = move |connection: &Connection| {
            let mut statement =
                connection.prepare_cached("SELECT owner, begun FROM sessions WHERE id = ?1")?;
            let read = |row: &rusqlite::Row<'_>| {
                Ok(StoredSession { owner: row.get(0)?, begun: row.get(1)? })
            };
            statement.query_row([id], read).optional()
        };
        self.inner.readers.read(read).await
    }
}

struct Add {
    request: NewRequest,
    now: i64,
}

impl Write for Add {
    type Answer = ();

    fn weight(&self) -> usize {
        2 + self.request.admitted.len() / ROW_BYTES
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let NewRequest { id, session, owner, admitted } = &self.request;
        connection
            .prepare_cached(
                "INSERT INTO requests (id, session, admitted, at, bytes) VALUES (?1, ?2, ?3, ?4, 0)",
            )?
            .execute(params![id, session, admitted, self.now])?;
        connection
            .prepare_cached(
                "INSERT INTO sessions (id, owner, begun, at) VALUES (?1, ?2, 0, ?3) \
                 ON CONFLICT (id) DO UPDATE SET at = excluded.at",
            )?
            .execute(params![session, owner, self.now])?;
        forget(connection, self.now)
    }
}

struct Begin {
    session: String,
    now: i64,
}

impl Write for Begin {
    type Answer = ();

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement =
            connection.prepare_cached("UPDATE sessions SET begun = 1, at = ?2 WHERE id = ?1")?;
        statement.execute(params![self.session, self.now]).map(drop)
    }
}

struct End {
    request: EndedRequest,
    now: i64,
}

impl Write for End {
    type Answer = ();

    fn weight(&self) -> usize {
        2 + self.request.outcome.len() / ROW_BYTES
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let EndedRequest { id, session, begun, outcome } = &self.request;
        let bytes = i64::try_from(outcome.len()).unwrap_or(i64::MAX);
        let ended = connection
            .prepare_cached(
                "UPDATE requests SET outcome = ?2, ended = ?3, bytes = ?4 \
                 WHERE id = ?1 AND ended IS NULL",
            )?
            .execute(params![id, outcome, self.now, bytes])?;
        if ended > 0 {
            add_bytes(connection, bytes)?;
        }
        connection
            .prepare_cached("UPDATE sessions SET begun = ifnull(?2, begun), at = ?3 WHERE id = ?1")?
            .execute(params![session, begun, self.now])?;
        forget(connection, self.now)
    }
}

struct EndOpen {
    outcome: String,
    now: i64,
}

impl Write for EndOpen {
    type Answer = usize;

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<usize> {
        let bytes = i64::try_from(self.outcome.len()).unwrap_or(i64::MAX);
        let ended = connection.execute(
            "UPDATE requests SET outcome = ?1, ended = ?2, bytes = ?3 WHERE ended IS NULL",
            params![self.outcome, self.now, bytes],
        )?;
        add_bytes(connection, bytes.saturating_mul(i64::try_from(ended).unwrap_or(i64::MAX)))?;
        Ok(ended)
    }
}

fn add_bytes(connection: &Connection, bytes: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE requests_kept SET bytes = bytes + ?1")?;
    statement.execute([bytes]).map(drop)
}

/// Lets a few rows go that are too old, or too many.
fn forget(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    let before =
        |span: Duration| now.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
    let (last, bytes): (i64, i64) = connection
        .prepare_cached(
            "SELECT (SELECT ifnull(max(number), 0) FROM requests), bytes FROM requests_kept",
        )?
        .query_row((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let old = remove(connection, "ended < ?1 ORDER BY ended", before(KEPT_FOR))?;
    // Numbers are given in order and never again: what is so far behind is beyond the count.
    let first = if bytes > MOST_BYTES { last } else { last.saturating_sub(MOST) };
    let beyond = remove(connection, "number <= ?1 AND ended IS NOT NULL ORDER BY number", first)?;
    if old + beyond > 0 {
        add_bytes(connection, -(old + beyond))?;
    }
    connection
        .prepare_cached(
            "DELETE FROM sessions WHERE id IN \
             (SELECT id FROM sessions WHERE at < ?1 ORDER BY at LIMIT ?2)",
        )?
        .execute(params![before(SESSION_KEPT_FOR), GO])
        .map(drop)
}

/// Removes the first few requests of these, and says how many bytes they had.
fn remove(connection: &Connection, which: &str, bound: i64) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(&format!(
        "DELETE FROM requests WHERE number IN (SELECT number FROM requests WHERE {which} LIMIT {GO}) \
         RETURNING bytes"
    ))?;
    let bytes = statement.query_map([bound], |row| row.get::<_, i64>(0))?;
    bytes.sum()
}
