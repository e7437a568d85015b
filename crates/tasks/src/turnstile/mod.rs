//! A turnstile: one bound, and a fair, ordered line before it.

mod builder;
mod callers;
mod turn;

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

pub use builder::TurnstileBuilder;
pub use turn::{Admitted, Turn};

use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Invalid, ItemId, Rate, TenantLimits, TenantView};
use tokio::time::Instant;

use crate::context::{GroupId, Lineage};
use crate::drain::{Drained, drain};
use crate::line::entrance::Entrance;
use crate::line::watch::Until;
use crate::{Context, DrainReport, Entry, Overload, Refusal, Refused, Running, Stats, WhyNot};
use callers::Callers;
use turn::Ticket;

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
    entrance: Entrance<Callers>,
    overload: Overload,
    unwind: Duration,
    group: GroupId,
    lineage: Arc<Lineage>,
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
                shared.entrance.counters.rejected(&why, 1);
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
        self.handle.shared.entrance.why(id)
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
        self.handle.shared.entrance.adjust(|fair, _| fair.set_concurrency(concurrency))
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
        self.handle.shared.entrance.adjust(|fair, now| fair.set_rate(now, rate));
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
        self.handle.shared.entrance.set_tenant(tenant.into(), limits)
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
        self.handle.shared.entrance.tenants()
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
        self.handle.shared.entrance.stats()
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
        &self.handle.shared.entrance.name
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.lineage.kill.raise();
    }
}

impl Shared {
    fn admit(self: &Arc<Self>, cx: &Context, entry: Entry) -> Result<Ticket, Refusal> {
        let Entrance { name, line, alarm, .. } = &self.entrance;
        cx.check().map_err(Refusal::Interrupted)?;
        let cx = cx.inside(&self.lineage);
        if cx.reenters(self.group) {
            return Err(Refusal::Nested { group: name.clone() });
        }
        let since = Instant::now();
        let now = alarm.moment(since);
        let at_once = self.overload == Overload::FailFast;
        let admitted = self.entrance.after(line.admit(now, entry, at_once));
        let id = admitted.map_err(|why| self.entrance.refusal(why))?;
        Ok(Ticket::new(Arc::clone(self), id, cx, since))
    }
}

impl AsRef<Entrance<Callers>> for Shared {
    fn as_ref(&self) -> &Entrance<Callers> {
        &self.entrance
    }
}

impl Drained for Shared {
    fn name(&self) -> &str {
        &self.entrance.name
    }

    fn unwind(&self) -> Duration {
        self.unwind
    }

    fn ended(&self) -> u64 {
        self.entrance.counters.ended(&self.entrance.line.ledger())
    }

    fn handed_back(&self) -> u64 {
        self.entrance.counters.handed_back.get()
    }

    fn close(&self) {
        let Entrance { line, alarm, closing, counters, .. } = &self.entrance;
        closing.raise();
        counters.handed_back.add(line.close(alarm.now()));
    }

    fn list(&self) -> Vec<Running> {
        let Entrance { line, alarm, .. } = &self.entrance;
        let now = alarm.now();
        let mut all: Vec<Running> = line.view(|fair| {
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
        self.entrance.line.watch(Until::Empty).await;
    }

    fn kill(&self) {
        self.lineage.kill.raise();
    }

    /// A turn runs in its holder's own task, which is not ours to end.
    fn abort(&self) {}
}
