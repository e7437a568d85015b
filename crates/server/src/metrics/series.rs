//! What is counted of a pool and of a queue, where it happens: a few atomics, no lock, no label.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sluicegate_dispatch::{CallStatus, Outcome};

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one pool.
#[derive(Debug, Default)]
pub(super) struct PoolSeries {
    outcomes: [Count; OUTCOMES.len()],
    pub(super) statuses: Statuses,
    pub(super) delivery: Times,
    pub(super) panics: Count,
    pub(super) rate_limited: Count,
}

/// The counts of one queue.
#[derive(Debug, Default)]
pub(super) struct QueueSeries {
    pub(super) received: Count,
    pub(super) acked: Count,
    pub(super) retried: Count,
    pub(super) stale: Count,
    pub(super) settle_failures: Count,
}

/// The labels of outcomes, in the order of their counters.
const OUTCOMES: [&str; 8] = [
    "success",
    "retry",
    "throttled",
    "rejected",
    "unreachable",
    "breaker_open",
    "interrupted",
    "other",
];

impl PoolSeries {
    pub(super) fn ended(&self, outcome: &Outcome) {
        let at = match outcome {
            Outcome::Done => 0,
            Outcome::RetryLater { .. } => 1,
            Outcome::Throttled { .. } => 2,
            Outcome::Rejected(_) => 3,
            Outcome::Unreachable { .. } => 4,
            Outcome::BreakerOpen { .. } => 5,
            Outcome::Interrupted => 6,
            _ => 7,
        };
        self.outcomes[at].add(1);
    }

    /// Those outcomes that there were, and how many of each.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = OUTCOMES.into_iter().zip(&self.outcomes);
        all.map(|(label, count)| (label, count.get())).filter(|(_, count)| *count > 0)
    }
}

/// Counts by how a call ended. Each status takes a place when it is first seen and keeps it; more
/// statuses than there are places are counted as `other`, so that no endpoint can grow the page.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    places: [OnceLock<(CallStatus, Count)>; Statuses::PLACES],
    others: Count,
}

impl Statuses {
    const PLACES: usize = 24;

    pub(super) fn count(&self, status: CallStatus) {
        for place in &self.places {
            let (taken_by, count) = place.get_or_init(|| (status, Count::default()));
            if *taken_by == status {
                count.add(1);
                return;
            }
        }
        self.others.add(1);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (String, u64)> {
        let known = self.places.iter().filter_map(OnceLock::get);
        let others = (self.others.get() > 0).then(|| ("other".to_owned(), self.others.get()));
        known.map(|(status, count)| (status.label(), count.get())).chain(others)
    }
}

/// Counts of durations, in buckets that double from 256 microseconds to 18 minutes.
///
/// The bounds are powers of two because those are bounds of the kernel's own histograms as well:
/// their counts are taken over exactly.
#[derive(Debug, Default)]
pub(super) struct Times {
    buckets: [Count; BUCKETS],
    sum_nanos: Count,
}

/// Powers of two, in microseconds: the first and the last bound.
const FIRST: u32 = 8;
const LAST: u32 = 30;
/// One per bound, and one for what is longer.
pub(super) const BUCKETS: usize = (LAST - FIRST + 2) as usize;

impl Times {
    pub(super) fn record(&self, time: Duration) {
        self.buckets[bucket(time)].add(1);
        self.sum_nanos.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos.get())
    }

    pub(super) fn counts(&self) -> [u64; BUCKETS] {
        self.buckets.each_ref().map(Count::get)
    }
}

/// The bucket of a duration: the first whose bound is not below it.
pub(super) fn bucket(time: Duration) -> usize {
    let micros = time.as_nanos().div_ceil(1000).max(1);
    let power = 128 - (micros - 1).leading_zeros();
    (power.clamp(FIRST, LAST + 1) - FIRST) as usize
}

/// The greatest duration of a bucket, in seconds.
pub(super) fn bound(bucket: usize) -> f64 {
    match u32::try_from(bucket) {
        Ok(above) if above <= LAST - FIRST => (1u64 << (FIRST + above)) as f64 / 1e6,
        _ => f64::INFINITY,
    }
}

/// Series by the name of their pool or queue.
///
/// A reader takes no lock and writes nothing that other readers read. A name is added once, by
/// copying its shard: there are enough of them that ten thousand names are added in no time.
#[derive(Debug)]
pub(super) struct Book<T> {
    shards: [ArcSwap<Shard<T>>; SHARDS],
    changing: Mutex<()>,
}

/// Names come from the configuration, not from messages: nobody chooses them so that they collide.
type Shard<T> = HashMap<Arc<str>, Arc<Entry<T>>, FxBuildHasher>;

#[derive(Debug, Default)]
struct Entry<T> {
    series: T,
    /// How many scrapes in a row did not know its name.
    missed: AtomicU8,
}

const SHARDS: usize = 64;

/// A name may be younger than the snapshot that does not have it; it is not younger than two.
const MISSED_TOO_OFTEN: u8 = 2;

impl<T> Default for Book<T> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| ArcSwap::default()), changing: Mutex::default() }
    }
}

impl<T: Default> Book<T> {
    /// Counts something of a name.
    pub(super) fn count(&self, name: &Arc<str>, count: impl FnOnce(&T)) {
        if let Some(entry) = self.shard(name).load().get(&**name) {
            return count(&entry.series);
        }
        count(&self.add(name).series);
    }

    fn shard(&self, name: &str) -> &ArcSwap<Shard<T>> {
        // The map goes by the lowest and the highest bits: this takes others.
        let hash = FxBuildHasher.hash_one(name) >> 32;
        &self.shards[hash as usize % SHARDS]
    }

    fn add(&self, name: &Arc<str>) -> Arc<Entry<T>> {
        let _changing = self.changing.lock();
        let shard = self.shard(name);
        let mut names = Shard::clone(&shard.load());
        let entry = Arc::clone(names.entry(Arc::clone(name)).or_default());
        shard.store(Arc::new(names));
        entry
    }

    /// The series of a name, if anything was counted.
    pub(super) fn read<R>(&self, name: &str, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.shard(name).load().get(name).map(|entry| read(&entry.series))
    }

    /// Forgets the names that are gone.
    pub(super) fn keep(&self, exists: impl Fn(&str) -> bool) {
        let stays = |name: &str, entry: &Entry<T>| {
            if exists(name) {
                entry.missed.store(0, Ordering::Relaxed);
                return true;
            }
            entry.missed.fetch_add(1, Ordering::Relaxed) + 1 < MISSED_TOO_OFTEN
        };
        let _changing = self.changing.lock();
        for shard in &self.shards {
            let names = shard.load();
            let mut gone = names.iter().filter(|(name, entry)| !stays(name, entry)).peekable();
            if gone.peek().is_some() {
                let gone: HashSet<&str> = gone.map(|(name, _)| &**name).collect();
                let mut left = Shard::clone(&names);
                left.retain(|name, _| !gone.contains(&**name));
                shard.store(Arc::new(left));
            }
        }
    }
}
