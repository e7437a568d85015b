//! What is counted, once, where it happens.
//!
//! `docs/rules.md#count-1`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::histogram::Histogram;
use crate::{HistogramSnapshot, Interrupt, Refusal};

/// The counters of one group or sluice.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) started: Counter,
    pub(crate) failed: Counter,
    pub(crate) panicked: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) handed_back: Counter,
    /// Turns that were dropped instead of ended.
    pub(crate) dropped: Counter,
    rejected: [Counter; REASONS.len()],
    wait_time: Histogram,
}

/// What every piece of work is counted in: kept behind a lock that is taken for it anyway, where
/// counting costs nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) admitted: u64,
    /// Of what ran to its end. Its count is the count of those.
    pub(crate) run_time: HistogramSnapshot,
    /// What began and ended in another way, or is counted by a child.
    pub(crate) ended_otherwise: u64,
}

impl Ledger {
    pub(crate) fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.run_time.add(&other.run_time);
        self.ended_otherwise += other.ended_otherwise;
    }

    /// How many of those that started have ended, those of children among them.
    pub(crate) fn ended(&self) -> u64 {
        self.run_time.count() + self.ended_otherwise
    }
}

/// The labels of [`Refusal`], in the order of the counters.
const REASONS: [&str; 16] = [
    "at_limit",
    "queue_full",
    "tenant_queue_full",
    "tenant_at_limit",
    "key_busy",
    "rate_limited",
    "tenant_rate_limited",
    "batch_too_large",
    "no_worker",
    "paused",
    "queue_timeout",
    "cancelled",
    "timed_out",
    "nested",
    "name_taken",
    "draining",
];

/// A number that only grows.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self {
            started: Counter::new(),
            failed: Counter::new(),
            panicked: Counter::new(),
            cancelled: Counter::new(),
            timed_out: Counter::new(),
            handed_back: Counter::new(),
            dropped: Counter::new(),
            rejected: [const { Counter::new() }; REASONS.len()],
            wait_time: Histogram::new(),
        }
    }

    /// Work waited before it started. What starts at once is counted by `admitted` alone.
    pub(crate) fn waited(&self, wait: Duration) {
        self.wait_time.record(wait);
    }

    pub(crate) fn rejected(&self, why: &Refusal, count: u64) {
        let label = why.label();
        if let Some(at) = REASONS.iter().position(|reason| *reason == label) {
            self.rejected[at].add(count);
        }
    }

    pub(crate) fn interrupted(&self, why: Interrupt) {
        match why {
            Interrupt::Cancelled => self.cancelled.count(),
            Interrupt::TimedOut => self.timed_out.count(),
        }
    }

    pub(crate) fn snapshot(&self, gauges: Gauges, ledger: Ledger) -> Stats {
        let rejected = REASONS.iter().zip(&self.rejected);
        let Ledger { admitted, run_time, .. } = ledger;
        Stats {
            gauges,
            admitted,
            started: self.started.get(),
            completed: run_time.count(),
            failed: self.failed.get(),
            panicked: self.panicked.get(),
            cancelled: self.cancelled.get(),
            timed_out: self.timed_out.get(),
            handed_back: self.handed_back.get(),
            dropped: self.dropped.get(),
            queue_timeouts: 0,
            rejected: rejected
                .map(|(reason, count)| (*reason, count.get()))
                .filter(|(_, count)| *count > 0)
                .collect(),
            wait_time: self.wait_time.snapshot().with_zeros(self.started.get()),
            run_time,
        }
    }
}

/// What a group or a sluice has done, and does, at one moment.
///
/// With [children](crate::TaskGroup::child) the counters are each group's own; what runs now
/// ([`Gauges::running`]) includes the children's.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
///
/// let group = TaskGroup::new("orders", 1)?;
/// let work = |cx: Context| async move { cx.remaining().ok_or("no deadline") };
/// let task = group.submit_fallible(Context::new(), work).await?;
/// assert!(group.try_submit(Context::new(), work).is_err()); // the only permit is taken
/// assert_eq!(task.await?, Err("no deadline"));
/// let stats = group.stats();
/// assert_eq!((stats.admitted, stats.started, stats.completed, stats.failed), (1, 1, 1, 1));
/// assert_eq!(stats.rejected, [("at_limit", 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// What is there now.
    pub gauges: Gauges,
    /// Work let in.
    pub admitted: u64,
    /// Work that began to run.
    pub started: u64,
    /// Work that ran to its end, whatever it returned, without a panic.
    pub completed: u64,
    /// Of the completed, those that returned an error (`submit_fallible`).
    pub failed: u64,
    /// Work that panicked.
    pub panicked: u64,
    /// Work that was withdrawn or whose context was cancelled before its start, or that was dropped
    /// at the drain deadline.
    pub cancelled: u64,
    /// Work whose deadline passed before its start.
    pub timed_out: u64,
    /// Items of a sluice that were let in and waited when it was drained or closed, or came to wait
    /// again after that. Who waits outside is refused (`draining` in [`rejected`](Self::rejected)); so
    /// are a group's submitters, which therefore has nothing to hand back.
    pub handed_back: u64,
    /// Turns that were dropped instead of ended: not done, and handed to whom they belong.
    pub dropped: u64,
    /// Items that waited in a queue for longer than they may.
    pub queue_timeouts: u64,
    /// Work that was not let in, by reason.
    pub rejected: Vec<(&'static str, u64)>,
    /// How long work waited for its permit or turn.
    pub wait_time: HistogramSnapshot,
    /// How long the completed work held its permit.
    pub run_time: HistogramSnapshot,
}

/// What is there at one moment.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
///
/// let group = TaskGroup::new("orders", 1)?;
/// let wait = |cx: Context| async move { cx.cancelled().await };
/// let _first = group.submit(Context::new(), wait).await?;
/// let now = group.stats().gauges;
/// assert_eq!((now.running, now.limit, now.queued), (1, 1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// What waits.
    pub queued: u32,
    /// What runs: in a group the permits in use, its children's included; in a child its tasks.
    pub running: u32,
    /// What may run at once.
    pub limit: u32,
    /// How long the longest has waited. An item of a sluice that was put back waits anew from then.
    pub oldest_wait: Duration,
}

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use super::*;
    use crate::AtLimit;

    #[test]
    fn every_refusal_has_a_counter() {
        let at_limit = AtLimit { limit: 1, in_use: 1 };
        let all = [
            Refusal::AtLimit(at_limit),
            Refusal::QueueFull { queued: 1, capacity: 1 },
            Refusal::TenantQueueFull { queued: 1, max: 1 },
            Refusal::TenantAtLimit(at_limit),
            Refusal::KeyBusy,
            Refusal::RateLimited { retry_in: Duration::ZERO },
            Refusal::TenantRateLimited { retry_in: Duration::ZERO },
            Refusal::BatchTooLarge { items: 2, max: 1 },
            Refusal::NoWorker,
            Refusal::Paused { reason: "memory" },
            Refusal::QueueTimeout { after: Duration::ZERO },
            Refusal::Interrupted(Interrupt::Cancelled),
            Refusal::Interrupted(Interrupt::TimedOut),
            Refusal::Nested { group: String::new() },
            Refusal::NameTaken { name: String::new() },
            Refusal::Draining,
        ];
        let counters = Counters::new();
        all.iter().for_each(|why| counters.rejected(why, 1));
        let rejected = counters.snapshot(Gauges::default(), Ledger::default()).rejected;
        assert_eq!(rejected, REASONS.map(|reason| (reason, 1)));
    }
}
