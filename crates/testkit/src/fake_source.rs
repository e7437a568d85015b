//! A source in memory: fast, deterministic, and with faults that are switched on at will.
//!
//! It keeps the contract of [`Source`], and runs through the same suite as the real ones. Time is
//! tokio's, so that it can be paused. Pools and tenants take turns, what one tenant has is in order of numbers,
//! and nothing is random.

mod ready;
mod shelf;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Finds, Found, KeepsOrder, Malformed, Order, Profile,
    Publication, PublishError, Published, PutBack, Receipt, Rest, Settle, Settled, Source,
    SourceError,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use shelf::Shelf;

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);
/// How many deliveries one call may settle.
const SETTLE_BATCH: usize = 1024;

/// What goes wrong, as often as it is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// A receive fails and hands out nothing.
    Receive,
    /// A settle fails and settles nothing.
    Settle,
    /// An extend fails and extends nothing.
    Extend,
    /// A publish fails and stores nothing.
    Publish,
    /// A settle answers that it is done, and the source forgets it.
    LoseSettle,
    /// A settle is done, and its answer is an error.
    LoseAnswer,
    /// A receive takes messages and their places, and its answer is an error.
    LoseReceived,
    /// A stop changes nothing and does not end.
    HangAtStop,
}

/// A source in memory. Clones are the same source, and each is stopped by itself.
#[derive(Debug)]
pub struct FakeSource {
    shared: Arc<Shared>,
    visibility: Duration,
    is_stopped: Arc<Mutex<bool>>,
}

#[derive(Debug, Default)]
struct Shared {
    shelf: Mutex<Shelf>,
    changed: Notify,
}

impl FakeSource {
    /// An empty source whose deliveries stay hidden for this long.
    #[must_use]
    pub fn new(visibility: Duration) -> Self {
        Self { shared: Arc::default(), visibility, is_stopped: Arc::default() }
    }

    /// Puts messages in, without a word about it and without looking for duplicates.
    pub fn push(&self, messages: impl IntoIterator<Item = Publication>) {
        let now = Instant::now();
        let mut shelf = self.shared.shelf.lock();
        for message in messages {
            shelf.push(Ok(message), now);
        }
        drop(shelf);
        self.shared.changed.notify_waiters();
    }

    /// Puts something in that is no message.
    pub fn push_malformed(&self, why: &str, raw: &str) {
        let malformed = Malformed { why: why.to_owned(), raw: raw.to_owned() };
        self.shared.shelf.lock().push(Err(malformed), Instant::now());
        self.shared.changed.notify_waiters();
    }

    /// Switches a fault on for the next `times` that it can happen.
    pub fn fail_next(&self, fault: Fault, times: u32) {
        self.shared.shelf.lock().faults.insert(fault, times);
        self.shared.changed.notify_waiters();
    }

    /// Ends the window of everything that is out: it is delivered again at once, and the receipts
    /// are stale.
    pub fn redeliver_now(&self) {
        self.shared.shelf.lock().give_all_back(Instant::now());
        self.shared.changed.notify_waiters();
    }

    /// Makes all receipts stale, while their messages stay hidden until their windows end.
    pub fn expire_receipts(&self) {
        self.shared.shelf.lock().expire_receipts();
    }

    /// The source as it is after a crash: all that is unsettled can be delivered again.
    #[must_use]
    pub fn restarted(&self) -> Self {
        let mut shelf = self.shared.shelf.lock();
        let now = Instant::now();
        shelf.give_all_back(now);
        // Whoever keeps order says so again.
        shelf.keep_order(&Arc::default(), now);
        drop(shelf);
        self.shared.changed.notify_waiters();
        let shared = Arc::clone(&self.shared);
        Self { shared, visibility: self.visibility, is_stopped: Arc::default() }
    }

    /// Hands out this message, if it can be received now: for whoever holds another source against
    /// this one, which may hand out in another order.
    #[must_use]
    pub fn receive_this(&self, broker_id: &str) -> Option<Delivery> {
        let (number, now) = (broker_id.parse().ok()?, Instant::now());
        self.shared.shelf.lock().take_this(number, now, self.visibility)
    }

    /// How many messages it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.shelf.lock().len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn receive_some(&self, demand: Demand) -> Result<Vec<Delivery>, SourceError> {
        let give_up = Instant::now() + WAIT;
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let silent = Notify::new();
            let opened = demand.openings().map_or_else(|| silent.notified(), |all| all.told());
            if *self.is_stopped.lock() || demand.most() == 0 {
                return Ok(Vec::new());
            }
            let now = Instant::now();
            let next = {
                let mut shelf = self.shared.shelf.lock();
                shelf.fault(Fault::Receive)?;
                let taken = shelf.take(now, self.visibility, &demand);
                if !taken.is_empty() {
                    return shelf.fault(Fault::LoseReceived).map(|()| taken);
                }
                if now >= give_up {
                    return Ok(taken);
                }
                shelf.next_change()
            };
            let until = next.map_or(give_up, |next| next.min(give_up));
            tokio::select! {
                () = changed => {}
                () = opened => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn settle_now(&self, settle: &[Settle]) -> Result<Vec<Settled>, SourceError> {
        let now = Instant::now();
        let mut shelf = self.shared.shelf.lock();
        shelf.fault(Fault::Settle)?;
        let is_lost = shelf.fault(Fault::LoseSettle).is_err();
        let settled = settle.iter().map(|settle| shelf.settle(settle, now, is_lost)).collect();
        let answer = shelf.fault(Fault::LoseAnswer);
        drop(shelf);
        self.shared.changed.notify_waiters();
        answer.map(|()| settled)
    }

    fn extend_now(&self, receipts: &[Receipt]) -> Result<Vec<Settled>, SourceError> {
        let now = Instant::now();
        let mut shelf = self.shared.shelf.lock();
        shelf.fault(Fault::Extend)?;
        Ok(receipts.iter().map(|receipt| shelf.extend(receipt, now, self.visibility)).collect())
    }

    fn publish_now(&self, messages: Vec<Publication>) -> Result<Published, PublishError> {
        let now = Instant::now();
        let mut shelf = self.shared.shelf.lock();
        shelf.fault(Fault::Publish).map_err(PublishError::Source)?;
        let accepted = messages.len() as u64;
        let is_new = |message: Publication| shelf.publish(message, now);
        let stored = messages.into_iter().map(is_new).filter(|is_new| *is_new).count() as u64;
        drop(shelf);
        self.shared.changed.notify_waiters();
        Ok(Published { accepted, duplicates: accepted - stored })
    }
}

impl Clone for FakeSource {
    fn clone(&self) -> Self {
        let (shared, is_stopped) = (Arc::clone(&self.shared), Arc::clone(&self.is_stopped));
        Self { shared, visibility: self.visibility, is_stopped }
    }
}

impl Source for FakeSource {
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
        Box::pin(self.receive_some(demand))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { self.settle_now(&settle) })
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { self.extend_now(&receipts) })
    }

    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let now = Instant::now();
        let mut shelf = self.shared.shelf.lock();
        let answers = match shelf.fault(Fault::Settle) {
            Ok(()) => Ok(rests.iter().map(|rest| shelf.rest(rest, now)).collect()),
            Err(error) => Err(error),
        };
        drop(shelf);
        Box::pin(async { answers })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(async { Ok(self.shared.shelf.lock().depth(Instant::now())) })
    }

    fn health(&self) -> Result<(), SourceError> {
        self.shared.shelf.lock().last_failure.clone().map_or(Ok(()), Err)
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        if self.shared.shelf.lock().fault(Fault::HangAtStop).is_err() {
            return Box::pin(std::future::pending());
        }
        *self.is_stopped.lock() = true;
        self.shared.changed.notify_waiters();
        Box::pin(async {})
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(async { self.publish_now(messages) })
    }

    fn put_back(&self, messages: Vec<PutBack>) -> BoxFuture<'_, Result<(), PublishError>> {
        let now = Instant::now();
        let mut shelf = self.shared.shelf.lock();
        for PutBack { name, publication, .. } in messages {
            shelf.put_back(name, publication, now);
        }
        drop(shelf);
        self.shared.changed.notify_waiters();
        Box::pin(async { Ok(()) })
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        Box::pin(async { Ok(self.shared.shelf.lock().find(id, Instant::now())) })
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.shared.shelf.lock().keep_order(order, Instant::now());
        self.shared.changed.notify_waiters();
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fault that was switched on: {self:?}")
    }
}
