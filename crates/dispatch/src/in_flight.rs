//! What was received and is not settled: one entry per message, found by either of its ids.
//!
//! Invariants:
//! 1. A message is in here from its delivery until its settlement is durable, so that a second
//!    delivery of it meanwhile is always recognised.
//! 2. Both indexes change under one lock.
//! 3. The lock of the indexes is taken before that of an entry, never after.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use sluicegate_schedule::ItemId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{Delivery, Message, Reason, Receipt};

/// The messages of one queue that are here.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    indexes: Mutex<Indexes>,
    /// Told when a message is settled, and somebody waits for fewer.
    fewer: Notify,
}

#[derive(Debug, Default)]
struct Indexes {
    /// How many came so far.
    arrived: u64,
    by_broker_id: HashMap<Arc<str>, Arc<Tracked>, RandomState>,
    by_id: HashMap<Arc<str>, Arc<Tracked>, RandomState>,
}

/// A message that is here.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) broker_id: Arc<str>,
    pub(crate) message: Message,
    pub(crate) received: Instant,
    /// Which one it was of those that came to its queue.
    arrival: u64,
    standing: Mutex<Standing>,
}

/// What changes about a message while it is here.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) receipt: Receipt,
    pub(crate) attempts: u32,
    /// Its pool and its place there, once it has one.
    pub(crate) place: Option<Place>,
    pub(crate) now: Now,
}

/// Where a message waits or runs. A pool's successor of the same code is another pool, and numbers its
/// items anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) code: Arc<str>,
    pub(crate) pool: PoolId,
    pub(crate) item: ItemId,
}

/// A pool among all that ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolId(u64);

impl PoolId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Memory::Relaxed))
    }
}

/// What a message is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    Waiting,
    Running { since: Instant },
    Retrying { until: Instant, reason: Reason, breaker: Option<Arc<str>> },
    Blocked,
    Settling,
}

/// What a delivery turned out to be.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The first of its message.
    New(Arc<Tracked>),
    /// The same message again. The receipt it came with is the valid one from now on.
    Redelivered,
    /// Another copy of a message that is here.
    Requeued,
}

impl InFlight {
    /// Takes a delivery in: docs/rules.md#dedupe-1 and docs/rules.md#dedupe-2.
    pub(crate) fn begin(
        &self,
        broker_id: Arc<str>,
        receipt: Receipt,
        attempts: u32,
        message: Message,
        now: Instant,
    ) -> Begun {
        let mut indexes = self.indexes.lock();
        let Indexes { arrived, by_broker_id, by_id } = &mut *indexes;
        let place = match by_broker_id.entry(Arc::clone(&broker_id)) {
            Entry::Vacant(place) => place,
            Entry::Occupied(known) => {
                known.get().standing.lock().receipt = receipt;
                return Begun::Redelivered;
            }
        };
        let Entry::Vacant(place_by_id) = by_id.entry(Arc::clone(&message.id)) else {
            return Begun::Requeued;
        };
        let standing = Standing { receipt, attempts, place: None, now: Now::Waiting };
        let standing = Mutex::new(standing);
        *arrived += 1;
        let arrival = *arrived;
        let tracked = Arc::new(Tracked { broker_id, message, received: now, arrival, standing });
        place_by_id.insert(Arc::clone(&tracked));
        place.insert(Arc::clone(&tracked));
        Begun::New(tracked)
    }

    /// Forgets a message: its settlement is durable, or it is the source's again.
    pub(crate) fn end(&self, tracked: &Tracked) {
        let mut indexes = self.indexes.lock();
        indexes.by_broker_id.remove(&tracked.broker_id);
        indexes.by_id.remove(&tracked.message.id);
        drop(indexes);
        self.fewer.notify_waiters();
    }

    /// Whether the message of a delivery, by either of its ids, runs here or is going to. What only
    /// waits to be settled is over.
    pub(crate) fn runs(&self, delivery: &Delivery) -> bool {
        let indexes = self.indexes.lock();
        let by_id = |message: &Message| indexes.by_id.get(&message.id);
        let known = indexes.by_broker_id.get(&delivery.broker_id);
        let known = known.or_else(|| delivery.message.as_ref().ok().and_then(by_id));
        known.is_some_and(|tracked| tracked.standing.lock().now != Now::Settling)
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Tracked>> {
        self.indexes.lock().by_id.get(id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.indexes.lock().by_broker_id.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until none is here.
    pub(crate) async fn emptied(&self) {
        self.at_most(0).await;
    }

    /// Waits until so many are here, or fewer.
    pub(crate) async fn at_most(&self, count: usize) {
        loop {
            let mut fewer = std::pin::pin!(self.fewer.notified());
            fewer.as_mut().enable();
            if self.len() <= count {
                return;
            }
            fewer.await;
        }
    }

    /// All of them, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<Arc<Tracked>> {
        let mut all: Vec<_> = self.indexes.lock().by_broker_id.values().cloned().collect();
        all.sort_unstable_by_key(|tracked| tracked.arrival);
        all
    }
}

impl Tracked {
    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Standing) -> R) -> R {
        change(&mut self.standing.lock())
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.standing.lock().attempts
    }

    pub(crate) fn receipt(&self) -> Receipt {
        self.standing.lock().receipt.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    fn message(id: &str) -> Message {
        Message {
            id: id.into(),
            pool: "P".into(),
            group: None,
            tenant: None,
            high_priority: false,
            target: Target::parse("http://127.0.0.1:1/").expect("a target"),
            auth_token: None,
            payload: None,
            traceparent: None,
            unknown_fields: Box::default(),
        }
    }

    fn begin(in_flight: &InFlight, broker_id: &str, id: &str, tag: u64) -> Begun {
        let receipt = Receipt { tag, ..Receipt::default() };
        in_flight.begin(broker_id.into(), receipt, 0, message(id), Instant::now())
    }

    /// docs/rules.md#dedupe-1, docs/rules.md#dedupe-2
    #[test]
    fn a_second_delivery_replaces_the_receipt_and_a_copy_is_recognised() {
        let in_flight = InFlight::default();
        let Begun::New(first) = begin(&in_flight, "b1", "m1", 1) else { panic!("new") };
        assert!(matches!(begin(&in_flight, "b1", "m1", 2), Begun::Redelivered));
        assert_eq!(first.receipt().tag, 2);
        assert!(matches!(begin(&in_flight, "b2", "m1", 3), Begun::Requeued));
        assert_eq!((in_flight.len(), first.receipt().tag), (1, 2));
        in_flight.end(&first);
        assert_eq!(in_flight.len(), 0);
        assert!(matches!(begin(&in_flight, "b2", "m1", 3), Begun::New(_)));
    }
}
