//! What bounds a schedule, checked once when it is built.
//!
//! `docs/rules.md#schedule-4`.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use crate::{Class, Fault, Invalid, Rate};

/// The bounds of one tenant.
///
/// ```
/// use sluicegate_schedule::{Limits, TenantLimits};
///
/// let premium = TenantLimits::new().weight(4).max_running(2).max_queued(3);
/// assert!(Limits::new::<&str>(4, 50).tenant("alice", premium).build().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    pub(crate) weight: u32,
    pub(crate) max_running: u32,
    pub(crate) max_queued: u32,
    pub(crate) admission_rate: Option<Rate>,
}

impl TenantLimits {
    /// The greatest weight: beyond it a tenant's charge per item would round to nothing.
    pub const MAX_WEIGHT: u32 = 10_000;

    /// Weight 1, bounded only by what bounds all.
    ///
    /// ```
    /// use sluicegate_schedule::TenantLimits;
    ///
    /// assert_eq!(TenantLimits::new().weight(1), TenantLimits::new());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { weight: 1, max_running: u32::MAX, max_queued: u32::MAX, admission_rate: None }
    }

    /// The tenant's share, relative to the others'.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(1, 10).tenant("gold", TenantLimits::new().weight(2)).build()?;
    /// let mut schedule = Schedule::<&str, (), &str>::new(limits, now);
    /// for tenant in ["silver", "silver", "gold", "gold"] {
    ///     schedule.admit(now, Entry::of(tenant), tenant)?;
    /// }
    /// let mut order = Vec::new();
    /// while let Next::Start(id) = schedule.next(now) {
    ///     order.extend(schedule.complete(id, None));
    /// }
    /// assert_eq!(order, ["silver", "gold", "gold", "silver"]); // two of gold for one of silver
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// How many of the tenant's items may run at once.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(4, 10).each_tenant(TenantLimits::new().max_running(1)).build()?;
    /// let mut schedule = Schedule::<(), (), &str>::new(limits, now);
    /// let first = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// assert_eq!(schedule.next(now), Next::Start(first));
    /// assert_eq!(schedule.next(now), Next::Idle); // the other three places are for others
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn max_running(self, max_running: u32) -> Self {
        Self { max_running, ..self }
    }

    /// How many of the tenant's items may wait. [`Class::System`] and [`Class::Admin`] pass it.
    ///
    /// ```
    /// use sluicegate_schedule::{Class, Entry, Limits, Moment, Refusal, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(1, 10).each_tenant(TenantLimits::new().max_queued(1)).build()?;
    /// let mut schedule = Schedule::<(), (), &str>::new(limits, now);
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// let refused = schedule.admit(now, Entry::of("alice"), ()).unwrap_err();
    /// assert_eq!(refused.why, Refusal::TenantQueueFull { queued: 1, max: 1 });
    /// assert!(schedule.admit(now, Entry::of("alice").class(Class::Admin), ()).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn max_queued(self, max_queued: u32) -> Self {
        Self { max_queued, ..self }
    }

    /// How often it may enter. An item that comes too soon is refused with the time to wait; only
    /// items that are let in count. [`Rate::sliding`] suits: with [`Rate::per_second`] a tenant that
    /// comes twice at once is refused, however seldom it comes.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Rate, Refusal, Schedule, TenantLimits};
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_mins(1);
    /// let each = TenantLimits::new().admission_rate(Rate::sliding(2, minute)?);
    /// let limits = Limits::new(1, 10).each_tenant(each).build()?;
    /// let mut schedule = Schedule::<(), (), &str>::new(limits, Moment::ZERO);
    /// schedule.admit(Moment::ZERO, Entry::of("alice"), ())?;
    /// schedule.admit(Moment::ZERO, Entry::of("alice"), ())?;
    /// let refused = schedule.admit(Moment::ZERO, Entry::of("alice"), ()).unwrap_err();
    /// assert_eq!(refused.why, Refusal::TenantRateLimited { until: Moment::ZERO + minute });
    /// assert!(schedule.admit(Moment::ZERO, Entry::of("bob"), ()).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn admission_rate(self, rate: Rate) -> Self {
        Self { admission_rate: Some(rate), ..self }
    }

    pub(crate) fn check(self) -> Result<(), Invalid> {
        Invalid::check_count("weight", self.weight, Self::MAX_WEIGHT)?;
        Invalid::check_count("max_running", self.max_running, u32::MAX)?;
        Invalid::check_count("max_queued", self.max_queued, u32::MAX)
    }
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self::new()
    }
}

/// The bounds of a schedule. Checked by [`LimitsBuilder::build`], so a `Limits` is always sound.
///
/// ```
/// use sluicegate_schedule::{Limits, Rate, TenantLimits};
///
/// let limits = Limits::new::<&str>(4, 50)
///     .each_tenant(TenantLimits::new().max_running(2).max_queued(3))
///     .tenant("telegram:42", TenantLimits::new().weight(4))
///     .rate(Rate::per_minute(600)?)
///     .build()?;
/// assert_eq!(limits.concurrency(), 4);
/// # Ok::<(), sluicegate_schedule::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limits<T = ()> {
    pub(crate) concurrency: u32,
    pub(crate) capacity: u32,
    pub(crate) class_period: u32,
    pub(crate) rate: Option<Rate>,
    pub(crate) each_tenant: TenantLimits,
    pub(crate) tenants: HashMap<T, TenantLimits>,
}

impl Limits {
    /// Starts from how many items may run at once and how many may wait.
    ///
    /// ```
    /// use sluicegate_schedule::Limits;
    ///
    /// let limits = Limits::new::<&str>(4, 50).build()?;
    /// assert_eq!((limits.concurrency(), limits.capacity()), (4, 50));
    /// assert_eq!(limits.rate(), None);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[expect(clippy::new_ret_no_self, reason = "a Limits exists only once it is checked")]
    pub fn new<T>(concurrency: u32, capacity: u32) -> LimitsBuilder<T> {
        LimitsBuilder {
            limits: Limits {
                concurrency,
                capacity,
                class_period: Self::CLASS_PERIOD,
                rate: None,
                each_tenant: TenantLimits::new(),
                tenants: HashMap::new(),
            },
            named: Vec::new(),
        }
    }

    /// With work waiting, each class gets at least one of so many dispatches.
    pub const CLASS_PERIOD: u32 = 16;
}

impl<T> Limits<T> {
    /// How many items may run at once.
    ///
    /// ```
    /// use sluicegate_schedule::Limits;
    ///
    /// assert_eq!(Limits::new::<&str>(4, 50).build()?.concurrency(), 4);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// How many items may wait.
    ///
    /// ```
    /// use sluicegate_schedule::Limits;
    ///
    /// assert_eq!(Limits::new::<&str>(4, 50).build()?.capacity(), 50);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The rate at which items may start, if there is one.
    ///
    /// ```
    /// use sluicegate_schedule::{Limits, Rate};
    ///
    /// let rate = Rate::per_minute(600)?;
    /// assert_eq!(Limits::new::<&str>(4, 50).rate(rate).build()?.rate(), Some(rate));
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }
}

/// [`Limits`] that are not checked yet.
///
/// ```
/// use sluicegate_schedule::Limits;
///
/// let unchecked = Limits::new::<&str>(4, 50).capacity(0);
/// assert_eq!(unchecked.clone().build().unwrap_err().field, "capacity");
/// assert!(unchecked.capacity(10).build().is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use = "build() checks the limits"]
pub struct LimitsBuilder<T> {
    limits: Limits<T>,
    named: Vec<(T, TenantLimits)>,
}

impl<T: Hash + Eq + Debug> LimitsBuilder<T> {
    /// How many items may run at once.
    ///
    /// ```
    /// use sluicegate_schedule::Limits;
    ///
    /// let defaults = Limits::new::<&str>(4, 50);
    /// assert_eq!(defaults.concurrency(8).build()?.concurrency(), 8);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    pub const fn concurrency(mut self, concurrency: u32) -> Self {
        self.limits.concurrency = concurrency;
        self
    }

    /// How many items may wait.
    ///
    /// ```
    /// use sluicegate_schedule::Limits;
    ///
    /// let defaults = Limits::new::<&str>(4, 50);
    /// assert_eq!(defaults.capacity(500).build()?.capacity(), 500);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    pub const fn capacity(mut self, capacity: u32) -> Self {
        self.limits.capacity = capacity;
        self
    }

    /// The rate at which items may start.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Rate, Schedule};
    /// use std::time::Duration;
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(4, 10).rate(Rate::per_minute(60)?).build()?;
    /// let mut schedule = Schedule::<(), (), &str>::new(limits, now);
    /// let first = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// assert_eq!(schedule.next(now), Next::Start(first));
    /// assert_eq!(schedule.next(now), Next::At(now + Duration::from_secs(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.limits.rate = Some(rate);
        self
    }

    /// With work waiting, each class gets at least one of every `dispatches`; 16 unless told.
    ///
    /// ```
    /// use sluicegate_schedule::{Class, Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(1, 10).class_period(4).build()?;
    /// let mut schedule = Schedule::<Class, (), &str>::new(limits, now);
    /// for class in [Class::Low, Class::System, Class::System, Class::System, Class::System] {
    ///     schedule.admit(now, Entry::of("alice").class(class), class)?;
    /// }
    /// let mut order = Vec::new();
    /// while let Next::Start(id) = schedule.next(now) {
    ///     order.extend(schedule.complete(id, None));
    /// }
    /// assert!(order[..4].contains(&Class::Low)); // although System is never out of work
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn class_period(mut self, dispatches: u32) -> Self {
        self.limits.class_period = dispatches;
        self
    }

    /// The bounds of every tenant that has none of its own.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule, TenantLimits};
    ///
    /// let limits = Limits::new(1, 10).each_tenant(TenantLimits::new().max_queued(1)).build()?;
    /// let mut schedule = Schedule::<(), (), &str>::new(limits, Moment::ZERO);
    /// schedule.admit(Moment::ZERO, Entry::of("alice"), ())?;
    /// assert!(schedule.may_admit(Moment::ZERO, &Entry::of("alice")).is_err());
    /// assert!(schedule.may_admit(Moment::ZERO, &Entry::of("bob")).is_ok()); // a bound each, not one for all
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn each_tenant(mut self, limits: TenantLimits) -> Self {
        self.limits.each_tenant = limits;
        self
    }

    /// The bounds of one tenant.
    ///
    /// ```
    /// use sluicegate_schedule::{Fault, Limits, TenantLimits};
    ///
    /// let limits = Limits::new::<&str>(1, 10).tenant("alice", TenantLimits::new().weight(4));
    /// let twice = limits.tenant("alice", TenantLimits::new());
    /// assert_eq!(twice.build().unwrap_err().fault, Fault::Duplicate { name: "alice".to_owned() });
    /// ```
    pub fn tenant(mut self, tenant: impl Into<T>, limits: TenantLimits) -> Self {
        self.named.push((tenant.into(), limits));
        self
    }

    /// Checks everything.
    ///
    /// ```
    /// use sluicegate_schedule::{Limits, TenantLimits};
    ///
    /// let unchecked = Limits::new::<&str>(1, 10).tenant("alice", TenantLimits::new().weight(0));
    /// assert_eq!(unchecked.build().unwrap_err().to_string(), "weight: must be at least 1");
    /// ```
    ///
    /// # Errors
    /// The first field that cannot work, by name.
    pub fn build(self) -> Result<Limits<T>, Invalid> {
        let Self { mut limits, named } = self;
        Invalid::check_count("concurrency", limits.concurrency, u32::MAX)?;
        Invalid::check_count("capacity", limits.capacity, u32::MAX)?;
        let least = Class::COUNT as u64;
        if u64::from(limits.class_period) < least {
            return Err(Invalid::new("class_period", Fault::TooSmall { min: least }));
        }
        limits.each_tenant.check()?;
        for (tenant, of_tenant) in named {
            of_tenant.check()?;
            let name = format!("{tenant:?}");
            if limits.tenants.insert(tenant, of_tenant).is_some() {
                let name = name.trim_matches('"').to_owned();
                return Err(Invalid::new("tenant", Fault::Duplicate { name }));
            }
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_limits_name_the_field() {
        let sound = || Limits::new::<&str>(1, 1);
        let tenant = TenantLimits::new;
        let cases: [(LimitsBuilder<&str>, &str); 8] = [
            (Limits::new(0, 1), "concurrency"),
            (Limits::new(1, 0), "capacity"),
            (sound().class_period(3), "class_period"),
            (sound().each_tenant(tenant().weight(0)), "weight"),
            (sound().each_tenant(tenant().weight(10_001)), "weight"),
            (sound().tenant("a", tenant().max_running(0)), "max_running"),
            (sound().tenant("a", tenant().max_queued(0)), "max_queued"),
            (sound().tenant("a", tenant()).tenant("a", tenant()), "tenant"),
        ];
        for (builder, field) in cases {
            let refused = builder.build().unwrap_err();
            assert_eq!(refused.field, field);
            assert!(refused.to_string().starts_with(field), "{refused}");
        }
    }

    #[test]
    fn a_tenant_given_twice_is_named() {
        let twice = Limits::new::<String>(1, 1)
            .tenant("alice", TenantLimits::new())
            .tenant("alice", TenantLimits::new());
        assert_eq!(twice.build().unwrap_err().to_string(), "tenant: \"alice\" is given twice");
    }
}
