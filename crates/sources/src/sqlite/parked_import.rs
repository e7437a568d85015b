//! Parked messages that come from elsewhere, or come back: in their order, and none twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::{DEFAULT_GROUP, Message, SourceError};

use super::parked::Columns;
use super::parked_index::{Changes, HeldKey, ParkedIndex, firsts};
use super::parked_list::ParkedRecord;
use super::store::Store;
use super::writer::{ROW_BYTES, Write};
use crate::wire;

/// What the names of messages from elsewhere begin with.
const FOREIGN: &str = "import:";

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
    /// Parks messages that were exported, all or none, in their order and behind the number `last`: each with the
    /// number it had where this file has given that once, it is free and would not change their order; else at the
    /// end.
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
        if let Some(number) = present(connection, record, message)? {
            imported.present += 1;
            imported.last = imported.last.max(number);
            return Ok(());
        }
        let group = message.map(|message| message.group.as_deref().unwrap_or(DEFAULT_GROUP));
        let columns = Columns {
            queue: &record.queue,
            broker_id: &foreign_name(record),
            pool: record.pool.as_deref(),
            group,
            code: &record.code,
            reason: &record.reason,
            status: record.status,
            attempts: record.attempts,
            holds: record.holds_key && message.is_some(),
            follows: false,
            at: record.parked_at,
            body: &record.body,
            last_error: record.last_error.as_ref(),
            message,
        };
        let number = record.number;
        let own = number > imported.last && may_have(connection, number)?;
        let own = own.then_some(number);
        imported.last = columns.insert(connection, own)?;
        imported.added += 1;
        touched.extend(columns.key());
        Ok(())
    }
}

/// What a message that came from elsewhere is called by: what its source called it there may be the name of
/// another message here.
fn foreign_name(record: &ParkedRecord) -> String {
    if record.broker_id.starts_with(FOREIGN) {
        return record.broker_id.clone();
    }
    format!("{FOREIGN}{}@{}", record.broker_id, record.parked_at)
}

/// The number of a message that is here already, or on its way back to its queue.
fn present(
    connection: &Connection,
    record: &ParkedRecord,
    message: Option<&Message>,
) -> rusqlite::Result<Option<i64>> {
    // With those that were numbered to keep them apart, as in `name#2`.
    let mut candidates = connection.prepare_cached(
        "SELECT number, body FROM parked WHERE queue = ?1 AND broker_id = ?2 AND at = ?4 \
         UNION ALL SELECT number, body FROM parked \
         WHERE queue = ?1 AND broker_id >= ?3 AND broker_id < ?3 || '$' AND at = ?4 \
         UNION ALL SELECT number, body FROM parked INDEXED BY parked_message \
         WHERE message_id = ?5 AND queue = ?1 AND at = ?4",
    )?;
    let id = message.map(|message| &*message.id);
    let names = (&record.broker_id, foreign_name(record));
    let mut rows =
        candidates.query(params![record.queue, names.0, names.1, record.parked_at, id])?;
    while let Some(row) = rows.next()? {
        if is_same(record, message, row.get_ref(1)?.as_str()?) {
            return row.get(0).map(Some);
        }
    }
    let mut returning = connection.prepare_cached(
        "SELECT number FROM replays WHERE queue = ?1 AND message_id = ?2 AND stage = 1",
    )?;
    returning.query_row(params![record.queue, id], |row| row.get(0)).optional()
}

/// Whether a message is the one that is kept as this, its token aside: an export may be without.
fn is_same(record: &ParkedRecord, message: Option<&Message>, kept: &str) -> bool {
    let Some(message) = message else {
        return wire::redacted(&record.body) == wire::redacted(kept);
    };
    let kept = wire::parse_stored(kept).map(|incoming| incoming.message);
    kept.is_ok_and(|kept| without_token(kept) == without_token(message.clone()))
}

fn without_token(message: Message) -> Message {
    Message { auth_token: None, unknown_fields: Box::default(), ..message }
}

/// Whether this file has given that number once, nothing has it, and nothing will come back to it. Numbers that it
/// has not given are never taken from elsewhere: the highest there is would leave none for what is parked later.
fn may_have(connection: &Connection, number: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM sqlite_sequence WHERE name = 'parked' AND seq >= ?1 \
         AND NOT EXISTS (SELECT 1 FROM replays WHERE number = ?1) \
         AND NOT EXISTS (SELECT 1 FROM parked WHERE number = ?1)",
    )?;
    Ok(number > 0 && statement.exists([number])?)
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
