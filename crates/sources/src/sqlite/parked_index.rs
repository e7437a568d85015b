//! What is known of parked messages without reading: how many there are, which keys are held, and which messages are
//! on their way back.
//!
//! It follows the file: only the writer changes it, after its transaction is on the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Notify;

/// Queue, the code of the pool that its messages were published with, and group: pools come and go, and others serve their
/// messages meanwhile.
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
        let count = connection.query_row("SELECT count(*) FROM parked", (), |row| row.get(0))?;
        let mut changes = Changes { count, ..Changes::default() };
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
        let mut keys = connection.prepare(
            "SELECT DISTINCT queue, published, grp FROM parked \
                 WHERE holds AND published IS NOT NULL",
        )?;
        let keys = keys.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        for key in keys.collect::<Result<Vec<HeldKey>, _>>()? {
            let first = first_of(connection, &key)?;
            changes.keys.push((key, first));
        }
        index.apply(&changes);
        // What was left when the file was last served.
        index.changed.notify_one();
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
        if !changes.replays.is_empty() || !changes.gone.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Whether a replay is over and not forgotten.
    pub(crate) fn has_over(&self) -> bool {
        self.known.lock().replays.values().any(|replay| replay.stage == Stage::Over)
    }

    pub(crate) fn count(&self) -> u64 {
        self.known.lock().count
    }

    /// The numbers and queues of replays that were begun and are not ended: whoever has the turn may end them.
    pub(crate) fn unfinished(&self) -> Vec<(i64, String)> {
        let known = self.known.lock();
        let left = known.replays.iter().filter(|(_, replay)| replay.stage == Stage::Begun);
        let mut left: Vec<_> =
            left.map(|((queue, _), replay)| (replay.number, queue.clone())).collect();
        left.sort_unstable();
        left
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

    /// Messages that are back in their queues and not over.
    pub(crate) fn back(&self) -> Vec<Name> {
        let known = self.known.lock();
        let back = known.replays.iter().filter(|(_, replay)| replay.stage == Stage::Back);
        back.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn holds(&self, key: &HeldKey) -> bool {
        let known = self.known.lock();
        known.keys.get(key).is_some_and(|state| {
            state.first.is_some() || state.returning.values().any(|is_seen| !is_seen)
        })
    }

    /// Whether a replayed message is the first of its key; from then on it is seen, and holds the key no more.
    pub(super) fn lets_pass(&self, name: &Name) -> bool {
        let may_pass = self.may_pass(name);
        let mut known = self.known.lock();
        let Known { keys, replays, .. } = &mut *known;
        let replay = replays.get(name).filter(|_| may_pass);
        if let Some(Replay { number, key: Some(key), .. }) = replay
            && let Some(is_seen) = keys.get_mut(key).and_then(|key| key.returning.get_mut(number))
        {
            *is_seen = true;
        }
        may_pass
    }

    pub(super) fn may_pass(&self, name: &Name) -> bool {
        let known = self.known.lock();
        let Some(replay) = known.replays.get(name) else { return false };
        let Some(state) = replay.key.as_ref().and_then(|key| known.keys.get(key)) else {
            return true;
        };
        state.first.is_none_or(|first| first.number > replay.number)
            && state.returning.range(..replay.number).all(|(_, is_seen)| *is_seen)
    }

    pub(super) fn is_empty(&self) -> bool {
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
         WHERE queue = ?1 AND published = ?2 AND grp = ?3 AND holds \
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
