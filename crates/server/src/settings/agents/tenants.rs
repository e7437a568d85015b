//! `[agents.tenant_limits]` and `[[agents.tenant]]`: what one tenant may take.

use std::time::Duration;

use sluicegate_agents::Tenant;

use super::super::reader::{Section, Seen};
use super::{count, rate, time, weight};

/// `[agents.tenant_limits]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantLimits {
    /// How many requests run at once.
    pub max_concurrent_requests: u32,
    /// How many wait.
    pub max_queued_requests: u32,
    /// How long one may take.
    pub max_response_time: Duration,
    /// How many are admitted in a window.
    pub rate_limit_requests: u32,
    /// How long that window is.
    pub rate_limit_window: Duration,
    /// The share of the whole in relation to others.
    pub weight: u32,
}

/// `[[agents.tenant]]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantSettings {
    /// Whom it is about, as in `telegram:42`.
    pub id: String,
    /// What holds for it: its own, and for the rest what holds for everybody.
    pub limits: TenantLimits,
    /// Whether `limits.max_queued_requests` is its own: then no other depth limit counts.
    pub own_depth: bool,
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self {
            max_concurrent_requests: 2,
            max_queued_requests: 3,
            max_response_time: Duration::from_secs(180),
            rate_limit_requests: 20,
            rate_limit_window: Duration::from_secs(60),
            weight: 1,
        }
    }
}

impl TenantLimits {
    pub(super) fn read(section: &mut Section<'_>, default: &Self) -> Self {
        let mut read = default.clone();
        let counts = [
            ("max_concurrent_requests", &mut read.max_concurrent_requests),
            ("max_queued_requests", &mut read.max_queued_requests),
        ];
        for (name, field) in counts {
            *field = section.read(name, *field, count);
        }
        read.rate_limit_requests =
            section.read("rate_limit_requests", read.rate_limit_requests, rate);
        read.weight = section.read("weight", read.weight, weight);
        let times = [
            ("max_response_time", &mut read.max_response_time),
            ("rate_limit_window", &mut read.rate_limit_window),
        ];
        for (name, field) in times {
            *field = section.read(name, *field, time);
        }
        read
    }
}

impl TenantSettings {
    pub(super) fn read(
        section: &mut Section<'_>,
        default: &TenantLimits,
        ids: &mut Seen,
    ) -> Option<Self> {
        let id = section.required("id", |value| {
            let id = value.name()?;
            match Tenant::parse(&id) {
                Ok(_) => Some(id),
                Err(_) => value.wrong("must be platform:userId, as in \"telegram:42\""),
            }
        });
        if let Some(id) = &id {
            section.unique("id", id, ids);
        }
        let limits = TenantLimits::read(section, default);
        Some(Self { id: id?, limits, own_depth: section.has("max_queued_requests") })
    }
}
