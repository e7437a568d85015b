//! A parked list in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_dispatch::{BoxFuture, DEFAULT_GROUP, Parked, ParkedStore, SourceError};

/// A parked list in memory.
#[derive(Debug, Default)]
pub struct MemoryParked {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    parked: Vec<Parked>,
    replayed: Vec<String>,
    failing: u32,
}

impl MemoryParked {
    /// An empty list.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// All of it, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Parked> {
        self.state.lock().parked.clone()
    }

    /// All of it in words: `m1 rejected`.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let state = self.state.lock();
        let id = |parked: &Parked| match &parked.message {
            Ok(message) => message.id.to_string(),
            Err(raw) => raw.clone(),
        };
        let words = |parked: &Parked| format!("{} {}", id(parked), parked.code.label());
        state.parked.iter().map(words).collect()
    }

    /// Lets so many calls fail.
    pub fn fail(&self, count: u32) {
        self.state.lock().failing = count;
    }

    /// Treats a message as one that was replayed from here, by its broker's id.
    pub fn replay(&self, broker_id: &str) {
        let mut state = self.state.lock();
        let State { parked, replayed, .. } = &mut *state;
        parked.retain(|parked| {
            let is_meant = &*parked.broker_id == broker_id;
            if is_meant && let Ok(message) = &parked.message {
                replayed.push(message.id.to_string());
            }
            !is_meant
        });
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.state.lock().parked.clear();
    }
}

impl ParkedStore for MemoryParked {
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async move {
            let mut state = self.state.lock();
            if state.failing > 0 {
                state.failing -= 1;
                return Err(SourceError::new("told to fail"));
            }
            for parked in parked {
                let same = |known: &Parked| {
                    (&known.queue, &known.broker_id) == (&parked.queue, &parked.broker_id)
                };
                if !state.parked.iter().any(same) {
                    state.parked.push(parked);
                }
            }
            Ok(())
        })
    }

    fn holds_key(&self, queue: &str, pool: &str, group: &str) -> bool {
        self.state.lock().parked.iter().any(|parked| {
            let Ok(message) = &parked.message else { return false };
            parked.holds_key
                && &*parked.queue == queue
                && &*message.pool == pool
                && message.group.as_deref().unwrap_or(DEFAULT_GROUP) == group
        })
    }

    fn lets_pass(&self, queue: &str, message: &str) -> bool {
        self.may_pass(queue, message)
    }

    fn may_pass(&self, _queue: &str, message: &str) -> bool {
        self.state.lock().replayed.iter().any(|replayed| replayed == message)
    }
}
