//! What the router keeps of a message while it is in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};

use parking_lot::Mutex;
use sluicegate_schedule::ItemId;
use tokio::time::Instant;

use crate::intake::{Entry, Tracked};
use crate::places::Places;
use crate::{DEFAULT_GROUP, LastError, Message, Order, Reason};

/// A message of the router.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) message: Message,
    /// The queue it came from.
    pub(crate) queue: Arc<str>,
    /// Whether its group stays in order across deliveries, as pools are now.
    ordered: AtomicBool,
    /// Whether somebody has acknowledged it by hand: then it does not run when its turn comes.
    acked: AtomicBool,
    standing: Mutex<Standing>,
}

/// What changes about a message while it is in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Its pool and its place there, once it has one.
    pub(crate) place: Option<Place>,
    /// What it gives back when it is settled.
    places: Option<Arc<Places>>,
    pub(crate) now: Now,
    pub(crate) last_error: Option<Arc<LastError>>,
}

/// Where a message waits or runs. A pool's successor of the same code is another pool, and numbers its
/// items anew.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) code: Arc<str>,
    pub(crate) pool: PoolId,
    pub(crate) item: ItemId,
    /// Whether it has a key there. One that has none was let in while nothing of its pool stayed in order.
    pub(crate) has_key: bool,
}

/// A pool's code and a group of it, by which messages stay in order across deliveries.
pub(crate) type RoutedKey = (Arc<str>, Option<Arc<str>>);

/// A pool among all that ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolId(u64);

/// What a message is doing, unless it is being settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Now {
    #[default]
    Waiting,
    Running {
        since: Instant,
    },
    Retrying {
        until: Instant,
        reason: Reason,
        breaker: Option<Arc<str>>,
    },
    Blocked,
}

impl PoolId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Memory::Relaxed))
    }
}

impl Routed {
    pub(crate) fn new(message: Message, queue: Arc<str>, ordered: bool) -> Self {
        let (ordered, acked) = (AtomicBool::new(ordered), AtomicBool::new(false));
        Self { message, queue, ordered, acked, standing: Mutex::default() }
    }

    /// Pools have changed, and so may have what stays in order.
    pub(crate) fn set_order(&self, order: &Order) {
        self.ordered.store(order.keeps_message(&self.message), Memory::Release);
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// Takes a place, before anybody can settle it.
    pub(crate) fn take_place(&self, places: Arc<Places>) {
        self.standing.lock().places = Some(places);
    }

    pub(crate) fn set_place(&self, place: Place) {
        self.standing.lock().place = Some(place);
    }

    /// Changes what it is doing; answers what it did before.
    pub(crate) fn set_now(&self, now: Now) -> Now {
        std::mem::replace(&mut self.standing.lock().now, now)
    }

    /// Acknowledges it by hand; `false` if somebody has.
    pub(crate) fn ack(&self) -> bool {
        !self.acked.swap(true, Memory::AcqRel)
    }

    pub(crate) fn is_acked(&self) -> bool {
        self.acked.load(Memory::Acquire)
    }

    pub(crate) fn set_last_error(&self, error: Arc<LastError>) {
        self.standing.lock().last_error = Some(error);
    }

    pub(crate) fn last_error(&self) -> Option<Arc<LastError>> {
        self.standing.lock().last_error.clone()
    }

    /// Gives its place back: it is settled.
    pub(crate) fn leave_place(&self) {
        let places = {
            let mut standing = self.standing.lock();
            standing.place = None;
            standing.places.take()
        };
        if let Some(places) = places {
            places.settled();
        }
    }

    /// What it stays in order with across deliveries, if with anything.
    pub(crate) fn key(&self) -> Option<RoutedKey> {
        let Message { pool, group, .. } = &self.message;
        let group = group.as_ref().filter(|group| ***group != *DEFAULT_GROUP);
        self.is_ordered().then(|| (Arc::clone(pool), group.cloned()))
    }

    fn group(&self) -> &str {
        self.message.group.as_deref().unwrap_or(DEFAULT_GROUP)
    }
}

impl Now {
    /// Whether it waits for a moment or a person.
    pub(crate) const fn is_resting(&self) -> bool {
        matches!(self, Self::Retrying { .. } | Self::Blocked)
    }
}

impl Entry for Routed {
    fn id(&self) -> Option<&Arc<str>> {
        Some(&self.message.id)
    }

    fn is_ordered(&self) -> bool {
        self.ordered.load(Memory::Acquire)
    }

    fn same_key(&self, other: &Self) -> bool {
        let both = self.is_ordered() && other.is_ordered();
        both && self.message.pool == other.message.pool && self.group() == other.group()
    }
}

/// A message of the router that is in flight.
pub(crate) type InFlightMessage = Arc<Tracked<Routed>>;
