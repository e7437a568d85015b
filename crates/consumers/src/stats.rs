//! What a consumer has counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a consumer has seen, at one moment. The counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Deliveries, those that came again included.
    pub received: u64,
    /// Deliveries of messages that were still here: they only brought a new receipt.
    pub redelivered: u64,
    /// Messages that were handled and acknowledged.
    pub done: u64,
    /// Messages of no event type that is handled, which were acknowledged as the consumer says.
    pub ignored: u64,
    /// Failed attempts after which another one follows.
    pub retried: u64,
    /// Messages that went to the dead letters.
    pub dead: u64,
    /// Messages that should have, where there are none: they are gone.
    pub dropped: u64,
    /// Those of both that never reached a handler.
    pub poison: u64,
    /// Settlements that came too late, since their connection was gone: the messages come again.
    pub stale: u64,
    /// Messages that were given back unhandled.
    pub handed_back: u64,
    /// Handlers that panicked.
    pub panicked: u64,
    /// Messages that are here: waiting, running or not settled yet.
    pub in_hand: u64,
    /// How many of them wait for a worker.
    pub waiting: u64,
    /// How many of them run.
    pub running: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) received: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) ignored: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) dead: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) poison: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) handed_back: AtomicU64,
    pub(crate) panicked: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    if count > 0 {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl Counters {
    pub(crate) fn snapshot(&self) -> ConsumerStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConsumerStats {
            received: of(&self.received),
            redelivered: of(&self.redelivered),
            done: of(&self.done),
            ignored: of(&self.ignored),
            retried: of(&self.retried),
            dead: of(&self.dead),
            dropped: of(&self.dropped),
            poison: of(&self.poison),
            stale: of(&self.stale),
            handed_back: of(&self.handed_back),
            panicked: of(&self.panicked),
            ..ConsumerStats::default()
        }
    }
}
