//! A turnstile: one bound, and a fair, ordered line before it.

mod alarm;
mod builder;
mod line;
mod turn;

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

pub use builder::TurnstileBuilder;
pub(crate) use line::Entry as LineEntry;
pub use turn::{Admitted, Turn};

use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Invalid, ItemId, Rate, TenantLimits, TenantView, Why};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::context::{Flag, GroupId, Lineage};
use crate::drain::{Drained, drain};
use crate::stats::{Counters, Gauges};
use crate::{AtLimit, Context, DrainReport, Overload, Refusal, Refused, Running, Stats};
use alarm::Alarm;
use line::{After, Line};
use turn::Ticket;

/// What the line needs to know of an item: whose it is, what it must stay in order with, how urgent.
///
/// ```
/// use sluicegate_tasks::{Class, Entry};
///
/// let entry = Entry::of("telegram:42").key("session-7").class(Class::Admin);
/// assert_eq!(&**entry.tenant(), "telegram:42");
/// ```
pub type Entry = LineEntry;

/// A bound on concurrency with a fair, ordered line before it.
///
/// Items enter with [`admit`](Turnstile::admit), wait for their [`turn`](Admitted::turn), and run
/// while they hold it, in the caller's own task. Who is next is the word of the pure
/// [schedule](sluicegate_schedule::Schedule): class, then tenant by weight and measured cost, then
/// key, then order; never two of a key at once; within the rate.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, TenantLimits, Turnstile};
///
/// let turnstile = Turnstile::builder("agents", 4)
///     .each_tenant(TenantLimits::new().max_running(2))
///     .tenant("telegram:42", TenantLimits::new().weight(4))
///     .build()?;
///
/// let request = Context::new();
/// let entry = Entry::of("telegram:42").key("session-7");
/// let admitted = turnstile.admit(&request, entry, "a prompt")?;
/// let turn = admitted.turn().await?;
/// assert_eq!(*turn.value(), "a prompt");
/// assert_eq!(turnstile.stats().gauges.running, 1);
/// turn.finish(); // or drop it: the turn is over on every path
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Clones are the same turnstile. When the last one is dropped, what waits is handed back and the
/// contexts of running turns are cancelled.
#[derive(Clone, Debug)]
pub struct Turnstile {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    overload: Overload,
    unwind: Duration,
    group: GroupId,
    lineage: Arc<Lineage>,
    closing: Flag,
    line: Line,
    alarm: Alarm,
    someone_left: Notify,
    counters: Counters,
}

impl Turnstile {
    /// A turnstile for `concurrency` items at once, before which callers wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Turnstile;
    ///
    /// assert_eq!(Turnstile::new("agents", 4)?.stats().gauges.limit, 4);
    /// assert_eq!(Turnstile::new("agents", 0).unwrap_err().field, "concurrency");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names `name` when it is empty and `concurrency` when it is zero.
    pub fn new(name: impl Into<String>, concurrency: u32) -> Result<Self, Invalid> {
        Self::builder(name, concurrency).build()
    }

    /// A turnstile with more to say about it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Rate, Turnstile};
    ///
    /// let turnstile = Turnstile::builder("agents", 4).rate(Rate::per_minute(600)?).build()?;
    /// assert_eq!(turnstile.name(), "agents");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder(name: impl Into<String>, concurrency: u32) -> TurnstileBuilder {
        TurnstileBuilder::new(name.into(), concurrency)
    }

    /// Lets an item in. It stands in line from here on, whether or not anybody awaits its turn, and
    /// once it is its turn it holds the place: await it, or drop it to leave.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Overload, Turnstile};
    ///
    /// let queue = Overload::Queue { capacity: 1 };
    /// let turnstile = Turnstile::builder("agents", 1).overload(queue).build()?;
    /// let cx = Context::new();
    /// let _runs = turnstile.admit(&cx, Entry::of("alice"), "a prompt")?.turn().await?;
    /// let _waits = turnstile.admit(&cx, Entry::of("alice"), "another")?;
    /// let refused = turnstile.admit(&cx, Entry::of("bob"), "one more").unwrap_err();
    /// assert_eq!((refused.why.label(), refused.work), ("queue_full", "one more"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the value inside.
    pub fn admit<V>(
        &self,
        cx: &Context,
        entry: Entry,
        value: V,
    ) -> Result<Admitted<V>, Refused<V>> {
        let shared = &self.handle.shared;
        match shared.admit(cx, entry) {
            Ok(ticket) => Ok(Admitted::new(ticket, value)),
            Err(why) => {
                shared.counters.rejected(&why);
                Err(Refused { why, retry_after: shared.overload.retry_after(), work: value })
            }
        }
    }

    /// Why an item is not running yet. `None` when it neither waits nor runs.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile, Why};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let cx = Context::new();
    /// let _turn = turnstile.admit(&cx, Entry::of("alice"), ())?.turn().await?;
    /// let waits = turnstile.admit(&cx, Entry::of("bob"), ())?;
    /// let why = waits.id().and_then(|id| turnstile.why(id)).ok_or("gone")?;
    /// assert_eq!(why.why, Why::AtLimit { running: 1, limit: 1 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn why(&self, id: ItemId) -> Option<WhyNot> {
        let shared = &self.handle.shared;
        let why = shared.line.view(|fair| fair.why(shared.alarm.now(), id))?;
        let until = match why {
            Why::RateLimited { until } | Why::KeyRetrying { until, .. } => {
                shared.alarm.instant(until)
            }
            _ => None,
        };
        Some(WhyNot { why, until })
    }

    /// Changes how many may run at once: see
    /// [`Schedule::set_concurrency`](sluicegate_schedule::Schedule::set_concurrency).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let cx = Context::new();
    /// let _turn = turnstile.admit(&cx, Entry::of("alice"), ())?.turn().await?;
    /// let waits = turnstile.admit(&cx, Entry::of("bob"), ())?;
    /// turnstile.resize(2)?;
    /// assert!(waits.turn().await.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names `concurrency` when it is zero; then nothing changes.
    pub fn resize(&self, concurrency: u32) -> Result<(), Invalid> {
        self.handle.shared.adjust(|fair, _| fair.set_concurrency(concurrency))
    }

    /// Changes, adds or removes the rate, at once and for those that already wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Rate, Turnstile};
    ///
    /// let turnstile = Turnstile::builder("agents", 4).rate(Rate::per_minute(1)?).build()?;
    /// let cx = Context::new();
    /// turnstile.admit(&cx, Entry::of("alice"), ())?.turn().await?.finish();
    /// let waits = turnstile.admit(&cx, Entry::of("alice"), ())?;
    /// turnstile.set_rate(None);
    /// assert!(waits.turn().await.is_ok()); // not a minute later
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.handle.shared.adjust(|fair, now| fair.set_rate(now, rate));
    }

    /// Changes the limits of one tenant, at once.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, TenantLimits, Turnstile, Why};
    ///
    /// let turnstile = Turnstile::new("agents", 4)?;
    /// turnstile.set_tenant("alice", TenantLimits::new().max_running(1))?;
    /// let cx = Context::new();
    /// let _turn = turnstile.admit(&cx, Entry::of("alice"), ())?.turn().await?;
    /// let waits = turnstile.admit(&cx, Entry::of("alice"), ())?;
    /// let why = waits.id().and_then(|id| turnstile.why(id)).ok_or("gone")?;
    /// assert_eq!(why.why, Why::TenantAtLimit { running: 1, max: 1 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names the field that cannot work; then nothing changes.
    pub fn set_tenant(
        &self,
        tenant: impl Into<Arc<str>>,
        limits: TenantLimits,
    ) -> Result<(), Invalid> {
        self.handle.shared.adjust(|fair, _| fair.set_tenant(tenant.into(), limits))
    }

    /// Ends the turnstile: nothing more is let in, what waits is handed back, what runs goes on until
    /// the deadline; then its contexts are cancelled. The report names what was abandoned.
    ///
    /// Safe to call twice, also at once.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let cx = Context::new();
    /// let turn = turnstile.admit(&cx, Entry::of("alice"), "runs")?.turn().await?;
    /// let waits = turnstile.admit(&cx, Entry::of("bob"), "waits")?;
    /// let end = turnstile.drain(Instant::now() + Duration::from_secs(5));
    /// let (report, _) = tokio::join!(end, async { turn.finish() });
    /// assert_eq!((report.finished, report.handed_back), (1, 1));
    /// assert_eq!(waits.turn().await.unwrap_err().work, "waits");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn drain(&self, deadline: Instant) -> DrainReport {
        drain(&*self.handle.shared, deadline).await
    }

    /// All that run, longest first, by tenant and key.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let entry = Entry::of("alice").key("session-7");
    /// let _turn = turnstile.admit(&Context::new(), entry, ())?.turn().await?;
    /// assert_eq!(turnstile.running()[0].name, "alice/session-7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn running(&self) -> Vec<Running> {
        self.handle.shared.list()
    }

    /// The tenants that have items, or are still in debt for those they had, in no order.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let _turn = turnstile.admit(&Context::new(), Entry::of("alice"), ())?.turn().await?;
    /// let [alice] = &turnstile.tenants()[..] else { unreachable!("nobody else was let in") };
    /// assert_eq!((&*alice.tenant, alice.running), ("alice", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantView<Arc<str>>> {
        self.handle.shared.line.view(|fair| fair.tenants().collect())
    }

    /// The counters and gauges.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 4)?;
    /// turnstile.admit(&Context::new(), Entry::of("alice"), ())?.turn().await?.finish();
    /// let stats = turnstile.stats();
    /// assert_eq!((stats.admitted, stats.completed, stats.gauges.running), (1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.handle.shared;
        let now = shared.line.snapshot(shared.alarm.now());
        let gauges = Gauges {
            queued: now.queued,
            running: now.running,
            limit: now.concurrency,
            oldest_wait: now.oldest_wait,
        };
        shared.counters.snapshot(gauges, shared.line.ledger())
    }

    /// The turnstile's name.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Turnstile;
    ///
    /// assert_eq!(Turnstile::new("agents", 4)?.name(), "agents");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.shared.name
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

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.lineage.kill.raise();
    }
}

impl Shared {
    fn admit(self: &Arc<Self>, cx: &Context, entry: Entry) -> Result<Ticket, Refusal> {
        cx.check().map_err(Refusal::Interrupted)?;
        let cx = cx.inside(&self.lineage);
        if cx.reenters(self.group) {
            return Err(Refusal::Nested { group: self.name.clone() });
        }
        let since = Instant::now();
        let now = self.alarm.moment(since);
        let at_once = self.overload == Overload::FailFast;
        let admitted = self.line.admit(now, entry, at_once);
        let id = self.after(admitted).map_err(|why| self.refusal(why))?;
        Ok(Ticket::new(Arc::clone(self), id, cx, since))
    }

    fn adjust<R>(
        &self,
        adjust: impl FnOnce(&mut line::Fair, sluicegate_schedule::Moment) -> R,
    ) -> R {
        let now = self.alarm.now();
        self.after(self.line.adjust(now, |fair| adjust(fair, now)))
    }

    /// Does what a change of the line calls for.
    fn after<R>(&self, after: After<R>) -> R {
        self.alarm.set(after.alarm);
        if self.closing.is_raised() {
            self.someone_left.notify_waiters();
        }
        after.result
    }

    fn refusal(&self, why: sluicegate_schedule::Refusal) -> Refusal {
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

impl Drained for Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn unwind(&self) -> Duration {
        self.unwind
    }

    fn ended(&self) -> u64 {
        self.counters.ended(&self.line.ledger())
    }

    fn handed_back(&self) -> u64 {
        self.counters.handed_back.get()
    }

    fn close(&self) {
        // Raised first: whoever leaves after the line is closed tells a drain so.
        self.closing.raise();
        self.counters.handed_back.add(self.line.close(self.alarm.now()));
    }

    fn list(&self) -> Vec<Running> {
        let now = self.alarm.now();
        let mut all: Vec<Running> = self.line.view(|fair| {
            let running = fair.running().map(|item| Running {
                name: item.value.to_string(),
                running_for: now - item.since,
            });
            running.collect()
        });
        all.sort_by(Running::longest_first);
        all
    }

    async fn emptied(&self) {
        loop {
            let mut left = std::pin::pin!(self.someone_left.notified());
            left.as_mut().enable();
            if self.line.snapshot(self.alarm.now()).running == 0 {
                return;
            }
            left.await;
        }
    }

    fn kill(&self) {
        self.lineage.kill.raise();
    }

    /// A turn runs in its holder's own task, which is not ours to end.
    fn abort(&self) {}
}
