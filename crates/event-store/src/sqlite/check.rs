//! Whether a condition holds.
//!
//! The writer checks it, and nobody else is written meanwhile. So it does so many steps and no more: a condition that needs
//! more is checked on a reader's thread first, as long as somebody waits for it, up to some position; then the writer has
//! only what came after that left to check. No event appears at or before a position that can be read.

use rusqlite::Connection;
use sluicegate_tasks::Context;

use super::append::head;
use super::lists::{Patience, StoredLists};
use super::search::Search;
use super::tail::{Tail, View};
use crate::AppendCondition;

/// How many steps the writer does for a condition, beside a few for each of its lists: about a millisecond.
const STEPS: usize = 256;
/// How many steps it does for each list.
const FOR_EACH: usize = 4;

/// What was found out about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It holds.
    Holds,
    /// An event is there that matches it.
    Conflict(i64),
    /// Nothing: it would take too long.
    Not,
}

/// Checks a condition within the writer's transaction, from where it is known to hold.
pub(crate) fn briefly(
    connection: &Connection,
    tail: &Tail,
    condition: &AppendCondition,
    holds_to: i64,
) -> rusqlite::Result<Checked> {
    let after = condition.after.as_i64();
    let Some(mut search) = Search::new(&condition.fail_if_events_match) else {
        return Ok(found(Some(head(connection)?).filter(|head| *head > after)));
    };
    let view = tail.writers_view();
    let steps = STEPS + FOR_EACH * search.lists();
    let mut lists = StoredLists::new(connection, &view, Patience::Steps(steps))?;
    match search.next(&mut lists, after.max(holds_to).saturating_add(1)) {
        Err(_) if lists.is_out_of_steps() => Ok(Checked::Not),
        first => Ok(found(first?)),
    }
}

/// The first event up to where a view ends that matches a condition, looked for as long as the context lasts.
pub(crate) fn patiently(
    connection: &Connection,
    cx: &Context,
    view: &View,
    condition: &AppendCondition,
    holds_to: i64,
) -> rusqlite::Result<Option<i64>> {
    let after = condition.after.as_i64();
    let Some(mut search) = Search::new(&condition.fail_if_events_match) else {
        return Ok(Some(view.up_to).filter(|last| *last > after));
    };
    // One transaction, so that the file is not locked anew for each statement.
    let _snapshot = connection.unchecked_transaction()?;
    let mut lists = StoredLists::new(connection, view, Patience::While(cx))?;
    search.next(&mut lists, after.max(holds_to).saturating_add(1))
}

fn found(first: Option<i64>) -> Checked {
    first.map_or(Checked::Holds, Checked::Conflict)
}
