//! Looking for a message by its id, and saying what it waits for.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use sluicegate_dispatch::{Found, FoundState, Reason, SourceError};

use tokio::time::Instant;

use super::query::next_of;
use super::read_ahead::Standing;
use super::row::{Key, has_id};
use super::store::{Inner, Queue, Store};
use crate::wire;

/// A message in the file.
struct Stored {
    seq: i64,
    code: Box<str>,
    key: Key,
    at: i64,
    due: Option<i64>,
    reason: Option<String>,
    attempts: u32,
    body: Box<str>,
}

pub(crate) async fn find(
    store: &Inner,
    queue: &Arc<Queue>,
    id: &str,
) -> Result<Option<Found>, SourceError> {
    let (number, id) = (queue.id, id.to_owned());
    let read = store.readers.read(move |connection| Stored::read(connection, number, &id));
    let Some(stored) = read.await? else { return Ok(None) };
    let now = store.clock.now();
    let state = match (stored.due.filter(|&due| due > now), standing(queue, &stored)) {
        (_, Standing::Out) => FoundState::Out,
        (Some(due), _) => {
            let rest = Duration::from_millis((due - now).unsigned_abs());
            let reason = stored.reason.as_deref().and_then(Reason::of_label);
            FoundState::Delayed { rest, reason: reason.unwrap_or(Reason::Scheduled) }
        }
        (None, Standing::Free) => FoundState::Ready,
        (None, Standing::Behind(head)) => behind(store, &stored, head).await?,
    };
    let age = Duration::from_millis(u64::try_from(now - stored.at).unwrap_or(0));
    Ok(Some(Found { body: stored.body, state, attempts: stored.attempts, age }))
}

impl Store {
    /// A message in any queue of the file, also in those that nobody serves, with the queue's name.
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn stored_in_any(&self, id: &str) -> Result<Vec<(String, Found)>, SourceError> {
        let (id, now) = (id.to_owned(), self.inner.clock.now());
        let read = self.inner.readers.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT queues.name, m.at, m.attempts, m.body FROM queues \
                 JOIN ids ON ids.queue = queues.id AND ids.id = ?1 \
                 JOIN messages m ON m.seq = ids.seq",
            )?;
            let found = |row: &Row<'_>| {
                let age =
                    Duration::from_millis(u64::try_from(now - row.get::<_, i64>(1)?).unwrap_or(0));
                let (attempts, body) = (row.get(2)?, row.get(3)?);
                Ok((row.get(0)?, Found { body, state: FoundState::Ready, attempts, age }))
            };
            let all: Vec<(String, Found)> =
                statement.query_map([&id], found)?.collect::<rusqlite::Result<_>>()?;
            Ok(all.into_iter().filter(|(_, found)| has_id(&found.body, &id)).collect())
        });
        read.await
    }
}

fn standing(queue: &Queue, stored: &Stored) -> Standing {
    queue.ahead.lock().standing(stored.seq, &stored.code, &stored.key, Instant::now())
}

/// It waits behind the head of its key, or behind the one that will be when it is read.
async fn behind(
    store: &Inner,
    stored: &Stored,
    head: Option<i64>,
) -> Result<FoundState, SourceError> {
    let (seq, key) = (stored.seq, stored.key.clone());
    let now = store.clock.now();
    let read = store.readers.read(move |connection| {
        let head = match head {
            Some(head) => Some(head),
            None => next_of(connection, &key, now, true, None)?.map(|head| head.seq),
        };
        let Some(head) = head.filter(|&head| head != seq) else { return Ok(None) };
        connection
            .prepare_cached("SELECT body FROM messages WHERE seq = ?1")?
            .query_row([head], |row| row.get::<_, Box<str>>(0))
            .optional()
    });
    let head = read.await?.and_then(|body| wire::parse_stored(&body).ok());
    Ok(head.map_or(FoundState::Ready, |head| FoundState::Behind(head.message.id)))
}

impl Stored {
    fn read(connection: &Connection, queue: i64, id: &str) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached(
            "SELECT m.seq, m.pool, m.grp, m.at, m.due, m.reason, m.attempts, m.body, lanes.code \
             FROM ids JOIN messages m ON m.seq = ids.seq JOIN lanes ON lanes.id = m.lane \
             WHERE ids.queue = ?1 AND ids.id = ?2",
        )?;
        let read = |row: &Row<'_>| {
            let key = Key { pool: row.get(1)?, group: row.get(2)? };
            let (at, due, reason) = (row.get(3)?, row.get(4)?, row.get(5)?);
            let (attempts, body, code) = (row.get(6)?, row.get(7)?, row.get(8)?);
            Ok(Self { seq: row.get(0)?, code, key, at, due, reason, attempts, body })
        };
        let stored = statement.query_row(params![queue, id], read).optional()?;
        Ok(stored.filter(|stored| has_id(&stored.body, id)))
    }
}
