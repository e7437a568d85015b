//! Out of a sluice: a value and the right to run it, and what may come after.
//!
//! `docs/rules.md#sluice-3`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{ItemId, Moment};
use tokio::time::Instant;

use super::Shared;
use super::crew::{Pulled, Slot};
use crate::line::Back;

/// A value whose turn it is: the right to run it, for as long as this is held. Dropping it ends
/// that, and drops the value.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Entry, Sluice};
///
/// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
/// sluice.admit(Entry::of("alice"), "add")?;
/// let passage = sluice.next().await.ok_or("closed")?;
/// assert_eq!(sluice.stats().gauges.running, 1);
/// drop(passage);
/// assert_eq!(sluice.stats().gauges.running, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "dropping a passage ends it at once"]
pub struct Passage<V> {
    /// Given up before the value is dropped.
    seat: Seat<V>,
    value: V,
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
pub struct Hold<V> {
    shared: Arc<Shared<V>>,
    id: ItemId,
}

/// A place at the sluice. Dropping it makes room for the next.
struct Seat<V> {
    shared: Option<Arc<Shared<V>>>,
    id: ItemId,
    admitted: Instant,
    started: Instant,
}

impl<V> Passage<V> {
    pub(super) fn new(shared: &Arc<Shared<V>>, pulled: Pulled<V>, started: Instant) -> Self {
        let Pulled { id, value, admitted, waited } = pulled;
        shared.counters.started.count();
        shared.counters.waited(waited);
        let admitted = shared.alarm.instant(admitted).unwrap_or(started);
        let shared = Some(Arc::clone(shared));
        Self { seat: Seat { shared, id, admitted, started }, value }
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
        self.seat.id
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
    pub const fn value(&self) -> &V {
        &self.value
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
    pub const fn value_mut(&mut self) -> &mut V {
        &mut self.value
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
        self.seat.admitted
    }

    /// Ends it. What it cost is the time it was held.
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
    pub fn finish(self) -> V {
        self.value
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
        let (shared, id, ran, now) = self.seat.take();
        let pulled = shared.line.finish_and_pull(shared.alarm.moment(now), id, ran);
        let next = shared.after(pulled).map(|pulled| Self::new(&shared, pulled, now));
        (self.value, next)
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
        if let Some(shared) = &self.seat.shared {
            shared.counters.failed.count();
        }
        self.value
    }

    /// Ends it and puts the item back to the front of its key, which runs nothing before `at`; with
    /// `None`, not before [`release`](super::Sluice::release). The order within the key is kept,
    /// and there is always room for what comes back.
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
        self.put_back(at, |until, cost| Back::Retry { until, cost })
    }

    /// Puts the item back as if it had never started: to the front of its key, which runs nothing
    /// before `at`; its token and its charge are given back, so that it costs neither the rate nor
    /// its tenant anything. It stays counted as started, since counters only grow, but not as
    /// completed.
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
    /// [`Hold`] is dropped: what runs may be over before the next of its key may see that. Held
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
    pub fn linger(mut self) -> (V, Hold<V>) {
        let (shared, id, ran, now) = self.seat.take();
        shared.after(shared.line.linger(shared.alarm.moment(now), id, ran));
        (self.value, Hold { shared, id })
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
    pub fn linger_and_next(mut self) -> (V, Hold<V>, Option<Self>) {
        let (shared, id, ran, now) = self.seat.take();
        let pulled = shared.line.linger_and_pull(shared.alarm.moment(now), id, ran);
        let next = shared.after(pulled).map(|pulled| Self::new(&shared, pulled, now));
        (self.value, Hold { shared, id }, next)
    }

    fn put_back(
        mut self,
        at: Option<Instant>,
        back: impl FnOnce(Moment, Duration) -> Back,
    ) -> Result<ItemId, V> {
        let Some(shared) = self.seat.shared.take() else { return Err(self.value) };
        let (id, now) = (self.seat.id, Instant::now());
        let ran = now - self.seat.started;
        let until = at.map_or(Moment::FAR, |at| shared.alarm.moment(at));
        let now = shared.alarm.moment(now);
        let refill = |slot: &mut Slot<V>, value| slot.refill(value, now);
        let after = shared.line.put_back(now, id, back(until, ran), self.value, refill);
        let result = shared.after(after);
        if result.is_err() {
            shared.counters.handed_back.count();
        }
        result.map(|()| id)
    }
}

impl<V> Seat<V> {
    /// Gives the place to whoever ends it otherwise: with its id, how long it was held, and now.
    fn take(&mut self) -> (Arc<Shared<V>>, ItemId, Duration, Instant) {
        let shared = self.shared.take().expect("a passage that was not given up has a place");
        let now = Instant::now();
        (shared, self.id, now - self.started, now)
    }
}

impl<V> Drop for Seat<V> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let now = Instant::now();
            let panicked = std::thread::panicking();
            if panicked {
                shared.counters.panicked.count();
            }
            let (ran, now) = (now - self.started, shared.alarm.moment(now));
            shared.after(shared.line.finish(now, self.id, ran, panicked));
        }
    }
}

impl<V> Drop for Hold<V> {
    fn drop(&mut self) {
        let Self { shared, id } = self;
        shared.after(shared.line.depart(shared.alarm.now(), *id));
    }
}

impl<V> fmt::Debug for Passage<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passage").field("id", &self.seat.id).finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for Hold<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("id", &self.id).finish_non_exhaustive()
    }
}
