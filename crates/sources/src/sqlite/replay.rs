//! Parked messages that are given back to their queues, or up. `docs/rules.md#strict-4`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::{ParkedCode, SourceError};

use super::lanes::Lanes;
use super::parked::{HeldKey, ParkedIndex};
use super::publish::{self, Numbers};
use super::row::group_of;
use super::store::{Queue, Queues, Store};
use super::writer::Write;
use crate::wire;

/// How many messages are replayed in one transaction when all are.
const CHUNK: usize = 1000;

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How many messages are in their queues again.
    pub replayed: u64,
    /// How many could not be: they are no messages, or of queues that are not in the state file.
    pub left: u64,
}

/// Why messages were not replayed. None of them was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is none of this id.
    NotFound {
        /// The id.
        id: String,
    },
    /// It is no message, so it would only come back.
    Malformed {
        /// The id.
        id: String,
    },
    /// An earlier message of its key is parked: replayed before that, it would overtake it.
    Behind {
        /// The id.
        id: String,
        /// The id of the earlier one.
        earlier: String,
    },
    /// Its queue is not one of the state file.
    OtherQueue {
        /// The id.
        id: String,
        /// The queue.
        queue: String,
    },
    /// The state file could not be written.
    Source(SourceError),
}

/// Why messages were not discarded. None of them was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiscardError {
    /// There is none of this id.
    NotFound {
        /// The id.
        id: String,
    },
    /// The state file could not be written.
    Source(SourceError),
}

impl Store {
    /// Gives messages back to their queues, all or none: each as a new message at the end, with no
    /// attempts made. An id that was seen shortly before does not matter here.
    ///
    /// # Errors
    /// Names one that cannot be replayed, and why.
    pub async fn replay(&self, ids: &[impl AsRef<str> + Sync]) -> Result<Replayed, ReplayError> {
        let numbers = numbers(ids).map_err(|id| ReplayError::NotFound { id })?;
        let replayed = numbers.len() as u64;
        let write = self.inner.writer.write(|| self.replay_of(numbers));
        match write.await.map_err(ReplayError::Source)? {
            Ok(_) => Ok(Replayed { replayed, left: 0 }),
            Err(refused) => Err(refused),
        }
    }

    /// Gives all messages of a pool, or all there are, back to their queues, in order. They go in
    /// pieces, so if it fails, some may have gone.
    ///
    /// # Errors
    /// If the state file could not be read or written.
    pub async fn replay_all(&self, pool: Option<&str>) -> Result<Replayed, SourceError> {
        let mut all = Replayed::default();
        let mut after = 0;
        loop {
            let chunk = self.chunk(pool.map(str::to_owned), after).await?;
            let Some(&(last, _)) = chunk.last() else { return Ok(all) };
            after = last;
            let good: BTreeSet<i64> =
                chunk.iter().filter(|(_, is_good)| *is_good).map(|(number, _)| *number).collect();
            let (replayed, left) = (good.len() as u64, (chunk.len() - good.len()) as u64);
            all.left += left;
            match self.inner.writer.write(|| self.replay_of(good)).await? {
                Ok(_) => all.replayed += replayed,
                // Someone else replayed or discarded some meanwhile, or they wait for one of
                // another pool: one by one, those that can go do.
                Err(_) => {
                    let one_by_one = self.one_by_one(&chunk).await?;
                    all.replayed += one_by_one;
                    all.left += replayed - one_by_one;
                }
            }
        }
    }

    async fn one_by_one(&self, chunk: &[(i64, bool)]) -> Result<u64, SourceError> {
        let mut replayed = 0;
        for &(number, _) in chunk.iter().filter(|(_, is_good)| *is_good) {
            let write = self.inner.writer.write(|| self.replay_of(BTreeSet::from([number])));
            replayed += u64::from(write.await?.is_ok());
        }
        Ok(replayed)
    }

    /// The next numbers, and whether each can be replayed.
    async fn chunk(
        &self,
        pool: Option<String>,
        after: i64,
    ) -> Result<Vec<(i64, bool)>, SourceError> {
        let queues = Arc::clone(&self.inner.queues);
        let read = self.inner.readers.read(move |connection| {
            let of_pool = if pool.is_some() { "pool = ?3 AND" } else { "?3 IS NULL AND" };
            let mut statement = connection.prepare_cached(&format!(
                "SELECT number, code <> ?4, queue FROM parked WHERE {of_pool} number > ?1 \
                 ORDER BY number LIMIT ?2"
            ))?;
            let rows = statement.query_map(
                params![after, CHUNK, pool, ParkedCode::Malformed.label()],
                |row| {
                    let is_message: bool = row.get(1)?;
                    let queue = row.get_ref(2)?.as_str()?;
                    Ok((row.get(0)?, is_message && queues.get(queue).is_some()))
                },
            )?;
            rows.collect()
        });
        read.await
    }

    fn replay_of(&self, numbers: BTreeSet<i64>) -> Replay {
        let (index, queues) = (Arc::clone(&self.inner.parked), Arc::clone(&self.inner.queues));
        Replay { index, queues, numbers, now: self.inner.clock.now() }
    }

    /// Gives messages up for good, all or none.
    ///
    /// # Errors
    /// Names one that is not there.
    pub async fn discard(&self, ids: &[impl AsRef<str> + Sync]) -> Result<u64, DiscardError> {
        let numbers = numbers(ids).map_err(|id| DiscardError::NotFound { id })?;
        let count = numbers.len() as u64;
        let index = Arc::clone(&self.inner.parked);
        let write = self.inner.writer.write(|| Discard { index, numbers });
        match write.await.map_err(DiscardError::Source)? {
            Ok(_) => Ok(count),
            Err(number) => Err(DiscardError::NotFound { id: number.to_string() }),
        }
    }
}

fn numbers(ids: &[impl AsRef<str>]) -> Result<BTreeSet<i64>, String> {
    ids.iter().map(|id| id.as_ref().parse().map_err(|_| id.as_ref().to_owned())).collect()
}

struct Replay {
    index: Arc<ParkedIndex>,
    queues: Arc<Queues>,
    /// In order, so that none is replayed before an earlier one of its key.
    numbers: BTreeSet<i64>,
    now: i64,
}

/// What a replay changes in memory.
#[derive(Default)]
struct Moved {
    keys: Vec<Option<HeldKey>>,
    replays: Vec<(i64, i64)>,
    queues: BTreeMap<i64, Refilled>,
}

/// A queue that gets messages back.
struct Refilled {
    queue: Arc<Queue>,
    numbers: Numbers,
    lanes: Lanes,
}

/// A parked message, as far as it matters here.
struct Row {
    number: i64,
    queue: String,
    pool: Option<String>,
    group: Option<String>,
    holds: bool,
    is_malformed: bool,
    body: String,
}

impl Row {
    fn find(connection: &Connection, number: i64) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached(
            "SELECT queue, pool, grp, holds, code = ?2, body FROM parked WHERE number = ?1",
        )?;
        statement
            .query_row(params![number, ParkedCode::Malformed.label()], |row| {
                let (queue, pool, group) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let (holds, is_malformed, body) = (row.get(3)?, row.get(4)?, row.get(5)?);
                Ok(Self { number, queue, pool, group, holds, is_malformed, body })
            })
            .optional()
    }

    /// An earlier one that holds the same key.
    fn earlier(&self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        let mut statement = connection.prepare_cached(
            "SELECT min(number) FROM parked \
             WHERE queue = ?1 AND pool = ?2 AND grp = ?3 AND holds AND number < ?4",
        )?;
        statement
            .query_row(params![self.queue, self.pool, self.group, self.number], |row| row.get(0))
    }

    /// Takes it out; the key that it held.
    fn take(self, connection: &Connection) -> rusqlite::Result<Option<HeldKey>> {
        connection
            .prepare_cached("DELETE FROM parked WHERE number = ?1")?
            .execute([self.number])?;
        let key = self.pool.zip(self.group).filter(|_| self.holds);
        Ok(key.map(|(pool, group)| (self.queue, pool, group)))
    }
}

impl Replay {
    /// Moves one message. An `Err` inside says why it cannot be.
    fn one(
        &self,
        connection: &Connection,
        number: i64,
        moved: &mut Moved,
    ) -> rusqlite::Result<Result<(), ReplayError>> {
        let id = number.to_string();
        let Some(row) = Row::find(connection, number)? else {
            return Ok(Err(ReplayError::NotFound { id }));
        };
        let Some(message) = wire::parse_stored(&row.body).ok().filter(|_| !row.is_malformed) else {
            return Ok(Err(ReplayError::Malformed { id }));
        };
        let Some(queue) = self.queues.get(&row.queue) else {
            return Ok(Err(ReplayError::OtherQueue { id, queue: row.queue }));
        };
        // Those of the same call have been taken out by now.
        if let Some(earlier) = row.earlier(connection)? {
            return Ok(Err(ReplayError::Behind { id, earlier: earlier.to_string() }));
        }
        let message = message.message;
        let refilled = match moved.queues.entry(queue.id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let numbers = Numbers::take(connection, queue.id)?;
                let lanes = Lanes::of(queue.id);
                entry.insert(Refilled { queue, numbers, lanes })
            }
        };
        let (seq, queue) = (refilled.numbers.next, refilled.queue.id);
        refilled.numbers.next += 1;
        let lane = refilled.lanes.lane_of(connection, &message)?;
        publish::insert(
            connection,
            seq,
            queue,
            lane,
            &group_of(&message),
            message.high_priority,
            None,
            self.now,
            &row.body,
        )?;
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO ids (queue, id, seq, at) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![queue, message.id, seq, self.now])?;
        connection
            .prepare_cached("INSERT INTO replays (seq, number) VALUES (?1, ?2)")?
            .execute([seq, number])?;
        moved.replays.push((seq, number));
        moved.keys.push(row.take(connection)?);
        Ok(Ok(()))
    }
}

impl Write for Replay {
    type Answer = Result<Moved, ReplayError>;

    fn weight(&self) -> usize {
        self.numbers.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer> {
        let mut moved = Moved::default();
        connection.execute_batch("SAVEPOINT replay")?;
        for &number in &self.numbers {
            if let Err(refused) = self.one(connection, number, &mut moved)? {
                connection.execute_batch("ROLLBACK TO replay; RELEASE replay")?;
                return Ok(Err(refused));
            }
        }
        for refilled in moved.queues.values_mut() {
            refilled.numbers.give_back(connection)?;
        }
        connection.execute_batch("RELEASE replay")?;
        Ok(Ok(moved))
    }

    fn written(&mut self, answer: &Self::Answer) {
        let Ok(moved) = answer else { return };
        self.index.removed(&moved.keys, &moved.replays);
        for refilled in moved.queues.values() {
            refilled.queue.ahead.lock().may_have_more();
            refilled.queue.changed.notify_waiters();
        }
    }
}

struct Discard {
    index: Arc<ParkedIndex>,
    numbers: BTreeSet<i64>,
}

impl Write for Discard {
    /// The keys that they held, or the number that is not there.
    type Answer = Result<Vec<Option<HeldKey>>, i64>;

    fn weight(&self) -> usize {
        self.numbers.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer> {
        let mut rows = Vec::with_capacity(self.numbers.len());
        for &number in &self.numbers {
            match Row::find(connection, number)? {
                Some(row) => rows.push(row),
                None => return Ok(Err(number)),
            }
        }
        rows.into_iter().map(|row| row.take(connection)).collect::<Result<_, _>>().map(Ok)
    }

    fn written(&mut self, answer: &Self::Answer) {
        if let Ok(keys) = answer {
            self.index.removed(keys, &[]);
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { id } => write!(f, "no parked message has the id {id}"),
            Self::Malformed { id } => {
                write!(f, "{id} is no message, so it cannot be replayed; discard it")
            }
            Self::Behind { id, earlier } => write!(
                f,
                "{id} would overtake {earlier}, an earlier message of its group that is parked: \
                 replay or discard that first, or both together"
            ),
            Self::OtherQueue { id, queue } => write!(
                f,
                "{id} came from the queue {queue}, which is not in the state file, so it cannot be \
                 replayed"
            ),
            Self::Source(error) => write!(f, "could not replay: {error}"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl fmt::Display for DiscardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { id } => write!(f, "no parked message has the id {id}"),
            Self::Source(error) => write!(f, "could not discard: {error}"),
        }
    }
}

impl std::error::Error for DiscardError {}
