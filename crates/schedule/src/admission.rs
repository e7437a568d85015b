//! Asking to enter: what an item says of itself, and why it may be refused.

use std::fmt;

use crate::{Class, Moment};

/// What the schedule needs to know of an item.
///
/// ```
/// use sluicegate_schedule::{Class, Entry};
///
/// let entry: Entry<&str, &str> = Entry::of("alice").tenant_key("session-7").class(Class::Admin);
/// assert_eq!(entry.tenant(), &"alice");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<K, T> {
    pub(crate) key: Option<K>,
    /// The key's name is the tenant's own.
    pub(crate) of_tenant: bool,
    pub(crate) tenant: T,
    pub(crate) class: Class,
    pub(crate) cost: Option<u32>,
}

impl<K, T> Entry<K, T> {
    /// An item of `tenant`, of class [`Class::Normal`], without a key. Tenants and keys are whatever
    /// converts; for an `Arc<str>`, hand a `&String` over as `name.as_str()`.
    ///
    /// ```
    /// use sluicegate_schedule::{Class, Entry};
    /// use std::sync::Arc;
    ///
    /// let entry: Entry<&str, String> = Entry::of("alice");
    /// assert_eq!(entry, Entry::of("alice").class(Class::Normal));
    /// assert_eq!(entry.named_key(), None);
    /// let name: &String = entry.tenant();
    /// let shared: Entry<&str, Arc<str>> = Entry::of(name.as_str());
    /// assert_eq!(&**shared.tenant(), "alice");
    /// ```
    pub fn of(tenant: impl Into<T>) -> Self {
        Self {
            key: None,
            of_tenant: false,
            tenant: tenant.into(),
            class: Class::Normal,
            cost: None,
        }
    }

    /// Items of one key run one at a time and in order. Without a key an item waits for nobody.
    ///
    /// The key is one name for all tenants: two of them with a key `1` wait for each other. For a
    /// name that is the tenant's own, such as a session, use [`Entry::tenant_key`].
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, &str, &str>::new(Limits::new(2, 10).build()?, now);
    /// let first = schedule.admit(now, Entry::of("alice").key("cart"), "add")?;
    /// schedule.admit(now, Entry::of("alice").key("cart"), "pay")?;
    /// assert_eq!(schedule.next(now), Next::Start(first));
    /// assert_eq!(schedule.next(now), Next::Idle); // there is room, but not for that key
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key(self, key: impl Into<K>) -> Self {
        Self { key: Some(key.into()), of_tenant: false, ..self }
    }

    /// As [`Entry::key`], with a key that belongs to the tenant: another tenant's key of the same name
    /// is another key.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), &str, &str>::new(Limits::new(9, 10).build()?, now);
    /// let hers = schedule.admit(now, Entry::of("alice").tenant_key("session-1"), ())?;
    /// let his = schedule.admit(now, Entry::of("bob").tenant_key("session-1"), ())?;
    /// assert_eq!(schedule.next(now), Next::Start(hers));
    /// assert_eq!(schedule.next(now), Next::Start(his));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tenant_key(self, key: impl Into<K>) -> Self {
        Self { key: Some(key.into()), of_tenant: true, ..self }
    }

    /// What goes first.
    ///
    /// ```
    /// use sluicegate_schedule::{Class, Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// schedule.admit(now, Entry::of("alice"), "browse")?;
    /// let check = schedule.admit(now, Entry::of("alice").class(Class::System), "health check")?;
    /// assert_eq!(schedule.next(now), Next::Start(check));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Whose it is.
    ///
    /// ```
    /// use sluicegate_schedule::Entry;
    ///
    /// let entry: Entry<&str, &str> = Entry::of("alice").tenant_key("session-7");
    /// assert_eq!(entry.tenant(), &"alice");
    /// ```
    pub const fn tenant(&self) -> &T {
        &self.tenant
    }

    /// Its key, if it has one.
    ///
    /// ```
    /// use sluicegate_schedule::Entry;
    ///
    /// let entry: Entry<&str, &str> = Entry::of("alice").tenant_key("session-7");
    /// assert_eq!(entry.named_key(), Some(&"session-7"));
    /// ```
    pub const fn named_key(&self) -> Option<&K> {
        self.key.as_ref()
    }

    /// What the item will cost, in the unit in which costs are measured. Without it the schedule
    /// goes by what the tenant's items cost lately, and by 1 where nothing was ever measured.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
    /// for (tenant, cost) in [("alice", 3), ("alice", 3), ("bob", 1), ("bob", 1), ("bob", 1)] {
    ///     schedule.admit(now, Entry::of(tenant).cost(cost), tenant)?;
    /// }
    /// let mut order = Vec::new();
    /// while let Next::Start(id) = schedule.next(now) {
    ///     order.extend(schedule.complete(id, None));
    /// }
    /// assert_eq!(order, ["alice", "bob", "bob", "bob", "alice"]); // three of his for one of hers
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cost(self, cost: u32) -> Self {
        Self { cost: Some(cost.max(1)), ..self }
    }
}

/// An item that was admitted, for as long as it waits or runs.
///
/// An id is never used again, so one that is kept too long finds nothing, never another item. Printed, it
/// is its [number](ItemId::number): for a log, not to be read back.
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 10).build()?, now);
/// let gone = schedule.admit(now, Entry::of("alice"), "first")?;
/// assert_eq!(gone.to_string(), "#1");
/// schedule.cancel(gone);
/// schedule.admit(now, Entry::of("alice"), "second")?;
/// assert_eq!(schedule.get(gone), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemId {
    pub(crate) index: u32,
    pub(crate) seq: u64,
}

impl ItemId {
    /// The item's number in the order of admission.
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let first = schedule.admit(now, Entry::of("alice"), ())?;
    /// let second = schedule.admit(now, Entry::of("bob"), ())?;
    /// assert!(first.number() < second.number());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn number(self) -> u64 {
        self.seq
    }

    /// The id as two plain numbers, for [`ItemId::from_parts`].
    ///
    /// ```
    /// use sluicegate_schedule::{Entry, ItemId, Limits, Moment, Schedule};
    ///
    /// let now = Moment::ZERO;
    /// let mut schedule = Schedule::<(), (), &str>::new(Limits::new(1, 10).build()?, now);
    /// let id = schedule.admit(now, Entry::of("alice"), ())?;
    /// let (index, number) = id.into_parts();
    /// assert_eq!(ItemId::from_parts(index, number), id);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn into_parts(self) -> (u32, u64) {
        (self.index, self.seq)
    }

    /// The id of [`ItemId::into_parts`]. Of other numbers it is an id that finds nothing.
    ///
    /// ```
    /// use sluicegate_schedule::{ItemId, Limits, Moment, Schedule};
    ///
    /// let limits = Limits::new(1, 10).build()?;
    /// let schedule = Schedule::<(), (), &str>::new(limits, Moment::ZERO);
    /// assert_eq!(schedule.get(ItemId::from_parts(3, 7)), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn from_parts(index: u32, number: u64) -> Self {
        Self { index, seq: number }
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.seq)
    }
}

/// An item that was not let in, with the reason. The item itself comes back: nothing is lost.
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Refusal, Schedule};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 1).build()?, now);
/// schedule.admit(now, Entry::of("alice"), "add")?;
/// let refused = schedule.admit(now, Entry::of("alice"), "pay").unwrap_err();
/// assert_eq!(refused.why, Refusal::QueueFull { queued: 1, capacity: 1 });
/// assert_eq!(refused.value, "pay");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Refused<V> {
    /// The reason.
    pub why: Refusal,
    /// What was offered.
    pub value: V,
}

/// Why an item was not let in.
///
/// ```
/// use sluicegate_schedule::{Entry, Limits, Moment, Refusal, Schedule};
///
/// let now = Moment::ZERO;
/// let mut schedule = Schedule::<&str, (), &str>::new(Limits::new(1, 1).build()?, now);
/// schedule.stop_admission();
/// let why: Refusal = schedule.admit(now, Entry::of("alice"), "late").unwrap_err().into();
/// assert_eq!(why, Refusal::Draining);
/// assert_eq!(why.to_string(), "draining: nothing more is let in");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The queue holds as many items as it may.
    QueueFull {
        /// How many wait.
        queued: u32,
        /// How many may.
        capacity: u32,
    },
    /// The tenant has as many items waiting as it may.
    TenantQueueFull {
        /// How many wait.
        queued: u32,
        /// How many may.
        max: u32,
    },
    /// The tenant enters too often.
    TenantRateLimited {
        /// When it may again.
        until: Moment,
    },
    /// The tenant may never enter with so many at once.
    BatchTooLarge {
        /// How many of the tenant's were to enter.
        items: u32,
        /// How many may at once, at its admission rate.
        max: u32,
    },
    /// Everything that may run does, and waiting was not asked for.
    AtLimit {
        /// How many run.
        in_use: u32,
        /// How many may.
        limit: u32,
    },
    /// The tenant has as many items running as it may, and waiting was not asked for.
    TenantAtLimit {
        /// How many run.
        in_use: u32,
        /// How many may.
        limit: u32,
    },
    /// Another item of the key runs or goes first, and waiting was not asked for.
    KeyBusy,
    /// No token before this moment, and waiting was not asked for.
    RateLimited {
        /// When there will be one.
        until: Moment,
    },
    /// Nobody is there to run it, and waiting was not asked for.
    NoWorker,
    /// Starting is paused, and waiting was not asked for.
    Paused {
        /// For what.
        reason: &'static str,
    },
    /// Nothing more is let in.
    Draining,
}

impl Refusal {
    /// The reason in one word, for a metric's label.
    ///
    /// ```
    /// use sluicegate_schedule::Refusal;
    ///
    /// assert_eq!(Refusal::QueueFull { queued: 3, capacity: 3 }.label(), "queue_full");
    /// ```
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::QueueFull { .. } => "queue_full",
            Self::TenantQueueFull { .. } => "tenant_queue_full",
            Self::TenantRateLimited { .. } => "tenant_rate_limited",
            Self::BatchTooLarge { .. } => "batch_too_large",
            Self::AtLimit { .. } => "at_limit",
            Self::TenantAtLimit { .. } => "tenant_at_limit",
            Self::KeyBusy => "key_busy",
            Self::RateLimited { .. } => "rate_limited",
            Self::NoWorker => "no_worker",
            Self::Paused { .. } => "paused",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { queued, capacity } => write!(f, "queue full: {queued} of {capacity}"),
            Self::TenantQueueFull { queued, max } => {
                write!(f, "the tenant's queue is full: {queued} of {max}")
            }
            Self::TenantRateLimited { .. } => f.write_str("the tenant is rate limited"),
            Self::BatchTooLarge { items, max } => {
                write!(f, "{items} of the tenant at once, and it may enter with {max}")
            }
            Self::AtLimit { in_use, limit } => write!(f, "at the limit: {in_use} of {limit}"),
            Self::TenantAtLimit { in_use, limit } => {
                write!(f, "the tenant is at its limit: {in_use} of {limit}")
            }
            Self::KeyBusy => f.write_str("another item of the key goes first"),
            Self::RateLimited { .. } => f.write_str("rate limited"),
            Self::NoWorker => f.write_str("no worker waits for it"),
            Self::Paused { reason } => write!(f, "paused: {reason}"),
            Self::Draining => f.write_str("draining: nothing more is let in"),
        }
    }
}

impl std::error::Error for Refusal {}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<V> std::error::Error for Refused<V> {}

/// Drops the item and keeps the reason, so that `?` works where only the reason matters.
impl<V> From<Refused<V>> for Refusal {
    fn from(refused: Refused<V>) -> Self {
        refused.why
    }
}
