//! What should be running: the file, with what was synced merged over it.

use std::collections::HashMap;

use super::synced::{Synced, SyncedPool, SyncedQueue};
use super::{PoolSettings, QueueSettings, QueueUri, Settings};

/// The pools and queues that should be there. Codes and names are unique.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Desired {
    /// The pools, those of the file first.
    pub pools: Vec<PoolSettings>,
    /// The queues, those of the file first.
    pub queues: Vec<QueueSettings>,
    /// What of the documents is not in it, and why.
    pub left_out: Vec<String>,
}

impl Settings {
    /// The file's pools and queues with the synced ones merged over them, in the order of the
    /// documents: a later one overrides an earlier one.
    ///
    /// A synced pool sets concurrency and rate, also to no rate at all; a synced queue its address
    /// and connections. Everything else stays as the file has it, or has its default. Of queues at the same address the
    /// first one is kept: what one has parked the other would not know of.
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
        let issues = synced.iter().flat_map(|document| &document.issues);
        let mut left_out: Vec<String> = issues.map(ToString::to_string).collect();
        let mut kept: Vec<QueueSettings> = Vec::with_capacity(queues.list.len());
        let mut places: HashMap<QueueUri, usize> = HashMap::new();
        for queue in queues.list {
            match places.get(&queue.uri).map(|place| &kept[*place].name) {
                Some(first) => left_out.push(format!(
                    "queue {}: {} is the address of queue {first} already",
                    queue.name, queue.uri
                )),
                None => {
                    places.insert(queue.uri.clone(), kept.len());
                    kept.push(queue);
                }
            }
        }
        Desired { pools: pools.list, queues: kept, left_out }
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
