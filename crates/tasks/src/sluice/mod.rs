//! A sluice: values wait in a fair, ordered, bounded line, and a crew pulls whatever may start
//! next.
//!
//! `docs/rules.md#sluice-1`, `docs/rules.md#sluice-4`.

mod builder;
mod crew;
mod passage;

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

pub use builder::SluiceBuilder;
pub use passage::{Hold, Passage};

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use sluicegate_schedule::{Invalid, ItemId, Rate, Refused as NotLetIn, TenantLimits, TenantView};
use tokio::time::Instant;

use crate::line::entrance::Entrance;
use crate::line::watch::Until;
use crate::{Entry, Refused, Stats, WhyNot};
use crew::Crew;

/// A bound on concurrency with a fair, ordered line of values before it, from which a crew pulls.
///
/// Where the items of a [`Turnstile`](crate::Turnstile) each have a caller that waits for its turn,
/// the values of a sluice wait inside, without a task or a future each: a million of them cost
/// their own size and some hundred bytes more. They enter with [`admit`](Sluice::admit), and
/// whoever is free takes out the [`next`](Sluice::next) that may start. Who that is is the word of
/// the pure [schedule](sluicegate_schedule::Schedule): class, then tenant by weight and measured
/// cost, then key, then order; never two of a key at once; within the rate.
///
/// An item is told to start as soon as it may, and holds its place from then on, also while nobody
/// has pulled it yet. With as many pullers as places that is no time at all.
///
/// Clones are the same sluice. When the last one is dropped it is closed, and what waits is
/// dropped. What was pulled by then runs on.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Entry, Sluice};
///
/// let sluice = Sluice::<&str>::builder("orders", 4, 1000).build()?;
/// for value in ["add", "pay"] {
///     sluice.admit(Entry::of("alice").key("cart-1"), value)?;
/// }
/// sluice.admit(Entry::of("bob").key("cart-2"), "browse")?;
///
/// let first = sluice.next().await.ok_or("closed")?;
/// let other = sluice.next().await.ok_or("closed")?;
/// assert_eq!((*first.value(), *other.value()), ("add", "browse"));
/// assert!(sluice.try_next().is_none()); // there is a place, but the key is busy
/// first.finish(); // or drop it: it is over on every path
/// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), "pay");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Sluice<V> {
    handle: Arc<Handle<V>>,
}

struct Handle<V> {
    shared: Arc<Shared<V>>,
}

type Shared<V> = Entrance<Crew<V>>;

impl<V> Sluice<V> {
    /// A sluice for `concurrency` items at once, before which `capacity` may wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Rate, Sluice};
    ///
    /// let builder = Sluice::<u32>::builder("orders", 4, 1000).rate(Rate::per_minute(600)?);
    /// assert_eq!(builder.build::<u32>()?.name(), "orders");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder(name: impl Into<String>, concurrency: u32, capacity: u32) -> SluiceBuilder {
        SluiceBuilder::new(name.into(), concurrency, capacity)
    }

    /// Lets an item in. It waits for its turn, and to be pulled then.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 1).build()?;
    /// sluice.admit(Entry::of("alice"), "starts at once")?;
    /// sluice.admit(Entry::of("alice"), "waits")?;
    /// let refused = sluice.admit(Entry::of("bob"), "one more").unwrap_err();
    /// assert_eq!((refused.why.label(), refused.work), ("queue_full", "one more"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the value inside.
    pub fn admit(&self, entry: Entry, value: V) -> Result<ItemId, Refused<V>> {
        let shared = self.shared();
        let admitted = shared.after(shared.line.admit(shared.alarm.now(), entry, value));
        admitted.map_err(|refused| shared.refused(refused, 1))
    }

    /// Lets a batch in, in its order: all of it or nothing, and nobody else's items in between. All of
    /// it must fit in the queue, though some may start at once.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Refusal, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 5).build()?;
    /// let batch = |of: std::ops::Range<u32>| -> Vec<_> {
    ///     of.map(|n| (Entry::of("alice").key("cart"), n)).collect()
    /// };
    /// assert_eq!(sluice.admit_all(batch(0..4))?.len(), 4); // one starts, three wait
    /// let refused = sluice.admit_all(batch(4..7)).unwrap_err();
    /// assert_eq!(refused.why, Refusal::QueueFull { queued: 3, capacity: 5 });
    /// assert_eq!(refused.work.len(), 3);
    /// assert_eq!(sluice.stats().gauges.queued, 3); // though two would have fitted
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the whole batch inside. The counts in the reason are those before the
    /// batch.
    pub fn admit_all(
        &self,
        items: Vec<(Entry, V)>,
    ) -> Result<Vec<ItemId>, Refused<Vec<(Entry, V)>>> {
        let (shared, count) = (self.shared(), items.len() as u64);
        let admitted = shared.after(shared.line.admit_all(shared.alarm.now(), items));
        admitted.map_err(|refused| shared.refused(refused, count))
    }

    /// Waits until `count` more would fit, or as many as ever can if that is fewer, or the sluice
    /// is closed. Nothing is reserved: whoever comes first takes the room, so offer, and wait again
    /// if that fails. Only the capacity in all is looked at, not a tenant's own.
    ///
    /// Dropped while waiting, it leaves nothing behind.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 1).build()?;
    /// sluice.admit_all(vec![(Entry::of("alice"), "starts")])?;
    /// sluice.admit(Entry::of("alice"), "waits")?;
    /// let begun = sluice.try_next().ok_or("nothing")?;
    /// let source = async {
    ///     sluice.room_for(1).await;
    ///     sluice.admit(Entry::of("alice"), "held up")
    /// };
    /// let (admitted, _) = tokio::join!(source, async { begun.finish() });
    /// assert!(admitted.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn room_for(&self, count: u32) {
        self.shared().line.watch(Until::Room(count)).await;
    }

    /// Waits for the next value whose turn it is. `None` once the sluice is closed: then nothing
    /// starts any more. Any number may wait; each value that starts goes to exactly one of them, in
    /// the order in which they came to wait.
    ///
    /// Dropped while waiting, it loses nothing: a value it was called for goes to another, or to
    /// the next who asks.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 4, 1000).build()?;
    /// let worker = async {
    ///     let mut done = Vec::new();
    ///     while let Some(passage) = sluice.next().await {
    ///         done.push(passage.finish());
    ///     }
    ///     done
    /// };
    /// let source = async {
    ///     for value in ["add", "pay"] {
    ///         sluice.admit(Entry::of("alice").key("cart"), value).map_err(|refused| refused.why)?;
    ///         tokio::task::yield_now().await;
    ///     }
    ///     tokio::task::yield_now().await;
    ///     Ok::<_, sluicegate_tasks::Refusal>(sluice.close())
    /// };
    /// let (done, left) = tokio::join!(worker, source);
    /// assert_eq!((done, left?), (vec!["add", "pay"], vec![]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn next(&self) -> Option<Passage<V>> {
        let shared = self.shared();
        let mut place = shared.line.place();
        poll_fn(|poller| {
            let now = Instant::now();
            let seen = shared.after(place.look(shared.alarm.moment(now), poller.waker()));
            seen.map(|pulled| pulled.map(|pulled| Passage::new(shared, pulled, now)))
        })
        .await
    }

    /// The next value, if it is one's turn now.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// assert!(sluice.try_next().is_none());
    /// sluice.admit(Entry::of("alice"), "add")?;
    /// assert_eq!(sluice.try_next().ok_or("nothing")?.finish(), "add");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn try_next(&self) -> Option<Passage<V>> {
        let shared = self.shared();
        let now = Instant::now();
        let pulled = shared.after(shared.line.try_pull(shared.alarm.moment(now)))?;
        Some(Passage::new(shared, pulled, now))
    }

    /// Takes an item out of line, whatever it waits for: its turn, its time, a release, somebody to
    /// pull it. Told to start already, it gives its token and its charge back. `None` when somebody
    /// has pulled it, or it is gone.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let add = sluice.admit(Entry::of("alice"), "add")?;
    /// let pay = sluice.admit(Entry::of("alice"), "pay")?;
    /// assert_eq!(sluice.withdraw(pay), Some("pay"));
    /// let _passage = sluice.try_next().ok_or("nothing")?;
    /// assert_eq!(sluice.withdraw(add), None); // it is out
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn withdraw(&self, id: ItemId) -> Option<V> {
        let shared = self.shared();
        let value = shared.after(shared.line.withdraw(shared.alarm.now(), id))?;
        shared.counters.cancelled.count();
        Some(value)
    }

    /// An item that was put back, for a time or until now, may go. `false` if it does not wait so.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice").key("cart"), "add")?;
    /// let blocked = sluice.try_next().ok_or("nothing")?.retry_at(None)?;
    /// assert!(sluice.try_next().is_none()); // not by itself
    /// assert!(sluice.release(blocked));
    /// assert_eq!(sluice.try_next().ok_or("nothing")?.finish(), "add");
    /// assert!(!sluice.release(blocked));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn release(&self, id: ItemId) -> bool {
        let shared = self.shared();
        shared.after(shared.line.release(shared.alarm.now(), id))
    }

    /// Why an item is not running yet. `None` when it is not here (any more).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice, Why};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let first = sluice.admit(Entry::of("alice").key("cart"), "add")?;
    /// let second = sluice.admit(Entry::of("alice").key("cart"), "pay")?;
    /// assert_eq!(sluice.why(first).ok_or("gone")?.why, Why::Running); // once somebody pulls it
    /// assert_eq!(sluice.why(second).ok_or("gone")?.why, Why::KeyBusy { head: first });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn why(&self, id: ItemId) -> Option<WhyNot> {
        self.shared().why(id)
    }

    /// Changes how many may run at once and how many may wait, both at one instant. What runs and
    /// what waits goes on; lower limits are met as that ends.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 1).build()?;
    /// sluice.admit(Entry::of("alice"), "starts")?;
    /// sluice.admit(Entry::of("alice"), "waits")?;
    /// sluice.resize(2, 10)?;
    /// assert_eq!(sluice.stats().gauges.running, 2);
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
        self.shared().adjust(|fair, now| fair.set_rate(now, rate));
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
        self.shared().set_tenant(tenant.into(), limits)
    }

    /// The tenants that have items, or are still in debt for those they had, in no order.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit_all((0..3).map(|n| (Entry::of("alice"), n)).collect())?;
    /// let [alice] = &sluice.tenants()[..] else { unreachable!("nobody else was let in") };
    /// assert_eq!((&*alice.tenant, alice.running, alice.queued), ("alice", 1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantView<Arc<str>>> {
        self.shared().tenants()
    }

    /// The counters and gauges. What was told to start counts as running, as started only once
    /// somebody has pulled it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit_all((0..3).map(|n| (Entry::of("alice"), n)).collect())?;
    /// sluice.next().await.ok_or("closed")?.finish();
    /// let stats = sluice.stats();
    /// assert_eq!((stats.admitted, stats.started, stats.completed), (3, 1, 1));
    /// assert_eq!((stats.gauges.running, stats.gauges.queued), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// How many may wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// assert_eq!(Sluice::<u32>::builder("orders", 4, 1000).build::<u32>()?.capacity(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn capacity(&self) -> u32 {
        let shared = self.shared();
        shared.line.snapshot(shared.alarm.now()).capacity
    }

    /// The sluice's name.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// assert_eq!(Sluice::<u32>::builder("orders", 4, 1000).build::<u32>()?.name(), "orders");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// Lets nothing more in and returns everything that nobody has pulled, in the order of
    /// admission. [`next`](Sluice::next) and [`room_for`](Sluice::room_for) hold nobody any longer,
    /// and nothing can be put back any more. A second time there is nothing to return.
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

    /// Waits until nothing is out any more: neither a [`Passage`] nor a [`Hold`].
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

    fn shared(&self) -> &Arc<Shared<V>> {
        &self.handle.shared
    }
}

impl<V> Shared<V> {
    fn refused<W>(&self, refused: NotLetIn<W>, count: u64) -> Refused<W> {
        let why = self.refusal(refused.why);
        self.counters.rejected(&why, count);
        Refused { why, retry_after: None, work: refused.value }
    }

    fn close(&self) -> Vec<V> {
        self.closing.raise();
        let waited = self.line.close(self.alarm.now());
        self.counters.handed_back.add(waited.len() as u64);
        waited
    }
}

impl<V> Drop for Handle<V> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<V> Clone for Sluice<V> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<V> fmt::Debug for Sluice<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sluice").field("name", &self.name()).finish_non_exhaustive()
    }
}
