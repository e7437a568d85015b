//! What was claimed and is not handed out yet, and who waits for it.
//!
//! A claim runs in a task of its own, so that a receive can be dropped at any moment: what it asked for
//! is here for the next one, or until its shelf life ends. It is bounded by what was asked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Delivery, Demand, Receipt, SourceError};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::wants::Wants;

#[derive(Debug)]
pub(crate) struct Front<M> {
    state: Mutex<State<M>>,
    /// Someone asks, or for something else than before.
    pub(crate) asked: Notify,
    /// Something came, failed or ended.
    pub(crate) changed: Notify,
    /// How long something may lie here.
    pub(crate) shelf_life: Duration,
}

#[derive(Debug)]
struct State<M> {
    ready: VecDeque<Held<M>>,
    /// Those who wait, by a number each.
    asking: Vec<(u64, Demand)>,
    asked: u64,
    failures: u64,
    failure: Option<SourceError>,
    is_stopped: bool,
}

#[derive(Debug)]
struct Held<M> {
    since: Instant,
    claimed: Claimed<M>,
}

/// A delivery that was claimed, and the pool it is for.
#[derive(Debug)]
pub(crate) struct Claimed<M> {
    pub(crate) pool: Arc<str>,
    pub(crate) delivery: Delivery<M>,
}

/// What a look at the front gave.
pub(crate) enum Look<M> {
    Some(Vec<Delivery<M>>),
    None,
    Failed(SourceError),
    Stopped,
}

/// One who asks, until it is dropped.
pub(crate) struct Asking<'a, M> {
    front: &'a Front<M>,
    number: u64,
}

impl<M> Front<M> {
    pub(crate) fn new(shelf_life: Duration) -> Self {
        let state = State {
            ready: VecDeque::new(),
            asking: Vec::new(),
            asked: 0,
            failures: 0,
            failure: None,
            is_stopped: false,
        };
        let (asked, changed) = (Notify::new(), Notify::new());
        Self { state: Mutex::new(state), asked, changed, shelf_life }
    }

    pub(crate) fn ask(&self, demand: Demand) -> Asking<'_, M> {
        let mut state = self.state.lock();
        state.asked += 1;
        let number = state.asked;
        state.asking.push((number, demand));
        drop(state);
        self.asked.notify_one();
        Asking { front: self, number }
    }

    /// How many failures there were: those to come are another's.
    pub(crate) fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// Takes what is here and has a place. A failure since `seen` is answered.
    pub(crate) fn take(&self, demand: &Demand, seen: u64) -> Look<M> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Look::Stopped;
        }
        let taken = state.take(demand, Instant::now().checked_sub(self.shelf_life));
        if !taken.is_empty() {
            return Look::Some(taken);
        }
        match &state.failure {
            Some(failure) if state.failures > seen => Look::Failed(failure.clone()),
            _ => Look::None,
        }
    }

    /// What to claim.
    pub(crate) fn wants(&self) -> Wants {
        let state = self.state.lock();
        if state.is_stopped {
            return Wants::default();
        }
        let demands = state.asking.iter().map(|(_, demand)| demand);
        Wants::new(demands, state.ready.iter().map(|held| &held.claimed.pool))
    }

    /// Puts in what was claimed. Answers it when nobody wants it any more.
    pub(crate) fn put(&self, since: Instant, claimed: Vec<Claimed<M>>) -> Vec<Receipt> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return claimed.into_iter().map(|it| it.delivery.receipt).collect();
        }
        state.failure = None;
        state.ready.extend(claimed.into_iter().map(|claimed| Held { since, claimed }));
        drop(state);
        self.changed.notify_waiters();
        Vec::new()
    }

    pub(crate) fn fail(&self, failure: SourceError) {
        let mut state = self.state.lock();
        state.failures += 1;
        state.failure = Some(failure);
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_waiters();
        self.asked.notify_one();
    }

    /// What lies here for too long, or for nobody.
    pub(crate) fn take_stale(&self) -> Vec<Receipt> {
        let mut state = self.state.lock();
        let oldest = Instant::now().checked_sub(self.shelf_life);
        let is_stopped = state.is_stopped;
        let is_stale = |held: &Held<M>| is_stopped || !held.is_fresh(oldest);
        let count = state.ready.iter().take_while(|held| is_stale(held)).count();
        state.ready.drain(..count).map(|held| held.claimed.delivery.receipt).collect()
    }

    /// When something here gets stale.
    pub(crate) fn next_stale(&self) -> Option<Instant> {
        self.state.lock().ready.front().map(|held| held.since + self.shelf_life)
    }
}

impl<M> State<M> {
    /// What has a place, in order. The stale ones are handed back by whoever claims.
    fn take(&mut self, demand: &Demand, oldest: Option<Instant>) -> Vec<Delivery<M>> {
        let (mut taken, mut full) = (Vec::new(), Vec::<Arc<str>>::new());
        let mut left = VecDeque::with_capacity(self.ready.len());
        for held in std::mem::take(&mut self.ready) {
            let pool = &held.claimed.pool;
            if taken.len() == demand.most() || !held.is_fresh(oldest) || full.contains(pool) {
                left.push_back(held);
            } else if demand.take(pool) {
                taken.push(held.claimed.delivery);
            } else {
                full.push(Arc::clone(pool));
                left.push_back(held);
            }
        }
        self.ready = left;
        taken
    }
}

impl<M> Held<M> {
    fn is_fresh(&self, oldest: Option<Instant>) -> bool {
        oldest.is_none_or(|oldest| self.since > oldest)
    }
}

impl<M> Drop for Asking<'_, M> {
    fn drop(&mut self) {
        let mut state = self.front.state.lock();
        let place = state.asking.iter().position(|(number, _)| *number == self.number);
        let demand = place.map(|place| state.asking.swap_remove(place));
        drop(state);
        // Its places may be freed by that, which is for others to hear of.
        drop(demand);
    }
}
