//! A token bucket, in exact integers: one token is `period` units, `count` units flow in each
//! nanosecond.

use std::time::Duration;

use sluicegate_schedule::Moment;

use crate::history::Flow;

pub(super) struct Bucket {
    /// Tells this bucket from those before it: a token goes back only to where it came from.
    pub(super) number: u64,
    flow: Flow,
    units: u128,
    at: Moment,
}

impl Bucket {
    pub(super) fn full(now: Moment, flow: Flow, number: u64) -> Self {
        Self { number, flow, units: depth(flow), at: now }
    }

    pub(super) fn take(&mut self, now: Moment) -> Result<(), Moment> {
        let ready_at = self.ready_at(now);
        if ready_at > now {
            return Err(ready_at);
        }
        self.fill(now);
        self.units -= period(self.flow);
        Ok(())
    }

    pub(super) fn put_back(&mut self) {
        self.units = (self.units + period(self.flow)).min(depth(self.flow));
    }

    /// What is in the bucket stays, as tokens and fractions of one, up to the new depth.
    pub(super) fn change(&mut self, now: Moment, flow: Flow) {
        self.fill(now);
        self.units = (self.units * period(flow) / period(self.flow)).min(depth(flow));
        self.flow = flow;
    }

    pub(super) fn ready_at(&self, now: Moment) -> Moment {
        let missing = period(self.flow).saturating_sub(self.units_at(now));
        now + Duration::from_nanos(missing.div_ceil(u128::from(self.flow.count)) as u64)
    }

    fn fill(&mut self, now: Moment) {
        self.units = self.units_at(now);
        self.at = now;
    }

    fn units_at(&self, now: Moment) -> u128 {
        let flowed = (now - self.at).as_nanos() * u128::from(self.flow.count);
        (self.units + flowed).min(depth(self.flow))
    }
}

fn period(flow: Flow) -> u128 {
    u128::from(flow.period_ms) * 1_000_000
}

fn depth(flow: Flow) -> u128 {
    u128::from(flow.burst) * period(flow)
}
