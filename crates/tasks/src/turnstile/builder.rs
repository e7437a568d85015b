//! The settings of a turnstile, checked once when it is built.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Fault, Invalid, Limits, LimitsBuilder, Rate, TenantLimits};

use super::callers::Callers;
use super::{Handle, Shared, Turnstile};
use crate::Overload;
use crate::context::{Flag, GroupId, Lineage, Path};
use crate::line::Line;
use crate::line::entrance::{Entrance, keep_time};

/// Settings of a [`Turnstile`] that are not checked yet.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{TenantLimits, Turnstile};
///
/// let unchecked = Turnstile::builder("agents", 4).each_tenant(TenantLimits::new().weight(0));
/// assert_eq!(unchecked.clone().build().unwrap_err().field, "weight");
/// assert!(unchecked.each_tenant(TenantLimits::new().weight(2)).build().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "build() makes the turnstile"]
pub struct TurnstileBuilder {
    name: String,
    concurrency: u32,
    overload: Overload,
    unwind: Duration,
    limits: LimitsBuilder<Arc<str>>,
}

impl TurnstileBuilder {
    const UNWIND: Duration = Duration::from_millis(100);

    pub(super) fn new(name: String, concurrency: u32) -> Self {
        let (overload, unwind) = (Overload::Wait, Self::UNWIND);
        Self { name, concurrency, overload, unwind, limits: Limits::new(concurrency, u32::MAX) }
    }

    /// What to do with items that cannot start at once; [`Overload::Wait`] unless told.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Overload, Refusal, Turnstile};
    ///
    /// let turnstile = Turnstile::builder("agents", 4).overload(Overload::FailFast).build()?;
    /// let cx = Context::new();
    /// let _turn = turnstile.admit(&cx, Entry::of("alice").key("session-7"), ())?.turn().await?;
    /// let refused = turnstile.admit(&cx, Entry::of("alice").key("session-7"), ()).unwrap_err();
    /// assert_eq!(refused.why, Refusal::KeyBusy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn overload(mut self, overload: Overload) -> Self {
        self.overload = overload;
        self
    }

    /// The rate at which items may start.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Overload, Rate, Turnstile};
    ///
    /// let turnstile = Turnstile::builder("agents", 4)
    ///     .rate(Rate::per_minute(1)?)
    ///     .overload(Overload::FailFast)
    ///     .build()?;
    /// let cx = Context::new();
    /// turnstile.admit(&cx, Entry::of("alice"), ())?.turn().await?.finish();
    /// let refused = turnstile.admit(&cx, Entry::of("alice"), ()).unwrap_err();
    /// assert_eq!(refused.why.label(), "rate_limited");
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
    /// use sluicegate_tasks::{Context, Entry, TenantLimits, Turnstile};
    ///
    /// let one_each = TenantLimits::new().max_queued(1);
    /// let turnstile = Turnstile::builder("agents", 1).each_tenant(one_each).build()?;
    /// let cx = Context::new();
    /// let _turn = turnstile.admit(&cx, Entry::of("carol"), ())?.turn().await?;
    /// let _alice = turnstile.admit(&cx, Entry::of("alice"), ())?;
    /// assert!(turnstile.admit(&cx, Entry::of("alice"), ()).is_err());
    /// assert!(turnstile.admit(&cx, Entry::of("bob"), ()).is_ok());
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
    /// use sluicegate_tasks::{Context, Entry, TenantLimits, Turnstile};
    ///
    /// let premium = TenantLimits::new().weight(4);
    /// let turnstile = Turnstile::builder("agents", 4).tenant("alice", premium).build()?;
    /// let _waits = turnstile.admit(&Context::new(), Entry::of("alice"), ())?;
    /// assert_eq!(turnstile.tenants()[0].weight, 4);
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
    /// use sluicegate_tasks::Turnstile;
    ///
    /// assert!(Turnstile::builder("agents", 4).class_period(8).build().is_ok());
    /// let refused = Turnstile::builder("agents", 4).class_period(3).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "class_period: must be at least 4"); // one for each class
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn class_period(mut self, dispatches: u32) -> Self {
        self.limits = self.limits.class_period(dispatches);
        self
    }

    /// How long holders of a turn get to end once they are cancelled at the drain deadline; 100 ms
    /// unless told.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let turnstile = Turnstile::builder("agents", 1).unwind(Duration::from_millis(1)).build()?;
    /// let turn = turnstile.admit(&Context::new(), Entry::of("alice"), ())?.turn().await?;
    /// let report = turnstile.drain(Instant::now()).await;
    /// assert_eq!(report.abandoned[0].name, "alice"); // cancelled, and still held
    /// assert!(turn.context().is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn unwind(mut self, unwind: Duration) -> Self {
        self.unwind = unwind;
        self
    }

    /// Checks the settings and makes the turnstile. Needs a tokio runtime around it, for its timer.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Turnstile;
    ///
    /// assert!(Turnstile::builder("agents", 4).build().is_ok());
    /// assert_eq!(Turnstile::builder("", 4).build().unwrap_err().field, "name");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names the field that cannot work.
    pub fn build(self) -> Result<Turnstile, Invalid> {
        if self.name.is_empty() {
            return Err(Invalid::new("name", Fault::Empty));
        }
        if self.unwind.is_zero() {
            return Err(Invalid::new("unwind", Fault::Zero));
        }
        self.overload.check()?;
        let limits = self.limits.concurrency(self.concurrency).capacity(self.overload.capacity());
        let limits = limits.build()?;
        let group = GroupId::next();
        let shared = Arc::new(Shared {
            entrance: Entrance::new(self.name, |now| Line::new(limits, Callers, now)),
            overload: self.overload,
            unwind: self.unwind,
            group,
            lineage: Arc::new(Lineage::of(Path::NONE.within(group), Flag::default())),
        });
        tokio::spawn(keep_time(Arc::clone(&shared)));
        Ok(Turnstile { handle: Arc::new(Handle { shared }) })
    }
}
