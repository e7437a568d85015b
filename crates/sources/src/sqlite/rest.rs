//! Noting what became of messages that stay out: how often they were tried, and until when they rest.
//! `docs/rules.md#strict-7`.

use std::sync::Arc;

use rusqlite::{Connection, params};
use sluicegate_dispatch::{Reason, Rest, Settled};

use super::row::Key;
use super::store::Queue;
use super::writer::Write;

/// Deliveries whose rest is noted, in the order of the questions; `None` where the receipt is not valid.
pub(crate) struct Rests {
    pub(crate) items: Vec<Option<Resting>>,
}

pub(crate) struct Resting {
    pub(crate) seq: i64,
    pub(crate) due: Option<i64>,
    pub(crate) rest: Rest,
}

impl Write for Rests {
    type Answer = Vec<Settled>;

    fn weight(&self) -> usize {
        self.items.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Vec<Settled>> {
        let mut update = connection.prepare_cached(
            "UPDATE messages SET attempts = ?2, due = ?3, reason = ?4 WHERE seq = ?1",
        )?;
        let mut answers = Vec::with_capacity(self.items.len());
        for item in &self.items {
            let is_there = match item {
                Some(Resting { seq, due, rest: Rest { attempts, reason, .. } }) => {
                    update.execute(params![seq, attempts, due, reason.label()])? > 0
                }
                None => false,
            };
            answers.push(if is_there { Settled::Done } else { Settled::Stale });
        }
        Ok(answers)
    }
}

/// A message of high priority comes: the head of its key, if it is out, stays the head after a crash too.
pub(crate) fn hold_head(
    connection: &Connection,
    queue: &Queue,
    pool: i64,
    group: &Arc<str>,
) -> rusqlite::Result<()> {
    let key = Key { pool, group: Arc::clone(group) };
    let Some(head) = queue.ahead.lock().head_out(&key) else { return Ok(()) };
    let mut update = connection.prepare_cached(
        "UPDATE messages SET reason = ?2 \
         WHERE seq = ?1 AND attempts = 0 AND ifnull(reason, 'scheduled') = 'scheduled'",
    )?;
    update.execute(params![head, Reason::Draining.label()])?;
    Ok(())
}
