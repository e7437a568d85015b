//! Taking a message out of its queue by hand, wherever in it it waits.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use sluicegate_dispatch::{Discarded, SourceError};
use tokio::time::Instant;

use super::read_ahead::Leaving;
use super::row::Key;
use super::store::{Inner, Queue};
use super::writer::Write;

/// Takes a message out, durably, unless it is handed out.
pub(crate) async fn take_out(
    store: &Inner,
    queue: &Arc<Queue>,
    id: &str,
) -> Result<Discarded, SourceError> {
    let (number, id) = (queue.id, id.to_owned());
    let found = store.readers.read(move |connection| find(connection, number, &id)).await?;
    let Some(leaving) = found else { return Ok(Discarded::NotFound) };
    let seq = leaving.seq;
    let write = || {
        let begun = queue.ahead.lock().begin_leaving(leaving, Instant::now());
        TakeOut { queue: Arc::clone(queue), seq: begun.then_some(seq) }
    };
    store.writer.write(write).await
}

fn find(connection: &Connection, queue: i64, id: &str) -> rusqlite::Result<Option<Leaving>> {
    let mut statement = connection.prepare_cached(
        "SELECT m.seq, m.lane, m.pool, m.grp, lanes.code, m.high FROM ids \
         JOIN messages m ON m.seq = ids.seq JOIN lanes ON lanes.id = m.lane \
         WHERE ids.queue = ?1 AND ids.id = ?2",
    )?;
    let read = |row: &Row<'_>| {
        let key = Key { pool: row.get(2)?, group: row.get(3)? };
        Ok(Leaving::new(row.get(0)?, row.get(1)?, key, row.get(4)?, row.get(5)?))
    };
    statement.query_row(params![queue, id], read).optional()
}

/// A message that is being taken out. While it is, it is not handed out.
struct TakeOut {
    queue: Arc<Queue>,
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
        let mut delete = connection.prepare_cached("DELETE FROM messages WHERE seq = ?1")?;
        if delete.execute([seq])? == 0 {
            return Ok(Discarded::NotFound);
        }
        let mut count =
            connection.prepare_cached("UPDATE queues SET stored = stored - 1 WHERE id = ?1")?;
        count.execute([self.queue.id])?;
        Ok(Discarded::Done)
    }

    fn written(&mut self, _: &Discarded) {
        self.end(true);
    }
}

impl TakeOut {
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
