//! Parked messages that come from elsewhere, or come back: in their order, and none twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::{DEFAULT_GROUP, SourceError};

use super::parked::Columns;
use super::parked_index::{Changes, HeldKey, ParkedIndex, firsts};
use super::parked_list::ParkedRecord;
use super::store::Store;
use super::writer::{ROW_BYTES, Write};
use crate::wire;

/// What became of records that were imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// How many are parked now that were not.
    pub added: u64,
    /// How many were there already, or are on their way back to their queues.
    pub present: u64,
    /// The last number that one of them has. Given to the next call, those come behind it.
    pub last: i64,
}

impl Store {
    /// Parks messages that were exported, all or none, in their order and behind the number `last`: each with its
    /// own number where that is free and would not change their order, else at the end.
    ///
    /// # Errors
    /// If the state file could not be written.
    pub async fn import_parked(
        &self,
        records: Vec<ParkedRecord>,
        last: i64,
    ) -> Result<Imported, SourceError> {
        let index = Arc::clone(&self.inner.parked);
        let import = || Import { index, records, last };
        self.inner.writer.write(import).await.map(|(imported, _)| imported)
    }
}

struct Import {
    index: Arc<ParkedIndex>,
    records: Vec<ParkedRecord>,
    last: i64,
}

impl Import {
    fn one(
        &self,
        connection: &Connection,
        record: &ParkedRecord,
        imported: &mut Imported,
        touched: &mut BTreeSet<HeldKey>,
    ) -> rusqlite::Result<()> {
        let incoming = wire::parse_stored(&record.body).ok().filter(|_| record.is_message());
        let message = incoming.as_ref().map(|incoming| &incoming.message);
        let id = message.map(|message| &*message.id);
        if let Some(number) = present(connection, record, id)? {
            imported.present += 1;
            imported.last = imported.last.max(number);
            return Ok(());
        }
        let group = message.map(|message| message.group.as_deref().unwrap_or(DEFAULT_GROUP));
        let columns = Columns {
            queue: &record.queue,
            broker_id: &record.broker_id,
            pool: record.pool.as_deref(),
            group,
            code: &record.code,
            reason: &record.reason,
            status: record.status,
            attempts: record.attempts,
            holds: record.holds_key && message.is_some() && record.pool.is_some(),
            follows: false,
            at: record.parked_at,
            body: &record.body,
            last_error: record.last_error.as_ref(),
            message,
        };
        let own = (record.number > imported.last && is_free(connection, record.number)?)
            .then_some(record.number);
        imported.last = columns.insert(connection, own)?;
        imported.added += 1;
        touched.extend(columns.key());
        Ok(())
    }
}

/// The number of a message that is here already, or on its way back to its queue.
fn present(
    connection: &Connection,
    record: &ParkedRecord,
    id: Option<&str>,
) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(
        "SELECT number FROM parked WHERE queue = ?1 AND broker_id = ?2 \
         UNION ALL SELECT number FROM replays WHERE queue = ?1 AND message_id = ?3 AND stage < 2 LIMIT 1",
    )?;
    statement.query_row(params![record.queue, record.broker_id, id], |row| row.get(0)).optional()
}

/// Whether nothing has that number, and nothing will come back to it.
fn is_free(connection: &Connection, number: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM replays WHERE number = ?1 \
         UNION ALL SELECT 1 FROM parked WHERE number = ?1",
    )?;
    Ok(!statement.exists([number])?)
}

impl Write for Import {
    type Answer = (Imported, Changes);

    fn weight(&self) -> usize {
        let bytes: usize = self.records.iter().map(|record| record.body.len()).sum();
        self.records.len() + bytes / ROW_BYTES
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer> {
        let mut imported = Imported { last: self.last, ..Imported::default() };
        let mut touched = BTreeSet::new();
        for record in &self.records {
            self.one(connection, record, &mut imported, &mut touched)?;
        }
        let (count, keys) = (imported.added.cast_signed(), firsts(connection, touched)?);
        let changes = Changes { count, keys, ..Changes::default() };
        Ok((imported, changes))
    }

    fn written(&mut self, (_, changes): &Self::Answer) {
        self.index.apply(changes);
    }
}
