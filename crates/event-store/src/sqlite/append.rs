//! Appending: the check and the rows, one request after the other within the writer's transaction.

use std::sync::Arc;

use rusqlite::{Connection, params};
use sluicegate_sqlite_file::{Clock, ROW_BYTES, Write};

use super::head::Head;
use super::lists::StoredLists;
use super::search::{Search, tag_key, type_key};
use super::statements::{HEAD, INSERT_EVENT, INSERT_KEY};
use crate::event::SEPARATOR;
use crate::{Append, AppendCondition, NewEvent, Position};

/// Events on their way into the file.
pub(crate) struct Appending {
    pub(crate) append: Append,
    pub(crate) clock: Clock,
    pub(crate) head: Arc<Head>,
}

/// What became of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Appended {
    /// They are there; the position of the last one.
    UpTo(i64),
    /// They are not: an event that matches the condition is there.
    Conflict(i64),
}

impl Write for Appending {
    type Answer = Appended;

    fn weight(&self) -> usize {
        let rows = |event: &NewEvent| 1 + event.bytes() / ROW_BYTES;
        self.append.events().iter().map(rows).sum()
    }

    /// What an earlier request of the same transaction appended is seen by the check of this one.
    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Appended> {
        if let Some(condition) = self.append.condition()
            && let Some(position) = conflict(connection, condition)?
        {
            return Ok(Appended::Conflict(position));
        }
        insert(connection, self.append.events(), self.clock.now()).map(Appended::UpTo)
    }

    fn written(&mut self, answer: &Appended) {
        if let Appended::UpTo(position) = answer {
            self.head.moves_to(*position);
        }
    }
}

/// The position of an event that matches the condition.
fn conflict(connection: &Connection, condition: &AppendCondition) -> rusqlite::Result<Option<i64>> {
    let after = condition.after.as_i64();
    let Some(mut search) = Search::new(&condition.fail_if_events_match) else {
        return Ok(head(connection)?.filter(|head| *head > after));
    };
    search.next(&mut StoredLists::new(connection, None)?, after.saturating_add(1))
}

fn insert(connection: &Connection, events: &[NewEvent], now: i64) -> rusqlite::Result<i64> {
    let mut insert_event = connection.prepare_cached(INSERT_EVENT)?;
    let mut insert_key = connection.prepare_cached(INSERT_KEY)?;
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
        insert_key.execute(params![type_key(event.event_type()), position])?;
        for tag in event.tags() {
            insert_key.execute(params![tag_key(tag), position])?;
        }
    }
    Ok(position)
}

/// The position of the last event, if there is one.
pub(crate) fn head(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(HEAD)?.query_row((), |row| row.get(0))
}

/// A position as it is outside.
pub(crate) fn position(number: i64) -> Position {
    Position::new(number.unsigned_abs())
}
