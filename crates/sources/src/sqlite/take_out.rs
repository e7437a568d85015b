//! Taking a message out of its queue by hand, wherever in it it waits.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use sluicegate_dispatch::{Discarded, SourceError};
use tokio::time::Instant;

use super::put_back::occupant;
use super::read_ahead::Leaving;
use super::row::{Key, has_id};
use super::store::{Inner, Queue};
use super::writer::Write;

/// Takes a message out, durably, unless it is handed out.
pub(crate) async fn take_out(
    store: &Inner,
    queue: &Arc<Queue>,
    id: &str,
) -> Result<Discarded, SourceError> {
    let (number, of) = (queue.id, id.to_owned());
    let found = store.readers.read(move |connection| find(connection, number, &of)).await?;
    let Some(leaving) = found else { return Ok(Discarded::NotFound) };
    store.writer.write(|| TakeOut::begin(queue, id, leaving, Instant::now())).await
}

pub(super) fn find(
    connection: &Connection,
    queue: i64,
    id: &str,
) -> rusqlite::Result<Option<Leaving>> {
    let mut statement = connection.prepare_cached(
        "SELECT m.seq, m.lane, m.pool, m.grp, m.high, m.body \
         FROM ids JOIN messages m ON m.seq = ids.seq WHERE ids.queue = ?1 AND ids.id = ?2",
    )?;
    let read = |row: &Row<'_>| {
        let key = Key { pool: row.get(2)?, group: row.get(3)? };
        let leaving = Leaving::new(row.get(0)?, row.get(1)?, key, row.get(4)?);
        Ok(has_id(row.get_ref(5)?.as_str()?, id).then_some(leaving))
    };
    Ok(statement.query_row(params![queue, id], read).optional()?.flatten())
}

/// A message that is being taken out. While it is, it is not handed out.
pub(super) struct TakeOut {
    queue: Arc<Queue>,
    id: Box<str>,
    /// `None` if it was handed out before, or once it is over.
    seq: Option<i64>,
}

impl Write for TakeOut {
    type Answer = Discarded;

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Discarded> {
        let Some(seq) = self.seq else { return Ok(Discarded::Out) };
        // Since it was looked for it may be over, and its number another's.
        if occupant(connection, seq)?.as_deref() != Some(&*self.id) {
            return Ok(Discarded::NotFound);
        }
        connection.prepare_cached("DELETE FROM messages WHERE seq = ?1")?.execute([seq])?;
        let mut count =
            connection.prepare_cached("UPDATE queues SET stored = stored - 1 WHERE id = ?1")?;
        count.execute([self.queue.id])?;
        Ok(Discarded::Done)
    }

    fn written(&mut self, discarded: &Discarded) {
        self.end(*discarded == Discarded::Done);
    }
}

impl TakeOut {
    /// From now on it is not handed out, unless it was before.
    pub(super) fn begin(queue: &Arc<Queue>, id: &str, leaving: Leaving, now: Instant) -> Self {
        let seq = leaving.seq;
        let begun = queue.ahead.lock().begin_leaving(leaving, now);
        Self { queue: Arc::clone(queue), id: id.into(), seq: begun.then_some(seq) }
    }

    #[cfg(test)]
    pub(super) const fn is_begun(&self) -> bool {
        self.seq.is_some()
    }

    fn end(&mut self, is_gone: bool) {
        if let Some(seq) = self.seq.take() {
            self.queue.ahead.lock().left(seq, is_gone);
            self.queue.changed.notify_waiters();
        }
    }
}

/// Whatever kept it from being written: it can be handed out as before.
impl Drop for TakeOut {
    fn drop(&mut self) {
        self.end(false);
    }
}
