//! Parked messages that go back to their queues, or are given up. `docs/rules.md#park-2`.
//!
//! A replay has three steps, and each is on the disk before the next: it is noted as begun; the queue takes the
//! message in; it leaves the parked list. What a crash, an error or a dropped future leaves between the first and
//! the last is done again, or taken back.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};
use sluicegate_dispatch::{ParkedCode, Publication, PutBack, SourceError};
use tokio::sync::OwnedMutexGuard;

use super::parked_index::{Changes, HeldKey, ParkedIndex, Replay, Stage, first_of, firsts};
use super::parked_list::MAX_BYTES;
use super::replay_error::ReplayError;
use super::store::Store;
use super::writer::Write;
use crate::wire;

/// Messages that are being replayed: those that may go, in order, and those that may not. Nobody else replays
/// while this is there. What is not ended when it is dropped is done again by whoever
/// [resumes](Store::resume_replay).
#[derive(Debug)]
pub struct Replaying {
    /// The numbers of those that go back to their queues, in order, and these queues. The messages themselves are
    /// [read](Store::returning) when they go: together they may be too large for the memory.
    pub begun: Vec<(i64, String)>,
    /// Those that do not, and why.
    pub refused: Vec<ReplayError>,
    index: Arc<ParkedIndex>,
    _turn: OwnedMutexGuard<()>,
}

/// A message on its way back to its queue.
#[derive(Clone, Debug)]
pub struct Returning {
    /// Its number in the parked list.
    pub number: i64,
    /// The queue that it came from, by its configured name.
    pub queue: String,
    /// It, as its queue takes it.
    pub message: PutBack,
}

/// Some of the messages that go back to their queues.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// They, in order.
    pub messages: Vec<Returning>,
    /// Those that cannot go: they are no messages, or not there any more.
    pub lost: Vec<i64>,
}

impl Drop for Replaying {
    fn drop(&mut self) {
        self.index.changed.notify_one();
    }
}

impl Store {
    /// Begins to replay messages of these queues; with `whole`, all of them or none. What is refused stays.
    ///
    /// # Errors
    /// If the state file could not be written.
    pub async fn begin_replay(
        &self,
        numbers: &[i64],
        queues: &HashSet<String>,
        whole: bool,
    ) -> Result<Replaying, SourceError> {
        let mode = if whole { Mode::AllOrNone } else { Mode::Those };
        self.begin(numbers, queues, mode, None).await
    }

    /// Begins to replay a part of those that were parked up to a number. What was parked behind that, because of them,
    /// follows them.
    ///
    /// # Errors
    /// If the state file could not be written.
    pub async fn begin_part_of_replay(
        &self,
        numbers: &[i64],
        queues: &HashSet<String>,
        up_to: i64,
    ) -> Result<Replaying, SourceError> {
        self.begin(numbers, queues, Mode::Those, Some(up_to)).await
    }

    async fn begin(
        &self,
        numbers: &[i64],
        queues: &HashSet<String>,
        mode: Mode,
        up_to: Option<i64>,
    ) -> Result<Replaying, SourceError> {
        let index = Arc::clone(&self.inner.parked);
        let turn = Arc::clone(&index.turn).lock_owned().await;
        let now = self.inner.clock.now();
        let (numbers, queues) = (numbers.iter().copied().collect(), queues.clone());
        let own = Arc::clone(&index);
        let begin = || Begin { index: own, numbers, queues, mode, up_to, now };
        let begun = self.inner.writer.write(begin).await?;
        let (begun, refused) = (begun.numbers, begun.refused);
        Ok(Replaying { begun, refused, index, _turn: turn })
    }

    /// Why one of these messages could not be replayed, if so. Nothing changes.
    ///
    /// # Errors
    /// If the state file could not be used.
    pub async fn check_replay(
        &self,
        numbers: &[i64],
        queues: &HashSet<String>,
    ) -> Result<Option<ReplayError>, SourceError> {
        let (index, now) = (Arc::clone(&self.inner.parked), self.inner.clock.now());
        let (numbers, queues) = (numbers.iter().copied().collect(), queues.clone());
        let (mode, up_to) = (Mode::Check, None);
        let check = || Begin { index, numbers, queues, mode, up_to, now };
        Ok(self.inner.writer.write(check).await?.refused.into_iter().next())
    }

    /// Goes on with replays that were begun and not ended; `None` if there are none.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn resume_replay(&self) -> Result<Option<Replaying>, SourceError> {
        let index = Arc::clone(&self.inner.parked);
        let turn = Arc::clone(&index.turn).lock_owned().await;
        let begun = index.unfinished();
        if begun.is_empty() {
            return Ok(None);
        }
        Ok(Some(Replaying { begun, refused: Vec::new(), index, _turn: turn }))
    }

    /// The first of these messages, whose replays were begun, as their queues take them: so many that they are not
    /// too large together, and at least one.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn returning(&self, numbers: &[i64]) -> Result<Batch, SourceError> {
        let numbers = numbers.to_vec();
        let read = self.inner.readers.read(move |connection| {
            let (mut batch, mut bytes) = (Batch::default(), 0);
            for number in numbers {
                if bytes >= MAX_BYTES {
                    break;
                }
                match returning(connection, number)? {
                    Some(message) => {
                        bytes += message.message.publication.body.len();
                        batch.messages.push(message);
                    }
                    None => batch.lost.push(number),
                }
            }
            Ok(batch)
        });
        read.await
    }

    /// Waits until there may be something to replay that nobody has asked for: what was left unfinished, or what
    /// follows a key that was replayed.
    pub async fn replay_due(&self) {
        self.inner.parked.changed.notified().await;
    }

    /// Messages that came while the earlier ones of their key were replayed, and whose turn it is now: of each such
    /// key so many at most, and of about ten keys that have so many.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn following(&self, most: usize) -> Result<Vec<i64>, SourceError> {
        let keys = self.inner.parked.following();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.inner.readers.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT number, follows FROM parked \
                 WHERE queue = ?1 AND published = ?2 AND grp = ?3 AND holds ORDER BY number LIMIT ?4",
            )?;
            let mut numbers = Vec::new();
            for key in keys {
                if numbers.len() >= most.saturating_mul(10) {
                    break;
                }
                let mut rows = statement.query(params![key.0, key.1, key.2, most])?;
                while let Some(row) = rows.next()?
                    && row.get::<_, bool>(1)?
                {
                    numbers.push(row.get(0)?);
                }
            }
            numbers.sort_unstable();
            Ok(numbers)
        });
        read.await
    }

    /// Messages that were replayed, are in their queues again and not over, by their queues.
    #[must_use]
    pub fn replays_under_way(&self) -> BTreeMap<String, BTreeSet<Arc<str>>> {
        let mut by_queue: BTreeMap<String, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (queue, id) in self.inner.parked.back() {
            by_queue.entry(queue).or_default().insert(id.into());
        }
        by_queue
    }
}

/// A message whose replay was begun, as its queue takes it. The name is one that no other replay has, and the same
/// when this one is done again.
fn returning(connection: &Connection, number: i64) -> rusqlite::Result<Option<Returning>> {
    let mut find = connection.prepare_cached(
        "SELECT parked.queue, broker_id, body, replays.at FROM parked JOIN replays USING (number) \
         WHERE number = ?1 AND stage = 0",
    )?;
    let read = |row: &SqlRow<'_>| {
        let (queue, broker_id, body): (_, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let Ok(incoming) = wire::parse_stored(&body) else { return Ok(None) };
        let (message, at): (_, i64) = (incoming.message, row.get(3)?);
        let name = format!("{}~{number}-{at}", message.id).into();
        let publication = Publication { message, body: body.into(), delay: Duration::ZERO };
        let message = PutBack { broker_id: broker_id.into(), name, publication };
        Ok(Some(Returning { number, queue, message }))
    };
    find.query_row([number], read).optional().map(Option::flatten)
}

/// A parked message, as far as it matters here.
pub(super) struct Row {
    number: i64,
    queue: String,
    pool: Option<String>,
    group: Option<String>,
    pub(super) holds: bool,
    /// The message's own id; `None` for what is no message.
    id: Option<String>,
}

impl Row {
    pub(super) fn find(connection: &Connection, number: i64) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached(
            "SELECT queue, published, grp, holds, CASE WHEN code <> ?2 THEN message_id END FROM parked \
             WHERE number = ?1",
        )?;
        let read = |row: &SqlRow<'_>| {
            let (queue, pool, group) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (holds, id) = (row.get(3)?, row.get(4)?);
            Ok(Self { number, queue, pool, group, holds, id })
        };
        statement.query_row(params![number, ParkedCode::Malformed.label()], read).optional()
    }

    pub(super) fn key(&self) -> Option<HeldKey> {
        let (pool, group) = self.pool.clone().zip(self.group.clone())?;
        Some((self.queue.clone(), pool, group))
    }

    /// An earlier one that holds the same key and is not on its way back.
    fn earlier(&self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        let Some(key) = self.key() else { return Ok(None) };
        let first = first_of(connection, &key)?;
        Ok(first.map(|first| first.number).filter(|&number| number < self.number))
    }
}

struct Begin {
    index: Arc<ParkedIndex>,
    /// In order, so that none goes back before an earlier one of its key.
    numbers: BTreeSet<i64>,
    queues: HashSet<String>,
    mode: Mode,
    /// The last number of all that is to be replayed, of which these are a part.
    up_to: Option<i64>,
    now: i64,
}

/// Which of several messages are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Those that may be.
    Those,
    /// All of them, or none.
    AllOrNone,
    /// None: it is only looked whether all could be.
    Check,
}

#[derive(Default)]
struct BegunReplay {
    numbers: Vec<(i64, String)>,
    refused: Vec<ReplayError>,
    changes: Changes,
}

impl Begin {
    /// Notes one as begun. An `Err` inside says why it is not.
    fn one(
        &self,
        connection: &Connection,
        number: i64,
        begun: &mut BegunReplay,
        touched: &mut BTreeSet<HeldKey>,
    ) -> rusqlite::Result<Result<(), ReplayError>> {
        let id = number.to_string();
        let Some(row) = Row::find(connection, number)? else {
            return Ok(Err(ReplayError::NotFound { id }));
        };
        let Some(message) = &row.id else { return Ok(Err(ReplayError::Malformed { id })) };
        if !self.queues.contains(&row.queue) {
            return Ok(Err(ReplayError::NoQueue { id, queue: row.queue }));
        }
        if let Some(earlier) = row.earlier(connection)? {
            return Ok(Err(ReplayError::Behind { id, earlier: earlier.to_string() }));
        }
        let mut note = connection.prepare_cached(
            "INSERT INTO replays (number, queue, message_id, pool, grp, holds, stage, at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7) \
             ON CONFLICT (queue, message_id) DO UPDATE SET number = excluded.number, \
             pool = excluded.pool, grp = excluded.grp, holds = excluded.holds, stage = 0, \
             at = excluded.at WHERE stage = 2 ON CONFLICT (number) DO NOTHING",
        )?;
        let (pool, group) = (&row.pool, &row.group);
        let noted =
            note.execute(params![number, row.queue, message, pool, group, row.holds, self.now])?;
        if noted == 0 {
            return Ok(Err(ReplayError::Busy { id }));
        }
        let (key, holds) = (row.key(), row.holds);
        touched.extend(key.clone().filter(|_| holds));
        let name = (row.queue.clone(), message.clone());
        let replay = Replay { number, key, holds, stage: Stage::Begun };
        begun.changes.replays.push((name, replay));
        begun.numbers.push((number, row.queue));
        Ok(Ok(()))
    }
}

/// What was parked behind these keys, after those that are to be replayed were chosen, is replayed after them by itself:
/// nobody who asked for them knows of it. `docs/rules.md#park-2`.
fn follow(connection: &Connection, keys: &BTreeSet<HeldKey>, behind: i64) -> rusqlite::Result<()> {
    let mut follow = connection.prepare_cached(
        "UPDATE parked SET follows = 1 \
         WHERE queue = ?1 AND published = ?2 AND grp = ?3 AND holds AND number > ?4 AND code = ?5 \
         AND NOT follows",
    )?;
    let code = ParkedCode::KeyParked.label();
    for (queue, pool, group) in keys {
        follow.execute(params![queue, pool, group, behind, code])?;
    }
    Ok(())
}

impl Write for Begin {
    type Answer = BegunReplay;

    fn weight(&self) -> usize {
        self.numbers.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<BegunReplay> {
        let (mut begun, mut touched) = (BegunReplay::default(), BTreeSet::new());
        connection.execute_batch("SAVEPOINT replay")?;
        for &number in &self.numbers {
            let Err(refused) = self.one(connection, number, &mut begun, &mut touched)? else {
                continue;
            };
            begun.refused.push(refused);
            if self.mode != Mode::Those {
                break;
            }
        }
        let is_refused = self.mode == Mode::AllOrNone && !begun.refused.is_empty();
        if self.mode == Mode::Check || is_refused {
            connection.execute_batch("ROLLBACK TO replay; RELEASE replay")?;
            return Ok(BegunReplay { refused: begun.refused, ..BegunReplay::default() });
        }
        connection.execute_batch("RELEASE replay")?;
        if let Some(up_to) = self.up_to {
            follow(connection, &touched, up_to)?;
        }
        begun.changes.keys = firsts(connection, touched)?;
        Ok(begun)
    }

    fn written(&mut self, begun: &BegunReplay) {
        self.index.apply(&begun.changes);
    }
}
