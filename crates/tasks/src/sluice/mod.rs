//! A sluice: the kernel's one queue. Items wait in it, bounded, fair between tenants, in order per
//! key, within a rate; and go out to the callers that wait for them or to workers that pull.
//!
//! | file | is |
//! |---|---|
//! | `line.rs` | the schedule behind a lock, and who is told what |
//! | `door.rs` | where callers wait for room |
//! | `callers.rs`, `workers.rs` | the two ways out |
//! | `idle_workers.rs` | workers that wait, and who was called |
//! | `turn.rs` | the right to run one item, and how it ends |
//! | `done.rs` | ends that nobody needs to hear of at once |
//! | `live.rs`, `view.rs` | changing it, ending it, looking in |
//! | `alarm.rs`, `watch.rs`, `ledger.rs` | its one timer, waiting for room or the end, counts |
//!
//! `docs/rules.md#sluice-1`, `docs/rules.md#sluice-2`, `docs/rules.md#sluice-4`.

mod alarm;
mod builder;
mod callers;
mod done;
mod door;
mod idle_workers;
mod ledger;
mod line;
mod live;
mod overload;
mod turn;
mod view;
mod watch;
mod workers;

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

pub use builder::SluiceBuilder;
pub use callers::Admitted;
pub use ledger::LastMinute;
pub use live::Pause;
pub use overload::Overload;
pub use turn::{KeyHold, Turn};
pub use view::{WaitingItem, WhyNot};

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Entry as ScheduleEntry, ItemId, Refusal as Full, Refused as NotLetIn};
use tokio::time::Instant;

use crate::context::{Flag, GroupId, Lineage};
use crate::lineage::{HoldsPermits, PermitId};
use crate::panic::catch;
use crate::stats::Counters;
use crate::{AtLimit, Context, Interrupt, Refusal, Refused};
use alarm::Alarm;
use line::{After, Line};
use watch::Until;

/// What a sluice needs to know of an item: whose it is, what it must stay in order with, how urgent.
/// Names are a `&str`, a `String` or an `Arc<str>`; hand a `&String` over as `name.as_str()`.
///
/// ```
/// use sluicegate_tasks::{Class, Entry};
///
/// let user = String::from("telegram:42");
/// let entry = Entry::of(user.as_str()).tenant_key("session-7").class(Class::Admin);
/// assert_eq!(&**entry.tenant(), user);
/// ```
pub type Entry = ScheduleEntry<Arc<str>, Arc<str>>;

type Batch<V> = Vec<(Entry, V)>;

/// A bounded queue with a schedule, and a bound on how many of its items run at once.
///
/// Who is next is the word of the pure [schedule](sluicegate_schedule::Schedule): class, then tenant
/// by weight and measured cost, then the key whose head has been ready for longest; never two of a key
/// at once; within the rate. It is decided when there is somebody to run it, and there are two ways
/// out, each to a [`Turn`]:
///
/// - **Workers pull.** Values enter with [`admit`](Sluice::admit) and wait inside, without a task or a
///   future each: a million of them cost their own size and some hundred bytes more. Whoever is free
///   takes the [`next`](Sluice::next).
/// - **Callers wait.** [`enter`](Sluice::enter) keeps the value with the caller, who waits for its
///   [`turn`](Admitted::turn) in its own task.
///
/// Clones are the same sluice. When the last one is dropped it is closed, and what waits is handed to
/// [`on_dropped`](SluiceBuilder::on_dropped) or dropped. What was started by then runs on.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, Sluice};
///
/// let sluice = Sluice::<&str>::builder("orders", 4, 1000).build()?;
/// for value in ["add", "pay"] {
///     sluice.admit(Entry::of("alice").key("cart-1"), value)?;
/// }
/// let first = sluice.next().await.ok_or("closed")?;
/// assert_eq!(*first.value(), "add");
/// assert!(sluice.try_next().is_none()); // there is a place, but the key is busy
/// first.finish();
/// assert_eq!(sluice.next().await.ok_or("closed")?.finish(), "pay");
///
/// let mine = sluice.turn(&Context::new(), Entry::of("bob"), "browse").await?;
/// assert_eq!(mine.finish(), "browse");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Sluice<V> {
    link: Link<V>,
    handle: Arc<Handle<V>>,
}

/// What the turns of one handle hold. Each handle counts its own, so that threads with a handle each
/// need not write to the same place.
type Link<V> = Arc<Arc<Shared<V>>>;

/// Closes the sluice when the last handle goes: turns hold only what is shared.
struct Handle<V> {
    shared: Arc<Shared<V>>,
}

type OnDropped<V> = Arc<dyn Fn(V) + Send + Sync>;

struct Shared<V> {
    name: String,
    line: Line<V>,
    alarm: Alarm,
    closing: Flag,
    counters: Counters,
    overload: Overload,
    queue_timeout: Option<Duration>,
    unwind: Duration,
    group: GroupId,
    lineage: Arc<Lineage>,
    on_dropped: Option<OnDropped<V>>,
}

impl<V> Sluice<V> {
    /// A sluice for `concurrency` items at once, before which `capacity` may wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Rate, Sluice};
    ///
    /// let builder = Sluice::<u32>::builder("orders", 4, 1000).rate(Rate::per_minute(600)?);
    /// assert_eq!(builder.build()?.name(), "orders");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder(name: impl Into<String>, concurrency: u32, capacity: u32) -> SluiceBuilder<V> {
        SluiceBuilder::new(name.into(), concurrency, capacity)
    }

    /// Lets an item in, for whichever worker pulls it. It never waits to get in, nor does it go before
    /// callers that do ([`Overload::Wait`]): while they wait for room there is none.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 1).build()?;
    /// sluice.admit(Entry::of("alice"), "first")?;
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
        let admitted = shared.line.admit(shared.alarm.now(), entry, value, shared.overload);
        shared.after(admitted).map_err(|refused| shared.refused(refused, 1))
    }

    /// Lets a batch in, in its order: all of it or nothing, and nobody else's items in between. All of
    /// it must fit in the queue.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Refusal, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 5).build()?;
    /// let batch = |of: std::ops::Range<u32>| -> Vec<_> {
    ///     of.map(|n| (Entry::of("alice").key("cart"), n)).collect()
    /// };
    /// assert_eq!(sluice.admit_all(batch(0..4))?.len(), 4);
    /// let refused = sluice.admit_all(batch(4..7)).unwrap_err();
    /// assert_eq!(refused.why, Refusal::QueueFull { queued: 4, capacity: 5 });
    /// assert_eq!(refused.work.len(), 3);
    /// assert_eq!(sluice.stats().gauges.queued, 4); // though one would have fitted
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
        let admitted = shared.line.admit_all(shared.alarm.now(), items, shared.overload);
        shared.after(admitted).map_err(|refused| shared.refused(refused, count))
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
    /// sluice.admit(Entry::of("alice"), "waits")?;
    /// let source = async {
    ///     sluice.room_for(1).await;
    ///     sluice.admit(Entry::of("alice"), "held up")
    /// };
    /// let (admitted, _turn) = tokio::join!(source, sluice.next());
    /// assert!(admitted.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn room_for(&self, count: u32) {
        self.shared().line.watch(Until::Room(count)).await;
    }

    /// Waits for the next value whose turn it is. `None` once the sluice is closed: then nothing
    /// starts any more. Any number may wait; what starts goes to exactly one of them, and who
    /// waits for longest is called first.
    ///
    /// Dropped while waiting, it loses nothing: what it was called for goes to another, or to
    /// the next who asks.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 4, 1000).build()?;
    /// let worker = async {
    ///     let mut done = Vec::new();
    ///     while let Some(turn) = sluice.next().await {
    ///         done.push(turn.finish());
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
    pub async fn next(&self) -> Option<Turn<V>> {
        let shared = self.shared();
        let mut puller = shared.line.puller();
        poll_fn(|poller| {
            let now = Instant::now();
            let seen = shared.after(puller.look(shared.alarm.moment(now), poller.waker()));
            seen.map(|pulled| pulled.map(|pulled| Turn::pulled(Arc::clone(shared), pulled, now)))
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
    pub fn try_next(&self) -> Option<Turn<V>> {
        let shared = self.shared();
        let now = Instant::now();
        let pulled = shared.after(shared.line.try_pull(shared.alarm.moment(now)))?;
        Some(Turn::pulled(Arc::clone(shared), pulled, now))
    }

    /// Lets an item of a caller in, which then waits for its [`turn`](Admitted::turn), in the order of
    /// admission and under its context. With [`Overload::Wait`] it waits here while the queue is full.
    ///
    /// Where workers pull from the same sluice, its turn comes after the values that are before it:
    /// there must be workers to take them.
    ///
    /// Dropped while it waits, it leaves nothing behind. What was admitted holds its place in order
    /// whether or not it is awaited, and a permit once it is its turn: await it or drop it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 1).build()?;
    /// let cx = Context::new();
    /// let turn = sluice.enter(&cx, Entry::of("alice"), "first").await?.turn().await?;
    /// let waits = sluice.enter(&cx, Entry::of("alice"), "second").await?;
    /// let refused = sluice.enter(&cx, Entry::of("bob"), "third").await.unwrap_err();
    /// assert_eq!((refused.why.label(), refused.work), ("queue_full", "third"));
    /// turn.finish();
    /// assert_eq!(waits.turn().await?.finish(), "second");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the value inside. Under the [context](Turn::context) of one of the sluice's own
    /// turns it is an error at once ([`Refusal::Nested`]): the turn could wait for itself.
    pub async fn enter(
        &self,
        cx: &Context,
        entry: Entry,
        value: V,
    ) -> Result<Admitted<V>, Refused<V>> {
        let shared = self.shared();
        let entered = match shared.may_enter(cx) {
            Ok(()) => shared.let_in(cx, entry).await,
            Err(why) => Err(why),
        };
        match entered {
            Ok((id, at_once)) => {
                Ok(Admitted::new(Arc::clone(shared), id, cx.clone(), value, at_once))
            }
            Err(why) => Err(shared.refuse(why, value)),
        }
    }

    /// [`enter`](Sluice::enter) and [`Admitted::turn`] in one. Where the work must go on without its
    /// caller, move the turn into a task: `group.submit(turn.context(), …)`.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 4, 100).build()?;
    /// let turn = sluice.turn(&Context::new(), Entry::of("alice"), "ask").await?;
    /// assert_eq!(turn.finish(), "ask");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As those two.
    pub async fn turn(&self, cx: &Context, entry: Entry, value: V) -> Result<Turn<V>, Refused<V>> {
        self.enter(cx, entry, value).await?.turn().await
    }

    /// Takes out a value that waits, whatever it waits for: its turn, its time, a release, a worker.
    /// `None` when it is out, gone, or a caller's.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let add = sluice.admit(Entry::of("alice"), "add")?;
    /// let pay = sluice.admit(Entry::of("alice"), "pay")?;
    /// assert_eq!(sluice.withdraw(pay), Some("pay"));
    /// let _turn = sluice.try_next().ok_or("nothing")?;
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

    fn shared(&self) -> &Link<V> {
        &self.link
    }
}

impl<V> Shared<V> {
    /// Does what a change of the line calls for.
    fn after<R>(&self, After { result, alarm, expired }: After<V, R>) -> R {
        self.alarm.set(alarm);
        self.drop_all(expired);
        result
    }

    /// Values that nobody has any more go to their owner. One that panics over one of them keeps
    /// neither the others from theirs, nor the timer from going on.
    fn drop_all(&self, values: Vec<V>) {
        for value in values {
            catch(|| self.dropped(value)).ok();
        }
    }

    /// A value that nobody has any more goes to its owner.
    fn dropped(&self, value: V) {
        match &self.on_dropped {
            Some(on_dropped) => on_dropped(value),
            None => drop(value),
        }
    }

    /// Whether a caller's turn may begin: not once its context has ended, nor past a drain's deadline.
    fn may_begin(&self, cx: &Context) -> Result<(), Interrupt> {
        if self.lineage.kill.is_raised() {
            return Err(Interrupt::Cancelled);
        }
        cx.check()
    }

    fn may_enter(&self, cx: &Context) -> Result<(), Refusal> {
        cx.check()?;
        if cx.holds(self.group) {
            return Err(Refusal::Nested { group: self.name.clone() });
        }
        Ok(())
    }

    /// Lets a caller's item in; says since when it is its turn, if it is so at once.
    async fn let_in(
        &self,
        cx: &Context,
        entry: Entry,
    ) -> Result<(ItemId, Option<Instant>), Refusal> {
        let (mut door, mut entry) = (self.line.door(), Some(entry));
        let entering = poll_fn(|poller| {
            let at = Instant::now();
            let now = self.alarm.moment(at);
            let knocked = door.knock(now, &mut entry, self.overload, poller.waker());
            self.after(knocked).map_ok(|entered| (entered.id, entered.at_once.then_some(at)))
        });
        let entered = match self.overload {
            Overload::Wait => cx.until_interrupted(entering).await?,
            _ => entering.await,
        };
        entered.map_err(|why| self.refusal(why))
    }

    fn refused<W>(&self, refused: NotLetIn<W>, count: u64) -> Refused<W> {
        let why = self.refusal(refused.why);
        self.counters.rejected(&why, count);
        let retry_after = self.retry_after(&why);
        Refused { why, retry_after, work: refused.value }
    }

    fn refuse<W>(&self, why: Refusal, work: W) -> Refused<W> {
        self.counters.rejected(&why, 1);
        Refused { retry_after: self.retry_after(&why), why, work }
    }

    /// When to offer again what was refused: the later of what the reason and what the policy says.
    fn retry_after(&self, why: &Refusal) -> Option<Duration> {
        let known = match why {
            Refusal::RateLimited { retry_in } | Refusal::TenantRateLimited { retry_in } => {
                Some(*retry_in)
            }
            _ => None,
        };
        known.max(self.overload.retry_after())
    }

    /// The schedule's reason, with how long instead of until when.
    fn refusal(&self, why: Full) -> Refusal {
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
            Full::TenantRateLimited { until } => {
                Refusal::TenantRateLimited { retry_in: until - self.alarm.now() }
            }
            Full::BatchTooLarge { items, max } => Refusal::BatchTooLarge { items, max },
            Full::NoWorker => Refusal::NoWorker,
            Full::Paused { reason } => Refusal::Paused { reason },
            _ => Refusal::Draining,
        }
    }

    /// Lets nothing more in. What waited for workers is returned.
    fn close(&self) -> Vec<V> {
        self.closing.raise();
        let (values, waited) = self.after(self.line.close(self.alarm.now()));
        self.counters.handed_back.add(waited);
        values
    }
}

/// Asks the line again whenever the alarm rings. After a close nothing waits, so nothing rings.
async fn keep_time<V>(shared: Arc<Shared<V>>) {
    loop {
        tokio::select! {
            biased;
            () = shared.closing.raised() => return,
            () = shared.alarm.rings() => {
                shared.after(shared.line.tick(shared.alarm.now()));
            }
        }
    }
}

/// A turn holds its permit while its item runs.
impl<V: Send> HoldsPermits for Shared<V> {
    fn holds(&self, permit: PermitId) -> bool {
        let id = ItemId::from_parts(permit.index, permit.number);
        self.line.view(|fair| fair.is_running(id))
    }
}

fn permit_of(id: ItemId) -> PermitId {
    let (index, number) = id.into_parts();
    PermitId { number, index, shard: 0 }
}

impl<V> Drop for Handle<V> {
    fn drop(&mut self) {
        let waited = self.shared.close();
        self.shared.drop_all(waited);
    }
}

impl<V> Clone for Sluice<V> {
    fn clone(&self) -> Self {
        Self { link: Arc::new(Arc::clone(&self.link)), handle: Arc::clone(&self.handle) }
    }
}

impl<V> fmt::Debug for Sluice<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sluice").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for Shared<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}
