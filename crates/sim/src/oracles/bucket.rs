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

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// By a bucket of tokens.
    Bucket(Flow),
    /// Never more than so many in any span of so many nanoseconds.
    Sliding {
        /// So many.
        count: u32,
        /// In so many nanoseconds.
        period: u64,
    },
}

/// The oracle of a pace. Told of another one it begins anew: it must never be the stricter one.
#[derive(Debug, Default)]
pub(super) struct Paced {
    bucket: Option<Bucket>,
    sliding: Option<(u32, u64)>,
    /// The starts under a sliding pace, and which they were.
    starts: Vec<(Moment, u64)>,
}

impl Paced {
    pub(super) fn change(&mut self, now: Moment, pace: Option<Pace>) {
        self.starts.clear();
        self.sliding = None;
        match pace {
            Some(Pace::Bucket(flow)) => Bucket::change(&mut self.bucket, now, Some(flow)),
            Some(Pace::Sliding { count, period }) => {
                self.bucket = None;
                self.sliding = Some((count, period));
            }
            None => self.bucket = None,
        }
    }

    pub(super) fn take(&mut self, now: Moment, number: u64) -> Result<(), Broken> {
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now)?;
        }
        let Some((count, period)) = self.sliding else { return Ok(()) };
        self.starts.retain(|(at, _)| (now - *at).as_nanos() < u128::from(period));
        self.starts.push((now, number));
        let within = self.starts.len();
        hold("rate", within <= count as usize, || format!("{within} starts in {period} ns"))
    }

    pub(super) fn put_back(&mut self, number: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.put_back();
        }
        self.starts.retain(|(_, started)| *started != number);
    }
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
