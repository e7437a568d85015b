//! The settings of a turnstile, checked once when it is built.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Fault, Invalid, Limits, LimitsBuilder, Rate, TenantLimits};
use tokio::sync::Notify;

use super::alarm::Alarm;
use super::line::Line;
use super::{Handle, Shared, Turnstile};
use crate::Overload;
use crate::context::{Flag, GroupId, Lineage, Path};
use crate::stats::Counters;

/// Settings of a [`Turnstile`] that are not checked yet.
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
    pub const fn overload(mut self, overload: Overload) -> Self {
        self.overload = overload;
        self
    }

    /// The rate at which items may start.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.limits = self.limits.rate(rate);
        self
    }

    /// The bounds of every tenant that has none of its own.
    pub fn each_tenant(mut self, limits: TenantLimits) -> Self {
        self.limits = self.limits.each_tenant(limits);
        self
    }

    /// The bounds of one tenant.
    pub fn tenant(mut self, tenant: impl Into<Arc<str>>, limits: TenantLimits) -> Self {
        self.limits = self.limits.tenant(tenant, limits);
        self
    }

    /// With work waiting, each class gets at least one of every `dispatches`; 16 unless told.
    pub fn class_period(mut self, dispatches: u32) -> Self {
        self.limits = self.limits.class_period(dispatches);
        self
    }

    /// How long holders of a turn get to end once they are cancelled at the drain deadline; 100 ms
    /// unless told.
    pub const fn unwind(mut self, unwind: Duration) -> Self {
        self.unwind = unwind;
        self
    }

    /// Checks the settings and makes the turnstile. Needs a tokio runtime around it, for its timer.
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
        let (alarm, group) = (Alarm::new(), GroupId::next());
        let shared = Arc::new(Shared {
            line: Line::new(limits, alarm.now()),
            name: self.name,
            overload: self.overload,
            unwind: self.unwind,
            group,
            lineage: Arc::new(Lineage::of(Path::NONE.within(group), Flag::default())),
            closing: Flag::default(),
            alarm,
            someone_left: Notify::new(),
            counters: Counters::new(),
        });
        tokio::spawn(keep_time(Arc::clone(&shared)));
        Ok(Turnstile { handle: Arc::new(Handle { shared }) })
    }
}

/// Asks the line again whenever its alarm rings. After a close nothing waits, so nothing rings.
async fn keep_time(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.closing.raised() => return,
            () = shared.alarm.rings() => shared.after(shared.line.tick(shared.alarm.now())),
        }
    }
}
