//! Noting what became of messages that stay out: how often they were tried, and until when they rest.
//! `docs/rules.md#strict-7`.

use std::sync::Arc;

use rusqlite::{Connection, params};
use sluicegate_dispatch::{Reason, Rest, Settled};
use tokio::time::Instant;

use super::row::Key;
use super::store::Queue;
use super::writer::Write;

/// Deliveries whose rest is noted, in the order of the questions; `None` where the receipt is not valid.
pub(crate) struct Rests {
    pub(crate) queue: Arc<Queue>,
    pub(crate) items: Vec<Option<Resting>>,
}

pub(crate) struct Resting {
    pub(crate) seq: i64,
    /// Until when, by either clock.
    pub(crate) until: Option<(Instant, i64)>,
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
                Some(Resting { seq, until, rest: Rest { attempts, reason, .. } }) => {
                    let due = until.map(|(_, due)| due);
                    update.execute(params![seq, attempts, due, reason.label()])? > 0
                }
                None => false,
            };
            answers.push(if is_there { Settled::Done } else { Settled::Stale });
        }
        Ok(answers)
    }

    /// What is not in the file is not known here either: whoever reads by time would not find it.
    fn written(&mut self, answers: &Vec<Settled>) {
        let mut ahead = self.queue.ahead.lock();
        for (item, answer) in self.items.iter().zip(answers) {
            if let (Some(Resting { until, rest, .. }), Settled::Done) = (item, answer) {
                ahead.rests(&rest.receipt, *until);
            }
        }
    }
}

/// A message comes that could go before the head of its key: if that is or was out, the file says so, and it stays ahead
/// of high priority after a crash too.
pub(crate) fn hold_head(
    connection: &Connection,
    queue: &Queue,
    pool: i64,
    group: &Arc<str>,
) -> rusqlite::Result<()> {
    let key = Key { pool, group: Arc::clone(group) };
    let Some(head) = queue.ahead.lock().head_held(&key) else { return Ok(()) };
    let mut update = connection.prepare_cached(
        "UPDATE messages SET reason = ?2 \
         WHERE seq = ?1 AND attempts = 0 AND ifnull(reason, 'scheduled') = 'scheduled'",
    )?;
    update.execute(params![head, Reason::Draining.label()])?;
    Ok(())
}
