//! Messages that were put aside: keeping them, and what is known of them without reading.
//! `docs/rules.md#park-1`, `docs/rules.md#park-2`.
//!
//! 1. A message is parked while it has a row in `parked`, and on its way back while it has one in `replays`. It
//!    has both from the moment a replay begins until its queue has it again.
//! 2. A key is held while it has a row that holds it and is not on its way back, or one on its way back that
//!    has not been seen since.
//! 3. What is known in memory follows the file: only the writer changes it, after its transaction is on the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::{
    BoxFuture, DEFAULT_GROUP, Message, Parked, ParkedCode, ParkedStore, SourceError,
};
use tokio::sync::Notify;

use super::store::Store;
use super::writer::Write;
use crate::wire;

/// Queue, pool and group.
pub(crate) type HeldKey = (String, String, String);
/// Queue and message id.
pub(crate) type Name = (String, String);

/// What is known of the parked messages without reading.
#[derive(Debug, Default)]
pub(crate) struct ParkedIndex {
    known: Mutex<Known>,
    /// Told when there may be something to go on with.
    pub(crate) changed: Notify,
    /// Held by whoever replays: one at a time.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Known {
    count: u64,
    keys: HashMap<HeldKey, KeyState>,
    replays: HashMap<Name, Replay>,
}

/// A key of which something is parked or on its way back.
#[derive(Debug, Default)]
struct KeyState {
    first: Option<First>,
    /// The numbers of those on their way back, and whether each has been seen since.
    returning: BTreeMap<i64, bool>,
}

/// The first message that holds a key and is not on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) number: i64,
    /// Whether it is replayed by itself after those before it.
    pub(crate) follows: bool,
}

/// A message that is on its way back to its queue.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) number: i64,
    /// Its key, and whether it holds that.
    pub(crate) key: Option<HeldKey>,
    pub(crate) holds: bool,
    pub(crate) stage: Stage,
}

/// How far a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its queue may have it.
    Begun = 0,
    /// Its queue has it, and the parked list has not.
    Back = 1,
    /// It is over; its source may not know yet.
    Over = 2,
}

/// What a write changed, as the file has it afterwards.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// How many more are parked.
    pub(crate) count: i64,
    /// Keys that were touched, and what is first in them now.
    pub(crate) keys: Vec<(HeldKey, Option<First>)>,
    /// Replays that are new or further on.
    pub(crate) replays: Vec<(Name, Replay)>,
    /// Replays that are gone.
    pub(crate) gone: Vec<Name>,
}

impl Stage {
    pub(crate) const fn of(number: i64) -> Self {
        match number {
            0 => Self::Begun,
            1 => Self::Back,
            _ => Self::Over,
        }
    }
}

impl ParkedIndex {
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let index = Self::default();
        let mut changes = Changes::default();
        changes.count =
            connection.query_row("SELECT count(*) FROM parked", (), |row| row.get(0))?;
        let mut replays = connection
            .prepare("SELECT queue, message_id, number, pool, grp, holds, stage FROM replays")?;
        let mut rows = replays.query(())?;
        while let Some(row) = rows.next()? {
            let (pool, group): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
            let queue: String = row.get(0)?;
            let key = pool.zip(group).map(|(pool, group)| (queue.clone(), pool, group));
            let (number, holds, stage) = (row.get(2)?, row.get(5)?, Stage::of(row.get(6)?));
            let replay = Replay { number, key, holds, stage };
            changes.replays.push(((queue, row.get(1)?), replay));
        }
        let mut keys =
            connection.prepare("SELECT DISTINCT queue, pool, grp FROM parked WHERE holds")?;
        let keys = keys.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        for key in keys.collect::<Result<Vec<HeldKey>, _>>()? {
            let first = first_of(connection, &key)?;
            changes.keys.push((key, first));
        }
        index.apply(&changes);
        Ok(index)
    }

    /// Takes note of what was written.
    pub(crate) fn apply(&self, changes: &Changes) {
        let mut known = self.known.lock();
        known.count = known.count.saturating_add_signed(changes.count);
        for name in &changes.gone {
            known.forget(name);
        }
        for (name, replay) in &changes.replays {
            known.note(name, replay);
        }
        for (key, first) in &changes.keys {
            known.keys.entry(key.clone()).or_default().first = *first;
            known.tidy(key);
        }
        drop(known);
        self.changed.notify_one();
    }

    pub(crate) fn count(&self) -> u64 {
        self.known.lock().count
    }

    /// The numbers of replays that were begun and are not ended: whoever has the turn may end them.
    pub(crate) fn unfinished(&self) -> Vec<i64> {
        let known = self.known.lock();
        let is_left = |replay: &&Replay| replay.stage == Stage::Begun;
        let mut numbers: Vec<i64> =
            known.replays.values().filter(is_left).map(|replay| replay.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Keys whose replayed messages are over, and whose next are to follow.
    pub(crate) fn following(&self) -> Vec<HeldKey> {
        let known = self.known.lock();
        let follows = |state: &KeyState| {
            state.returning.is_empty() && state.first.is_some_and(|first| first.follows)
        };
        known.keys.iter().filter(|(_, state)| follows(state)).map(|(key, _)| key.clone()).collect()
    }

    /// Whether a message of that id is on its way back, and how far that is.
    pub(crate) fn stage(&self, queue: &str, id: &str) -> Option<Stage> {
        let known = self.known.lock();
        if known.replays.is_empty() {
            return None;
        }
        known.replays.get(&(queue.to_owned(), id.to_owned())).map(|replay| replay.stage)
    }

    /// Messages that are back in their queues and have not been seen since.
    pub(crate) fn unseen(&self) -> Vec<Name> {
        let known = self.known.lock();
        let is_unseen = |replay: &Replay| {
            let state = replay.key.as_ref().and_then(|key| known.keys.get(key));
            replay.stage == Stage::Back
                && state.and_then(|state| state.returning.get(&replay.number)) == Some(&false)
        };
        let unseen = known.replays.iter().filter(|(_, replay)| is_unseen(replay));
        unseen.map(|(name, _)| name.clone()).collect()
    }

    fn holds(&self, key: &HeldKey) -> bool {
        let known = self.known.lock();
        known.keys.get(key).is_some_and(|state| {
            state.first.is_some() || state.returning.values().any(|is_seen| !is_seen)
        })
    }

    fn lets_pass(&self, name: &Name) -> bool {
        let mut known = self.known.lock();
        let Known { keys, replays, .. } = &mut *known;
        let Some(replay) = replays.get(name) else { return false };
        let number = replay.number;
        let Some(state) = replay.key.as_ref().and_then(|key| keys.get_mut(key)) else {
            return true;
        };
        let is_first = state.first.is_none_or(|first| first.number > number)
            && state.returning.range(..number).all(|(_, is_seen)| *is_seen);
        if is_first && let Some(is_seen) = state.returning.get_mut(&number) {
            *is_seen = true;
        }
        is_first
    }

    fn is_empty(&self) -> bool {
        let known = self.known.lock();
        known.keys.is_empty() && known.replays.is_empty()
    }
}

impl Known {
    fn note(&mut self, name: &Name, replay: &Replay) {
        if let Some(key) = replay.key.as_ref().filter(|_| replay.holds) {
            let returning = &mut self.keys.entry(key.clone()).or_default().returning;
            if replay.stage == Stage::Over {
                returning.remove(&replay.number);
            } else {
                returning.entry(replay.number).or_insert(false);
            }
            self.tidy(key);
        }
        self.replays.insert(name.clone(), replay.clone());
    }

    fn forget(&mut self, name: &Name) {
        let Some(replay) = self.replays.remove(name) else { return };
        let Some(key) = &replay.key else { return };
        if let Some(state) = self.keys.get_mut(key) {
            state.returning.remove(&replay.number);
        }
        self.tidy(key);
    }

    /// A key of which nothing is left leaves nothing behind.
    fn tidy(&mut self, key: &HeldKey) {
        let is_free = |state: &KeyState| state.first.is_none() && state.returning.is_empty();
        if self.keys.get(key).is_some_and(is_free) {
            self.keys.remove(key);
        }
    }
}

/// The first message that holds a key and is not on its way back.
pub(crate) fn first_of(connection: &Connection, key: &HeldKey) -> rusqlite::Result<Option<First>> {
    let mut statement = connection.prepare_cached(
        "SELECT number, follows FROM parked INDEXED BY parked_key \
         WHERE queue = ?1 AND pool = ?2 AND grp = ?3 AND holds \
         AND NOT EXISTS (SELECT 1 FROM replays WHERE replays.number = parked.number) \
         ORDER BY number LIMIT 1",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok(First { number: row.get(0)?, follows: row.get(1)? });
    statement.query_row(params![key.0, key.1, key.2], read).optional()
}

/// What is first in each of these keys now.
pub(crate) fn firsts(
    connection: &Connection,
    keys: BTreeSet<HeldKey>,
) -> rusqlite::Result<Vec<(HeldKey, Option<First>)>> {
    let with_first = |key: HeldKey| first_of(connection, &key).map(|first| (key, first));
    keys.into_iter().map(with_first).collect()
}

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
             attempts, holds, at, body, message_id, authority, host, follows) \
             VALUES ((SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM parked WHERE number = ?1)), \
             ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) RETURNING number",
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
        ];
        statement.query_row(params, |row| row.get(0))
    }

    /// The key that it holds.
    pub(crate) fn key(&self) -> Option<HeldKey> {
        let (pool, group) = self.pool.zip(self.group).filter(|_| self.holds)?;
        Some((self.queue.to_owned(), pool.to_owned(), group.to_owned()))
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

/// A message that was replayed is parked again: the number that it had.
fn came_back(
    connection: &Connection,
    queue: &str,
    id: &str,
    changes: &mut Changes,
    touched: &mut BTreeSet<HeldKey>,
) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM replays WHERE queue = ?1 AND message_id = ?2 RETURNING number, pool, grp",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: Option<(i64, Option<String>, Option<String>)> =
        statement.query_row(params![queue, id], read).optional()?;
    let Some((number, pool, group)) = found else { return Ok(None) };
    // Where its queue had it before that was noted, it is still in the list.
    let mut remove = connection.prepare_cached("DELETE FROM parked WHERE number = ?1")?;
    changes.count -= i64::from(remove.execute([number])? > 0);
    changes.gone.push((queue.to_owned(), id.to_owned()));
    touched.extend(pool.zip(group).map(|(pool, group)| (queue.to_owned(), pool, group)));
    Ok(Some(number))
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
