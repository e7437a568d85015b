//! A histogram of durations that many tasks write without a lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_schedule::Moment;

/// Four buckets to each doubling, from a microsecond to about an hour: every duration is known to
/// within a fifth.
const STEPS: u32 = 4;
const DOUBLINGS: u32 = 32;
const BUCKETS: usize = (STEPS * DOUBLINGS) as usize;

/// Counts of durations by size.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

/// A [`Histogram`](HistogramSnapshot)'s counts at one moment.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
///
/// let group = TaskGroup::new("small", 4)?;
/// group.run(Context::new(), |cx| async move { cx.check() }).await??;
/// let run_time = group.stats().run_time;
/// assert_eq!(run_time.count(), 1);
/// assert!(run_time.quantile(0.99).as_millis() < 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: Vec<u64>,
    sum: Duration,
}

impl Histogram {
    pub(crate) const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_nanos: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        if nanos > 0 {
            self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            counts: self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
        }
    }
}

/// The bucket of a duration: the first whose bound is not below it.
const fn bucket(nanos: u64) -> usize {
    let units = nanos.div_ceil(1000);
    if units <= 1 {
        return 0;
    }
    // The octave from the highest bit, the step from the bits behind it.
    let scaled = units - 1;
    let octave = scaled.ilog2();
    let step = if octave >= 2 { scaled >> (octave - 2) & 3 } else { scaled << (2 - octave) & 3 };
    let index = (octave * STEPS) as usize + step as usize + 1;
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// The greatest duration of a bucket.
const fn bound(index: usize) -> Duration {
    if index == 0 {
        return Duration::from_micros(1);
    }
    let (octave, step) = ((index - 1) as u32 / STEPS, (index - 1) as u64 % STEPS as u64);
    let base = 1u64 << octave;
    // Below four microseconds some steps are empty and share their neighbour's bound.
    Duration::from_micros(base + (base * (step + 1)).div_ceil(STEPS as u64))
}

impl HistogramSnapshot {
    /// One more, where the snapshot itself is what is kept, behind somebody's lock.
    pub(crate) fn record(&mut self, duration: Duration) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Takes back one that was recorded.
    pub(crate) fn forget(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] -= 1;
        self.sum = self.sum.saturating_sub(duration);
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.sum = Duration::ZERO;
    }

    /// All of another's, too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.resize(BUCKETS, 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, more)| *own += more);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Counts those that are not recorded, out of `total`, as no time at all.
    pub(crate) fn with_zeros(mut self, total: u64) -> Self {
        self.counts[0] += total.saturating_sub(self.count());
        self
    }

    /// How many durations were recorded.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("small", 4)?;
    /// for _ in 0..3 {
    ///     group.run(Context::new(), |cx| async move { cx.check() }).await??;
    /// }
    /// assert_eq!(group.stats().run_time.count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All durations together.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    /// use std::time::Duration;
    ///
    /// let group = TaskGroup::new("small", 4)?;
    /// for _ in 0..3 {
    ///     group.run(Context::new(), |cx| async move { cx.check() }).await??;
    /// }
    /// let run_time = group.stats().run_time;
    /// let mean = run_time.sum() / u32::try_from(run_time.count())?;
    /// assert!(mean < Duration::from_secs(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// The duration that the given part (0 to 1) of all do not exceed, to within a fifth.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("small", 4)?;
    /// for _ in 0..3 {
    ///     group.run(Context::new(), |cx| async move { cx.check() }).await??;
    /// }
    /// let run_time = group.stats().run_time;
    /// assert!(run_time.quantile(0.5) <= run_time.quantile(0.99));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = (part.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bound(index);
            }
        }
        Duration::ZERO
    }

    /// The buckets that hold anything: greatest duration, and how many.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("small", 4)?;
    /// for _ in 0..3 {
    ///     group.run(Context::new(), |cx| async move { cx.check() }).await??;
    /// }
    /// let run_time = group.stats().run_time;
    /// let counted: u64 = run_time.buckets().map(|(_at_most, count)| count).sum();
    /// assert_eq!(counted, run_time.count());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (bound(index), *count))
    }
}

/// In short: the counts themselves are in [`buckets`](HistogramSnapshot::buckets).
impl fmt::Debug for HistogramSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistogramSnapshot")
            .field("count", &self.count())
            .field("sum", &self.sum)
            .field("p50", &self.quantile(0.5))
            .field("p95", &self.quantile(0.95))
            .field("p99", &self.quantile(0.99))
            .finish()
    }
}

/// A histogram of the last 60 seconds, in slices of 4.3 (2^32 nanoseconds), the oldest of which
/// leaves as a new one begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    slices: [Slice; SLICES],
}

/// The slices of 60 seconds, and the one that has begun.
const SLICES: usize = 15;
const SLICE_BITS: u32 = 32;

#[derive(Clone, Debug, Default)]
struct Slice {
    /// Which slice of time it holds.
    number: u64,
    times: HistogramSnapshot,
}

impl Recent {
    pub(crate) fn record(&mut self, now: Moment, duration: Duration) {
        let number = now.as_nanos() >> SLICE_BITS;
        let slice = &mut self.slices[number as usize % SLICES];
        if number < slice.number {
            return; // it is heard of more than a minute late
        }
        if slice.number < number {
            slice.number = number;
            slice.times.clear();
        }
        slice.times.record(duration);
    }

    /// Takes back one that was recorded then, if it is still here.
    pub(crate) fn forget(&mut self, then: Moment, duration: Duration) {
        let number = then.as_nanos() >> SLICE_BITS;
        let slice = &mut self.slices[number as usize % SLICES];
        if slice.number == number {
            slice.times.forget(duration);
        }
    }

    pub(crate) fn snapshot(&self, now: Moment) -> HistogramSnapshot {
        let newest = now.as_nanos() >> SLICE_BITS;
        let mut all = HistogramSnapshot::default();
        for slice in &self.slices {
            if slice.number + SLICES as u64 > newest {
                all.add(&slice.times);
            }
        }
        all
    }
}

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_duration_lies_within_a_fifth_below_its_bound(micros in 4u64..3_000_000_000) {
            let index = bucket(micros * 1000);
            prop_assert!(bound(index) >= Duration::from_micros(micros));
            prop_assert!(bound(index).as_micros() as u64 <= micros + micros / 4 + 1, "{index}");
        }
    }

    /// Whatever was recorded, and when: the snapshot has all of the last 60 seconds, and nothing that
    /// is older by more than a slice.
    #[test]
    fn a_minute_is_remembered_and_no_more() {
        let mut recent = Recent::default();
        let second = |n: u64| Moment::ZERO + Duration::from_secs(n);
        for n in 0..600 {
            recent.record(second(n), Duration::from_millis(n));
            let (count, oldest) = (recent.snapshot(second(n)).count(), n.min(60));
            assert!((oldest..=oldest + 6).contains(&count), "{count} of the last minute at {n} s");
        }
        assert_eq!(recent.snapshot(second(700)).count(), 0);
    }

    #[test]
    fn bounds_never_fall() {
        for index in 1..BUCKETS {
            assert!(bound(index) >= bound(index - 1), "{index}");
        }
    }

    #[test]
    fn quantiles_of_a_known_set() {
        let histogram = Histogram::new();
        for millis in 1..=100 {
            histogram.record(Duration::from_millis(millis));
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count(), 100);
        assert_eq!(snapshot.sum(), Duration::from_millis(5050));
        let median = snapshot.quantile(0.5).as_millis();
        assert!((50..=63).contains(&median), "{median}");
        assert_eq!(Histogram::new().snapshot().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn a_snapshot_is_debugged_in_short() {
        let mut snapshot = HistogramSnapshot::default();
        snapshot.record(Duration::from_millis(1));
        let short =
            "HistogramSnapshot { count: 1, sum: 1ms, p50: 1.024ms, p95: 1.024ms, p99: 1.024ms }";
        assert_eq!(format!("{snapshot:?}"), short);
        assert!(
            format!("{:?}", HistogramSnapshot::default()).contains("count: 0, sum: 0ns, p50: 0ns")
        );
    }
}
