//! A turn: the right to run one item now, with its permit, its key and its charge; and what may come
//! after.
//!
//! `docs/rules.md#sluice-3`, `docs/rules.md#sluice-6`.

use std::fmt;
use std::sync::Arc;

use sluicegate_schedule::{ItemId, Moment};
use tokio::time::Instant;

use super::callers::Admitted;
use super::line::{Pulled, Runner, in_millis};
use super::workers::{Back, Ran};
use super::{Link, permit_of};
use crate::Context;

/// The right to run one item now: a permit, the item's key and its tenant's charge, with the value.
///
/// It ends by one of its methods. Dropped instead, the item is not done: it counts as dropped (or as
/// panicked), its value goes to [`on_dropped`](super::SluiceBuilder::on_dropped) or is dropped itself,
/// and only then are permit and key free.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Entry, Sluice};
///
/// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
/// sluice.admit(Entry::of("alice"), "add")?;
/// let turn = sluice.next().await.ok_or("closed")?;
/// assert_eq!(sluice.stats().gauges.running, 1);
/// drop(turn);
/// let stats = sluice.stats();
/// assert_eq!((stats.gauges.running, stats.completed, stats.dropped), (0, 0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a turn that is dropped is not done"]
pub struct Turn<V> {
    value: Option<V>,
    /// Given up after the value is dropped.
    running: Running<V>,
}

/// A key that stays busy, though nothing of it runs, until this is dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Entry, Sluice};
///
/// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
/// let batch = ["add", "pay"].map(|value| (Entry::of("alice").key("cart"), value));
/// sluice.admit_all(batch.into())?;
/// let (_, hold) = sluice.next().await.ok_or("closed")?.linger();
/// assert!(sluice.try_next().is_none());
/// drop(hold);
/// assert_eq!(sluice.try_next().ok_or("nothing")?.finish(), "pay");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "dropping a hold frees the key at once"]
pub struct KeyHold<V> {
    shared: Link<V>,
    id: ItemId,
}

/// An item that runs. Dropped, it makes room for the next.
pub(super) struct Running<V> {
    shared: Option<Link<V>>,
    id: ItemId,
    admitted: Instant,
    started: Instant,
    /// What it was said to have cost, if not the milliseconds it ran.
    cost: Option<u32>,
    /// The caller's.
    cx: Option<Context>,
}

impl<V> Turn<V> {
    pub(super) const fn new(value: V, running: Running<V>) -> Self {
        Self { value: Some(value), running }
    }

    pub(super) fn pulled(shared: Link<V>, pulled: Pulled<V>, started: Instant) -> Self {
        let Pulled { id, value, admitted } = pulled;
        let admitted = shared.alarm.instant(admitted).unwrap_or(started);
        Self::new(value, Running::new(shared, id, admitted, started, None))
    }

    fn take_value(&mut self) -> V {
        self.value.take().expect("taken only at the end")
    }

    /// The item's id, as [`admit`](super::Sluice::admit) gave it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let id = sluice.admit(Entry::of("alice"), "add")?;
    /// assert_eq!(sluice.next().await.ok_or("closed")?.id(), id);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn id(&self) -> ItemId {
        self.running.id
    }

    /// What was admitted.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// assert_eq!(sluice.next().await.ok_or("closed")?.value(), &"add");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> &V {
        self.value.as_ref().expect("taken only at the end")
    }

    /// What was admitted, to change.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice"), 0)?;
    /// let mut attempts = sluice.next().await.ok_or("closed")?;
    /// *attempts.value_mut() += 1;
    /// attempts.retry_at(None).map(|again| sluice.release(again)).map_err(|_| "closed")?;
    /// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn value_mut(&mut self) -> &mut V {
        self.value.as_mut().expect("taken only at the end")
    }

    /// When it was admitted; being put back does not change that.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    /// use std::time::Duration;
    /// use tokio::time::{Instant, advance};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let admitted = Instant::now();
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// advance(Duration::from_secs(3)).await;
    /// assert_eq!(sluice.next().await.ok_or("closed")?.since(), admitted);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn since(&self) -> Instant {
        self.running.admitted
    }

    /// The context to run it under: its caller's, or one of its own; it ends at the deadline of a
    /// [`drain`](super::Sluice::drain) too.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    /// use tokio::time::Instant;
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// let turn = sluice.next().await.ok_or("closed")?;
    /// let cx = turn.context();
    /// let work = async move { (cx.cancelled().await, turn.finish()) };
    /// let (_, report) = tokio::join!(work, sluice.drain(Instant::now()));
    /// assert_eq!(report.cancelled.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn context(&self) -> Context {
        self.running.context()
    }

    /// Ends it: the permit and the key are free, and the value comes back. What it cost is the time it
    /// was held, unless [`set_cost`](Self::set_cost) said otherwise.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), "add");
    /// assert_eq!(sluice.stats().completed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn finish(mut self) -> V {
        let (shared, id, ran, now) = self.running.take();
        shared.after(shared.line.finish(shared.alarm.moment(now), id, ran));
        self.take_value()
    }

    /// [`set_cost`](Self::set_cost) and [`finish`](Self::finish) in one.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
    /// for (tenant, tokens) in [("alice", 900), ("bob", 300), ("alice", 900), ("bob", 300)] {
    ///     sluice.admit(Entry::of(tenant).cost(tokens), tenant)?;
    /// }
    /// let mut order = Vec::new();
    /// while let Some(turn) = sluice.try_next() {
    ///     let tokens = if *turn.value() == "alice" { 900 } else { 300 };
    ///     order.push(turn.finish_with_cost(tokens));
    /// }
    /// assert_eq!(order, ["alice", "bob", "bob", "alice"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn finish_with_cost(mut self, cost: u32) -> V {
        self.set_cost(cost);
        self.finish()
    }

    /// What it has cost, however it ends, instead of the milliseconds it was held: tokens, bytes,
    /// whatever the tenants' shares are to be measured in. Use one unit for all turns of a sluice, and
    /// say it before anything can end the turn.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
    /// for tenant in ["alice", "bob", "alice", "bob"] {
    ///     sluice.admit(Entry::of(tenant).cost(500), tenant)?;
    /// }
    /// let mut order = Vec::new();
    /// while let Some(mut turn) = sluice.try_next() {
    ///     turn.set_cost(500);
    ///     order.push(*turn.value());
    ///     drop(turn); // given up: it has cost what it was said to
    /// }
    /// assert_eq!(order, ["alice", "bob", "alice", "bob"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn set_cost(&mut self, cost: u32) {
        self.running.cost = Some(cost);
    }

    /// Ends it and takes the next, if one may start: [`finish`](Self::finish) and
    /// [`try_next`](super::Sluice::try_next) in one step, in which nobody else is called to take what
    /// the caller takes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let batch = ["add", "pay"].map(|value| (Entry::of("alice").key("cart"), value));
    /// sluice.admit_all(batch.into())?;
    /// let (first, second) = sluice.next().await.ok_or("closed")?.finish_and_next();
    /// assert_eq!((first, second.ok_or("nothing")?.finish()), ("add", "pay"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn finish_and_next(mut self) -> (V, Option<Self>) {
        let (shared, id, ran, now) = self.running.take();
        let pulled = shared.line.finish_and_pull(shared.alarm.moment(now), id, ran);
        let next = shared.after(pulled).map(|pulled| Self::pulled(shared, pulled, now));
        (self.take_value(), next)
    }

    /// Ends it and counts it as failed.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// assert_eq!(sluice.next().await.ok_or("closed")?.fail(), "add");
    /// assert_eq!(sluice.stats().failed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fail(self) -> V {
        if let Some(shared) = &self.running.shared {
            shared.counters.failed.count();
        }
        self.finish()
    }

    /// Ends it and puts the item back to the front of its key, which runs nothing before `at`; with
    /// `None`, not before [`release`](super::Sluice::release). The order within the key is kept,
    /// there is always room for what comes back, and a worker pulls it again.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let batch = ["add", "pay"].map(|value| (Entry::of("alice").key("cart"), value));
    /// sluice.admit_all(batch.into())?;
    /// let at = Instant::now() + Duration::from_millis(2);
    /// sluice.next().await.ok_or("closed")?.retry_at(Some(at))?;
    /// let again = sluice.next().await.ok_or("closed")?;
    /// assert!(Instant::now() >= at && again.finish() == "add"); // and only then the second
    /// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), "pay");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The value, if the sluice is closed by now.
    pub fn retry_at(self, at: Option<Instant>) -> Result<ItemId, V> {
        self.put_back(at, |until, ran| Back::Retry { until, ran })
    }

    /// Ends it and puts the item back as [`retry_at`](Self::retry_at) does, but for this very caller,
    /// which keeps the value and waits again.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
    /// let turn = sluice.turn(&Context::new(), Entry::of("alice"), "ask").await?;
    /// let at = Instant::now() + Duration::from_millis(2);
    /// let again = turn.wait_again(at).turn().await?;
    /// assert!(Instant::now() >= at && again.finish() == "ask");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_again(mut self, at: Instant) -> Admitted<V> {
        let cx = self.running.cx.take().unwrap_or_default();
        let (shared, id, ran, now) = self.running.take();
        let (now, until) = (shared.alarm.moment(now), shared.alarm.moment(at));
        let runner = Runner::Caller { told: false, waker: None };
        let after = shared.line.put_back(now, id, Back::Retry { until, ran }, runner);
        let value = self.take_value();
        match shared.after(after) {
            Ok(()) => Admitted::new(shared, id, cx, value, None),
            Err(_) => {
                shared.counters.handed_back.count();
                Admitted::gone(cx, value)
            }
        }
    }

    /// Puts the item back as if it had never started: to the front of its key, which runs nothing
    /// before `at`; its token and its charge are given back, so that it costs neither the rate nor
    /// its tenant anything. It stays counted as started, but not as completed.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Rate, Sluice};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).rate(Rate::per_minute(1)?).build()?;
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// sluice.admit(Entry::of("bob"), "browse")?;
    /// let not_now = sluice.next().await.ok_or("closed")?; // with the only token
    /// not_now.postpone(Instant::now() + Duration::from_secs(5))?;
    /// assert_eq!(sluice.try_next().ok_or("no token")?.finish(), "browse");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The value, if the sluice is closed by now.
    pub fn postpone(self, at: Instant) -> Result<ItemId, V> {
        self.put_back(Some(at), |until, _| Back::Postpone { until })
    }

    /// Ends it, so that its place is free for others at once, but keeps the key busy until the
    /// [`KeyHold`] is dropped: what runs may be over before the next of its key may see that. Held
    /// keys count towards no limit, so bound them yourself.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let batch = ["add", "pay"].map(|value| (Entry::of("alice").key("cart"), value));
    /// sluice.admit_all(batch.into())?;
    /// sluice.admit(Entry::of("bob"), "browse")?;
    /// let (value, _hold) = sluice.next().await.ok_or("closed")?.linger();
    /// assert_eq!(value, "add");
    /// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), "browse"); // in its place
    /// assert!(sluice.try_next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn linger(mut self) -> (V, KeyHold<V>) {
        let (shared, id, ran, now) = self.running.take();
        shared.after(shared.line.linger(shared.alarm.moment(now), id, ran, false));
        (self.take_value(), KeyHold { shared, id })
    }

    /// [`linger`](Self::linger) and [`try_next`](super::Sluice::try_next) in one step, in which nobody
    /// else is called to take what the caller takes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let batch = ["add", "pay"].map(|value| (Entry::of("alice").key("cart"), value));
    /// sluice.admit_all(batch.into())?;
    /// sluice.admit(Entry::of("bob"), "browse")?;
    /// let (value, _hold, next) = sluice.next().await.ok_or("closed")?.linger_and_next();
    /// assert_eq!((value, next.ok_or("nothing")?.finish()), ("add", "browse"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn linger_and_next(mut self) -> (V, KeyHold<V>, Option<Self>) {
        let (shared, id, ran, now) = self.running.take();
        let pulled = shared.line.linger(shared.alarm.moment(now), id, ran, true);
        let next = shared.after(pulled);
        let next = next.map(|pulled| Self::pulled(Arc::clone(&shared), pulled, now));
        (self.take_value(), KeyHold { shared, id }, next)
    }

    fn put_back(
        mut self,
        at: Option<Instant>,
        back: impl FnOnce(Moment, Ran) -> Back,
    ) -> Result<ItemId, V> {
        let (shared, id, ran, now) = self.running.take();
        let until = at.map_or(Moment::FAR, |at| shared.alarm.moment(at));
        let runner = Runner::Worker(Some(self.take_value()));
        let after = shared.line.put_back(shared.alarm.moment(now), id, back(until, ran), runner);
        match shared.after(after) {
            Ok(()) => Ok(id),
            Err(Runner::Worker(Some(value))) => {
                shared.counters.handed_back.count();
                Err(value)
            }
            Err(_) => unreachable!("what was to be put back comes back"),
        }
    }
}

impl<V> Running<V> {
    pub(super) const fn new(
        shared: Link<V>,
        id: ItemId,
        admitted: Instant,
        started: Instant,
        cx: Option<Context>,
    ) -> Self {
        Self { shared: Some(shared), id, admitted, started, cost: None, cx }
    }

    /// Made when it is asked for: few ask, and what all turns share is best left alone.
    fn context(&self) -> Context {
        let cx = self.cx.clone().unwrap_or_default();
        match &self.shared {
            Some(shared) => cx.inside(&shared.lineage).holding(permit_of(self.id)),
            None => cx,
        }
    }

    /// Leaves the rest to whoever ends it: with its id, how long it ran at what cost, and now.
    fn take(&mut self) -> (Link<V>, ItemId, Ran, Instant) {
        let shared = self.shared.take().expect("a turn ends once");
        let now = Instant::now();
        (shared, self.id, self.ran(now), now)
    }

    fn ran(&self, now: Instant) -> Ran {
        let time = now - self.started;
        Ran { time, cost: self.cost.unwrap_or_else(|| in_millis(time)) }
    }
}

/// Not done: the value first, then, by the drop of its parts, permit and key.
impl<V> Drop for Turn<V> {
    fn drop(&mut self) {
        if let (Some(shared), Some(value)) = (&self.running.shared, self.value.take()) {
            if std::thread::panicking() {
                crate::panic::catch(|| shared.dropped(value)).ok();
            } else {
                shared.dropped(value);
            }
        }
    }
}

impl<V> Drop for Running<V> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let now = Instant::now();
            let counters = &shared.counters;
            if std::thread::panicking() { &counters.panicked } else { &counters.dropped }.count();
            let (ran, now) = (self.ran(now), shared.alarm.moment(now));
            shared.after(shared.line.abandon(now, self.id, ran));
        }
    }
}

impl<V> Drop for KeyHold<V> {
    fn drop(&mut self) {
        let Self { shared, id } = self;
        shared.after(shared.line.depart(shared.alarm.now(), *id));
    }
}

impl<V> fmt::Debug for Turn<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("id", &self.running.id).finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for KeyHold<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHold").field("id", &self.id).finish_non_exhaustive()
    }
}
