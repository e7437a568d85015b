//! Changing the bounds while items wait and run.

use std::hash::Hash;

use crate::{Invalid, Limits, Moment, Rate, RateLimit, Schedule, TenantLimits};

impl<V, K: Hash + Eq + Clone, T: Hash + Eq + Clone> Schedule<V, K, T> {
    /// Changes how many items may run at once. Those that run go on; a lower limit is met as they
    /// end.
    ///
    /// # Errors
    /// Names `concurrency` when it is zero; then nothing changes.
    pub fn set_concurrency(&mut self, concurrency: u32) -> Result<(), Invalid> {
        Invalid::check_count("concurrency", concurrency, u32::MAX)?;
        self.limits.concurrency = concurrency;
        Ok(())
    }

    /// Changes how many items may wait. Those that wait go on waiting.
    ///
    /// # Errors
    /// Names `capacity` when it is zero; then nothing changes.
    pub fn set_capacity(&mut self, capacity: u32) -> Result<(), Invalid> {
        Invalid::check_count("capacity", capacity, u32::MAX)?;
        self.limits.capacity = capacity;
        Ok(())
    }

    /// Changes, adds or removes the rate, at once and for those that already wait.
    pub fn set_rate(&mut self, now: Moment, rate: Option<Rate>) {
        match (rate, &mut self.rate) {
            (None, _) => self.rate = None,
            (Some(rate), Some(limit)) => limit.set_rate(rate, now),
            (Some(rate), None) => {
                self.buckets = self.buckets.wrapping_add(1);
                self.rate = Some(RateLimit::new(rate, now));
            }
        }
        self.limits.rate = rate;
    }

    /// Changes the limits of one tenant, at once.
    ///
    /// # Errors
    /// Names the field that cannot work; then nothing changes.
    pub fn set_tenant(&mut self, tenant: T, limits: TenantLimits) -> Result<(), Invalid> {
        limits.check()?;
        if let Some(index) = self.ring.find(&tenant) {
            self.ring.set_limits(index, limits);
        }
        self.limits.tenants.insert(tenant, limits);
        Ok(())
    }

    /// Changes the limits of every tenant that has none of its own, at once.
    ///
    /// # Errors
    /// Names the field that cannot work; then nothing changes.
    pub fn set_each_tenant(&mut self, limits: TenantLimits) -> Result<(), Invalid> {
        limits.check()?;
        self.limits.each_tenant = limits;
        let Limits { tenants, .. } = &self.limits;
        self.ring.set_all_limits(|name| tenants.get(name).copied().unwrap_or(limits));
        Ok(())
    }
}
