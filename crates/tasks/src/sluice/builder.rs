//! The settings of a sluice, checked once when it is built.

use std::sync::Arc;

use sluicegate_schedule::{Fault, Invalid, Limits, LimitsBuilder, Rate, TenantLimits};

use super::crew::Crew;
use super::{Handle, Shared, Sluice};
use crate::line::Line;
use crate::line::entrance::{Entrance, keep_time};

/// Settings of a [`Sluice`] that are not checked yet.
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

    /// Checks the settings and makes the sluice. Needs a tokio runtime around it, for its timer.
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
