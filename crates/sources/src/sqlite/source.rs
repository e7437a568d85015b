//! One queue of the state file, as a source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::params;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Discarded, Finds, Found, KeepsOrder, Order, Profile,
    Publication, PublishError, Published, PutBack, Receipt, Rest, Settle, Settled, Source,
    SourceError,
};
use sluicegate_sqlite_file::Clock;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::find::find;
use super::put_back::put_back;
use super::rest::{Resting, Rests};
use super::settle::Settlements;
use super::store::{Inner, Queue};
use super::take_out::take_out;

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);
/// Nothing is awaited for longer in one go.
const FAR: Duration = Duration::from_secs(365 * 86_400);
/// How many deliveries one call may settle.
const SETTLE_BATCH: usize = 1024;

/// A queue of a [`Store`](super::Store).
#[derive(Debug)]
pub struct SqliteSource {
    store: Arc<Inner>,
    queue: Arc<Queue>,
    visibility: Duration,
    is_stopped: AtomicBool,
}

impl SqliteSource {
    pub(crate) fn new(store: Arc<Inner>, queue: Arc<Queue>, visibility: Duration) -> Self {
        Self { store, queue, visibility, is_stopped: AtomicBool::new(false) }
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.queue.name
    }

    /// What can be handed out now, and else when to look again at the latest.
    fn look(&self, demand: &Demand) -> Result<Result<Vec<Delivery>, Option<Instant>>, SourceError> {
        let now = Instant::now();
        let time = self.store.clock.now();
        let mut ahead = self.queue.ahead.lock();
        let taken = ahead.take(now, time, self.visibility, demand);
        if taken.is_empty()
            && let Some(cause) = ahead.take_read_error()
        {
            return Err(SourceError::new(cause));
        }
        let fetch = ahead.fetch(time);
        let due = ahead.next_due().map(|due| self.store.clock.instant_of(due));
        let next = ahead.next_end().into_iter().chain(due).min();
        drop(ahead);
        if let Some(fetch) = fetch {
            self.store.readers.fetch(Arc::clone(&self.queue), fetch);
        }
        Ok(if taken.is_empty() { Err(next) } else { Ok(taken) })
    }

    async fn receive_within(
        &self,
        demand: Demand,
        wait: Duration,
    ) -> Result<Vec<Delivery>, SourceError> {
        let give_up = Instant::now() + wait;
        loop {
            let changed = self.queue.changed.notified();
            tokio::pin!(changed);
            // From here on nothing that happens is missed, though nobody waits yet.
            changed.as_mut().enable();
            let silent = Notify::new();
            let opened = demand.openings().map_or_else(|| silent.notified(), |all| all.told());
            if self.is_stopped.load(Ordering::Acquire) || demand.most() == 0 {
                return Ok(Vec::new());
            }
            // What it takes it answers at once: there is no await at which it could be dropped.
            let next = match self.look(&demand)? {
                Ok(taken) => return Ok(taken),
                Err(next) => next,
            };
            if Instant::now() >= give_up {
                return Ok(Vec::new());
            }
            let until = next.map_or(give_up, |next| next.min(give_up));
            let _idle = self.store.idle.begin();
            tokio::select! {
                () = changed => {}
                () = opened => {}
                () = sleep_until(until) => {}
            }
        }
    }

    async fn settle_all(&self, settle: Vec<Settle>) -> Result<Vec<Settled>, SourceError> {
        if settle.is_empty() {
            return Ok(Vec::new());
        }
        let write = || {
            let now = Instant::now();
            let mut ahead = self.queue.ahead.lock();
            let item = |settle: Settle| {
                ahead.begin_settling(&settle.receipt, now).map(|seq| (seq, settle.settlement))
            };
            let items = settle.into_iter().map(item).collect();
            let (queue, now) = (Arc::clone(&self.queue), self.store.clock.now());
            Settlements { queue, items, now, is_written: false }
        };
        self.store.writer.write(write).await
    }

    async fn rest_all(&self, rests: Vec<Rest>) -> Result<Vec<Settled>, SourceError> {
        let write = || {
            let (now, time) = (Instant::now(), self.store.clock.now());
            let mut ahead = self.queue.ahead.lock();
            let item = |rest: Rest| {
                let due = (!rest.after.is_zero()).then(|| Clock::after(time, rest.after));
                let until = due.map(|due| (now + rest.after.min(FAR), due));
                ahead.may_rest(&rest.receipt, now).map(|seq| Resting { seq, until, rest })
            };
            let items = rests.into_iter().map(item).collect();
            Rests { queue: Arc::clone(&self.queue), items }
        };
        self.store.writer.write(write).await
    }

    async fn count(&self) -> Result<Depth, SourceError> {
        let (queue, now) = (self.queue.id, self.store.clock.now());
        let (stored, delayed): (u64, u64) = self
            .store
            .readers
            .read(move |connection| {
                let mut statement = connection.prepare_cached(
                    "SELECT stored, (SELECT count(*) FROM messages \
                     WHERE queue = ?1 AND due IS NOT NULL AND due > ?2) FROM queues WHERE id = ?1",
                )?;
                statement.query_row(params![queue, now], |row| Ok((row.get(0)?, row.get(1)?)))
            })
            .await?;
        let mut ahead = self.queue.ahead.lock();
        let out = ahead.out(Instant::now()) as u64;
        // What rests is out, though it has a time.
        let delayed = delayed.saturating_sub(ahead.resting(now) as u64);
        Ok(Depth { waiting: stored.saturating_sub(delayed + out), delayed, out })
    }
}

impl Source for SqliteSource {
    fn profile(&self) -> Profile {
        Profile {
            keeps_order: KeepsOrder::OneByOne,
            keeps_rests: true,
            selects: true,
            finds: Finds::All,
            ..Profile::new(self.visibility, SETTLE_BATCH)
        }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(self.receive_within(demand, WAIT))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.settle_all(settle))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let now = Instant::now();
        let mut ahead = self.queue.ahead.lock();
        let extend = |receipt: &Receipt| match ahead.extend(receipt, now, self.visibility) {
            true => Settled::Done,
            false => Settled::Stale,
        };
        let answers = receipts.iter().map(extend).collect();
        Box::pin(async { Ok(answers) })
    }

    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.rest_all(rests))
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(self.count())
    }

    fn health(&self) -> Result<(), SourceError> {
        self.store.writer.failure().map_or(Ok(()), |cause| Err(SourceError::new(cause)))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.is_stopped.store(true, Ordering::Release);
        self.queue.changed.notify_waiters();
        Box::pin(async {})
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(self.store.publish(Arc::clone(&self.queue), messages))
    }

    fn put_back(&self, messages: Vec<PutBack>) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(put_back(&self.store, &self.queue, messages))
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        Box::pin(find(&self.store, &self.queue, id))
    }

    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discarded, SourceError>> {
        Box::pin(take_out(&self.store, &self.queue, id))
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.queue.ahead.lock().keep_order(order);
        self.queue.changed.notify_waiters();
    }
}
