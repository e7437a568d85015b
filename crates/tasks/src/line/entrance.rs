//! A line with its name, its clock and its counters: what a turnstile and a sluice have in common.

use std::sync::Arc;

use sluicegate_schedule::{Invalid, ItemId, Moment, TenantLimits, TenantView, Why};
use tokio::time::Instant;

use super::alarm::Alarm;
use super::{After, Fair, Line, Party};
use crate::context::Flag;
use crate::stats::{Counters, Gauges};
use crate::{AtLimit, Refusal, Stats};

#[derive(Debug)]
pub(crate) struct Entrance<P: Party> {
    pub(crate) name: String,
    pub(crate) line: Line<P>,
    pub(crate) alarm: Alarm,
    pub(crate) closing: Flag,
    pub(crate) counters: Counters,
}

impl<P: Party> Entrance<P> {
    pub(crate) fn new(name: String, line: impl FnOnce(Moment) -> Line<P>) -> Self {
        let alarm = Alarm::new();
        let line = line(alarm.now());
        Self { name, line, alarm, closing: Flag::default(), counters: Counters::new() }
    }

    /// Does what a change of the line calls for.
    pub(crate) fn after<R>(&self, after: After<R>) -> R {
        self.alarm.set(after.alarm);
        after.result
    }

    pub(crate) fn adjust<R>(&self, adjust: impl FnOnce(&mut Fair<P>, Moment) -> R) -> R {
        let now = self.alarm.now();
        self.after(self.line.adjust(now, |fair| adjust(fair, now)))
    }

    pub(crate) fn set_tenant(&self, tenant: Arc<str>, limits: TenantLimits) -> Result<(), Invalid> {
        self.adjust(|fair, now| fair.set_tenant(now, tenant, limits))
    }

    pub(crate) fn why(&self, id: ItemId) -> Option<WhyNot> {
        let why = self.line.view(|fair| fair.why(self.alarm.now(), id))?;
        let until = match why {
            Why::RateLimited { until } | Why::KeyRetrying { until, .. } => {
                self.alarm.instant(until)
            }
            _ => None,
        };
        Some(WhyNot { why, until })
    }

    pub(crate) fn tenants(&self) -> Vec<TenantView<Arc<str>>> {
        self.line.view(|fair| fair.tenants().collect())
    }

    pub(crate) fn stats(&self) -> Stats {
        let now = self.line.snapshot(self.alarm.now());
        let gauges = Gauges {
            queued: now.queued,
            running: now.running,
            limit: now.concurrency,
            oldest_wait: now.oldest_wait,
        };
        self.counters.snapshot(gauges, self.line.ledger())
    }

    /// The schedule's reason as ours.
    pub(crate) fn refusal(&self, why: sluicegate_schedule::Refusal) -> Refusal {
        use sluicegate_schedule::Refusal as Full;
        match why {
            Full::QueueFull { queued, capacity } => Refusal::QueueFull { queued, capacity },
            Full::TenantQueueFull { queued, max } => Refusal::TenantQueueFull { queued, max },
            Full::AtLimit { in_use, limit } => Refusal::AtLimit(AtLimit { limit, in_use }),
            Full::TenantAtLimit { in_use, limit } => {
                Refusal::TenantAtLimit(AtLimit { limit, in_use })
            }
            Full::KeyBusy => Refusal::KeyBusy,
            Full::RateLimited { until } => {
                Refusal::RateLimited { retry_in: until - self.alarm.now() }
            }
            _ => Refusal::Draining,
        }
    }
}

impl<P: Party> AsRef<Self> for Entrance<P> {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Why an item is not running yet, and until when, where that is known.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, Rate, Turnstile, Why};
/// use tokio::time::Instant;
///
/// let turnstile = Turnstile::builder("agents", 4).rate(Rate::per_minute(1)?).build()?;
/// let cx = Context::new();
/// turnstile.admit(&cx, Entry::of("alice"), ())?.turn().await?.finish();
/// let waits = turnstile.admit(&cx, Entry::of("alice"), ())?;
/// let not = waits.id().and_then(|id| turnstile.why(id)).ok_or("gone")?;
/// assert!(matches!(not.why, Why::RateLimited { .. }));
/// assert!(not.until > Some(Instant::now()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyNot {
    /// The reason.
    pub why: Why,
    /// Until when it holds by itself.
    pub until: Option<Instant>,
}

/// Asks the line again whenever its alarm rings. After a close nothing waits, so nothing rings.
pub(crate) async fn keep_time<P: Party, E: AsRef<Entrance<P>>>(of: Arc<E>) {
    let entrance: &Entrance<P> = (*of).as_ref();
    loop {
        tokio::select! {
            biased;
            () = entrance.closing.raised() => return,
            () = entrance.alarm.rings() => {
                entrance.after(entrance.line.tick(entrance.alarm.now()));
            }
        }
    }
}
