//! The oracle of how often a tenant may enter.

use sluicegate_schedule::Moment;

/// When a tenant's items entered, while that is bounded.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    bound: Option<(u32, u64)>,
    changed: Moment,
    at: Vec<Moment>,
}

impl Entries {
    pub(super) fn new(bound: Option<(u32, u64)>) -> Self {
        Self { bound, ..Self::default() }
    }

    /// Another bound: what entered before it may count still, but need not.
    pub(super) fn change(&mut self, now: Moment, bound: Option<(u32, u64)>) {
        self.bound = bound;
        self.changed = now;
        if bound.is_none() {
            self.at.clear();
        }
    }

    pub(super) fn enter(&mut self, now: Moment) {
        if self.bound.is_some() {
            self.at.push(now);
        }
    }

    /// Whether so many more are surely too many.
    pub(super) fn must_refuse(&self, now: Moment, count: u32) -> bool {
        self.within(now, |at| at > self.changed, count)
    }

    /// Whether so many more may be too many.
    pub(super) fn may_refuse(&self, now: Moment, count: u32) -> bool {
        self.within(now, |_| true, count)
    }

    fn within(&self, now: Moment, counts: impl Fn(Moment) -> bool, more: u32) -> bool {
        let Some((most, period)) = self.bound else { return false };
        let in_span = |at: &&Moment| counts(**at) && (now - **at).as_nanos() < u128::from(period);
        self.at.iter().filter(in_span).count() + more as usize > most as usize
    }
}
