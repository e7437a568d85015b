//! Settling deliveries: one write for a whole batch of them. `docs/rules.md#settle-1`.

use std::sync::Arc;

use rusqlite::{Connection, params, params_from_iter};
use sluicegate_dispatch::{Settled, Settlement};
use sluicegate_sqlite_file::Clock;

use super::read_ahead::Back;
use super::store::Queue;
use super::writer::Write;

/// How many messages one statement deletes, at most. There is one for each power of two.
const MOST_DELETED: usize = 128;

/// Deliveries that are being settled. Those that could not be are out as before.
pub(crate) struct Settlements {
    pub(crate) queue: Arc<Queue>,
    /// In the order of the questions; `None` where the receipt is not valid.
    pub(crate) items: Vec<Option<(i64, Settlement)>>,
    pub(crate) now: i64,
    pub(crate) is_written: bool,
}

impl Settlements {
    /// When a delivery that ends like this comes again.
    fn back(&self, settlement: Settlement) -> Back {
        match settlement {
            Settlement::Ack | Settlement::Park => Back::Gone,
            Settlement::Retry { after, .. } if after.is_zero() => Back::Now,
            Settlement::Retry { after, .. } => Back::At(Clock::after(self.now, after)),
        }
    }

    /// As many as can be in each statement: one for each would find its way into every index anew. They are named one by
    /// one: a list that is bound as a whole is gone through twice.
    fn delete(&self, connection: &Connection, gone: &mut [i64]) -> rusqlite::Result<()> {
        gone.sort_unstable();
        let (mut left, mut deleted) = (&*gone, 0);
        while !left.is_empty() {
            let (now, later) = left.split_at(1 << left.len().min(MOST_DELETED).ilog2());
            let sql =
                format!("DELETE FROM messages WHERE seq IN ({})", vec!["?"; now.len()].join(","));
            deleted += connection.prepare_cached(&sql)?.execute(params_from_iter(now))?;
            left = later;
        }
        let sql = "UPDATE queues SET stored = stored - ?1 WHERE id = ?2";
        connection.prepare_cached(sql)?.execute(params![deleted, self.queue.id])?;
        Ok(())
    }
}

impl Write for Settlements {
    type Answer = Vec<Settled>;

    fn weight(&self) -> usize {
        self.items.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Vec<Settled>> {
        let mut update = connection.prepare_cached(
            "UPDATE messages SET attempts = ?2, due = ?3, reason = ?4 WHERE seq = ?1",
        )?;
        let mut gone: Vec<i64> = Vec::with_capacity(self.items.len());
        let mut settled = Vec::with_capacity(self.items.len());
        for item in &self.items {
            let Some((seq, settlement)) = *item else {
                settled.push(Settled::Stale);
                continue;
            };
            let is_there = if let Settlement::Retry { attempts, reason, .. } = settlement {
                let due = if let Back::At(due) = self.back(settlement) { Some(due) } else { None };
                update.execute(params![seq, attempts, due, reason.label()])? > 0
            } else {
                gone.push(seq);
                true
            };
            settled.push(if is_there { Settled::Done } else { Settled::Stale });
        }
        if !gone.is_empty() {
            self.delete(connection, &mut gone)?;
        }
        Ok(settled)
    }

    fn written(&mut self, settled: &Vec<Settled>) {
        self.is_written = true;
        let mut ahead = self.queue.ahead.lock();
        for (item, settled) in self.items.iter().zip(settled) {
            let Some((seq, settlement)) = *item else { continue };
            // What someone else deleted does not come back.
            let is_gone = self.back(settlement) == Back::Gone || *settled == Settled::Stale;
            ahead.back(seq, if is_gone { Back::Gone } else { self.back(settlement) });
        }
        drop(ahead);
        self.queue.changed.notify_waiters();
    }
}

/// Whatever kept it from being written: the receipts are valid as before.
impl Drop for Settlements {
    fn drop(&mut self) {
        if self.is_written {
            return;
        }
        let mut ahead = self.queue.ahead.lock();
        for &(seq, _) in self.items.iter().flatten() {
            ahead.not_settled(seq);
        }
        drop(ahead);
        self.queue.changed.notify_waiters();
    }
}
