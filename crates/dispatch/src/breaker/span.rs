//! The calls of a sliding span of time, counted in slices.
//!
//! Invariants:
//! 1. Nothing that ended longer ago than the span is counted. The oldest slice is dropped as a
//!    whole, so the span reaches back at least 19 of its 20 slices.
//! 2. Its size does not depend on how many calls there are.
//! 3. Time that goes back by less than the span counts as now; time that goes back further than
//!    that, or ahead by the span, starts it anew. So it slides again within one span, whatever the
//!    clock did.

use std::time::Duration;

use sluicegate_schedule::Moment;

use super::Verdict;

const SLICES: u64 = 20;
/// How many of them are the latest calls: a tenth of the span.
const LATEST: u64 = SLICES / 10;

/// How calls ended that ended within the span.
#[derive(Clone, Debug)]
pub(super) struct Span {
    slices: [Counts; SLICES as usize],
    /// The number of the newest slice, counted from the origin of time.
    newest: u64,
    /// In nanoseconds.
    slice_lasts: u64,
}

/// So many calls, and so many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) calls: u32,
    pub(super) failures: u32,
}

impl Span {
    pub(super) fn new(lasts: Duration) -> Self {
        let nanos = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let slices = [Counts::default(); SLICES as usize];
        Self { slices, newest: 0, slice_lasts: (nanos / SLICES).max(1) }
    }

    /// Counts a call that ended now.
    pub(super) fn count(&mut self, verdict: Verdict, now: Moment) {
        self.slide(self.number(now));
        let slice = &mut self.slices[place(self.newest)];
        slice.calls = slice.calls.saturating_add(1);
        let failed = u32::from(verdict == Verdict::Failure);
        slice.failures = slice.failures.saturating_add(failed);
    }

    /// All calls of the span that ends now.
    pub(super) fn all(&self, now: Moment) -> Counts {
        self.sum(now, SLICES)
    }

    /// The calls of the last tenth of it.
    pub(super) fn latest(&self, now: Moment) -> Counts {
        self.sum(now, LATEST)
    }

    fn sum(&self, now: Moment, slices: u64) -> Counts {
        let number = self.number(now);
        if self.is_elsewhere(number) {
            return Counts::default();
        }
        // Of the slices before the current one, those that were begun.
        let newest = self.newest.max(number);
        let oldest = (newest + 1).saturating_sub(slices);
        (oldest..=self.newest).fold(Counts::default(), |sum, number| {
            let slice = self.slices[place(number)];
            Counts {
                calls: sum.calls.saturating_add(slice.calls),
                failures: sum.failures.saturating_add(slice.failures),
            }
        })
    }

    /// Makes the slice of that number the newest, unless it is a little earlier.
    fn slide(&mut self, number: u64) {
        if self.is_elsewhere(number) {
            self.slices = Default::default();
            self.newest = number;
        }
        while self.newest < number {
            self.newest += 1;
            self.slices[place(self.newest)] = Counts::default();
        }
    }

    /// Whether a slice is so far from the newest that they share no span.
    fn is_elsewhere(&self, number: u64) -> bool {
        self.newest.abs_diff(number) >= SLICES
    }

    fn number(&self, now: Moment) -> u64 {
        now.as_nanos() / self.slice_lasts
    }
}

fn place(number: u64) -> usize {
    (number % SLICES) as usize
}
