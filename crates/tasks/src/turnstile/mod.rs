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
use crate::drain::{Ending, Occupied};
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
    /// # Errors
    /// Names `name` when it is empty and `concurrency` when it is zero.
    pub fn new(name: impl Into<String>, concurrency: u32) -> Result<Self, Invalid> {
        Self::builder(name, concurrency).build()
    }

    /// A turnstile with more to say about it.
    pub fn builder(name: impl Into<String>, concurrency: u32) -> TurnstileBuilder {
        TurnstileBuilder::new(name.into(), concurrency)
    }

    /// Lets an item in. It waits from here on, whether or not anybody awaits its turn, until it is
    /// dropped; it runs only once its turn is awaited.
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
    /// # Errors
    /// Names `concurrency` when it is zero; then nothing changes.
    pub fn resize(&self, concurrency: u32) -> Result<(), Invalid> {
        self.handle.shared.adjust(|fair, _| fair.set_concurrency(concurrency))
    }

    /// Changes, adds or removes the rate, at once and for those that already wait.
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.handle.shared.adjust(|fair, now| fair.set_rate(now, rate));
    }

    /// Changes the limits of one tenant, at once.
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
    pub async fn drain(&self, deadline: Instant) -> DrainReport {
        let (shared, begun) = (&self.handle.shared, Instant::now());
        let before = shared.counters.ended();
        let handed_back = shared.close();
        let ending = Ending { of: &**shared, unwind: shared.unwind };
        let (cancelled, abandoned) = ending.by(deadline).await;
        let ended = shared.counters.ended() - before;
        DrainReport {
            name: shared.name.clone(),
            handed_back,
            finished: ended.saturating_sub(cancelled.len() as u64),
            cancelled,
            abandoned,
            took: begun.elapsed(),
        }
    }

    /// All that run, longest first, by tenant and key.
    #[must_use]
    pub fn running(&self) -> Vec<Running> {
        self.handle.shared.list()
    }

    /// The tenants that have items, or are still in debt for those they had, in no order.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantView<Arc<str>>> {
        self.handle.shared.line.view(|fair| fair.tenants().collect())
    }

    /// The counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.handle.shared;
        let now = shared.line.snapshot(shared.alarm.now());
        shared.counters.snapshot(Gauges {
            queued: now.queued,
            running: now.running,
            limit: now.concurrency,
            oldest_wait: now.oldest_wait,
        })
    }

    /// The turnstile's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.shared.name
    }
}

/// Why an item is not running yet, and until when, where that is known.
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
        self.counters.admitted.count();
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

    fn close(&self) -> u64 {
        // Raised first: whoever leaves after the line is closed tells a drain so.
        self.closing.raise();
        self.line.close(self.alarm.now())
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

impl Occupied for Shared {
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
