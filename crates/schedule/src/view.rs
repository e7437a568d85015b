//! Looking in: counts, and why an item is not running yet.
//!
//! `docs/rules.md#schedule-6`.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use crate::item::Stage;
use crate::key::Standing;
use crate::{Class, ItemId, Moment, Schedule};

/// What an item waits for.
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Schedule, Why};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
/// let first = schedule.admit(now, Entry::of("alice"), ())?;
/// let second = schedule.admit(now, Entry::of("alice"), ())?;
/// assert_eq!(schedule.why(now, first), Some(Why::Ready));
/// schedule.next(now);
/// assert_eq!(schedule.why(now, first), Some(Why::Running));
/// let why = schedule.why(now, second).ok_or("gone")?;
/// assert_eq!(why, Why::AtLimit { running: 1, limit: 1 });
/// assert_eq!(why.to_string(), "1 of 1 run");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Nothing: it runs.
    Running,
    /// Nothing: it ran, and only keeps its key busy.
    Lingering,
    /// Nothing but its turn: others go first.
    Ready,
    /// Another item of its key runs or goes before it.
    KeyBusy {
        /// That item.
        head: ItemId,
    },
    /// An item of its key (it may be itself) was put back and is tried again later.
    KeyRetrying {
        /// That item.
        head: ItemId,
        /// When; [`Moment::FAR`] means not by itself.
        until: Moment,
    },
    /// Its tenant runs as many as it may.
    TenantAtLimit {
        /// How many run.
        running: u32,
        /// How many may.
        max: u32,
    },
    /// Everything that may run does.
    AtLimit {
        /// How many run.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// There is no token.
    RateLimited {
        /// When there will be one.
        until: Moment,
    },
    /// Starting is paused: [`Schedule::pause`].
    Paused {
        /// The reason that was given.
        reason: &'static str,
    },
    /// Nothing but somebody to run it. The schedule itself never says so: its owner does.
    NoWorker,
}

/// In an operator's words. A moment has no meaning without its owner's clock, so it is not printed.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("it runs"),
            Self::Lingering => f.write_str("it ran, and keeps its key"),
            Self::Ready => f.write_str("others go first"),
            Self::KeyBusy { head } => write!(f, "another item of its key goes first: {head}"),
            Self::KeyRetrying { until: Moment::FAR, .. } => {
                f.write_str("its key comes again when it is released")
            }
            Self::KeyRetrying { .. } => f.write_str("its key comes again later"),
            Self::TenantAtLimit { running, max } => write!(f, "its tenant runs {running} of {max}"),
            Self::AtLimit { running, limit } => write!(f, "{running} of {limit} run"),
            Self::RateLimited { .. } => f.write_str("the rate lets it go later"),
            Self::Paused { reason } => write!(f, "paused: {reason}"),
            Self::NoWorker => f.write_str("no worker is free"),
        }
    }
}

/// The schedule's counts at one moment.
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
/// schedule.admit(now, Entry::of("alice"), ())?;
/// schedule.admit(now, Entry::of("bob"), ())?;
/// schedule.next(now);
/// let counts = schedule.snapshot(now);
/// assert_eq!((counts.queued, counts.capacity), (1, 10));
/// assert_eq!((counts.running, counts.concurrency), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Items that wait, put-back ones included.
    pub queued: u32,
    /// The same for each class, in the order of [`Class::ALL`].
    pub queued_by_class: [u32; Class::COUNT],
    /// Items that run.
    pub running: u32,
    /// Items that ran and only keep their keys busy.
    pub lingering: u32,
    /// How many may run.
    pub concurrency: u32,
    /// How many may wait.
    pub capacity: u32,
    /// Keys with items that wait, run or linger; an item without a key counts as one.
    pub keys: usize,
    /// How long the item that waits longest has waited, since it was admitted or last put back.
    pub oldest_wait: Duration,
}

/// One tenant's counts at one moment.
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
/// schedule.admit(now, Entry::of("alice"), ())?;
/// schedule.admit(now, Entry::of("alice"), ())?;
/// schedule.next(now);
/// let alice = schedule.tenants().next().ok_or("nobody")?;
/// assert_eq!((alice.tenant, alice.weight, alice.queued, alice.running), ("alice", 1, 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantView<T> {
    /// The tenant.
    pub tenant: T,
    /// Its share.
    pub weight: u32,
    /// Items that wait.
    pub queued: u32,
    /// The same for each class, in the order of [`Class::ALL`].
    pub queued_by_class: [u32; Class::COUNT],
    /// Items that run.
    pub running: u32,
    /// Items completed since the tenant was last forgotten: idle and free of debt.
    pub served: u64,
}

impl<T> TenantView<T> {
    /// A tenant that has nothing here.
    ///
    /// ```
    /// let idle = sluicegate_schedule::TenantView::idle("alice", 2);
    /// assert_eq!((idle.tenant, idle.weight, idle.queued + idle.running), ("alice", 2, 0));
    /// ```
    pub const fn idle(tenant: T, weight: u32) -> Self {
        Self {
            tenant,
            weight,
            queued: 0,
            queued_by_class: [0; Class::COUNT],
            running: 0,
            served: 0,
        }
    }
}

/// One item that waits or runs.
///
/// ```
/// use sluicegate_schedule::{Class, Entry, Limits, Moment, Schedule};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
/// let id = schedule.admit(now, Entry::of("alice").class(Class::Low), "report")?;
/// let item = schedule.waiting().next().ok_or("nothing")?;
/// assert_eq!((item.id, item.class), (id, Class::Low));
/// assert_eq!((item.since, item.value), (now, &"report"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemView<'a, V, K, T> {
    /// The item.
    pub id: ItemId,
    /// Whose it is.
    pub tenant: &'a T,
    /// Its key, if it has one.
    pub key: Option<&'a K>,
    /// Its class.
    pub class: Class,
    /// Since when it waits, or runs. Being put back begins a new wait.
    pub since: Moment,
    /// It was tried before, and put back.
    pub again: bool,
    /// What it carries.
    pub value: &'a V,
}

impl<V, K: Hash + Eq + Clone, T: Hash + Eq + Clone> Schedule<V, K, T> {
    /// Why an item is not running yet. `None` when it is not here (any more).
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule, Why};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule: Schedule<(), &str, &str> =
    ///     Schedule::new(Limits::new(1, 10).build()?, now);
    /// let first = schedule.admit(now, Entry::of("alice").key("cart"), ())?;
    /// let second = schedule.admit(now, Entry::of("alice").key("cart"), ())?;
    /// schedule.next(now);
    /// assert_eq!(schedule.why(now, second), Some(Why::KeyBusy { head: first }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn why(&self, now: Moment, id: ItemId) -> Option<Why> {
        let item = self.items.get(id)?;
        match item.stage {
            Stage::Running(_) => return Some(Why::Running),
            Stage::Lingering => return Some(Why::Lingering),
            Stage::Waiting(_) => {}
        }
        let key = self.keys.get(item.key);
        if let Standing::Held { until, .. } = key.standing {
            let head = self.items.id(key.head()?);
            return Some(Why::KeyRetrying { head, until });
        }
        if let Standing::Ready { head, .. } = key.standing {
            if head != id.index {
                return Some(Why::KeyBusy { head: self.items.id(head) });
            }
        } else {
            return Some(Why::KeyBusy { head: self.items.id(key.running) });
        }
        if let Some(reason) = self.pauses.reason() {
            return Some(Why::Paused { reason });
        }
        let tenant = self.tenants.tenant(item.tenant);
        let (running, max) = (tenant.running, tenant.limits.max_running);
        if running >= max {
            return Some(Why::TenantAtLimit { running, max });
        }
        let (running, limit) = (self.items.running(), self.limits.concurrency);
        if running >= limit {
            return Some(Why::AtLimit { running, limit });
        }
        match self.rate.as_ref().map(|rate| rate.ready_at(now)) {
            Some(until) if until > now => Some(Why::RateLimited { until }),
            _ => Some(Why::Ready),
        }
    }

    /// Whether an item runs.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// assert!(!schedule.is_running(id));
    /// schedule.next(now);
    /// assert!(schedule.is_running(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_running(&self, id: ItemId) -> bool {
        self.items.find_running(id).is_some()
    }

    /// How many wait.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// assert_eq!(schedule.queued(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.items.waiting()
    }

    /// The counts.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    /// use std::time::Duration;
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// schedule.admit(now, Entry::of("alice"), ())?;
    /// let later = now + Duration::from_secs(3);
    /// assert_eq!(schedule.snapshot(later).oldest_wait, Duration::from_secs(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self, now: Moment) -> Snapshot {
        let oldest = self.items.oldest().map(|oldest| self.items[oldest].since);
        Snapshot {
            queued: self.items.waiting(),
            queued_by_class: self.tenants.queued(),
            running: self.items.running(),
            lingering: self.items.lingering(),
            concurrency: self.limits.concurrency,
            capacity: self.limits.capacity,
            keys: self.keys.len(),
            oldest_wait: oldest.map_or(Duration::ZERO, |since| now - since),
        }
    }

    /// The tenants that have items, or are still in debt for those they had, in no order.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// for tenant in ["alice", "bob", "alice"] {
    ///     schedule.admit(now, Entry::of(tenant), ())?;
    /// }
    /// let mut queued: Vec<_> = schedule.tenants().map(|of| (of.tenant, of.queued)).collect();
    /// queued.sort_unstable();
    /// assert_eq!(queued, [("alice", 2), ("bob", 1)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tenants(&self) -> impl Iterator<Item = TenantView<T>> {
        self.tenants.tenants().map(|tenant| TenantView {
            tenant: tenant.name.clone(),
            weight: tenant.limits.weight,
            queued: tenant.all_queued(),
            queued_by_class: tenant.queued,
            running: tenant.running,
            served: tenant.served,
        })
    }

    /// All that wait, longest waiting first.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// schedule.admit(now, Entry::of("alice"), "first")?;
    /// schedule.admit(now, Entry::of("bob"), "second")?;
    /// assert!(schedule.waiting().map(|item| *item.value).eq(["first", "second"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting(&self) -> impl Iterator<Item = ItemView<'_, V, K, T>> {
        self.items.iter_waiting().map(|index| self.item(index))
    }

    /// All that run, in no order. Looks through all items.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// schedule.admit(now, Entry::of("alice"), "first")?;
    /// schedule.admit(now, Entry::of("bob"), "second")?;
    /// schedule.next(now);
    /// assert!(schedule.running().map(|item| *item.value).eq(["first"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn running(&self) -> impl Iterator<Item = ItemView<'_, V, K, T>> {
        self.items.iter_running().map(|index| self.item(index))
    }

    /// The keys that are kept busy by items that ran, each with since when its item ran. Looks through all
    /// items.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), &str, &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice").key("cart"), ())?;
    /// schedule.next(now);
    /// schedule.linger(id, None);
    /// assert!(schedule.lingering().eq([(Some(&"cart"), now)]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lingering(&self) -> impl Iterator<Item = (Option<&K>, Moment)> {
        let kept = self.items.iter_lingering();
        kept.map(|item| (self.keys.get(item.key).name(), item.since))
    }

    fn item(&self, index: u32) -> ItemView<'_, V, K, T> {
        let item = &self.items[index];
        ItemView {
            id: self.items.id(index),
            tenant: &self.tenants.tenant(item.tenant).name,
            key: self.keys.get(item.key).name(),
            class: item.class,
            since: item.since,
            again: item.again,
            value: &item.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_words() {
        let head = ItemId { index: 3, seq: 17 };
        let later = Moment::from_nanos(1);
        let words = [
            (Why::Running, "it runs"),
            (Why::Lingering, "it ran, and keeps its key"),
            (Why::Ready, "others go first"),
            (Why::KeyBusy { head }, "another item of its key goes first: #17"),
            (Why::KeyRetrying { head, until: later }, "its key comes again later"),
            (
                Why::KeyRetrying { head, until: Moment::FAR },
                "its key comes again when it is released",
            ),
            (Why::TenantAtLimit { running: 2, max: 2 }, "its tenant runs 2 of 2"),
            (Why::AtLimit { running: 8, limit: 8 }, "8 of 8 run"),
            (Why::RateLimited { until: later }, "the rate lets it go later"),
            (Why::Paused { reason: "memory" }, "paused: memory"),
            (Why::NoWorker, "no worker is free"),
        ];
        for (why, expected) in words {
            assert_eq!(why.to_string(), expected);
        }
    }
}
