//! What the router keeps of a message while it is in flight.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluicegate_schedule::ItemId;
use tokio::sync::watch;
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
    acked: OnceLock<Box<Acked>>,
    standing: Mutex<Standing>,
}

/// That a message was acknowledged by hand, and what its source made of it.
#[derive(Debug, Default)]
struct Acked {
    /// That its replay is over is to be kept too.
    is_replayed: bool,
    is_durable: AtomicBool,
    /// Told when the message is not here any more.
    heard: watch::Sender<Option<bool>>,
}

/// A message that was acknowledged by hand, and whose source may not know yet. Dropped, it changes nothing.
#[derive(Debug)]
pub struct Acking {
    queue: Arc<str>,
    heard: watch::Receiver<Option<bool>>,
}

impl Acking {
    /// The queue that the message came from.
    #[must_use]
    pub const fn queue(&self) -> &Arc<str> {
        &self.queue
    }

    /// Waits until the source knows, durably, that the message is done. `false` if it will not: it delivers the message
    /// again.
    pub async fn is_durable(mut self) -> bool {
        let heard = self.heard.wait_for(Option::is_some).await;
        heard.is_ok_and(|heard| *heard == Some(true))
    }
}

/// What changes about a message while it is in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Its pool and its place there, once it has one.
    pub(crate) place: Option<Place>,
    /// What it gives back when it is settled.
    places: Option<Arc<Places>>,
    /// Whether it runs where it would not have been let in: others of its line are elsewhere.
    pub(crate) is_displaced: bool,
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

/// A pool's code and a group of it: messages of one line stay in order with each other, if with anything.
pub(crate) type Line = (Arc<str>, Option<Arc<str>>);

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
        let (ordered, acked) = (AtomicBool::new(ordered), OnceLock::new());
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
        let mut standing = self.standing.lock();
        (standing.place, standing.is_displaced) = (Some(place), false);
    }

    /// Its pool began to keep order while others of its line are elsewhere: should it fail, it is let in again, behind
    /// them.
    pub(crate) fn displace(&self) {
        self.standing.lock().is_displaced = true;
    }

    pub(crate) fn is_displaced(&self) -> bool {
        self.standing.lock().is_displaced
    }

    /// Changes what it is doing; answers what it did before.
    pub(crate) fn set_now(&self, now: Now) -> Now {
        std::mem::replace(&mut self.standing.lock().now, now)
    }

    /// It runs from now on, unless somebody has acknowledged it. Answers what it did before.
    pub(crate) fn run(&self, since: Instant) -> Option<Now> {
        let mut standing = self.standing.lock();
        let may = !self.is_acked();
        may.then(|| std::mem::replace(&mut standing.now, Now::Running { since }))
    }

    /// Acknowledges it by hand; `None` if somebody has, or it runs.
    pub(crate) fn ack(&self, is_replayed: bool) -> Option<Acking> {
        let standing = self.standing.lock();
        if standing.now.is_running() {
            return None;
        }
        self.acked.set(Box::new(Acked { is_replayed, ..Acked::default() })).ok()?;
        self.acking()
    }

    /// For whoever waits until its source knows that it was acknowledged by hand.
    pub(crate) fn acking(&self) -> Option<Acking> {
        let heard = self.acked.get()?.heard.subscribe();
        Some(Acking { queue: Arc::clone(&self.queue), heard })
    }

    pub(crate) fn is_acked(&self) -> bool {
        self.acked.get().is_some()
    }

    /// Whether it was acknowledged by hand after it was replayed.
    pub(crate) fn is_acked_replay(&self) -> bool {
        self.acked.get().is_some_and(|acked| acked.is_replayed)
    }

    /// Its source has it durably that it is done.
    pub(crate) fn is_durable(&self) {
        if let Some(acked) = self.acked.get() {
            acked.is_durable.store(true, Memory::Release);
        }
    }

    /// It is over here, whatever its source knows.
    pub(crate) fn is_over(&self) {
        if let Some(acked) = self.acked.get() {
            acked.heard.send_replace(Some(acked.is_durable.load(Memory::Acquire)));
        }
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

    /// What it stays in order with, if with anything.
    pub(crate) fn line(&self) -> Line {
        let Message { pool, group, .. } = &self.message;
        let group = group.as_ref().filter(|group| ***group != *DEFAULT_GROUP);
        (Arc::clone(pool), group.cloned())
    }

    /// Whether two messages are of one line.
    pub(crate) fn same_line(&self, other: &Self) -> bool {
        self.message.pool == other.message.pool && self.group() == other.group()
    }

    fn group(&self) -> &str {
        self.message.group.as_deref().unwrap_or(DEFAULT_GROUP)
    }
}

impl Now {
    pub(crate) const fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

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

    fn is_given_up(&self) -> bool {
        self.is_acked()
    }

    fn same_key(&self, other: &Self) -> bool {
        self.is_ordered() && other.is_ordered() && self.same_line(other)
    }
}

/// A message of the router that is in flight.
pub(crate) type InFlightMessage = Arc<Tracked<Routed>>;
