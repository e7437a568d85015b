//! The settings of a sluice, checked once when it is built.

use std::sync::Arc;

use sluicegate_schedule::{Fault, Invalid, Limits, LimitsBuilder, Rate, TenantLimits};

use super::crew::Crew;
use super::{Handle, Shared, Sluice};
use crate::line::Line;
use crate::line::entrance::{Entrance, keep_time};

/// Settings of a [`Sluice`] that are not checked yet.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Sluice, TenantLimits};
///
/// let unchecked = Sluice::<u32>::builder("orders", 4, 1000);
/// let wrong = unchecked.clone().each_tenant(TenantLimits::new().weight(0));
/// assert_eq!(wrong.build::<u32>().unwrap_err().field, "weight");
/// assert!(unchecked.build::<u32>().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "build() makes the sluice"]
pub struct SluiceBuilder {
    name: String,
    limits: LimitsBuilder<Arc<str>>,
}

impl SluiceBuilder {
    pub(super) fn new(name: String, concurrency: u32, capacity: u32) -> Self {
        Self { name, limits: Limits::new(concurrency, capacity) }
    }

    /// The rate at which items may start.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Rate, Sluice, Why};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 4, 10).rate(Rate::per_minute(1)?).build()?;
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// let waits = sluice.admit(Entry::of("alice"), 2)?;
    /// assert!(matches!(sluice.why(waits).ok_or("gone")?.why, Why::RateLimited { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn rate(mut self, rate: Rate) -> Self {
        self.limits = self.limits.rate(rate);
        self
    }

    /// The bounds of every tenant that has none of its own.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice, TenantLimits};
    ///
    /// let one_each = TenantLimits::new().max_queued(1);
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).each_tenant(one_each).build()?;
    /// sluice.admit(Entry::of("carol"), 0)?; // starts
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// assert!(sluice.admit(Entry::of("alice"), 2).is_err());
    /// assert!(sluice.admit(Entry::of("bob"), 3).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn each_tenant(mut self, limits: TenantLimits) -> Self {
        self.limits = self.limits.each_tenant(limits);
        self
    }

    /// The bounds of one tenant.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice, TenantLimits};
    ///
    /// let premium = TenantLimits::new().weight(4);
    /// let sluice = Sluice::<u32>::builder("orders", 4, 10).tenant("alice", premium).build()?;
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// assert_eq!(sluice.tenants()[0].weight, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tenant(mut self, tenant: impl Into<Arc<str>>, limits: TenantLimits) -> Self {
        self.limits = self.limits.tenant(tenant, limits);
        self
    }

    /// With work waiting, each class gets at least one of every `dispatches`; 16 unless told.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// let builder = Sluice::<u32>::builder("orders", 4, 10);
    /// assert!(builder.clone().class_period(8).build::<u32>().is_ok());
    /// let refused = builder.class_period(3).build::<u32>().unwrap_err();
    /// assert_eq!(refused.to_string(), "class_period: must be at least 4"); // one for each class
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn class_period(mut self, dispatches: u32) -> Self {
        self.limits = self.limits.class_period(dispatches);
        self
    }

    /// Checks the settings and makes the sluice. Needs a tokio runtime around it, for its timer;
    /// nothing else of a sluice does.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// assert!(Sluice::<u32>::builder("orders", 4, 10).build::<u32>().is_ok());
    /// let fault = |name, concurrency, capacity| {
    ///     let built = Sluice::<u32>::builder(name, concurrency, capacity).build::<u32>();
    ///     built.unwrap_err().field
    /// };
    /// assert_eq!(fault("", 4, 10), "name");
    /// assert_eq!((fault("a", 0, 1), fault("a", 1, 0)), ("concurrency", "capacity"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names the field that cannot work.
    pub fn build<V: Send + 'static>(self) -> Result<Sluice<V>, Invalid> {
        if self.name.is_empty() {
            return Err(Invalid::new("name", Fault::Empty));
        }
        let limits = self.limits.build()?;
        let line = |now| Line::new(limits, Crew::new(), now);
        let shared: Arc<Shared<V>> = Arc::new(Entrance::new(self.name, line));
        tokio::spawn(keep_time::<Crew<V>, Shared<V>>(Arc::clone(&shared)));
        Ok(Sluice { handle: Arc::new(Handle { shared }) })
    }
}
