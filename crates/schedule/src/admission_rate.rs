//! How often each tenant may enter: a limit for each that has a rate and used it lately.
//!
//! Invariant: every limit stands in `untouched` under the moment from which on it is as if nothing
//! had been taken; then it is forgotten, so an idle tenant leaves nothing behind.
//!
//! `docs/rules.md#rate-4`.

use std::hash::Hash;

use crate::arena::Arena;
use crate::heap::Heap;
use crate::map::Map;
use crate::{Moment, NotUntil, Rate, RateLimit};

#[derive(Debug)]
pub(crate) struct AdmissionRates<T> {
    limits: Arena<Used<T>>,
    by_tenant: Map<T, u32>,
    untouched: Heap<Moment>,
}

#[derive(Debug)]
struct Used<T> {
    tenant: T,
    limit: RateLimit,
    place: u32,
}

impl<T: Hash + Eq + Clone> AdmissionRates<T> {
    pub(crate) fn new() -> Self {
        Self { limits: Arena::new(), by_tenant: Map::default(), untouched: Heap::new() }
    }

    /// Whether so many items of a tenant may enter now.
    pub(crate) fn check(&self, now: Moment, tenant: &T, items: u32) -> Result<(), NotUntil> {
        let Some(&index) = self.by_tenant.get(tenant) else { return Ok(()) };
        let ready_at = self.limits[index].limit.ready_for(items, now);
        if ready_at > now { Err(NotUntil(ready_at)) } else { Ok(()) }
    }

    /// An item of a tenant enters, which [`AdmissionRates::check`] allowed.
    pub(crate) fn take(&mut self, now: Moment, tenant: &T, rate: Rate) {
        let index = match self.by_tenant.get(tenant) {
            Some(&index) => index,
            None => {
                let limit = RateLimit::new(rate, now);
                let index = self.limits.insert(Used { tenant: tenant.clone(), limit, place: 0 });
                self.by_tenant.insert(tenant.clone(), index);
                self.untouched.push(now, index, |used, at| self.limits[used].place = at);
                index
            }
        };
        let Used { limit, place, .. } = &mut self.limits[index];
        limit.try_take(now).ok();
        let (place, at) = (*place, limit.untouched_at(now));
        self.untouched.update(place, at, |used, at| self.limits[used].place = at);
    }

    /// An item of a tenant that entered at a moment did not enter after all.
    pub(crate) fn refund(&mut self, tenant: &T, entered: Moment) {
        if let Some(&index) = self.by_tenant.get(tenant) {
            let Used { limit, place, .. } = &mut self.limits[index];
            limit.refund(entered);
            let (place, at) = (*place, limit.untouched_at(entered));
            self.untouched.update(place, at, |used, at| self.limits[used].place = at);
        }
    }

    /// Other rates, as `rate` says: what was used stays used. Those that have recovered are forgotten
    /// first, as if time had been told: a deeper bucket comes full to them.
    pub(crate) fn set_rates(&mut self, now: Moment, rate: impl Fn(&T) -> Option<Rate>) {
        self.forget_untouched(now);
        let all: Vec<u32> = self.limits.iter().map(|(index, _)| index).collect();
        for index in all {
            self.set_rate_at(now, index, rate(&self.limits[index].tenant));
        }
    }

    /// The same for one tenant.
    pub(crate) fn set_rate(&mut self, now: Moment, tenant: &T, rate: Option<Rate>) {
        self.forget_untouched(now);
        if let Some(&index) = self.by_tenant.get(tenant) {
            self.set_rate_at(now, index, rate);
        }
    }

    fn set_rate_at(&mut self, now: Moment, index: u32, rate: Option<Rate>) {
        let Some(rate) = rate else { return self.forget(index) };
        let Used { limit, place, .. } = &mut self.limits[index];
        limit.set_rate(rate, now);
        let (place, at) = (*place, limit.untouched_at(now));
        self.untouched.update(place, at, |used, at| self.limits[used].place = at);
    }

    #[inline]
    pub(crate) fn forget_untouched(&mut self, now: Moment) {
        while let Some((_, index)) = self.untouched.first().filter(|(at, _)| *at <= now) {
            self.forget(index);
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.limits.len()
    }

    fn forget(&mut self, index: u32) {
        let Used { tenant, place, .. } = self.limits.remove(index);
        self.untouched.remove(place, |used, at| self.limits[used].place = at);
        self.by_tenant.remove(&tenant);
        crate::shrink(&mut self.by_tenant);
    }
}
