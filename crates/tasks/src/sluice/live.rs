//! Changing a sluice while items wait and run; and its end.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Invalid, Moment, Rate, TenantLimits};
use tokio::time::Instant;

use super::line::Fair;
use super::watch::Until;
use super::{Link, Shared, Sluice};
use crate::drain::{Drained, drain};
use crate::{DrainReport, Running};

/// Nothing of a sluice starts while this is held: see [`Sluice::pause`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Entry, Sluice, Why};
///
/// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
/// let id = sluice.admit(Entry::of("alice"), "ask")?;
/// let pause = sluice.pause("memory");
/// assert!(sluice.try_next().is_none());
/// assert_eq!(sluice.why(id).ok_or("gone")?.why, Why::Paused { reason: "memory" });
/// drop(pause);
/// assert_eq!(sluice.try_next().ok_or("nothing")?.finish(), "ask");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "dropping it lets items start again"]
pub struct Pause<V> {
    shared: Link<V>,
    reason: &'static str,
}

impl<V> Sluice<V> {
    /// Changes how many may run at once and how many may wait, both at one instant. What runs and
    /// what waits goes on; lower limits are met as that ends.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 1).build()?;
    /// sluice.admit(Entry::of("alice"), "waits")?;
    /// sluice.resize(2, 10)?;
    /// sluice.admit(Entry::of("alice"), "waits too")?;
    /// assert_eq!(sluice.resize(3, 0).unwrap_err().field, "capacity");
    /// assert_eq!((sluice.stats().gauges.limit, sluice.capacity()), (2, 10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names the one that is zero; then nothing changes.
    pub fn resize(&self, concurrency: u32, capacity: u32) -> Result<(), Invalid> {
        Invalid::check_count("concurrency", concurrency, u32::MAX)?;
        Invalid::check_count("capacity", capacity, u32::MAX)?;
        self.shared().adjust(|fair, _| {
            fair.set_concurrency(concurrency)?;
            fair.set_capacity(capacity)
        })
    }

    /// Changes, adds or removes the rate, at once and for those that already wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Rate, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 4, 10).rate(Rate::per_minute(1)?).build()?;
    /// sluice.admit_all((0..2).map(|n| (Entry::of("alice"), n)).collect())?;
    /// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), 0);
    /// sluice.set_rate(None);
    /// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), 1); // not a minute later
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.shared().adjust(|fair, now| fair.set_rate(now, rate.map(super::builder::for_timers)));
    }

    /// Changes the limits of one tenant, at once.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice, TenantLimits, Why};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 4, 10).build()?;
    /// sluice.set_tenant("alice", TenantLimits::new().max_running(1))?;
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// let _turn = sluice.try_next().ok_or("nothing")?;
    /// let waits = sluice.admit(Entry::of("alice"), 2)?;
    /// let why = sluice.why(waits).ok_or("gone")?.why;
    /// assert_eq!(why, Why::TenantAtLimit { running: 1, max: 1 });
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
        self.shared().adjust(|fair, now| fair.set_tenant(now, tenant.into(), limits))
    }

    /// A tenant goes by the limits of each tenant again, at once. `false` when it had none of its own.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Sluice, TenantLimits};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 4, 10).build()?;
    /// sluice.set_tenant("alice", TenantLimits::new().weight(4))?;
    /// assert!(sluice.unset_tenant("alice"));
    /// assert!(!sluice.unset_tenant("alice"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unset_tenant(&self, tenant: impl Into<Arc<str>>) -> bool {
        let tenant = tenant.into();
        self.shared().adjust(|fair, now| fair.unset_tenant(now, &tenant))
    }

    /// Changes the limits of every tenant that has none of its own, at once.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice, TenantLimits};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 4, 10).build()?;
    /// sluice.set_each_tenant(TenantLimits::new().max_queued(1))?;
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// assert_eq!(sluice.admit(Entry::of("alice"), 2).unwrap_err().why.label(), "tenant_queue_full");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names the field that cannot work; then nothing changes.
    pub fn set_each_tenant(&self, limits: TenantLimits) -> Result<(), Invalid> {
        self.shared().adjust(|fair, now| fair.set_each_tenant(now, limits))
    }

    /// Lets nothing start until what is returned is dropped, for a reason that
    /// [`why`](Sluice::why) gives: `memory`, `no_worker`, whatever it is. What runs goes on, and items
    /// are let in as before.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
    /// let (memory, disk) = (sluice.pause("memory"), sluice.pause("disk"));
    /// sluice.admit(Entry::of("alice"), "ask")?;
    /// drop(memory);
    /// assert!(sluice.try_next().is_none()); // the disk still is
    /// drop(disk);
    /// assert!(sluice.try_next().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pause(&self, reason: &'static str) -> Pause<V> {
        let shared = Arc::clone(self.shared());
        shared.adjust(|fair, _| fair.pause(reason));
        Pause { shared, reason }
    }

    /// Lets nothing more in and returns every value that nobody has pulled, in the order of
    /// admission. [`next`](Sluice::next) and [`room_for`](Sluice::room_for) hold nobody any longer,
    /// callers that wait are told, and nothing can be put back any more. A second time there is nothing to return.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit_all((0..4).map(|n| (Entry::of("alice"), n)).collect())?;
    /// let out = sluice.next().await.ok_or("closed")?;
    /// assert_eq!(sluice.close(), [1, 2, 3]);
    /// assert!(sluice.next().await.is_none());
    /// assert_eq!(out.retry_at(None), Err(0));
    /// assert!(sluice.close().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> Vec<V> {
        self.shared().close()
    }

    /// Waits until nothing is out any more: neither a [`Turn`](super::Turn) nor a [`KeyHold`](super::KeyHold).
    ///
    /// Dropped while waiting, it leaves nothing behind.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice"), 1)?;
    /// let out = sluice.next().await.ok_or("closed")?;
    /// sluice.close();
    /// let (_, last) = tokio::join!(sluice.emptied(), async { out.finish() });
    /// assert_eq!(last, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn emptied(&self) {
        self.shared().line.watch(Until::Empty).await;
    }

    /// Ends the sluice by one deadline: lets nothing more in, hands back what waits (callers are told,
    /// values go to [`on_dropped`](super::SluiceBuilder::on_dropped); [`close`](Sluice::close) first
    /// returns them instead), lets what runs go on until the deadline, then cancels the contexts of
    /// the turns, and names what is still there after a grace. Draining twice, or at once, is safe.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
    /// let cx = Context::new();
    /// let runs = sluice.turn(&cx, Entry::of("alice"), "first").await?;
    /// let waits = sluice.enter(&cx, Entry::of("alice"), "second").await?;
    /// let drain = sluice.drain(Instant::now() + Duration::from_secs(5));
    /// let (report, _) = tokio::join!(drain, async { runs.finish() });
    /// assert_eq!((report.finished, report.handed_back, report.is_clean()), (1, 1, true));
    /// assert_eq!(waits.turn().await.unwrap_err().why.label(), "draining");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn drain(&self, deadline: Instant) -> DrainReport {
        drain(&***self.shared(), deadline).await
    }
}

impl<V> Shared<V> {
    fn adjust<R>(&self, adjust: impl FnOnce(&mut Fair<V>, Moment) -> R) -> R {
        let now = self.alarm.now();
        self.after(self.line.change(now, |state, _| adjust(&mut state.fair, state.now)))
    }
}

impl<V> Drop for Pause<V> {
    fn drop(&mut self) {
        let reason = self.reason;
        self.shared.adjust(|fair, _| fair.resume(reason));
    }
}

impl<V> std::fmt::Debug for Pause<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pause").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<V> Drained for Shared<V> {
    fn name(&self) -> &str {
        &self.name
    }

    fn unwind(&self) -> Duration {
        self.unwind
    }

    fn ended(&self) -> u64 {
        self.line.attend(|state| state.ledger.completed())
    }

    fn dropped(&self) -> u64 {
        self.counters.panicked.get() + self.counters.dropped.get()
    }

    fn handed_back(&self) -> u64 {
        self.counters.handed_back.get()
    }

    fn close(&self) {
        let waited = Self::close(self);
        self.drop_all(waited);
    }

    fn list(&self) -> Vec<Running> {
        let now = self.alarm.now();
        let (running, kept): (Vec<_>, Vec<_>) = self.line.view(|fair| {
            let running = fair.running();
            let running = running.map(|item| (item.tenant.clone(), item.key.cloned(), item.since));
            (running.collect(), fair.lingering().map(|(key, at)| (key.cloned(), at)).collect())
        });
        // Put into words with the lock released.
        let running = running.into_iter().map(|(tenant, key, since)| {
            let name = match key {
                Some(key) => format!("{tenant}/{key}"),
                None => tenant.to_string(),
            };
            Running { name, running_for: now - since }
        });
        let kept = kept.into_iter().map(|(key, since): (Option<Arc<str>>, _)| {
            let name = format!("key {}, kept", key.as_deref().unwrap_or(""));
            Running { name, running_for: now - since }
        });
        let mut all: Vec<Running> = running.chain(kept).collect();
        all.sort_by(Running::longest_first);
        all
    }

    async fn emptied(&self) {
        self.line.watch(Until::Empty).await;
    }

    fn kill(&self) {
        self.lineage.kill.raise();
    }

    /// Turns are in tasks that are not ours.
    fn abort(&self) -> bool {
        false
    }
}
