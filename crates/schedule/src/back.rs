//! Back from running, but not gone: put back to the front of the key, or lingering with the key.
//!
//! `docs/rules.md#schedule-3`, `docs/rules.md#rate-1`.

use std::hash::Hash;

use crate::arena::NIL;
use crate::key::Standing;
use crate::{ItemId, Moment, Schedule};

impl<V, K: Hash + Eq + Clone, T: Hash + Eq + Clone> Schedule<V, K, T> {
    /// A running item goes back to the front of its key, which runs nothing before `until`
    /// ([`Moment::FAR`]: until [`Schedule::release`]). `false` when the item does not run.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), &str, &str>::new(Limits::new(1, 10).build()?, now);
    /// let first = schedule.admit(now, Entry::of("alice").key("cart"), ())?;
    /// schedule.admit(now, Entry::of("alice").key("cart"), ())?;
    /// assert_eq!(schedule.next(now), Next::Start(first));
    ///
    /// let later = Moment::from_nanos(500);
    /// assert!(schedule.retry(now, first, later, None));
    /// assert_eq!(schedule.next(now), Next::At(later));
    /// assert_eq!(schedule.next(later), Next::Start(first)); // before the second, as before
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(&mut self, now: Moment, id: ItemId, until: Moment, cost: Option<u32>) -> bool {
        self.advance(now);
        let Some((index, bill)) = self.items.find_running(id) else {
            return false;
        };
        let item = &self.items[index];
        self.tenants.requeue(item.tenant, item.class, bill.charge, cost);
        self.items[index].again = true;
        self.put_back(now, index, until);
        true
    }

    /// As [`Schedule::retry`], and as if the item had never started: its token and its charge are
    /// given back. `false` when the item does not run.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Rate, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let limits = Limits::new(1, 10).rate(Rate::per_minute(1)?).build()?;
    /// let mut schedule = Schedule::<(), &str, &str>::new(limits, now);
    /// let first = schedule.admit(now, Entry::of("alice").key("cart"), ())?;
    /// let other = schedule.admit(now, Entry::of("bob"), ())?;
    /// assert_eq!(schedule.next(now), Next::Start(first));
    ///
    /// assert!(schedule.postpone(now, first, Moment::FAR)); // what it needs is not there
    /// assert_eq!(schedule.next(now), Next::Start(other)); // with the token that came back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn postpone(&mut self, now: Moment, id: ItemId, until: Moment) -> bool {
        self.advance(now);
        let Some((index, bill)) = self.items.find_running(id) else {
            return false;
        };
        let started = self.take_back(index, bill);
        self.tenants.requeue_unrun(started);
        self.put_back(now, index, until);
        true
    }

    /// A running item is done, as by [`Schedule::complete`], but its key stays busy until
    /// [`Schedule::depart`]. Meanwhile it neither waits nor runs, and counts towards no limit: its
    /// owner bounds how many linger. `false` when the item does not run.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, &str, &str>::new(Limits::new(1, 10).build()?, now);
    /// let first = schedule.admit(now, Entry::of("alice").key("cart"), "add")?;
    /// let second = schedule.admit(now, Entry::of("alice").key("cart"), "pay")?;
    /// let other = schedule.admit(now, Entry::of("bob"), "browse")?;
    /// assert_eq!(schedule.next(now), Next::Start(first));
    ///
    /// assert!(schedule.linger(first, None));
    /// assert_eq!(schedule.next(now), Next::Start(other)); // in its place
    /// schedule.complete(other, None);
    /// assert_eq!(schedule.next(now), Next::Idle); // its key is not free
    /// assert_eq!(schedule.depart(first), Some("add"));
    /// assert_eq!(schedule.next(now), Next::Start(second));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn linger(&mut self, id: ItemId, cost: Option<u32>) -> bool {
        let Some((index, bill)) = self.items.find_running(id) else {
            return false;
        };
        self.items.linger(index);
        let item = &self.items[index];
        self.tenants.finish(item.tenant, item.class, bill.charge, cost);
        self.forget_tenants_if_idle();
        true
    }

    /// A lingering item goes: its key is free. `None` when it does not linger.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, &str, &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice").key("cart"), "add")?;
    /// schedule.next(now);
    /// assert_eq!(schedule.depart(id), None); // it runs
    /// schedule.linger(id, None);
    /// assert_eq!((schedule.snapshot(now).lingering, schedule.snapshot(now).keys), (1, 1));
    /// assert_eq!(schedule.depart(id), Some("add"));
    /// assert_eq!((schedule.snapshot(now).lingering, schedule.snapshot(now).keys), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn depart(&mut self, id: ItemId) -> Option<V> {
        let index = self.items.find_lingering(id)?;
        let item = self.items.remove(index);
        self.leave(item.key);
        Some(item.value)
    }

    /// Ends the hold of the key that a waiting item belongs to. `false` when there is none.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// schedule.next(now);
    /// schedule.retry(now, id, Moment::FAR, None);
    /// assert_eq!(schedule.next(now), Next::Idle); // not by itself
    /// assert!(schedule.release(id));
    /// assert_eq!(schedule.next(now), Next::Start(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&mut self, id: ItemId) -> bool {
        let Some(item) = self.items.find_waiting(id) else {
            return false;
        };
        let key = self.items[item].key;
        let held = matches!(self.keys.get(key).standing, Standing::Held { .. });
        if held {
            self.keys.release(key);
            self.stand(key);
        }
        held
    }

    fn put_back(&mut self, now: Moment, index: u32, until: Moment) {
        self.items.put_back(index, now);
        let key = self.items[index].key;
        self.keys.get_mut(key).running = NIL;
        self.keys.get_mut(key).front = index;
        if until > now {
            self.keys.hold(key, until);
        } else {
            self.stand(key);
        }
    }
}
