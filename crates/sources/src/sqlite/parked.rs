//! Messages that were put aside: parking them, and looking at them. `docs/rules.md#park-1`.
//!
//! What holds a key, and what was replayed, is known in memory from the start on. Only the writer
//! changes either, after it is on the disk.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use sluicegate_dispatch::{BoxFuture, DEFAULT_GROUP, Parked, ParkedCode, ParkedStore, SourceError};

use super::schema;
use super::store::{Queues, Store};
use super::writer::Write;
use crate::wire;

/// How many items a page has at most.
const MAX_PAGE: usize = 1000;

/// A message that was put aside, as it is shown: without its token.
#[derive(Clone, Debug, PartialEq)]
pub struct ParkedItem {
    /// What it is replayed or discarded by.
    pub id: String,
    /// The message's own id, if it is a message.
    pub message_id: Option<Arc<str>>,
    /// The queue it came from.
    pub queue: String,
    /// The pool it was in, if it came that far.
    pub pool: Option<String>,
    /// Its group, if it has one.
    pub group: Option<Arc<str>>,
    /// Why it is here, as a word.
    pub code: String,
    /// Why it is here, in words.
    pub reason: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it came here, in milliseconds since 1970.
    pub parked_at: i64,
    /// The message, or the text of what is none.
    pub message: Value,
}

/// Some of the messages that were put aside, in the order in which they were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParkedPage {
    /// They.
    pub items: Vec<ParkedItem>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// What is known of the parked messages without reading.
#[derive(Debug, Default)]
pub(crate) struct ParkedIndex {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    count: u64,
    /// How many parked messages hold each key.
    held: HashMap<HeldKey, u64>,
    /// The messages that were replayed and are not settled, and what number they had here.
    replayed: HashMap<i64, i64>,
}

/// Queue, pool and group.
pub(crate) type HeldKey = (String, String, String);

impl ParkedIndex {
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let count = connection.query_row("SELECT count(*) FROM parked", (), |row| row.get(0))?;
        let mut held = connection.prepare(
            "SELECT queue, pool, grp, count(*) FROM parked WHERE holds GROUP BY queue, pool, grp",
        )?;
        let held = held
            .query_map((), |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?)))?
            .collect::<Result<_, _>>()?;
        let mut replayed = connection.prepare("SELECT seq, number FROM replays")?;
        let replayed = replayed
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        Ok(Self { known: Mutex::new(Known { count, held, replayed }) })
    }

    fn added(&self, keys: &[Option<HeldKey>]) {
        let mut known = self.known.lock();
        known.count += keys.len() as u64;
        for key in keys.iter().flatten() {
            *known.held.entry(key.clone()).or_default() += 1;
        }
    }

    pub(crate) fn removed(&self, keys: &[Option<HeldKey>], replayed: &[(i64, i64)]) {
        let mut known = self.known.lock();
        known.count = known.count.saturating_sub(keys.len() as u64);
        for key in keys.iter().flatten() {
            if let Some(count) = known.held.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    known.held.remove(key);
                }
            }
        }
        known.replayed.extend(replayed.iter().copied());
    }

    fn number_of(&self, seq: i64) -> Option<i64> {
        self.known.lock().replayed.get(&seq).copied()
    }

    /// A message is gone: that it was replayed is of no more use.
    pub(crate) fn forget(&self, connection: &Connection, seq: i64) -> rusqlite::Result<()> {
        if self.number_of(seq).is_some() {
            connection.prepare_cached("DELETE FROM replays WHERE seq = ?1")?.execute([seq])?;
        }
        Ok(())
    }

    pub(crate) fn forgotten(&self, seq: i64) {
        self.known.lock().replayed.remove(&seq);
    }
}

/// Parks messages, all or none.
struct Park {
    index: Arc<ParkedIndex>,
    queues: Arc<Queues>,
    parked: Vec<Parked>,
    now: i64,
}

impl Park {
    /// The number that a replayed message had: it comes back to its place.
    fn number(&self, parked: &Parked) -> Option<i64> {
        let queue = self.queues.get(&parked.queue)?;
        self.index.number_of(seq_of(queue.id, &parked.broker_id)?)
    }
}

/// The number of a message by what it is called outside.
fn seq_of(queue: i64, broker_id: &str) -> Option<i64> {
    broker_id.parse::<i64>().ok().map(|number| schema::base(queue) + number)
}

impl Write for Park {
    /// The keys that are held by those that were not there before.
    type Answer = Vec<Option<HeldKey>>;

    fn weight(&self) -> usize {
        self.parked.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer> {
        let mut insert = connection.prepare_cached(
            "INSERT OR IGNORE INTO parked (number, queue, broker_id, pool, grp, code, reason, \
             status, attempts, holds, at, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?;
        let mut added = Vec::new();
        for parked in &self.parked {
            let (group, body) = match &parked.message {
                Ok(message) => {
                    let group = message.group.as_deref().unwrap_or(DEFAULT_GROUP);
                    (Some(group), wire::render(message, std::time::Duration::ZERO).into())
                }
                Err(raw) => (None, std::borrow::Cow::Borrowed(raw.as_str())),
            };
            let inserted = insert.execute(params![
                self.number(parked),
                parked.queue,
                parked.broker_id,
                parked.pool,
                group,
                parked.code.label(),
                parked.reason,
                parked.status,
                parked.attempts,
                parked.holds_key,
                self.now,
                body,
            ])?;
            if inserted > 0 {
                let pool = parked.pool.as_deref().filter(|_| parked.holds_key);
                let key = pool.zip(group).map(|(pool, group)| {
                    (parked.queue.to_string(), pool.to_owned(), group.to_owned())
                });
                added.push(key);
            }
        }
        Ok(added)
    }

    fn written(&mut self, added: &Self::Answer) {
        self.index.added(added);
    }
}

impl ParkedStore for Store {
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async {
            let (index, queues) = (Arc::clone(&self.inner.parked), Arc::clone(&self.inner.queues));
            let now = self.inner.clock.now();
            self.inner.writer.write(|| Park { index, queues, parked, now }).await.map(drop)
        })
    }

    fn holds_key(&self, queue: &str, pool: &str, group: &str) -> bool {
        let known = self.inner.parked.known.lock();
        !known.held.is_empty()
            && known.held.contains_key(&(queue.to_owned(), pool.to_owned(), group.to_owned()))
    }

    fn lets_pass(&self, queue: &str, broker_id: &str) -> bool {
        if self.inner.parked.known.lock().replayed.is_empty() {
            return false;
        }
        let queue = self.inner.queues.get(queue);
        let seq = queue.and_then(|queue| seq_of(queue.id, broker_id));
        seq.is_some_and(|seq| self.inner.parked.number_of(seq).is_some())
    }
}

impl Store {
    /// How many messages are put aside.
    #[must_use]
    pub fn parked_count(&self) -> u64 {
        self.inner.parked.known.lock().count
    }

    /// A page of the messages that were put aside, of one pool or of all; at most 1,000.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn parked(
        &self,
        pool: Option<&str>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ParkedPage, SourceError> {
        let pool = pool.map(str::to_owned);
        let after: i64 = match cursor {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| SourceError::new("no such cursor"))?,
        };
        let limit = limit.clamp(1, MAX_PAGE);
        let mut items = self
            .inner
            .readers
            .read(move |connection| {
                let of_pool = if pool.is_some() { "pool = ?3 AND" } else { "?3 IS NULL AND" };
                let mut statement = connection.prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM parked WHERE {of_pool} number > ?1 \
                     ORDER BY number LIMIT ?2"
                ))?;
                let rows = statement.query_map(params![after, limit + 1, pool], item)?;
                rows.collect::<Result<Vec<_>, _>>()
            })
            .await?;
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(|item| item.id.clone());
        Ok(ParkedPage { items, next })
    }

    /// A message that was put aside, by its [`ParkedItem::id`].
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn parked_item(&self, id: &str) -> Result<Option<ParkedItem>, SourceError> {
        let Ok(number) = id.parse::<i64>() else { return Ok(None) };
        let read = self.inner.readers.read(move |connection| {
            let sql = format!("SELECT {COLUMNS} FROM parked WHERE number = ?1");
            connection.prepare_cached(&sql)?.query_row([number], item).optional()
        });
        read.await
    }
}

const COLUMNS: &str = "number, queue, pool, code, reason, status, attempts, at, body";

fn item(row: &Row<'_>) -> rusqlite::Result<ParkedItem> {
    let code: String = row.get(3)?;
    let body = row.get_ref(8)?.as_str()?;
    let message = if code == ParkedCode::Malformed.label() {
        None
    } else {
        wire::parse_stored(body).ok().map(|incoming| incoming.message)
    };
    let shown = match &message {
        Some(message) => wire::shown(message),
        None => Value::String(wire::redacted(body).into_owned()),
    };
    Ok(ParkedItem {
        id: row.get::<_, i64>(0)?.to_string(),
        message_id: message.as_ref().map(|message| Arc::clone(&message.id)),
        queue: row.get(1)?,
        pool: row.get(2)?,
        group: message.and_then(|message| message.group),
        code,
        reason: row.get(4)?,
        status: row.get(5)?,
        attempts: row.get(6)?,
        parked_at: row.get(7)?,
        message: shown,
    })
}
