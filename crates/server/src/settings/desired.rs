//! What should be running: the file, with what was synced merged over it.

use std::collections::HashMap;

use super::synced::{Synced, SyncedPool, SyncedQueue};
use super::{PoolSettings, QueueSettings, Settings};

/// The pools and queues that should be there. Codes and names are unique.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Desired {
    /// The pools, those of the file first.
    pub pools: Vec<PoolSettings>,
    /// The queues, those of the file first.
    pub queues: Vec<QueueSettings>,
}

impl Settings {
    /// The file's pools and queues with the synced ones merged over them, in the order of the
    /// documents: a later one overrides an earlier one.
    ///
    /// A synced pool sets concurrency and rate, also to no rate at all; a synced queue its address
    /// and connections. Everything else stays as the file has it, or has its default.
    #[must_use]
    pub fn merged(&self, synced: &[Synced]) -> Desired {
        let mut pools = Merged::over(&self.pools, |pool| &pool.code);
        let mut queues = Merged::over(&self.queues, |queue| &queue.name);
        for document in synced {
            for SyncedPool { code, concurrency, rate_limit_per_minute } in &document.pools {
                let pool = pools.of(code, || PoolSettings::new(code));
                pool.concurrency = *concurrency;
                pool.rate_limit_per_minute = *rate_limit_per_minute;
            }
            for SyncedQueue { name, uri, connections } in &document.queues {
                let queue = queues.of(name, || QueueSettings::new(name, uri.clone()));
                queue.uri = uri.clone();
                queue.connections = *connections;
            }
        }
        Desired { pools: pools.list, queues: queues.list }
    }
}

/// A list in which each name is there once.
struct Merged<T> {
    list: Vec<T>,
    places: HashMap<String, usize>,
}

impl<T: Clone> Merged<T> {
    fn over(list: &[T], name: impl Fn(&T) -> &String) -> Self {
        let places = list.iter().enumerate().map(|(at, one)| (name(one).clone(), at)).collect();
        Self { list: list.to_vec(), places }
    }

    /// The one of that name, made if it is not there yet.
    fn of(&mut self, name: &str, make: impl FnOnce() -> T) -> &mut T {
        let next = self.list.len();
        let at = *self.places.entry(name.to_owned()).or_insert(next);
        if at == next {
            self.list.push(make());
        }
        &mut self.list[at]
    }
}
