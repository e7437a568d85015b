//! Who runs right now: the list that a drain waits for, and names.
//!
//! Entering and leaving touch one of a few shards, so tasks on different threads seldom meet at a
//! lock. The count of all is kept apart: a drain waits for it to become zero.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

const SHARDS: usize = 8;

#[derive(Debug)]
pub(crate) struct Roster {
    shards: [Mutex<Shard>; SHARDS],
    alive: AtomicU32,
    next_shard: AtomicU32,
    all_gone: Notify,
}

#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Entry {
    label: Label,
    since: Instant,
}

/// What a task is called.
#[derive(Clone, Debug)]
pub(crate) enum Label {
    /// By the place it was submitted from.
    Site(&'static Location<'static>),
    /// By the name it was given.
    Named(Arc<str>),
}

/// One that runs, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Running {
    /// The name it was given, or the place (`file:line`) it was submitted from.
    pub name: String,
    /// How long it has run.
    pub running_for: Duration,
}

/// What keeps a roster.
pub(crate) trait HasRoster {
    fn roster(&self) -> &Roster;
}

/// Being counted, and once seated being on the list. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Seat<S: HasRoster> {
    pub(crate) of: Arc<S>,
    place: Option<(u32, u32)>,
}

impl Roster {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            alive: AtomicU32::new(0),
            next_shard: AtomicU32::new(0),
            all_gone: Notify::new(),
        }
    }

    /// All that run, longest first.
    pub(crate) fn list(&self) -> Vec<Running> {
        let now = Instant::now();
        let mut all: Vec<Running> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(shard.entries.iter().flatten().map(|entry| Running {
                name: entry.label.to_string(),
                running_for: now.saturating_duration_since(entry.since),
            }));
        }
        all.sort_by(|a, b| b.running_for.cmp(&a.running_for).then_with(|| a.name.cmp(&b.name)));
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.alive.load(Ordering::SeqCst) == 0
    }

    /// Waits until nobody is alive. Cancel safe.
    pub(crate) async fn emptied(&self) {
        loop {
            // Registered before looking, so that a leave in between is not missed.
            let gone = self.all_gone.notified();
            let mut gone = std::pin::pin!(gone);
            gone.as_mut().enable();
            if self.is_empty() {
                return;
            }
            gone.await;
        }
    }

    fn enter(&self, label: Label, since: Instant) -> (u32, u32) {
        let shard_at = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS as u32;
        let mut shard = self.shards[shard_at as usize].lock();
        let entry = Some(Entry { label, since });
        let place = match shard.free.pop() {
            Some(place) => {
                shard.entries[place as usize] = entry;
                place
            }
            None => {
                shard.entries.push(entry);
                shard.entries.len() as u32 - 1
            }
        };
        (shard_at, place)
    }

    fn leave(&self, (shard, place): (u32, u32)) {
        let mut shard = self.shards[shard as usize].lock();
        shard.entries[place as usize] = None;
        if shard.free.len() + 1 == shard.entries.len() {
            // The last one out gives a crowd's memory back.
            shard.free.clear();
            shard.entries.clear();
            shard.entries.shrink_to(64);
            shard.free.shrink_to(64);
        } else {
            shard.free.push(place);
        }
    }
}

impl<S: HasRoster> Seat<S> {
    pub(crate) fn new(of: Arc<S>) -> Self {
        // Sequentially consistent, as is a drain's look at the count: whoever is counted too late
        // for the drain to wait for sees that admission has stopped.
        of.roster().alive.fetch_add(1, Ordering::SeqCst);
        Self { of, place: None }
    }

    /// Puts it on the list.
    pub(crate) fn sit(&mut self, label: Label, since: Instant) {
        self.place = Some(self.of.roster().enter(label, since));
    }
}

impl<S: HasRoster> Drop for Seat<S> {
    fn drop(&mut self) {
        let roster = self.of.roster();
        if let Some(place) = self.place {
            roster.leave(place);
        }
        if roster.alive.fetch_sub(1, Ordering::SeqCst) == 1 {
            roster.all_gone.notify_waiters();
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Site(at) => write!(f, "{}:{}", at.file(), at.line()),
            Self::Named(name) => f.write_str(name),
        }
    }
}
