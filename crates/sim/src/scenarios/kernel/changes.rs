//! Limits that change, and pauses.

use std::time::Duration;

use sluicegate_schedule::{Rate, TenantLimits};

use super::{MAX_CONCURRENCY, Pool};
use crate::oracles::{Bounds, Broken, Fact, Flow, Pace};
use crate::rng::Rng;

pub(super) fn bounds(rng: &mut Rng) -> Bounds {
    let mut limit = |most| if rng.percent(30) { rng.between_u32(1, most) } else { u32::MAX };
    let (max_running, max_queued) = (limit(3), limit(20));
    let entries = (rng.between_u32(1, 20), rng.between(5, 300) * 1_000_000);
    let entries = Some(entries).filter(|_| rng.percent(20));
    Bounds { weight: rng.between_u32(1, 4), max_running, max_queued, entries }
}

pub(super) fn limits(bounds: Bounds) -> TenantLimits {
    let limits = TenantLimits::new()
        .weight(bounds.weight)
        .max_running(bounds.max_running)
        .max_queued(bounds.max_queued);
    match bounds.entries {
        Some((count, period)) => limits.admission_rate(sliding(count, period)),
        None => limits,
    }
}

fn sliding(count: u32, period: u64) -> Rate {
    Rate::sliding(count, Duration::from_nanos(period)).expect("sound")
}

impl Pool<'_> {
    pub(super) fn change(&mut self) -> Result<(), Broken> {
        self.report.faults += 1;
        match self.rng.between(1, 5) {
            1 => {
                let concurrency = self.rng.between_u32(1, MAX_CONCURRENCY);
                self.schedule.set_concurrency(concurrency).expect("sound");
                self.see(Fact::Concurrency(concurrency))
            }
            2 => {
                let capacity = self.rng.between_u32(5, 120);
                self.schedule.set_capacity(capacity).expect("sound");
                self.see(Fact::Capacity(capacity))
            }
            3 => self.change_rate(),
            4 => {
                let tenant = self.rng.between(0, self.tenants as u64 - 1) as usize;
                let bounds = bounds(&mut self.rng);
                self.schedule.set_tenant(self.now, tenant, limits(bounds)).expect("sound");
                self.see(Fact::Tenant(tenant, bounds))
            }
            _ => {
                let tenant = self.rng.between(0, self.tenants as u64 - 1) as usize;
                self.schedule.unset_tenant(self.now, &tenant);
                self.see(Fact::Tenant(tenant, Bounds::OPEN))
            }
        }
    }

    fn change_rate(&mut self) -> Result<(), Broken> {
        let (count, period) = (self.rng.between_u32(1, 9), self.rng.between(1, 50) * 1_000_000);
        let flow = Flow { count, period, burst: self.rng.between_u32(1, 5) };
        let pace = match self.rng.between(1, 10) {
            1..=3 => Some(Pace::Bucket(flow)),
            4..=6 => Some(Pace::Sliding { count, period }),
            _ => None,
        };
        let rate = pace.map(|pace| match pace {
            Pace::Bucket(Flow { count, period, burst }) => {
                Rate::new(count, Duration::from_nanos(period), burst).expect("sound")
            }
            Pace::Sliding { count, period } => sliding(count, period),
        });
        self.schedule.set_rate(self.now, rate);
        self.see(Fact::Rate(pace))
    }

    pub(super) fn pause(&mut self, reason: &'static str) -> Result<(), Broken> {
        self.report.faults += 1;
        self.schedule.pause(reason);
        self.see(Fact::Paused)
    }

    pub(super) fn resume(&mut self, reason: &'static str) -> Result<(), Broken> {
        if !self.schedule.resume(reason) {
            return Err(Broken::new("limits", format!("no pause for {reason} to end")));
        }
        self.see(Fact::Resumed)
    }
}
