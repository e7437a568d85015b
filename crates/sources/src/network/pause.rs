//! Pauses between attempts that fail.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Pauses that double from the first to the longest. Each is cut to between a half and the whole of
/// it, so that many who lost the same broker do not come back to it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Pauses {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// How long to wait now; longer the next time.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        // The keys that the standard library makes up for each map are its only chance.
        let share = u32::try_from(RandomState::new().hash_one(0_u8) % 1025).unwrap_or(0);
        pause / 2 + pause / 2 * share / 1024
    }

    /// Begins with the first again, after something worked.
    pub(crate) const fn reset(&mut self) {
        self.next = self.first;
    }
}

/// From 100 ms to 10 s.
impl Default for Pauses {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_begin_again() {
        let mut pauses = Pauses::default();
        for _ in 0..2 {
            for ms in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
                let (whole, pause) = (Duration::from_millis(ms), pauses.next());
                assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
            }
            pauses.reset();
        }
    }

    #[test]
    fn many_do_not_come_back_at_once() {
        let pauses: Vec<Duration> = (0..1000).map(|_| Pauses::default().next()).collect();
        let below = |ms| pauses.iter().filter(|pause| **pause < Duration::from_millis(ms)).count();
        // A quarter each, give or take far more than chance does.
        for (quarter, count) in [(1, below(63)), (2, below(75)), (3, below(88))] {
            assert!(count.abs_diff(quarter * 250) < 150, "{count} in {quarter} quarters");
        }
    }
}
