//! Messages that were put aside: keeping them.
//! `docs/rules.md#park-1`, `docs/rules.md#park-2`.
//!
//! 1. A message is parked while it has a row in `parked`, and on its way back while it has one in `replays`. It
//!    has both from the moment a replay begins until its queue has it again.
//! 2. A key is held while it has a row that holds it and is not on its way back, or one on its way back that
//!    has not been seen since.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::{
    BoxFuture, DEFAULT_GROUP, LastError, Message, Parked, ParkedCode, ParkedStore, SourceError,
};

use super::last_error;
use super::parked_index::{Changes, HeldKey, ParkedIndex, Stage, first_of, firsts};
use super::store::Store;
use super::writer::Write;
use crate::wire;

/// A message as a row of the table has it.
pub(crate) struct Columns<'a> {
    pub(crate) queue: &'a str,
    pub(crate) broker_id: &'a str,
    pub(crate) pool: Option<&'a str>,
    pub(crate) group: Option<&'a str>,
    pub(crate) code: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) status: Option<u16>,
    pub(crate) attempts: u32,
    pub(crate) holds: bool,
    pub(crate) follows: bool,
    pub(crate) at: i64,
    pub(crate) body: &'a str,
    pub(crate) last_error: Option<&'a LastError>,
    pub(crate) message: Option<&'a Message>,
}

impl Columns<'_> {
    /// Puts it into the table: with this number if it is free, else with the next one. The number it has got.
    pub(crate) fn insert(
        &self,
        connection: &Connection,
        number: Option<i64>,
    ) -> rusqlite::Result<i64> {
        let authority = self.message.map(|message| message.target.authority());
        let mut statement = connection.prepare_cached(
            "INSERT INTO parked (number, queue, broker_id, pool, grp, code, reason, status, \
             attempts, holds, at, body, message_id, authority, host, follows, last_error, published) \
             VALUES ((SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM parked WHERE number = ?1)), \
             ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) \
             RETURNING number",
        )?;
        let params = params![
            number,
            self.queue,
            free_name(connection, self.queue, self.broker_id)?,
            self.pool,
            self.group,
            self.code,
            self.reason,
            self.status,
            self.attempts,
            self.holds,
            self.at,
            self.body,
            self.message.map(|message| &*message.id),
            authority,
            authority.map(host_of),
            self.follows,
            self.last_error.map(last_error::written),
            self.message.map(|message| &*message.pool),
        ];
        statement.query_row(params, |row| row.get(0))
    }

    /// The key that it holds: by the code that it was published with, whichever pool served it.
    pub(crate) fn key(&self) -> Option<HeldKey> {
        let (message, group) = self.message.zip(self.group).filter(|_| self.holds)?;
        Some((self.queue.to_owned(), message.pool.to_string(), group.to_owned()))
    }
}

/// Some sources give the same name to messages that follow each other: those that differ are kept apart.
fn free_name(connection: &Connection, queue: &str, name: &str) -> rusqlite::Result<String> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM parked WHERE queue = ?1 AND broker_id = ?2")?;
    let mut free = name.to_owned();
    let mut next = 2;
    while statement.exists(params![queue, free])? {
        free = format!("{name}#{next}");
        next += 1;
    }
    Ok(free)
}

/// A host without its port.
pub(crate) fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Parks messages, all or none.
struct Park {
    index: Arc<ParkedIndex>,
    parked: Vec<Parked>,
    now: i64,
}

impl Park {
    fn one(
        &self,
        connection: &Connection,
        parked: &Parked,
        changes: &mut Changes,
        touched: &mut BTreeSet<HeldKey>,
    ) -> rusqlite::Result<()> {
        let (message, body) = match &parked.message {
            Ok(message) => (Some(message), wire::render(message, Duration::ZERO)),
            Err(raw) => (None, raw.clone()),
        };
        let group = message.map(|message| message.group.as_deref().unwrap_or(DEFAULT_GROUP));
        let mut columns = Columns {
            queue: &parked.queue,
            broker_id: &parked.broker_id,
            pool: parked.pool.as_deref(),
            group,
            code: parked.code.label(),
            reason: &parked.reason,
            status: parked.status,
            attempts: parked.attempts,
            holds: parked.holds_key,
            follows: false,
            at: self.now,
            body: &body,
            last_error: parked.last_error.as_deref(),
            message,
        };
        let number = match message {
            Some(message) => came_back(connection, &parked.queue, &message.id, changes, touched)?,
            None => None,
        };
        if number.is_none() && is_parked(connection, &columns)? {
            return Ok(());
        }
        let key = columns.key();
        if let Some(key) = key.as_ref().filter(|_| parked.code == ParkedCode::KeyParked) {
            columns.follows = follows(connection, key)?;
        }
        columns.insert(connection, number)?;
        changes.count += 1;
        touched.extend(key);
        Ok(())
    }
}

/// Whether a message is there already: the same, by its source's name for it or by its own id.
fn is_parked(connection: &Connection, columns: &Columns<'_>) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM parked WHERE queue = ?1 AND broker_id = ?3 AND body = ?2 \
         UNION ALL SELECT 1 FROM parked INDEXED BY parked_message \
         WHERE message_id = ?4 AND queue = ?1 AND body = ?2",
    )?;
    let id = columns.message.map(|message| &*message.id);
    statement.exists(params![columns.queue, columns.body, columns.broker_id, id])
}

/// A message that was replayed is parked again: the number that it had, if it has a place in its key. What holds no key, and
/// is held up by none, is a message like others: it goes to the end, however soon it comes.
fn came_back(
    connection: &Connection,
    queue: &str,
    id: &str,
    changes: &mut Changes,
    touched: &mut BTreeSet<HeldKey>,
) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM replays WHERE queue = ?1 AND message_id = ?2 RETURNING number, pool, grp, holds",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let found: Option<(i64, Option<String>, Option<String>, bool)> =
        statement.query_row(params![queue, id], read).optional()?;
    let Some((number, pool, group, holds)) = found else { return Ok(None) };
    let key = pool.zip(group).map(|(pool, group)| (queue.to_owned(), pool, group));
    // Where its queue had it before that was noted, it is still in the list.
    let mut remove = connection.prepare_cached("DELETE FROM parked WHERE number = ?1")?;
    changes.count -= i64::from(remove.execute([number])? > 0);
    changes.gone.push((queue.to_owned(), id.to_owned()));
    let first = key.as_ref().map(|key| first_of(connection, key)).transpose()?.flatten();
    touched.extend(key);
    Ok((holds || first.is_some()).then_some(number))
}

/// Whether a message that is parked behind others of its key is replayed by itself after them: those before it
/// are all on their way back, or are replayed by themselves too.
fn follows(connection: &Connection, key: &HeldKey) -> rusqlite::Result<bool> {
    if let Some(first) = first_of(connection, key)? {
        return Ok(first.follows);
    }
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM replays WHERE queue = ?1 AND pool = ?2 AND grp = ?3 AND holds AND stage < 2",
    )?;
    statement.exists(params![key.0, key.1, key.2])
}

impl Write for Park {
    type Answer = Changes;

    fn weight(&self) -> usize {
        self.parked.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Changes> {
        let (mut changes, mut touched) = (Changes::default(), BTreeSet::new());
        for parked in &self.parked {
            self.one(connection, parked, &mut changes, &mut touched)?;
        }
        changes.keys = firsts(connection, touched)?;
        Ok(changes)
    }

    fn written(&mut self, changes: &Changes) {
        self.index.apply(changes);
    }
}

impl ParkedStore for Store {
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async {
            let index = Arc::clone(&self.inner.parked);
            let now = self.inner.clock.now();
            self.inner.writer.write(|| Park { index, parked, now }).await.map(drop)
        })
    }

    fn holds_key(&self, queue: &str, pool: &str, group: &str) -> bool {
        let index = &self.inner.parked;
        !index.is_empty() && index.holds(&(queue.to_owned(), pool.to_owned(), group.to_owned()))
    }

    fn lets_pass(&self, queue: &str, message: &str) -> bool {
        let index = &self.inner.parked;
        !index.is_empty() && index.lets_pass(&(queue.to_owned(), message.to_owned()))
    }

    fn may_pass(&self, queue: &str, message: &str) -> bool {
        let index = &self.inner.parked;
        !index.is_empty() && index.may_pass(&(queue.to_owned(), message.to_owned()))
    }

    fn is_replayed(&self, queue: &str, message: &str) -> bool {
        self.inner.parked.stage(queue, message).is_some_and(|stage| stage != Stage::Over)
    }

    fn replay_over(
        &self,
        queue: &str,
        messages: Vec<Arc<str>>,
    ) -> BoxFuture<'_, Result<(), SourceError>> {
        let queue = queue.to_owned();
        Box::pin(self.note_over(queue, messages))
    }
}
