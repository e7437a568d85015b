//! The oracle of rates: a bucket that is never asked, only told.

use sluicegate_schedule::Moment;

use super::{Broken, hold};

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// So many starts.
    pub count: u32,
    /// In so many nanoseconds.
    pub period: u64,
    /// At most so many at once.
    pub burst: u32,
}

/// How many tokens there can be at most: one is `period` units.
#[derive(Debug)]
pub(super) struct Bucket {
    flow: Flow,
    units: u128,
    at: Moment,
}

impl Bucket {
    pub(super) fn change(bucket: &mut Option<Self>, now: Moment, flow: Option<Flow>) {
        *bucket = match (bucket.take(), flow) {
            (_, None) => None,
            (None, Some(flow)) => Some(Self { flow, units: flow.depth(), at: now }),
            (Some(mut old), Some(flow)) => {
                old.fill(now);
                // Rounded up: the oracle must never be the stricter one.
                let (from, to) = (u128::from(old.flow.period), u128::from(flow.period));
                let units = (old.units * to).div_ceil(from).min(flow.depth());
                Some(Self { flow, units, at: now })
            }
        };
    }

    pub(super) fn take(&mut self, now: Moment) -> Result<(), Broken> {
        self.fill(now);
        let token = u128::from(self.flow.period);
        hold("rate", self.units >= token, || format!("a start too many for {:?}", self.flow))?;
        self.units -= token;
        Ok(())
    }

    pub(super) fn put_back(&mut self) {
        self.units = (self.units + u128::from(self.flow.period)).min(self.flow.depth());
    }

    fn fill(&mut self, now: Moment) {
        let flowed = (now - self.at).as_nanos() * u128::from(self.flow.count);
        self.units = (self.units + flowed).min(self.flow.depth());
        self.at = now;
    }
}

impl Flow {
    fn depth(self) -> u128 {
        u128::from(self.burst) * u128::from(self.period)
    }
}
