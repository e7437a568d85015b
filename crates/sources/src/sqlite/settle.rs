//! Settling deliveries: one write for a whole batch of them.

use std::sync::Arc;

use rusqlite::{Connection, params};
use sluicegate_dispatch::{Ending, Settled};

use super::clock::Clock;
use super::front::Back;
use super::store::Queue;
use super::writer::Write;

/// Deliveries that are being settled. Those that could not be are out as before.
pub(crate) struct Settlements {
    pub(crate) queue: Arc<Queue>,
    /// In the order of the questions; `None` where the receipt is not valid.
    pub(crate) items: Vec<Option<(i64, Ending)>>,
    pub(crate) now: i64,
    pub(crate) is_written: bool,
}

impl Settlements {
    /// When a delivery that ends like this comes again.
    fn back(&self, ending: Ending) -> Back {
        match ending {
            Ending::Gone => Back::Gone,
            Ending::Again { after, .. } if after.is_zero() => Back::Now,
            Ending::Again { after, .. } => Back::At(Clock::after(self.now, after)),
        }
    }
}

impl Write for Settlements {
    type Answer = Vec<Settled>;

    fn rows(&self) -> usize {
        self.items.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Vec<Settled>> {
        let mut delete = connection.prepare_cached("DELETE FROM messages WHERE seq = ?1")?;
        let mut update = connection.prepare_cached(
            "UPDATE messages SET attempts = ?2, due = ?3, reason = ?4 WHERE seq = ?1",
        )?;
        let mut deleted = 0;
        for &(seq, ending) in self.items.iter().flatten() {
            if let Ending::Again { attempts, reason, .. } = ending {
                let due = if let Back::At(due) = self.back(ending) { Some(due) } else { None };
                update.execute(params![seq, attempts, due, reason.label()])?;
            } else {
                deleted += delete.execute([seq])?;
                self.queue.parked.forget(connection, seq)?;
            }
        }
        if deleted > 0 {
            let mut count = connection
                .prepare_cached("UPDATE queues SET stored = stored - ?1 WHERE id = ?2")?;
            count.execute(params![deleted, self.queue.id])?;
        }
        let settled =
            |item: &Option<_>| if item.is_some() { Settled::Done } else { Settled::Stale };
        Ok(self.items.iter().map(settled).collect())
    }

    fn written(&mut self, _answer: &Vec<Settled>) {
        self.is_written = true;
        let mut front = self.queue.front.lock();
        for &(seq, ending) in self.items.iter().flatten() {
            front.back(seq, self.back(ending));
            if ending == Ending::Gone {
                self.queue.parked.forgotten(seq);
            }
        }
        drop(front);
        self.queue.changed.notify_waiters();
    }
}

/// Whatever kept it from being written: the receipts are valid as before.
impl Drop for Settlements {
    fn drop(&mut self) {
        if self.is_written {
            return;
        }
        let mut front = self.queue.front.lock();
        for &(seq, _) in self.items.iter().flatten() {
            front.not_settled(seq);
        }
        drop(front);
        self.queue.changed.notify_waiters();
    }
}
