//! Changing the bounds while items wait and run.

use std::hash::Hash;
use std::num::NonZeroU32;

use crate::{Invalid, Limits, Moment, Rate, RateLimit, Schedule, TenantLimits};

impl<V, K: Hash + Eq + Clone, T: Hash + Eq + Clone> Schedule<V, K, T> {
    /// Changes how many items may run at once. Those that run go on; a lower limit is met as they
    /// end.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// let second = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.next(now);
    /// assert_eq!(schedule.next(now), Next::Idle);
    /// schedule.set_concurrency(2)?;
    /// assert_eq!(schedule.next(now), Next::Start(second));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 1).build()?, now);
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// assert!(schedule.admit(now, Entry::of("alice"), ()).is_err());
    /// schedule.set_capacity(2)?;
    /// assert!(schedule.admit(now, Entry::of("alice"), ()).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Names `capacity` when it is zero; then nothing changes.
    pub fn set_capacity(&mut self, capacity: u32) -> Result<(), Invalid> {
        Invalid::check_count("capacity", capacity, u32::MAX)?;
        self.limits.capacity = capacity;
        Ok(())
    }

    /// Changes, adds or removes the rate, at once and for those that already wait.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Rate, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(9, 9).rate(Rate::per_minute(1)?).build()?;
    /// let mut schedule = Schedule::<(), (), &str>::new(limits, now);
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// let second = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.next(now);
    /// assert!(matches!(schedule.next(now), Next::At(_)));
    /// schedule.set_rate(now, None);
    /// assert_eq!(schedule.next(now), Next::Start(second));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_rate(&mut self, now: Moment, rate: Option<Rate>) {
        match (rate, &mut self.rate) {
            (None, _) => self.rate = None,
            (Some(rate), Some(limit)) => limit.set_rate(rate, now),
            (Some(rate), None) => {
                self.buckets = self.buckets.checked_add(1).unwrap_or(NonZeroU32::MIN);
                self.rate = Some(RateLimit::new(rate, now));
            }
        }
        self.limits.rate = rate;
    }

    /// Changes the limits of one tenant, at once.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(9, 9).build()?, now);
    /// let first = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.set_tenant(now, "alice", TenantLimits::new().max_running(1))?;
    /// assert_eq!(schedule.next(now), Next::Start(first));
    /// assert_eq!(schedule.next(now), Next::Idle);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Names the field that cannot work; then nothing changes.
    pub fn set_tenant(
        &mut self,
        now: Moment,
        tenant: T,
        limits: TenantLimits,
    ) -> Result<(), Invalid> {
        limits.check()?;
        if let Some(index) = self.tenants.find(&tenant) {
            self.tenants.set_limits(index, (&limits).into());
        }
        self.admission_rates.set_rate(now, &tenant, limits.admission_rate);
        self.limits.tenants.insert(tenant, limits);
        Ok(())
    }

    /// A tenant goes by the limits of each tenant again, at once. `false` when it had none of its own.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(9, 9).build()?, now);
    /// schedule.set_tenant(now, "alice", TenantLimits::new().max_queued(1))?;
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// assert!(schedule.may_admit(now, &Entry::of("alice")).is_err());
    /// assert!(schedule.unset_tenant(now, &"alice"));
    /// assert!(schedule.may_admit(now, &Entry::of("alice")).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unset_tenant(&mut self, now: Moment, tenant: &T) -> bool {
        let had = self.limits.tenants.remove(tenant).is_some();
        if let Some(index) = self.tenants.find(tenant) {
            self.tenants.set_limits(index, (&self.limits.each_tenant).into());
        }
        self.admission_rates.set_rate(now, tenant, self.limits.each_tenant.admission_rate);
        had
    }

    /// Changes the limits of every tenant that has none of its own, at once.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(9, 9).build()?, now);
    /// schedule.set_tenant(now, "alice", TenantLimits::new().max_queued(2))?;
    /// schedule.set_each_tenant(now, TenantLimits::new().max_queued(1))?;
    /// for tenant in ["alice", "bob"] {
    ///     schedule.admit(now, Entry::of(tenant), ())?;
    /// }
    /// assert!(schedule.may_admit(now, &Entry::of("alice")).is_ok()); // by her own limit
    /// assert!(schedule.may_admit(now, &Entry::of("bob")).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Names the field that cannot work; then nothing changes.
    pub fn set_each_tenant(&mut self, now: Moment, limits: TenantLimits) -> Result<(), Invalid> {
        limits.check()?;
        self.limits.each_tenant = limits;
        let Limits { tenants, .. } = &self.limits;
        self.tenants.set_all_limits(|name| tenants.get(name).unwrap_or(&limits).into());
        let rate_of = |name: &T| tenants.get(name).unwrap_or(&limits).admission_rate;
        self.admission_rates.set_rates(now, rate_of);
        Ok(())
    }

    /// Lets nothing start, for a reason that [`Schedule::why`] names, until [`Schedule::resume`] has
    /// been called for it as often. Whatever runs goes on, and items are let in as before.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule, Why};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 9).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.pause("memory");
    /// assert_eq!(schedule.next(now), Next::Idle);
    /// assert_eq!(schedule.why(now, id), Some(Why::Paused { reason: "memory" }));
    /// assert!(schedule.resume("memory"));
    /// assert_eq!(schedule.next(now), Next::Start(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&mut self, reason: &'static str) {
        self.pauses.add(reason);
    }

    /// Takes back one [`Schedule::pause`]. `false` when there is none for that reason.
    ///
    /// ```
    /// use sluicegate_schedule::{Limits, Moment, Schedule};
    ///
    /// let limits = Limits::new(1, 9).build()?;
    /// let mut schedule = Schedule::<(), (), &str>::new(limits, Moment::ZERO);
    /// assert!(!schedule.resume("memory"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&mut self, reason: &'static str) -> bool {
        self.pauses.end(reason)
    }
}
