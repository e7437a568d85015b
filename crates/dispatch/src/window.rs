//! What was read ahead of pools that had no room for it, so that it does not hide what others could run:
//! docs/rules.md#route-4.
//!
//! Messages of one pool wait in the order in which they came, and enter as room appears. What must stay behind a
//! message that still runs in another pool waits until that is over.
//!
//! Of queues of one name the window of the later one is locked first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::item::Item;
use crate::pool::Pool;
use crate::routed::{InFlightMessage, Line, PoolId};

/// The window of one queue.
#[derive(Debug, Default)]
pub(crate) struct Window {
    state: Mutex<State>,
    /// How many wait, for those who must not wait for the lock.
    len: AtomicUsize,
    shrunk: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    by_pool: BTreeMap<PoolId, Waiting>,
    count: usize,
    /// What waits for a message of its line in another pool, or for an earlier delivery of itself that still runs.
    pub(crate) behind: Vec<Item>,
}

/// What waits for one pool.
#[derive(Debug)]
struct Waiting {
    pool: Arc<Pool>,
    items: VecDeque<Item>,
}

impl Window {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Memory::SeqCst)
    }

    /// The pool that most wait for, and how many.
    pub(crate) fn fullest(&self) -> Option<(Arc<str>, usize)> {
        let state = self.state.lock();
        let most = state.by_pool.values().max_by_key(|waiting| waiting.items.len())?;
        Some((Arc::clone(&most.pool.code), most.items.len()))
    }

    /// The lines of all that wait.
    pub(crate) fn lines(&self, also: impl FnOnce() -> Vec<Line>) -> Vec<Line> {
        let state = self.state.lock();
        let in_pools = state.by_pool.values().flat_map(|waiting| &waiting.items);
        let waiting = in_pools.chain(&state.behind).map(|item| item.held.tracked().entry.line());
        waiting.chain(also()).collect()
    }

    /// Waits until so many wait, or fewer.
    pub(crate) async fn at_most(&self, count: usize) {
        loop {
            let mut shrunk = std::pin::pin!(self.shrunk.notified());
            shrunk.as_mut().enable();
            if self.len() <= count {
                return;
            }
            shrunk.await;
        }
    }

    /// Changes it, alone: of two who bring messages of a pool the first is let in first.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.count + state.behind.len();
        let answer = change(&mut state);
        let after = state.count + state.behind.len();
        self.len.store(after, Memory::SeqCst);
        let is_less = after < before;
        drop(state);
        if is_less {
            self.shrunk.notify_waiters();
        }
        answer
    }

    /// Whether none waits for a message of its key, not even one that is being looked at.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state.lock().behind.is_empty()
    }

    /// Whether a message waits for another of its key.
    pub(crate) fn holds_behind(&self, message: &InFlightMessage) -> bool {
        let state = self.state.lock();
        state.behind.iter().any(|item| Arc::ptr_eq(item.held.tracked(), message))
    }

    /// Takes out a message that waits here.
    pub(crate) fn withdraw(&self, message: &InFlightMessage) -> Option<Item> {
        let is_it = |item: &Item| Arc::ptr_eq(item.held.tracked(), message);
        self.change(|state| {
            if let Some(at) = state.behind.iter().position(is_it) {
                return Some(state.behind.remove(at));
            }
            let mut pools = state.by_pool.iter_mut();
            let (id, item) = pools.find_map(|(id, waiting)| {
                let at = waiting.items.iter().position(is_it)?;
                Some((*id, waiting.items.remove(at)?))
            })?;
            state.count -= 1;
            if state.by_pool.get(&id).is_some_and(|waiting| waiting.items.is_empty()) {
                state.by_pool.remove(&id);
            }
            Some(item)
        })
    }
}

impl State {
    /// All that wait.
    pub(crate) fn take_all(&mut self) -> Vec<Item> {
        let waiting = std::mem::take(&mut self.by_pool).into_values();
        self.count = 0;
        let behind = std::mem::take(&mut self.behind);
        waiting.flat_map(|waiting| waiting.items).chain(behind).collect()
    }

    /// What waits for other pools than this one, or for messages in other pools.
    pub(crate) fn not_for(&self, pool: &Pool) -> impl Iterator<Item = &Item> {
        let others = self.by_pool.iter().filter(|(id, _)| **id != pool.id);
        others.flat_map(|(_, waiting)| &waiting.items).chain(&self.behind)
    }

    /// Whether messages wait for a pool.
    pub(crate) fn awaits(&self, pool: &Pool) -> bool {
        self.by_pool.contains_key(&pool.id)
    }

    /// Adds messages that come after those that wait.
    pub(crate) fn push(&mut self, pool: &Arc<Pool>, items: impl IntoIterator<Item = Item>) {
        let waiting = self
            .by_pool
            .entry(pool.id)
            .or_insert_with(|| Waiting { pool: Arc::clone(pool), items: VecDeque::new() });
        let before = waiting.items.len();
        waiting.items.extend(items);
        self.count += waiting.items.len() - before;
        if waiting.items.is_empty() {
            self.by_pool.remove(&pool.id);
        }
    }

    /// The next messages for a pool, at most so many.
    pub(crate) fn pop(&mut self, pool: &Pool, most: usize) -> Vec<Item> {
        let Some(waiting) = self.by_pool.get_mut(&pool.id) else { return Vec::new() };
        let most = most.min(waiting.items.len());
        let items: Vec<Item> = waiting.items.drain(..most).collect();
        self.count -= items.len();
        if waiting.items.is_empty() {
            self.by_pool.remove(&pool.id);
        }
        items
    }

    /// Messages that were popped and not let in.
    pub(crate) fn push_front(&mut self, pool: &Arc<Pool>, items: Vec<Item>) {
        let rest = self.pop(pool, usize::MAX);
        self.push(pool, items.into_iter().chain(rest));
    }

    /// Takes out what waits for pools that are closed, and after it whatever waits behind another: perhaps behind that.
    pub(crate) fn take_closed(&mut self) -> Vec<Item> {
        let closed = self.by_pool.extract_if(.., |_, waiting| waiting.pool.is_closed());
        let mut items: Vec<Item> = closed.flat_map(|(_, waiting)| waiting.items).collect();
        self.count -= items.len();
        if !items.is_empty() {
            items.append(&mut self.behind);
        }
        items
    }
}
