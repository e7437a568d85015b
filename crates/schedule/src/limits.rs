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
/// use sluicegate_schedule::TenantLimits;
///
/// let premium = TenantLimits::new().weight(4).max_running(2).max_queued(3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    pub(crate) weight: u32,
    pub(crate) max_running: u32,
    pub(crate) max_queued: u32,
}

impl TenantLimits {
    /// The greatest weight: beyond it a tenant's charge per item would round to nothing.
    pub const MAX_WEIGHT: u32 = 10_000;

    /// Weight 1, bounded only by what bounds all.
    #[must_use]
    pub const fn new() -> Self {
        Self { weight: 1, max_running: u32::MAX, max_queued: u32::MAX }
    }

    /// The tenant's share, relative to the others'.
    #[must_use]
    pub const fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// How many of the tenant's items may run at once.
    #[must_use]
    pub const fn max_running(self, max_running: u32) -> Self {
        Self { max_running, ..self }
    }

    /// How many of the tenant's items may wait. [`Class::System`] and [`Class::Admin`] pass it.
    #[must_use]
    pub const fn max_queued(self, max_queued: u32) -> Self {
        Self { max_queued, ..self }
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
    #[must_use]
    pub const fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// How many items may wait.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The rate at which items may start, if there is one.
    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }
}

/// [`Limits`] that are not checked yet.
#[derive(Clone, Debug)]
#[must_use = "build() checks the limits"]
pub struct LimitsBuilder<T> {
    limits: Limits<T>,
    named: Vec<(T, TenantLimits)>,
}

impl<T: Hash + Eq + Debug> LimitsBuilder<T> {
    /// How many items may run at once.
    pub const fn concurrency(mut self, concurrency: u32) -> Self {
        self.limits.concurrency = concurrency;
        self
    }

    /// How many items may wait.
    pub const fn capacity(mut self, capacity: u32) -> Self {
        self.limits.capacity = capacity;
        self
    }

    /// The rate at which items may start.
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.limits.rate = Some(rate);
        self
    }

    /// With work waiting, each class gets at least one of every `dispatches`; 16 unless told.
    pub const fn class_period(mut self, dispatches: u32) -> Self {
        self.limits.class_period = dispatches;
        self
    }

    /// The bounds of every tenant that has none of its own.
    pub const fn each_tenant(mut self, limits: TenantLimits) -> Self {
        self.limits.each_tenant = limits;
        self
    }

    /// The bounds of one tenant.
    pub fn tenant(mut self, tenant: impl Into<T>, limits: TenantLimits) -> Self {
        self.named.push((tenant.into(), limits));
        self
    }

    /// Checks everything.
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
