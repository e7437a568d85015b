//! A sluice: values wait in a fair, ordered, bounded line, and a crew pulls whatever may start next.

mod builder;
mod crew;
mod passage;

pub use builder::SluiceBuilder;
pub use passage::{Hold, Passage};

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use sluicegate_schedule::{Invalid, ItemId, Rate, Refused as NotLetIn, TenantLimits, TenantView};

use crate::line::entrance::Entrance;
use crate::line::watch::Until;
use crate::{Entry, Refused, Stats, WhyNot};
use crew::Crew;

/// A bound on concurrency with a fair, ordered line of values before it.
///
/// Values enter with [`admit`](Sluice::admit) and wait inside, without a task or a future each; a
/// crew takes them out with [`next`](Sluice::next), each when its turn has come.
///
/// Clones are the same sluice. When the last one is dropped it is closed, and what waits is dropped.
pub struct Sluice<V> {
    handle: Arc<Handle<V>>,
}

struct Handle<V> {
    shared: Arc<Shared<V>>,
}

type Shared<V> = Entrance<Crew<V>>;

impl<V> Sluice<V> {
    /// A sluice for `concurrency` items at once, before which `capacity` may wait.
    pub fn builder(name: impl Into<String>, concurrency: u32, capacity: u32) -> SluiceBuilder {
        SluiceBuilder::new(name.into(), concurrency, capacity)
    }

    /// Lets an item in.
    ///
    /// # Errors
    /// [`Refused`], with the value inside.
    pub fn admit(&self, entry: Entry, value: V) -> Result<ItemId, Refused<V>> {
        let shared = self.shared();
        let admitted = shared.after(shared.line.admit(shared.alarm.now(), entry, value));
        admitted.map_err(|refused| shared.refused(refused, 1))
    }

    /// Lets a batch in, in its order: all of it or nothing.
    ///
    /// # Errors
    /// [`Refused`], with the whole batch inside.
    pub fn admit_all(
        &self,
        items: Vec<(Entry, V)>,
    ) -> Result<Vec<ItemId>, Refused<Vec<(Entry, V)>>> {
        let (shared, count) = (self.shared(), items.len() as u64);
        let admitted = shared.after(shared.line.admit_all(shared.alarm.now(), items));
        admitted.map_err(|refused| shared.refused(refused, count))
    }

    /// Waits until `count` more would fit (or as many as ever can), or the sluice is closed.
    pub async fn room_for(&self, count: u32) {
        self.shared().line.watch(Until::Room(count)).await;
    }

    /// Waits for the next value whose turn it is. `None` once the sluice is closed.
    pub async fn next(&self) -> Option<Passage<V>> {
        let shared = self.shared();
        let mut place = shared.line.place();
        let pulled = poll_fn(|poller| shared.after(place.look(shared.alarm.now(), poller.waker())));
        pulled.await.map(|pulled| Passage::new(shared, pulled))
    }

    /// The next value, if it is one's turn now.
    pub fn try_next(&self) -> Option<Passage<V>> {
        let shared = self.shared();
        let pulled = shared.after(shared.line.try_pull(shared.alarm.now()))?;
        Some(Passage::new(shared, pulled))
    }

    /// Takes an item that was not pulled out of line.
    pub fn withdraw(&self, id: ItemId) -> Option<V> {
        let shared = self.shared();
        let value = shared.after(shared.line.withdraw(shared.alarm.now(), id))?;
        shared.counters.cancelled.count();
        Some(value)
    }

    /// An item that was put back may go now. `false` if it does not wait so.
    pub fn release(&self, id: ItemId) -> bool {
        let shared = self.shared();
        shared.after(shared.line.release(shared.alarm.now(), id))
    }

    /// Why an item is not running yet. `None` when it is not here (any more).
    #[must_use]
    pub fn why(&self, id: ItemId) -> Option<WhyNot> {
        self.shared().why(id)
    }

    /// Changes how many may run at once and how many may wait.
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
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.shared().adjust(|fair, now| fair.set_rate(now, rate));
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
        self.shared().set_tenant(tenant.into(), limits)
    }

    /// The tenants that have items, or are still in debt for those they had, in no order.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantView<Arc<str>>> {
        self.shared().tenants()
    }

    /// The counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// How many may wait.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        let shared = self.shared();
        shared.line.snapshot(shared.alarm.now()).capacity
    }

    /// The sluice's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// Lets nothing more in and returns everything that nobody pulled, in the order of admission.
    pub fn close(&self) -> Vec<V> {
        self.shared().close()
    }

    /// Waits until nothing is out any more.
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
        (0..count).for_each(|_| self.counters.rejected(&why));
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
