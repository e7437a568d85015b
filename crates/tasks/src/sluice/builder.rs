//! The settings of a sluice, checked once when it is built.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluicegate_schedule::{Fault, Invalid, Limits, LimitsBuilder, Rate, TenantLimits};

use super::alarm::Alarm;
use super::ledger::Ledger;
use super::line::Line;
use super::{Handle, OnDropped, Overload, Shared, Sluice, keep_time};
use crate::context::{Flag, GroupId, Lineage};
use crate::lineage::HoldsPermits;
use crate::stats::Counters;

/// Settings of a [`Sluice`] that are not checked yet.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Sluice, TenantLimits};
///
/// let unchecked = Sluice::<u32>::builder("orders", 4, 1000);
/// let wrong = unchecked.clone().each_tenant(TenantLimits::new().weight(0));
/// assert_eq!(wrong.build().unwrap_err().field, "weight");
/// assert!(unchecked.build().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "build() makes the sluice"]
pub struct SluiceBuilder<V> {
    name: String,
    limits: LimitsBuilder<Arc<str>>,
    overload: Overload,
    queue_timeout: Option<Duration>,
    recent_times: bool,
    unwind: Duration,
    on_dropped: Option<OnDropped<V>>,
}

impl<V> SluiceBuilder<V> {
    pub(super) fn new(name: String, concurrency: u32, capacity: u32) -> Self {
        Self {
            name,
            limits: Limits::new(concurrency, capacity),
            overload: Overload::Queue,
            queue_timeout: None,
            recent_times: false,
            unwind: Duration::from_millis(100),
            on_dropped: None,
        }
    }

    /// What happens to an item that cannot start at once: [`Overload::Queue`] unless told.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Overload, Sluice};
    /// use std::time::Duration;
    ///
    /// let hand_back = Overload::HandBack { retry_after: Duration::from_secs(30) };
    /// let sluice = Sluice::<u32>::builder("orders", 1, 1).overload(hand_back).build()?;
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// let refused = sluice.admit(Entry::of("alice"), 2).unwrap_err();
    /// assert_eq!(refused.retry_after, Some(Duration::from_secs(30)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn overload(mut self, overload: Overload) -> Self {
        self.overload = overload;
        self
    }

    /// How long an item may wait for its first start. After that it is taken out and counted as a
    /// queue timeout: its caller is [refused](crate::Refusal::QueueTimeout), a value for workers goes
    /// to [`on_dropped`](Self::on_dropped). A deadline of the caller's context holds besides.
    ///
    /// Only the first wait inside counts: what was put back or waits again is exempt, and so is the
    /// time that a caller waits for room ([`Overload::Wait`]).
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Refusal, Sluice};
    /// use std::time::Duration;
    ///
    /// let after = Duration::from_secs(120);
    /// let sluice = Sluice::<()>::builder("agents", 1, 10).queue_timeout(after).build()?;
    /// let cx = Context::new();
    /// let _turn = sluice.turn(&cx, Entry::of("alice"), ()).await?;
    /// let refused = sluice.turn(&cx, Entry::of("bob"), ()).await.unwrap_err();
    /// assert_eq!(refused.why, Refusal::QueueTimeout { after });
    /// assert_eq!(sluice.stats().queue_timeouts, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn queue_timeout(mut self, after: Duration) -> Self {
        self.queue_timeout = Some(after);
        self
    }

    /// To whom a value goes that nobody finished and nobody has any more: its turn was dropped; or it was
    /// for workers and waited for too long, or the sluice ended. What a caller gives up before its turn,
    /// it has itself. Without it such a value is dropped: let it be a guard
    /// that hands itself back.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    /// use std::sync::mpsc::sync_channel;
    ///
    /// let (back, came_back) = sync_channel(10);
    /// let builder = Sluice::<&str>::builder("orders", 1, 10);
    /// let sluice = builder.on_dropped(move |value| drop(back.try_send(value))).build()?;
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// drop(sluice.try_next()); // a worker that forgot to finish
    /// assert_eq!(came_back.try_recv()?, "add");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_dropped(mut self, on_dropped: impl Fn(V) + Send + Sync + 'static) -> Self {
        self.on_dropped = Some(Arc::new(on_dropped));
        self
    }

    /// Remembers how long items waited and ran in the last 60 seconds
    /// ([`Sluice::recent_times`]), which takes some 30 KiB.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// let sluice = Sluice::<u32>::builder("agents", 4, 10).recent_times().build()?;
    /// assert_eq!(sluice.recent_times().ok_or("no")?.wait_time.count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recent_times(mut self) -> Self {
        self.recent_times = true;
        self
    }

    /// How long turns have to end after a drain has cancelled their contexts, before they are named as
    /// abandoned; 100 ms unless told.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    /// use std::time::Duration;
    ///
    /// let refused = Sluice::<u32>::builder("agents", 4, 10).unwind(Duration::ZERO).build();
    /// assert_eq!(refused.unwrap_err().field, "unwind");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unwind(mut self, unwind: Duration) -> Self {
        self.unwind = unwind;
        self
    }

    /// The rate at which items may start; how many of them at once depends on how the [`Rate`] was
    /// made. Timers tick in milliseconds, so a bucket is at least two of them deep: else a rate of
    /// thousands a second could not be kept.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Rate, Sluice, Why};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 4, 10).rate(Rate::per_minute(1)?).build()?;
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// sluice.next().await.ok_or("closed")?.finish();
    /// let waits = sluice.admit(Entry::of("alice"), 2)?;
    /// assert!(matches!(sluice.why(waits).ok_or("gone")?.why, Why::RateLimited { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn rate(mut self, rate: Rate) -> Self {
        self.limits = self.limits.rate(for_timers(rate));
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
    /// assert!(builder.clone().class_period(8).build().is_ok());
    /// let refused = builder.class_period(3).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "class_period: must be at least 4"); // one for each class
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn class_period(mut self, dispatches: u32) -> Self {
        self.limits = self.limits.class_period(dispatches);
        self
    }

    /// Checks the settings and makes the sluice. Needs a tokio runtime with time around it, for its
    /// timer. So do [`drain`](Sluice::drain), and waiting under a context that has a deadline; nothing
    /// else of a sluice does.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// assert!(Sluice::<u32>::builder("orders", 4, 10).build().is_ok());
    /// let fault = |name, concurrency, capacity| {
    ///     let built = Sluice::<u32>::builder(name, concurrency, capacity).build();
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
    pub fn build(self) -> Result<Sluice<V>, Invalid>
    where
        V: Send + 'static,
    {
        if self.name.is_empty() {
            return Err(Invalid::new("name", Fault::Empty));
        }
        for (field, duration) in
            [("unwind", Some(self.unwind)), ("queue_timeout", self.queue_timeout)]
        {
            if duration.is_some_and(|duration| duration.is_zero()) {
                return Err(Invalid::new(field, Fault::Zero));
            }
        }
        let (limits, alarm) = (self.limits.build()?, Alarm::new());
        let ledger = Ledger::new(self.recent_times);
        let group = GroupId::next();
        let shared = Arc::new_cyclic(|shared: &Weak<Shared<V>>| Shared {
            line: Line::new(limits, self.queue_timeout, ledger, alarm.now()),
            name: self.name,
            alarm,
            closing: Flag::default(),
            counters: Counters::new(),
            overload: self.overload,
            queue_timeout: self.queue_timeout,
            unwind: self.unwind,
            group,
            lineage: {
                let holder: Weak<dyn HoldsPermits> = shared.clone();
                Arc::new(Lineage::new(group, Flag::default(), holder))
            },
            on_dropped: self.on_dropped,
        });
        tokio::spawn(keep_time(Arc::clone(&shared)));
        let link = Arc::new(Arc::clone(&shared));
        Ok(Sluice { link, handle: Arc::new(Handle { shared }) })
    }
}

/// A bucket at least two milliseconds deep.
pub(super) fn for_timers(rate: Rate) -> Rate {
    let in_two_ms = u128::from(rate.count()) * 2_000_000 / rate.period().as_nanos().max(1);
    let burst = u32::try_from(in_two_ms).unwrap_or(u32::MAX);
    match Rate::new(rate.count(), rate.period(), burst.max(1)) {
        Ok(deeper) if !rate.is_sliding() && burst > rate.burst() => deeper,
        _ => rate,
    }
}

impl<V> Clone for SluiceBuilder<V> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            limits: self.limits.clone(),
            on_dropped: self.on_dropped.clone(),
            ..*self
        }
    }
}

impl<V> fmt::Debug for SluiceBuilder<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SluiceBuilder")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
