//! Times that mean something on a noisy machine: ours and the baseline by turns, in many short
//! rounds, and the median of what each round says.

use std::time::{Duration, Instant};

/// Nanoseconds per operation of two ways to do the same, and how they compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) ours: f64,
    pub(crate) baseline: f64,
}

/// Runs the two by turns. Each call does `operations` and says how long they took.
pub(crate) fn by_turns(
    rounds: usize,
    operations: u32,
    mut ours: impl FnMut(u32) -> Duration,
    mut baseline: impl FnMut(u32) -> Duration,
) -> Compared {
    let nanos = |took: Duration| took.as_nanos() as f64 / f64::from(operations);
    // A round that nobody counts, to warm up.
    baseline(operations);
    ours(operations);
    let mut pairs: Vec<(f64, f64)> = (0..rounds)
        .map(|_| {
            let baseline = nanos(baseline(operations));
            (nanos(ours(operations)), baseline)
        })
        .collect();
    // The round with the median ratio: its two figures were taken right after each other.
    pairs.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (ours, baseline) = pairs[pairs.len() / 2];
    Compared { ours, baseline }
}

/// The median of so many rounds, in nanoseconds per operation.
pub(crate) fn median(rounds: usize, operations: u32, mut work: impl FnMut() -> Duration) -> f64 {
    let mut all: Vec<f64> =
        (0..rounds).map(|_| work().as_nanos() as f64 / f64::from(operations)).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// How long one call takes.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
