//! How far replays are: back in their queues, taken back, over. `docs/rules.md#park-2`.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};
use sluicegate_dispatch::SourceError;

use super::parked_index::{Changes, Name, ParkedIndex, Replay, Stage, first_of, firsts};
use super::store::Store;
use super::writer::Write;

/// How long it is remembered that a replayed message is over, in milliseconds: its source may deliver it once
/// more if it did not hear.
const OVER: i64 = 5 * 60 * 1000;

impl Store {
    /// The queues of these messages have them again, durably: they leave the parked list.
    ///
    /// # Errors
    /// If the state file could not be written: then they are still being replayed.
    pub async fn end_replay(&self, numbers: &[i64]) -> Result<(), SourceError> {
        self.end(numbers, true).await
    }

    /// The queues of these messages did not take them: they stay parked.
    ///
    /// # Errors
    /// If the state file could not be written: then they are still being replayed.
    pub async fn cancel_replay(&self, numbers: &[i64]) -> Result<(), SourceError> {
        self.end(numbers, false).await
    }

    async fn end(&self, numbers: &[i64], is_back: bool) -> Result<(), SourceError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let (index, numbers) = (Arc::clone(&self.inner.parked), numbers.to_vec());
        self.inner.writer.write(|| End { index, numbers, is_back }).await.map(drop)
    }

    /// Forgets replays that have long been over.
    ///
    /// # Errors
    /// If the state file could not be written.
    pub async fn forget_over(&self) -> Result<(), SourceError> {
        if !self.inner.parked.has_over() {
            return Ok(());
        }
        let (index, before) = (Arc::clone(&self.inner.parked), self.inner.clock.now() - OVER);
        self.inner.writer.write(|| Forget { index, before }).await.map(drop)
    }

    pub(crate) async fn note_over(
        &self,
        queue: String,
        ids: Vec<Arc<str>>,
    ) -> Result<(), SourceError> {
        let (index, now) = (Arc::clone(&self.inner.parked), self.inner.clock.now());
        self.inner.writer.write(|| Over { index, queue, ids, now }).await.map(drop)
    }
}

/// Ends replays that were begun.
struct End {
    index: Arc<ParkedIndex>,
    numbers: Vec<i64>,
    /// Whether the queues have the messages; else they stay parked.
    is_back: bool,
}

/// A replay as the file has it.
struct Noted {
    name: Name,
    replay: Replay,
}

impl Noted {
    const COLUMNS: &str = "number, queue, message_id, pool, grp, holds, stage";

    fn read(row: &SqlRow<'_>) -> rusqlite::Result<Self> {
        let (number, queue, id): (_, String, _) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (pool, group): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
        let key = pool.zip(group).map(|(pool, group)| (queue.clone(), pool, group));
        let (holds, stage) = (row.get(5)?, Stage::of(row.get(6)?));
        let replay = Replay { number, key, holds, stage };
        Ok(Self { name: (queue, id), replay })
    }

    /// Takes its message out of the parked list.
    fn unlist(&self, connection: &Connection, changes: &mut Changes) -> rusqlite::Result<()> {
        let mut remove = connection.prepare_cached("DELETE FROM parked WHERE number = ?1")?;
        changes.count -= i64::from(remove.execute([self.replay.number])? > 0);
        Ok(())
    }

    fn forget(self, connection: &Connection, changes: &mut Changes) -> rusqlite::Result<()> {
        let mut remove = connection.prepare_cached("DELETE FROM replays WHERE number = ?1")?;
        remove.execute([self.replay.number])?;
        changes.gone.push(self.name);
        Ok(())
    }

    /// Notes how far it is.
    fn advance(
        mut self,
        connection: &Connection,
        stage: Stage,
        changes: &mut Changes,
    ) -> rusqlite::Result<()> {
        let mut update =
            connection.prepare_cached("UPDATE replays SET stage = ?2 WHERE number = ?1")?;
        update.execute([self.replay.number, stage as i64])?;
        self.replay.stage = stage;
        changes.replays.push((self.name, self.replay));
        Ok(())
    }
}

impl Write for End {
    type Answer = Changes;

    fn weight(&self) -> usize {
        self.numbers.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Changes> {
        let (mut changes, mut touched) = (Changes::default(), BTreeSet::new());
        let columns = Noted::COLUMNS;
        let mut find = connection.prepare_cached(&format!(
            "SELECT {columns} FROM replays WHERE number = ?1 AND stage = 0"
        ))?;
        for number in &self.numbers {
            // Parked again or over by now, it needs nothing more.
            let Some(noted) = find.query_row([number], Noted::read).optional()? else { continue };
            let key = noted.replay.key.clone();
            touched.extend(key.clone().filter(|_| noted.replay.holds));
            if !self.is_back {
                noted.forget(connection, &mut changes)?;
                continue;
            }
            noted.unlist(connection, &mut changes)?;
            let is_held = match &key {
                _ if noted.replay.holds => true,
                Some(key) => first_of(connection, key)?.is_some(),
                None => false,
            };
            // What holds no key, and is held up by none, is a message like others.
            if is_held {
                noted.advance(connection, Stage::Back, &mut changes)?;
            } else {
                noted.forget(connection, &mut changes)?;
            }
        }
        changes.keys = firsts(connection, touched)?;
        Ok(changes)
    }

    fn written(&mut self, changes: &Changes) {
        self.index.apply(changes);
    }
}

/// Notes that replayed messages are over.
struct Over {
    index: Arc<ParkedIndex>,
    queue: String,
    ids: Vec<Arc<str>>,
    now: i64,
}

impl Write for Over {
    type Answer = Changes;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Changes> {
        let (mut changes, mut touched) = (Changes::default(), BTreeSet::new());
        let columns = Noted::COLUMNS;
        let mut find = connection.prepare_cached(&format!(
            "UPDATE replays SET at = ?3 WHERE queue = ?1 AND message_id = ?2 AND stage < 2 \
             RETURNING {columns}"
        ))?;
        for id in &self.ids {
            let found =
                find.query_row(params![self.queue, id, self.now], Noted::read).optional()?;
            let Some(noted) = found else { continue };
            noted.unlist(connection, &mut changes)?;
            touched.extend(noted.replay.key.clone().filter(|_| noted.replay.holds));
            if noted.replay.holds {
                noted.advance(connection, Stage::Over, &mut changes)?;
            } else {
                noted.forget(connection, &mut changes)?;
            }
        }
        changes.keys = firsts(connection, touched)?;
        Ok(changes)
    }

    fn written(&mut self, changes: &Changes) {
        self.index.apply(changes);
    }
}

struct Forget {
    index: Arc<ParkedIndex>,
    before: i64,
}

impl Write for Forget {
    type Answer = Changes;

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Changes> {
        let mut changes = Changes::default();
        let mut statement = connection.prepare_cached(
            "DELETE FROM replays WHERE stage = 2 AND at < ?1 RETURNING queue, message_id",
        )?;
        let gone = statement.query_map([self.before], |row| Ok((row.get(0)?, row.get(1)?)))?;
        changes.gone = gone.collect::<Result<_, _>>()?;
        Ok(changes)
    }

    fn written(&mut self, changes: &Changes) {
        if !changes.gone.is_empty() {
            self.index.apply(changes);
        }
    }
}
