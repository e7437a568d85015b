//! A message as it lies in the file, and as it is held in memory.

use std::sync::Arc;

use rusqlite::Row as SqlRow;
use sluicegate_dispatch::{DEFAULT_GROUP, Malformed, Message};

use crate::wire;

/// What stays in order, where order is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The number of the pool in the file.
    pub(crate) pool: i64,
    pub(crate) group: Arc<str>,
}

/// A lane that has messages which are to be read.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pub(crate) pool: i64,
    /// The pool's code.
    pub(crate) code: Arc<str>,
    pub(crate) lane: i64,
    /// Whether there are messages of high priority, and others.
    pub(crate) unread: [bool; 2],
    /// The first time of one that may not be handed out yet.
    pub(crate) due: Option<i64>,
    /// Those of high priority that can be handed out.
    pub(crate) raised: Vec<Raised>,
}

/// A message of high priority.
#[derive(Clone, Debug)]
pub(crate) struct Raised {
    pub(crate) seq: i64,
    pub(crate) lane: i64,
    pub(crate) group: Arc<str>,
}

/// A message that was put back, to be handed out at once.
#[derive(Clone, Debug)]
pub(crate) struct Returned {
    pub(crate) seq: i64,
    pub(crate) pool: i64,
    /// The pool's code.
    pub(crate) code: Arc<str>,
    pub(crate) lane: i64,
    pub(crate) group: Arc<str>,
    pub(crate) high: bool,
}

/// A message without its body.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) lane: i64,
    pub(crate) group: Arc<str>,
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

/// The group of a message as it is stored.
pub(crate) fn group_of(message: &Message) -> Arc<str> {
    message.group.clone().unwrap_or_else(|| DEFAULT_GROUP.into())
}

impl Touched {
    pub(crate) const fn new(pool: i64, code: Arc<str>, lane: i64) -> Self {
        Self { pool, code, lane, unread: [false; 2], due: None, raised: Vec::new() }
    }

    /// A message of it is to be read.
    pub(crate) fn add(&mut self, high: bool, due: Option<i64>) {
        self.unread[usize::from(!high)] = true;
        self.due = self.due.into_iter().chain(due).min();
    }
}

impl Raised {
    pub(crate) fn of(row: &Row) -> Self {
        Self { seq: row.seq, lane: row.lane, group: Arc::clone(&row.group) }
    }
}

/// Of which messages the file says that they were tried or handed back, as the index of these has it.
pub(crate) const HELD: &str = "(attempts > 0 OR ifnull(reason, 'scheduled') <> 'scheduled')";

/// Whether a message is the one that is remembered by an id: the number may have become another's since. The database
/// is not asked, which reads no JSON that is nested deeper than a thousand.
pub(crate) fn has_id(body: &str, id: &str) -> bool {
    wire::parse_stored(body).is_ok_and(|incoming| *incoming.message.id == *id)
}

impl Row {
    /// The columns that it is read from.
    pub(crate) const COLUMNS: &str =
        "seq, lane, grp, high, due, attempts > 0 OR ifnull(reason, 'scheduled') <> 'scheduled'";

    pub(crate) fn read(row: &SqlRow<'_>) -> rusqlite::Result<Self> {
        let (seq, lane, group) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (high, due, held) = (row.get(3)?, row.get(4)?, row.get(5)?);
        Ok(Self { seq, lane, group, high, due, held })
    }
}

impl Content {
    pub(crate) fn new(attempts: u32, body: &str) -> Self {
        let message = wire::parse_stored(body).map(|incoming| incoming.message);
        Self { attempts, message, bytes: body.len() }
    }
}
