//! Appending: the check and the rows, one request after the other within the writer's transaction.
//!
//! `docs/rules.md#events-1`.

use std::sync::Arc;

use rusqlite::{Connection, params};
use sluicegate_sqlite_file::{Clock, ROW_BYTES, Write};

use super::check::{self, Checked, Known};
use super::log::Log;
use super::statements::{HEAD, INSERT_EVENT};
use super::tail::Tail;
use crate::event::SEPARATOR;
use crate::{Append, NewEvent, Position};

/// Events on their way into the file.
pub(crate) struct Appending {
    append: Arc<Append>,
    /// What is known of its condition.
    known: Known,
    clock: Clock,
    log: Arc<Log>,
    /// It was written, and is not known to be committed.
    is_open: bool,
}

/// What became of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Appended {
    /// They are there; the position of the last one.
    UpTo(i64),
    /// They are not: an event that matches the condition is there.
    Conflict(i64),
    /// They are not: the condition takes longer to check than others may be kept waiting.
    Unchecked,
}

impl Appending {
    pub(crate) fn new(append: Arc<Append>, known: Known, clock: Clock, log: Arc<Log>) -> Self {
        Self { append, known, clock, log, is_open: false }
    }

    /// The transaction that it was written in is gone, if there was one, and with it whatever others wrote in it.
    fn undo(&mut self) {
        if self.is_open {
            self.log.tail.undo();
            self.is_open = false;
        }
    }
}

impl Write for Appending {
    type Answer = Appended;

    fn weight(&self) -> usize {
        let rows = |event: &NewEvent| 1 + event.bytes() / ROW_BYTES;
        self.append.events().iter().map(rows).sum()
    }

    /// What an earlier request of the same transaction appended is seen by the check of this one.
    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Appended> {
        self.undo();
        self.is_open = true;
        let tail = &self.log.tail;
        tail.catch_up(connection, head(connection)?)?;
        if let Some(condition) = self.append.condition() {
            match check::briefly(connection, tail, condition, self.known)? {
                Checked::Holds => {}
                Checked::Conflict(position) => return Ok(Appended::Conflict(position)),
                Checked::Not => return Ok(Appended::Unchecked),
            }
        }
        let last = insert(connection, tail, self.append.events(), self.clock.now())?;
        tail.file(connection, self.append.events().len())?;
        Ok(Appended::UpTo(last))
    }

    fn written(&mut self, answer: &Appended) {
        self.is_open = false;
        self.log.tail.commit();
        if let Appended::UpTo(position) = answer {
            self.log.head.moves_to(*position);
        }
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        self.undo();
    }
}

fn insert(
    connection: &Connection,
    tail: &Tail,
    events: &[NewEvent],
    now: i64,
) -> rusqlite::Result<i64> {
    let mut insert_event = connection.prepare_cached(INSERT_EVENT)?;
    let mut tags = String::new();
    let mut position = 0;
    for event in events {
        tags.clear();
        for tag in event.tags() {
            if !tags.is_empty() {
                tags.push(SEPARATOR);
            }
            tags.push_str(tag);
        }
        // A check before has seen that it is there.
        let data = event.data().unwrap_or_default();
        insert_event.execute(params![event.event_type(), tags.as_bytes(), data, now])?;
        position = connection.last_insert_rowid();
        tail.add(position, event.event_type(), event.tags().iter().map(String::as_str));
    }
    Ok(position)
}

/// The position of the last event, or 0.
pub(crate) fn head(connection: &Connection) -> rusqlite::Result<i64> {
    let last: Option<i64> = connection.prepare_cached(HEAD)?.query_row((), |row| row.get(0))?;
    Ok(last.unwrap_or(0))
}

/// A position as it is outside.
pub(crate) fn position(number: i64) -> Position {
    Position::new(number.unsigned_abs())
}
