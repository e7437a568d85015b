//! A message on its way through pools, and those that came with it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_schedule::ItemId;
use tokio::time::Instant;

use crate::intake::Held;
use crate::routed::{PoolId, Routed};
use crate::{Reason, Settlement};

/// A message in a pool.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) held: Held<Routed>,
    /// In which order it was let in, among all of its pool.
    pub(crate) number: u64,
    /// Whether it has a key where it is. One that has none was let in while it needed none.
    pub(crate) has_key: bool,
    pub(crate) past: Past,
}

/// What a message brings along, from one place to the next.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Those of its group that were received with it, if there are any and that matters.
    pub(crate) batch: Batch,
    /// Whether it was tried here and is to be tried again: then nothing of its group goes before it.
    pub(crate) is_head: bool,
    /// What it still rests for, when its turn comes.
    pub(crate) rest: Option<Rest>,
}

/// Until when a message rests, and why.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) until: Instant,
    pub(crate) reason: Reason,
    pub(crate) breaker: Option<Arc<str>>,
}

/// Those that came with a message, if it matters.
pub(crate) type Batch = Option<Arc<BatchGroup>>;

/// The messages that came in one batch and are of one group.
///
/// A failure takes the places that are known by then. One that becomes known later is told, and one
/// that runs before that looks first: so none runs after a failure, whatever the interleaving.
#[derive(Debug, Default)]
pub(crate) struct BatchGroup {
    state: Mutex<BatchState>,
}

#[derive(Debug, Default)]
struct BatchState {
    failed: bool,
    places: Vec<(PoolId, ItemId)>,
}

impl Item {
    /// A message that goes to a pool.
    pub(crate) const fn new(held: Held<Routed>, past: Past) -> Self {
        Self { held, number: 0, has_key: false, past }
    }

    /// In another pool it is tried at once.
    pub(crate) fn at_once(mut self) -> Self {
        self.past.rest = None;
        self
    }

    /// Whether its source hands out nothing else of its key while it is here: then it may go back.
    pub(crate) fn comes_alone(&self) -> bool {
        self.held.source().keeps_order.one_by_one()
    }

    /// Hands the message back, with the rest of its delay where its source may keep that and its order.
    pub(crate) fn drain(self) {
        let rest = match &self.past.rest {
            Some(Rest { until, reason: Reason::Failed, .. })
                if self.held.source().keeps_order.across_batches() =>
            {
                until.saturating_duration_since(Instant::now())
            }
            _ => Duration::ZERO,
        };
        self.hand_back(rest, Reason::Draining);
    }

    /// Gives the message back to its queue, which finds a place for it.
    pub(crate) fn give_back(self) {
        self.held.give_back(self.past);
    }

    /// Hands the message back for a reason that is not an attempt, unless somebody has acknowledged it.
    pub(crate) fn hand_back(self, after: Duration, reason: Reason) {
        let entry = &self.held.tracked().entry;
        if entry.is_acked_replay() {
            self.held.settle_replayed(());
        } else if entry.is_acked() {
            self.held.settle(Settlement::Ack);
        } else {
            self.held.hand_back(after, reason);
        }
    }
}

impl BatchGroup {
    /// Remembers a place. `false` if one of them has failed already.
    pub(crate) fn record(&self, pool: PoolId, id: ItemId) -> bool {
        let mut state = self.state.lock();
        state.places.push((pool, id));
        !state.failed
    }

    /// Says that one of them failed, and takes the places of all.
    pub(crate) fn fail(&self) -> Vec<(PoolId, ItemId)> {
        let mut state = self.state.lock();
        state.failed = true;
        std::mem::take(&mut state.places)
    }

    pub(crate) fn failed(&self) -> bool {
        self.state.lock().failed
    }
}
