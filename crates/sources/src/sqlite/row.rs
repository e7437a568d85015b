//! A message as it lies in the file, and as it is held in memory.

use std::sync::Arc;

use rusqlite::Row as SqlRow;
use sluicegate_dispatch::{DEFAULT_GROUP, Malformed, Message, Order};

use crate::wire;

/// What stays in order, where order is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) pool: Arc<str>,
    pub(crate) group: Arc<str>,
}

impl Key {
    pub(crate) fn of(message: &Message) -> Self {
        let group = message.group.clone().unwrap_or_else(|| DEFAULT_GROUP.into());
        Self { pool: Arc::clone(&message.pool), group }
    }

    /// Whether it stays in order.
    pub(crate) fn is_kept(&self, order: &Order) -> bool {
        order.keeps(&self.pool, &self.group)
    }
}

/// A message without its body.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) seq: i64,
    pub(crate) key: Key,
    pub(crate) high: bool,
    /// Not before this time.
    pub(crate) due: Option<i64>,
    /// Whether it was tried or handed back: then nothing goes before it any more.
    pub(crate) held: bool,
}

/// What is handed out of a message.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) attempts: u32,
    pub(crate) message: Result<Message, Malformed>,
    pub(crate) bytes: usize,
}

impl Head {
    /// The columns that it is read from.
    pub(crate) const COLUMNS: &str =
        "seq, pool, grp, high, due, attempts > 0 OR ifnull(reason, 'scheduled') <> 'scheduled'";

    pub(crate) fn read(row: &SqlRow<'_>) -> rusqlite::Result<Self> {
        let key = Key { pool: row.get(1)?, group: row.get(2)? };
        let (high, due, held) = (row.get(3)?, row.get(4)?, row.get(5)?);
        Ok(Self { seq: row.get(0)?, key, high, due, held })
    }
}

impl Content {
    pub(crate) fn new(attempts: u32, body: &str) -> Self {
        let message = wire::parse_stored(body).map(|incoming| incoming.message);
        Self { attempts, message, bytes: body.len() }
    }
}
