//! Letting items in: one, or a batch of which all or none come in.
//!
//! `docs/rules.md#schedule-4`, `docs/rules.md#sluice-2`.

use std::collections::HashMap;
use std::hash::Hash;

use crate::arena::NIL;
use crate::item::{Arrival, Bill};
use crate::key::KeyName;
use crate::tenants::{RunLimits, StartingHead};
use crate::{Entry, ItemId, Moment, NotUntil, Refusal, Refused, Schedule, TenantLimits};

type Batch<V, K, T> = Vec<(Entry<K, T>, V)>;

impl<V, K: Hash + Eq + Clone, T: Hash + Eq + Clone> Schedule<V, K, T> {
    /// Lets an item in to wait for its turn.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, &str, &str>::new(Limits::new(1, 1).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice").key("cart"), "add")?;
    /// assert_eq!(schedule.get(id), Some(&"add"));
    /// let refused = schedule.admit(now, Entry::of("bob"), "browse").unwrap_err();
    /// assert_eq!((refused.why.label(), refused.value), ("queue_full", "browse"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] gives the item back with the reason; nothing of it stays behind.
    pub fn admit(
        &mut self,
        now: Moment,
        entry: Entry<K, T>,
        value: V,
    ) -> Result<ItemId, Refused<V>> {
        self.advance(now);
        if let Err(why) = self.may_admit(now, &entry) {
            return Err(Refused { why, value });
        }
        Ok(self.enter(now, entry, value))
    }

    /// Lets an item in, and starts it in the same step if nothing waits and it may start: the same as
    /// [`Schedule::admit`] and [`Schedule::next`], for less. Says whether it runs.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule, Why};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), &str, &str>::new(Limits::new(9, 10).build()?, now);
    /// let (first, runs) = schedule.admit_at_once(now, Entry::of("alice").key("cart"), ())?;
    /// assert!(runs);
    /// let (second, runs) = schedule.admit_at_once(now, Entry::of("alice").key("cart"), ())?;
    /// assert!(!runs);
    /// assert_eq!(schedule.why(now, second), Some(Why::KeyBusy { head: first }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Schedule::admit`].
    pub fn admit_at_once(
        &mut self,
        now: Moment,
        entry: Entry<K, T>,
        value: V,
    ) -> Result<(ItemId, bool), Refused<V>> {
        self.advance(now);
        if let Err(why) = self.may_admit(now, &entry) {
            return Err(Refused { why, value });
        }
        let arrival = self.come(now, entry, value);
        Ok(match self.may_start_at_once(now, &arrival) {
            true => (self.start_at_once(now, arrival), true),
            false => (self.wait(now, arrival), false),
        })
    }

    /// Lets a batch in, in its order: all of it or nothing.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<u32, &str, &str>::new(Limits::new(1, 3).build()?, now);
    /// let batch = |of: std::ops::Range<u32>| of.map(|n| (Entry::of("alice"), n)).collect();
    /// assert_eq!(schedule.admit_all(now, batch(0..2))?.len(), 2);
    /// let refused = schedule.admit_all(now, batch(2..4)).unwrap_err();
    /// assert_eq!((refused.why.label(), refused.value.len()), ("queue_full", 2));
    /// assert_eq!(schedule.snapshot(now).queued, 2); // though one more would have fitted
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] gives the whole batch back with the reason; nothing of it stays behind. The
    /// counts in the reason are those before the batch.
    pub fn admit_all(
        &mut self,
        now: Moment,
        batch: Batch<V, K, T>,
    ) -> Result<Vec<ItemId>, Refused<Batch<V, K, T>>> {
        self.advance(now);
        if let Err(why) = self.may_admit_all(now, &batch) {
            return Err(Refused { why, value: batch });
        }
        Ok(batch.into_iter().map(|(entry, value)| self.enter(now, entry, value)).collect())
    }

    /// Whether such an item would be let in.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Refusal, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 1).build()?, now);
    /// assert_eq!(schedule.may_admit(now, &Entry::of("alice")), Ok(()));
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// let full = Refusal::QueueFull { queued: 1, capacity: 1 };
    /// assert_eq!(schedule.may_admit(now, &Entry::of("alice")), Err(full));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The reason why not.
    pub fn may_admit(&self, now: Moment, entry: &Entry<K, T>) -> Result<(), Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        let (queued, capacity) = (self.items.waiting(), self.limits.capacity);
        if queued >= capacity {
            return Err(Refusal::QueueFull { queued, capacity });
        }
        let limits = self.limits_of(&entry.tenant);
        self.tenant_has_room(limits, entry, 0)?;
        self.tenant_may_enter(limits, now, &entry.tenant, 1)
    }

    fn may_admit_all(&self, now: Moment, batch: &[(Entry<K, T>, V)]) -> Result<(), Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        let (queued, capacity) = (self.items.waiting(), self.limits.capacity);
        let room = capacity.saturating_sub(queued) as usize;
        if batch.len() > room {
            return Err(Refusal::QueueFull { queued, capacity });
        }
        // Where no tenant has bounds of its own there is no need to count.
        let each = &self.limits.each_tenant;
        let bounded = each.max_queued < u32::MAX || each.admission_rate.is_some();
        if bounded || !self.limits.tenants.is_empty() {
            let mut entering: HashMap<&T, u32> = HashMap::new();
            for (entry, _) in batch {
                let before = entering.entry(&entry.tenant).or_default();
                self.tenant_has_room(self.limits_of(&entry.tenant), entry, *before)?;
                *before += 1;
            }
            for (Entry { tenant, .. }, _) in batch {
                self.tenant_may_enter(self.limits_of(tenant), now, tenant, entering[tenant])?;
            }
        }
        Ok(())
    }

    /// Whether the tenant's queue has room for one more, after `before` others of the same batch.
    #[inline]
    fn tenant_has_room(
        &self,
        limits: &TenantLimits,
        entry: &Entry<K, T>,
        before: u32,
    ) -> Result<(), Refusal> {
        let max = limits.max_queued;
        if max == u32::MAX || entry.class.passes_tenant_depth() {
            return Ok(());
        }
        let tenant = self.tenants.find(&entry.tenant).map(|tenant| self.tenants.tenant(tenant));
        let queued = tenant.map_or(0, |tenant| tenant.all_queued());
        if queued.saturating_add(before) >= max {
            return Err(Refusal::TenantQueueFull { queued, max });
        }
        Ok(())
    }

    /// Whether so many items of the tenant come no sooner than its rate allows.
    #[inline]
    fn tenant_may_enter(
        &self,
        limits: &TenantLimits,
        now: Moment,
        tenant: &T,
        items: u32,
    ) -> Result<(), Refusal> {
        let Some(rate) = limits.admission_rate else { return Ok(()) };
        if items > rate.burst() {
            return Err(Refusal::BatchTooLarge { items, max: rate.burst() });
        }
        let checked = self.admission_rates.check(now, tenant, items);
        checked.map_err(|NotUntil(until)| Refusal::TenantRateLimited { until })
    }

    fn enter(&mut self, now: Moment, entry: Entry<K, T>, value: V) -> ItemId {
        let arrival = self.come(now, entry, value);
        self.wait(now, arrival)
    }

    /// An item that is let in, with its tenant and its key.
    fn come(&mut self, now: Moment, entry: Entry<K, T>, value: V) -> Arrival<V> {
        let Entry { key, of_tenant, tenant, class, cost } = entry;
        let limits = self.limits_of(&tenant);
        let (run_limits, rate) = (RunLimits::from(limits), limits.admission_rate);
        if let Some(rate) = rate {
            self.admission_rates.take(now, &tenant, rate);
        }
        let name = key.map(|key| KeyName { key, tenant: of_tenant.then(|| tenant.clone()) });
        let (key, tenant) = (self.keys.enter(name), self.tenants.come(tenant, run_limits));
        Arrival { key, tenant, class, cost, value }
    }

    fn wait(&mut self, now: Moment, arrival: Arrival<V>) -> ItemId {
        let key = arrival.key;
        self.tenants.join_queue(arrival.tenant, arrival.class);
        let item = self.items.arrive(arrival, now);
        self.keys.append(&mut self.items, key, item);
        self.stand(key);
        self.items.id(item)
    }

    /// Whether what comes now runs at once. If so it has taken its token.
    fn may_start_at_once(&mut self, now: Moment, arrival: &Arrival<V>) -> bool {
        self.items.waiting() == 0
            && self.items.running() < self.limits.concurrency
            && self.pauses.reason().is_none()
            && self.tenants.may_run(arrival.tenant)
            && self.keys.get(arrival.key).running == NIL
            && self.rate.as_mut().is_none_or(|rate| rate.try_take(now).is_ok())
    }

    fn start_at_once(&mut self, now: Moment, arrival: Arrival<V>) -> ItemId {
        let Arrival { key, tenant, class, cost, .. } = arrival;
        let head = StartingHead { item: self.items.next_number(), again: false, cost };
        let charge = self.tenants.start_at_once(tenant, class, head);
        let item = self.items.arrive_running(arrival, Bill { charge, bucket: self.bucket() }, now);
        self.keys.get_mut(key).running = item;
        self.items.id(item)
    }
}
