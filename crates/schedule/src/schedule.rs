//! The schedule itself: what may run next.
//!
//! Invariants, asserted by the property tests:
//! 1. Running items never exceed the concurrency, but for those that ran when it was lowered.
//! 2. Admission never lets more wait than the capacity. A put-back item keeps its place even then,
//!    so all that wait and run together never exceed capacity plus concurrency. How many linger is
//!    the owner's to bound.
//! 3. Per key one item at a time, in order.
//! 4. An admitted item leaves exactly once: completed, revoked, cancelled or, after it lingered,
//!    departed.
//! 5. With no items there are no keys and no tenants, but for the last few that are kept as if just made.

use std::hash::Hash;
use std::num::NonZeroU32;

use crate::admission_rate::AdmissionRates;
use crate::arena::NIL;
use crate::item::{Bill, Items};
use crate::key::{Keys, ReadyHead, Standing};
use crate::pause::Pauses;
use crate::tenants::{FairTenants, Started, StartingHead};
use crate::{ItemId, Limits, Moment, NotUntil, RateLimit, TenantLimits};

/// A pure state machine that decides what may run next.
///
/// It picks by class first, then between tenants by weight and measured cost, then between keys by
/// how long their heads are ready, those that come again in turn with first attempts; inside a key, the higher class first and otherwise in order of
/// admission, never two at once. A decision costs the same for a thousand keys and for a million.
///
/// The owner holds it behind whatever it likes, passes the time in, and does what it says:
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
///
/// let limits = Limits::new::<&str>(2, 100).build()?;
/// let mut schedule: Schedule<&str, &str, &str> = Schedule::new(limits, Moment::ZERO);
/// let now = Moment::ZERO;
///
/// let first = schedule.admit(now, Entry::of("alice").key("cart-1"), "add")?;
/// schedule.admit(now, Entry::of("alice").key("cart-1"), "pay")?;
/// let other = schedule.admit(now, Entry::of("bob"), "browse")?;
///
/// // Alice's second item waits for her first; Bob does not.
/// assert_eq!(schedule.next(now), Next::Start(first));
/// assert_eq!(schedule.next(now), Next::Start(other));
/// assert_eq!(schedule.next(now), Next::Idle);
///
/// assert_eq!(schedule.complete(first, None), Some("add"));
/// let Next::Start(second) = schedule.next(now) else { panic!() };
/// assert_eq!(schedule.get(second), Some(&"pay"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Schedule<V, K, T> {
    pub(crate) limits: Limits<T>,
    pub(crate) rate: Option<RateLimit>,
    /// Counts the buckets there were: a token goes back only to the one it came from.
    pub(crate) buckets: NonZeroU32,
    pub(crate) items: Items<V>,
    pub(crate) keys: Keys<K, T>,
    pub(crate) tenants: FairTenants<T>,
    pub(crate) admission_rates: AdmissionRates<T>,
    pub(crate) pauses: Pauses,
    pub(crate) draining: bool,
}

/// What the schedule says when asked for the next item.
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
/// assert_eq!(schedule.next(now), Next::Idle);
/// let id = schedule.admit(now, Entry::of("alice"), ())?;
/// assert_eq!(schedule.next(now), Next::Start(id));
/// let later = Moment::from_nanos(500);
/// schedule.retry(now, id, later, None);
/// assert_eq!(schedule.next(now), Next::At(later));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This one starts now, and counts as running from here on.
    Start(ItemId),
    /// Nothing may start before this moment, unless something changes first.
    At(Moment),
    /// Nothing may start until something changes.
    Idle,
}

impl<V, K: Hash + Eq + Clone, T: Hash + Eq + Clone> Schedule<V, K, T> {
    /// An empty schedule.
    ///
    /// ```
    /// use sluicegate_schedule::{Limits, Moment, Schedule};
    ///
    /// let limits = Limits::new(4, 50).build()?;
    /// let schedule: Schedule<String, u64, String> = Schedule::new(limits, Moment::ZERO);
    /// assert_eq!(schedule.snapshot(Moment::ZERO).queued, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(limits: Limits<T>, now: Moment) -> Self {
        Self {
            rate: limits.rate.map(|rate| RateLimit::new(rate, now)),
            buckets: NonZeroU32::MIN,
            tenants: FairTenants::new(limits.class_period),
            items: Items::new(),
            keys: Keys::new(),
            admission_rates: AdmissionRates::new(),
            pauses: Pauses::new(),
            draining: false,
            limits,
        }
    }

    /// Decides what starts now. Ask until it says something else than [`Next::Start`].
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(2, 10).build()?, now);
    /// for tenant in ["alice", "alice", "bob"] {
    ///     schedule.admit(now, Entry::of(tenant), tenant)?;
    /// }
    /// let mut started = Vec::new();
    /// while let Next::Start(id) = schedule.next(now) {
    ///     started.extend(schedule.get(id).copied());
    /// }
    /// assert_eq!(started, ["alice", "bob"]); // two at once, and one of each
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next(&mut self, now: Moment) -> Next {
        let key = match self.pick(now) {
            Ok(key) => key,
            Err(nothing) => return nothing,
        };
        // The token is taken only once there is an item to spend it on.
        if let Some(Err(NotUntil(at))) = self.rate.as_mut().map(|rate| rate.try_take(now)) {
            return Next::At(at);
        }
        let Standing::Ready { lane, head, again, .. } = self.keys.get(key).standing else {
            unreachable!("a picked key is ready");
        };
        self.keys.part(self.tenants.ready_keys(lane, again), key);
        self.keys.get_mut(key).running = head;
        let (item, cost) = (self.items[head].seq, self.items[head].cost.map(NonZeroU32::get));
        let charge = self.tenants.start(lane, StartingHead { item, again, cost });
        self.keys.unlink(&mut self.items, head);
        self.items.start(head, Bill { charge, bucket: self.bucket() }, now);
        Next::Start(self.items.id(head))
    }

    /// What [`Schedule::next`] would say, without starting anything.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// assert_eq!(schedule.peek(now), Next::Start(id));
    /// assert_eq!(schedule.snapshot(now).running, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek(&mut self, now: Moment) -> Next {
        let key = match self.pick(now) {
            Ok(key) => key,
            Err(nothing) => return nothing,
        };
        match self.rate.as_ref().map(|rate| rate.ready_at(now)) {
            Some(at) if at > now => Next::At(at),
            _ => match self.keys.get(key).standing {
                Standing::Ready { head, .. } => Next::Start(self.items.id(head)),
                _ => unreachable!("a picked key is ready"),
            },
        }
    }

    /// Lets time pass: keys whose hold is over are ready from now on, and tenants' admission rates
    /// that recovered are forgotten. [`Schedule::next`] and [`Schedule::admit`] do it by themselves.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule, Why};
    ///
    /// let (now, later) = (Moment::ZERO, Moment::from_nanos(500));
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.next(now);
    /// schedule.retry(now, id, later, None);
    /// schedule.advance(later);
    /// assert_eq!(schedule.why(later, id), Some(Why::Ready));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn advance(&mut self, now: Moment) {
        while let Some(key) = self.keys.release_due(now) {
            self.stand(key);
        }
        if self.admission_rates.len() > 0 {
            self.admission_rates.forget_untouched(now);
        }
    }

    /// The key whose head would start, but for the rate.
    fn pick(&mut self, now: Moment) -> Result<u32, Next> {
        self.advance(now);
        if self.items.running() >= self.limits.concurrency || self.pauses.reason().is_some() {
            return Err(Next::Idle);
        }
        self.tenants.pick().ok_or_else(|| self.keys.next_release().map_or(Next::Idle, Next::At))
    }

    /// A running item is done. With a measured `cost` the tenant is charged that instead of the
    /// estimate. `None` when the item does not run (any more).
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), "add")?;
    /// assert_eq!(schedule.complete(id, None), None); // it does not run yet
    /// assert_eq!(schedule.next(now), Next::Start(id));
    /// assert_eq!(schedule.complete(id, Some(12)), Some("add")); // it took 12 of something
    /// assert_eq!(schedule.complete(id, Some(12)), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn complete(&mut self, id: ItemId, cost: Option<u32>) -> Option<V> {
        let (item, bill) = self.items.find_running(id)?;
        let item = self.items.remove(item);
        self.tenants.finish(item.tenant, item.class, bill.charge, cost);
        self.leave(item.key);
        Some(item.value)
    }

    /// An item that was started did not run after all: its token and its charge are given back.
    /// `None` when the item does not run.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Rate, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(1, 10).rate(Rate::per_minute(1)?).build()?;
    /// let mut schedule = Schedule::<&str, (), &str>::new(limits, now);
    /// let gone = schedule.admit(now, Entry::of("alice"), "add")?;
    /// let next = schedule.admit(now, Entry::of("bob"), "browse")?;
    /// assert_eq!(schedule.next(now), Next::Start(gone));
    /// assert_eq!(schedule.revoke(gone), Some("add"));
    /// assert_eq!(schedule.next(now), Next::Start(next)); // with the token that came back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revoke(&mut self, id: ItemId) -> Option<V> {
        let (item, bill) = self.items.find_running(id)?;
        let started = self.take_back(item, bill);
        let item = self.items.remove(item);
        self.tenants.revoke(started);
        self.leave(item.key);
        Some(item.value)
    }

    /// Takes a waiting item out. `None` when it does not wait (any more).
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), "add")?;
    /// assert_eq!(schedule.cancel(id), Some("add"));
    /// assert_eq!(schedule.cancel(id), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&mut self, id: ItemId) -> Option<V> {
        let index = self.items.find_waiting(id)?;
        let held_for_it = self.keys.get(self.items[index].key).front == index;
        self.keys.unlink(&mut self.items, index);
        let key = self.items[index].key;
        if held_for_it {
            self.keys.release(key);
        }
        self.stand(key);
        let item = self.items.remove(index);
        self.tenants.dequeue(item.tenant, item.class);
        self.leave_key(key);
        Some(item.value)
    }

    /// An item that was admitted and still waits was not let in after all: as [`Schedule::cancel`],
    /// and its tenant's admission rate is given back what the item took of it.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Rate, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let each = TenantLimits::new().admission_rate(Rate::per_minute(1)?);
    /// let limits = Limits::new(1, 10).each_tenant(each).build()?;
    /// let mut schedule = Schedule::<&str, (), &str>::new(limits, now);
    /// let id = schedule.admit(now, Entry::of("alice"), "add")?;
    /// assert_eq!(schedule.refuse(id), Some("add"));
    /// assert!(schedule.may_admit(now, &Entry::of("alice")).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refuse(&mut self, id: ItemId) -> Option<V> {
        self.items.find_waiting(id)?;
        self.refund_admission(id);
        self.cancel(id)
    }

    /// An item that was admitted and waits or runs for the first time gives back what it took of its tenant's admission
    /// rate: once, by whoever takes it out of the queue because it was not let in after all.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Rate, Schedule, TenantLimits};
    ///
    /// let now = Moment::ZERO;
    /// let each = TenantLimits::new().admission_rate(Rate::per_minute(1)?);
    /// let limits = Limits::new(1, 10).each_tenant(each).build()?;
    /// let mut schedule = Schedule::<&str, (), &str>::new(limits, now);
    /// let id = schedule.admit(now, Entry::of("alice"), "add")?;
    /// assert_eq!(schedule.next(now), Next::Start(id));
    /// schedule.refund_admission(id);
    /// assert_eq!(schedule.revoke(id), Some("add"));
    /// assert!(schedule.may_admit(now, &Entry::of("alice")).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refund_admission(&mut self, id: ItemId) {
        let runs = || Some(self.items.find_running(id)?.0);
        if let Some(item) = self.items.find_waiting(id).or_else(runs) {
            let item = &self.items[item];
            self.admission_rates.refund(&self.tenants.tenant(item.tenant).name, item.since);
        }
    }

    /// Lets nothing more in. What waits or runs is not touched.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Refusal, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.stop_admission();
    /// assert_eq!(schedule.may_admit(now, &Entry::of("alice")), Err(Refusal::Draining));
    /// assert_eq!(schedule.next(now), Next::Start(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn stop_admission(&mut self) {
        self.draining = true;
    }

    /// Takes out everything that waits, longest waiting first.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// for value in ["runs", "waits longest", "waits"] {
    ///     schedule.admit(now, Entry::of("alice"), value)?;
    /// }
    /// schedule.next(now);
    /// assert_eq!(schedule.take_waiting(), ["waits longest", "waits"]);
    /// assert_eq!(schedule.snapshot(now).running, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_waiting(&mut self) -> Vec<V> {
        let mut taken = Vec::with_capacity(self.items.waiting() as usize);
        while let Some(oldest) = self.items.oldest() {
            taken.extend(self.cancel(self.items.id(oldest)));
        }
        taken
    }

    /// The value of an item that waits or runs.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), "add")?;
    /// assert_eq!(schedule.get(id), Some(&"add"));
    /// schedule.cancel(id);
    /// assert_eq!(schedule.get(id), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn get(&self, id: ItemId) -> Option<&V> {
        self.items.get(id).map(|item| &item.value)
    }

    /// The value of an item that waits or runs.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<u32, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let attempts = schedule.admit(now, Entry::of("alice"), 0)?;
    /// *schedule.get_mut(attempts).ok_or("gone")? += 1;
    /// assert_eq!(schedule.get(attempts), Some(&1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_mut(&mut self, id: ItemId) -> Option<&mut V> {
        self.items.get(id)?;
        Some(&mut self.items[id.index].value)
    }

    /// When the next hold of a key ends by itself.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let (now, later) = (Moment::ZERO, Moment::from_nanos(500));
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.next(now);
    /// schedule.retry(now, id, later, None);
    /// assert_eq!(schedule.next_release(), Some(later));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_release(&self) -> Option<Moment> {
        self.keys.next_release()
    }

    pub(crate) fn limits_of(&self, tenant: &T) -> &TenantLimits {
        match self.limits.tenants.is_empty() {
            true => &self.limits.each_tenant,
            false => self.limits.tenants.get(tenant).unwrap_or(&self.limits.each_tenant),
        }
    }

    /// The bucket in force, if there is one.
    pub(crate) fn bucket(&self) -> Option<NonZeroU32> {
        self.rate.as_ref().map(|_| self.buckets)
    }

    /// An item that was started did not run: its token is given back. Returns what its tenant is to
    /// be given back.
    pub(crate) fn take_back(&mut self, index: u32, bill: Bill) -> Started {
        let item = &self.items[index];
        let bucket = self.rate.as_ref().map(|_| self.buckets);
        if let Some(rate) = self.rate.as_mut().filter(|_| bill.bucket == bucket) {
            rate.refund(item.since);
        }
        let (tenant, class, again) = (item.tenant, item.class, item.again);
        Started { tenant, class, again, charge: bill.charge, item: item.seq }
    }

    /// The item that was out of the key is gone for good.
    pub(crate) fn leave(&mut self, key: u32) {
        self.keys.get_mut(key).running = NIL;
        self.stand(key);
        self.leave_key(key);
    }

    fn leave_key(&mut self, key: u32) {
        self.keys.leave_if_gone(key);
        self.forget_tenants_if_idle();
    }

    pub(crate) fn forget_tenants_if_idle(&mut self) {
        if self.items.waiting() == 0 && self.items.running() == 0 {
            self.tenants.clear();
        }
    }

    /// Brings a key to where its head wants it, unless it is held.
    pub(crate) fn stand(&mut self, index: u32) {
        let key = self.keys.get(index);
        let head = if key.running == NIL { key.head() } else { None };
        match key.standing {
            Standing::Held { .. } => return,
            Standing::Ready { head: stands_for, .. } if head == Some(stands_for) => return,
            Standing::Ready { lane, again, .. } => {
                self.keys.part(self.tenants.ready_keys(lane, again), index);
                self.tenants.place(lane);
            }
            Standing::Out => {}
        }
        if let Some(head) = head {
            let item = &self.items[head];
            let again = item.again;
            let (lane, line) = self.tenants.line_of((item.tenant, item.class), again);
            self.keys.join(line, index, ReadyHead { lane, head, again });
            self.tenants.place(lane);
        }
    }
}
