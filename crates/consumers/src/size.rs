//! How many workers a consumer has, and how many messages it holds: paper 000's sizes, pure.

use std::num::NonZeroUsize;

/// The most workers a consumer has.
pub const MOST_WORKERS: u32 = 200;
/// The most messages a consumer holds.
pub const MOST_PREFETCH: u32 = 1000;
/// The most messages a consumer holds unless it is told otherwise.
const AUTO_PREFETCH: u32 = 500;
const WORKERS_PER_CPU: u32 = 4;
const PREFETCH_PER_WORKER: u32 = 10;

/// The sizes of a consumer, and which of them a cap has cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many handlers run at once.
    pub workers: u32,
    /// How many messages are here at once, those that run included.
    pub prefetch: u32,
    /// The workers that were asked for, where the cap allows fewer.
    pub workers_cut_from: Option<u32>,
    /// The prefetch that was asked for, where the cap allows less.
    pub prefetch_cut_from: Option<u32>,
}

impl Size {
    /// The sizes for what was asked: 0 stands for automatic.
    ///
    /// ```
    /// use sluicegate_consumers::Size;
    ///
    /// let size = Size::of(0, 0, 8);
    /// assert_eq!((size.workers, size.prefetch), (32, 320));
    /// assert_eq!(Size::of(1000, 0, 8).workers_cut_from, Some(1000));
    /// ```
    #[must_use]
    pub fn of(workers: u32, prefetch: u32, cpus: u32) -> Self {
        let wanted = if workers == 0 { cpus.saturating_mul(WORKERS_PER_CPU) } else { workers };
        let (workers, workers_cut_from) = cut(wanted.max(1), MOST_WORKERS);
        let auto = || workers.saturating_mul(PREFETCH_PER_WORKER).min(AUTO_PREFETCH);
        let wanted = if prefetch == 0 { auto() } else { prefetch };
        let (prefetch, prefetch_cut_from) = cut(wanted, MOST_PREFETCH);
        Self { workers, prefetch, workers_cut_from, prefetch_cut_from }
    }
}

/// The CPUs that this process may use, counting the quotas of its container.
#[must_use]
pub fn available_cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

fn cut(wanted: u32, most: u32) -> (u32, Option<u32>) {
    if wanted > most { (most, Some(wanted)) } else { (wanted, None) }
}
