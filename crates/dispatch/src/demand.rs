//! What a source is asked for: as many messages as can run, of pools that have room.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What a source is asked for. Clones share their places: what is [taken](Demand::take) stays taken until all
/// of them are dropped.
#[derive(Clone)]
pub struct Demand {
    most: usize,
    rooms: Option<Arc<dyn Rooms>>,
    openings: Option<Arc<Openings>>,
}

/// The pools that messages are received for.
pub trait Rooms: Send + Sync {
    /// Takes a place in the pool of messages with this code. `false` if it has none: then the pool
    /// [says so](Openings) when it has.
    fn take(&self, pool: &str) -> bool;

    /// How many places each pool has, and how many there are for messages of pools that are not among them.
    fn room(&self) -> Room;
}

/// How many places there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Of each pool by its code, in the order of codes, also of those that have none.
    pub pools: Vec<(Arc<str>, u32)>,
    /// For messages whose pool is not among them.
    pub others: u32,
}

/// Tells a source that pools have room again. It belongs to one queue, whoever receives from it.
#[derive(Debug, Default)]
pub struct Openings {
    opened: Mutex<(bool, BTreeSet<Arc<str>>)>,
    told: Notify,
}

/// The pools that have room again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Any pool may have.
    pub all: bool,
    /// These have, by the codes that were refused.
    pub pools: Vec<Arc<str>>,
}

impl Demand {
    /// At most so many messages, whatever their pool.
    #[must_use]
    pub const fn any(most: usize) -> Self {
        Self { most, rooms: None, openings: None }
    }

    /// At most so many messages, of pools with room.
    pub fn of(most: usize, rooms: Arc<dyn Rooms>, openings: Arc<Openings>) -> Self {
        Self { most, rooms: Some(rooms), openings: Some(openings) }
    }

    /// The same for fewer messages.
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self { most: self.most.min(most), ..self }
    }

    /// How many messages at most.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Takes a place for a message of this pool. `false` if there is none: the message stays where it is.
    #[must_use]
    pub fn take(&self, pool: &str) -> bool {
        self.rooms.as_ref().is_none_or(|rooms| rooms.take(pool))
    }

    /// How many places there are by pool; `None` if any message may come.
    #[must_use]
    pub fn room(&self) -> Option<Room> {
        self.rooms.as_ref().map(|rooms| rooms.room())
    }

    /// What tells of pools that have room again.
    #[must_use]
    pub const fn openings(&self) -> Option<&Arc<Openings>> {
        self.openings.as_ref()
    }
}

impl Openings {
    /// A pool that was refused has room again.
    pub fn open(&self, pool: Arc<str>) {
        self.opened.lock().1.insert(pool);
        self.told.notify_waiters();
    }

    /// Any pool may have room now: pools came, went or were changed.
    pub fn open_all(&self) {
        self.opened.lock().0 = true;
        self.told.notify_waiters();
    }

    /// The pools that have room again since this was last asked.
    #[must_use]
    pub fn opened(&self) -> Opened {
        let (all, pools) = std::mem::take(&mut *self.opened.lock());
        Opened { all, pools: pools.into_iter().collect() }
    }

    /// Waits until a pool has room again. What happens after this was called is not missed.
    pub fn told(&self) -> tokio::sync::futures::Notified<'_> {
        self.told.notified()
    }
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand").field("most", &self.most).finish_non_exhaustive()
    }
}
