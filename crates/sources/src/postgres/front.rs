//! What was claimed and is not handed out yet, and who waits for it.
//!
//! A claim runs in a task of its own, so that a receive can be dropped at any moment: what it asked for
//! is here for the next one. It is bounded by what was asked for.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Delivery, Receipt, SourceError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many are claimed at once.
const BATCH: usize = 1000;

#[derive(Debug)]
pub(crate) struct Front<M> {
    state: Mutex<State<M>>,
    /// Someone asks, or nobody does any more.
    pub(crate) asked: Notify,
    /// Something came, failed or ended.
    pub(crate) changed: Notify,
    /// How long something may lie here.
    pub(crate) shelf_life: Duration,
}

#[derive(Debug)]
struct State<M> {
    ready: VecDeque<(Instant, Delivery<M>)>,
    asked: usize,
    failures: u64,
    failure: Option<SourceError>,
    is_stopped: bool,
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
    count: usize,
}

impl<M> Front<M> {
    pub(crate) fn new(shelf_life: Duration) -> Self {
        let state = State {
            ready: VecDeque::new(),
            asked: 0,
            failures: 0,
            failure: None,
            is_stopped: false,
        };
        let (asked, changed) = (Notify::new(), Notify::new());
        Self { state: Mutex::new(state), asked, changed, shelf_life }
    }

    pub(crate) fn ask(&self, count: usize) -> Asking<'_, M> {
        self.state.lock().asked += count;
        self.asked.notify_one();
        Asking { front: self, count }
    }

    /// How many failures there were: those to come are another's.
    pub(crate) fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// Takes what is here. A failure since `seen` is answered.
    pub(crate) fn take(&self, max: usize, seen: u64) -> Look<M> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Look::Stopped;
        }
        let oldest = Instant::now().checked_sub(self.shelf_life);
        let fresh = |(since, _): &(Instant, _)| oldest.is_none_or(|oldest| *since > oldest);
        // The stale ones are in front, and are handed back by whoever claims.
        let begin = state.ready.iter().position(fresh).unwrap_or(state.ready.len());
        let end = state.ready.len().min(begin + max);
        let taken: Vec<_> = state.ready.drain(begin..end).map(|(_, delivery)| delivery).collect();
        if !taken.is_empty() {
            return Look::Some(taken);
        }
        match &state.failure {
            Some(failure) if state.failures > seen => Look::Failed(failure.clone()),
            _ => Look::None,
        }
    }

    /// How many to claim.
    pub(crate) fn shortage(&self) -> usize {
        let state = self.state.lock();
        if state.is_stopped {
            return 0;
        }
        state.asked.saturating_sub(state.ready.len()).min(BATCH)
    }

    /// Puts in what was claimed. Answers it when nobody wants it any more.
    pub(crate) fn put(&self, since: Instant, claimed: Vec<Delivery<M>>) -> Vec<Delivery<M>> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return claimed;
        }
        state.failure = None;
        state.ready.extend(claimed.into_iter().map(|delivery| (since, delivery)));
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
        let is_stale = |since: Instant| is_stopped || oldest.is_some_and(|oldest| since <= oldest);
        let count = state.ready.iter().take_while(|(since, _)| is_stale(*since)).count();
        state.ready.drain(..count).map(|(_, delivery)| delivery.receipt).collect()
    }

    /// When something here gets stale.
    pub(crate) fn next_stale(&self) -> Option<Instant> {
        self.state.lock().ready.front().map(|(since, _)| *since + self.shelf_life)
    }
}

impl<M> Drop for Asking<'_, M> {
    fn drop(&mut self) {
        self.front.state.lock().asked -= self.count;
    }
}
