//! Limits as the one who watches knows them: who may enter, and changes.

use std::collections::HashMap;

use sluicegate_schedule::{Moment, Refusal};

use super::{Seen, Watched};
use crate::history::{Bounds, Newcomer, Op, REASONS};

impl Watched {
    /// Whether all of them would be let in.
    pub(super) fn may_admit(&self, batch: &[Newcomer]) -> Result<(), Refusal> {
        let (queued, capacity) = (self.count(Seen::waits), self.setup.capacity);
        if self.draining {
            return Err(Refusal::Draining);
        }
        if batch.len() as u32 > capacity.saturating_sub(queued) {
            return Err(Refusal::QueueFull { queued, capacity });
        }
        let mut entered: HashMap<u8, u32> = HashMap::new();
        for newcomer in batch {
            let queued = self.count(|seen| seen.waits() && seen.tenant == newcomer.tenant);
            let max = self.bounds(newcomer.tenant).max_queued;
            let before = entered.entry(newcomer.tenant).or_default();
            if queued + *before >= max && !newcomer.class.passes_tenant_depth() {
                return Err(Refusal::TenantQueueFull { queued, max });
            }
            *before += 1;
        }
        Ok(())
    }

    /// How often a tenant may enter is counted elsewhere; here it must only be limited at all.
    pub(super) fn check_refusal(&self, batch: &[Newcomer], why: Refusal, may: Result<(), Refusal>) {
        match why {
            Refusal::TenantRateLimited { until } => {
                assert!(until > self.now && until < Moment::FAR, "refused until {until:?}");
                assert!(batch.iter().any(|of| self.bounds(of.tenant).admission.is_some()));
            }
            Refusal::BatchTooLarge { items, max } => {
                assert!(items > max && batch.len() as u32 >= items, "{items} of {max}");
                assert!(batch.iter().any(|of| self.bounds(of.tenant).admission.is_some()));
            }
            _ => assert_eq!(Err(why), may),
        }
    }

    pub(super) fn set(&mut self, op: Op) {
        match op {
            Op::SetConcurrency(concurrency) => {
                self.setup.concurrency = concurrency;
                self.schedule.set_concurrency(concurrency).expect("sound");
            }
            Op::SetCapacity(capacity) => {
                self.setup.capacity = capacity;
                self.schedule.set_capacity(capacity).expect("sound");
            }
            Op::SetRate(rate) => self.schedule.set_rate(self.now, rate.map(|flow| flow.rate())),
            Op::SetTenant(tenant, bounds) => {
                self.bounds.insert(tenant, bounds);
                self.schedule.set_tenant(self.now, tenant, bounds.limits()).expect("sound");
            }
            Op::UnsetTenant(tenant) => {
                let had = self.bounds.remove(&tenant).is_some();
                assert_eq!(self.schedule.unset_tenant(self.now, &tenant), had);
            }
            Op::Pause(at) => self.schedule.pause(REASONS[at]),
            Op::Resume(at) => drop(self.schedule.resume(REASONS[at])),
            Op::SetEachTenant(bounds) => {
                self.setup.each_tenant = bounds;
                self.schedule.set_each_tenant(self.now, bounds.limits()).expect("sound");
            }
            _ => unreachable!("not a limit: {op:?}"),
        }
        self.most = self.most.max(self.setup.capacity + self.setup.concurrency);
    }

    pub(super) fn bounds(&self, tenant: u8) -> Bounds {
        self.bounds.get(&tenant).copied().unwrap_or(self.setup.each_tenant)
    }
}
