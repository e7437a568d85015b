//! Who runs right now: the list that a drain waits for, and names.
//!
//! Entering and leaving touch one of a few shards, so tasks on different threads seldom meet at a
//! lock. Lock order: a shard, then the names.

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

use std::collections::HashSet;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::stats::Ledger;
use crate::sync::{AtomicBool, Mutex, Ordering};

const SHARDS: usize = if cfg!(sluicegate_loom) { 2 } else { 8 };

thread_local! {
    /// The shard that this thread enters tasks into.
    static SHARD: u8 = {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        (NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % SHARDS as u32) as u8
    };
}

#[derive(Debug)]
pub(crate) struct Roster {
    shards: [Mutex<Shard>; SHARDS],
    /// Whether anybody waits for all to be gone.
    watched: AtomicBool,
    someone_left: Notify,
}

#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    ledger: Ledger,
}

#[derive(Clone, Debug)]
struct Entry {
    label: Label,
    /// Since when it holds its permit; nothing while it waits for one.
    since: Option<Instant>,
}

/// What a task is called.
#[derive(Clone, Debug)]
pub(crate) enum Label {
    /// By the place it was submitted from.
    Site(&'static Location<'static>),
    /// By the name it was given.
    Named(Arc<Name>),
}

/// A name that no other may have, for as long as this is held.
#[derive(Debug)]
pub(crate) struct Name {
    name: Arc<str>,
    taken: Arc<Names>,
}

/// The names that are taken.
pub(crate) type Names = parking_lot::Mutex<HashSet<Arc<str>>>;

impl Name {
    pub(crate) fn claim(name: Arc<str>, taken: &Arc<Names>) -> Option<Arc<Self>> {
        let claimed = taken.lock().insert(Arc::clone(&name));
        claimed.then(|| Arc::new(Self { name, taken: Arc::clone(taken) }))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.taken.lock().remove(&self.name);
    }
}

/// One that runs, as a list shows it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
///
/// let group = TaskGroup::new("jobs", 2)?;
/// let job = |cx: Context| async move { cx.cancelled().await };
/// let _unnamed = group.submit(Context::new(), job).await?;
/// assert!(group.running()[0].name.contains(".rs:")); // the line that submitted it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Running {
    /// The name it was given, or the place (`file:line`) it was submitted from.
    pub name: String,
    /// How long it has run.
    pub running_for: Duration,
}

impl Running {
    pub(crate) fn longest_first(&self, other: &Self) -> std::cmp::Ordering {
        other.running_for.cmp(&self.running_for).then_with(|| self.name.cmp(&other.name))
    }
}

/// What keeps a roster.
pub(crate) trait HasRoster {
    fn roster(&self) -> &Roster;
}

/// Being on the roster. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Seat<S: HasRoster> {
    pub(crate) of: Arc<S>,
    place: u32,
    shard: u8,
    /// Whether it has run to its end.
    pub(crate) completed: bool,
    /// The seat it also has with a group that this one is a child of.
    pub(crate) outer: Option<Box<Self>>,
}

impl Roster {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(Shard::default())),
            watched: AtomicBool::new(false),
            someone_left: Notify::new(),
        }
    }

    /// All that run, longest first.
    pub(crate) fn list(&self) -> Vec<Running> {
        let now = Instant::now();
        let mut all: Vec<Running> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(shard.entries.iter().flatten().filter_map(|entry| {
                let running_for = now.saturating_duration_since(entry.since?);
                Some(Running { name: entry.label.to_string(), running_for })
            }));
        }
        all.sort_by(Running::longest_first);
        all
    }

    /// What was counted, over all shards.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut all = Ledger::default();
        self.shards.iter().for_each(|shard| all.add(&shard.lock().ledger));
        all
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Waits until nobody is there. Cancel safe.
    ///
    /// Only of use once nobody new is let in. Whoever entered a shard before this looks into it is
    /// waited for; whoever enters it later comes after this lock, and so sees that admission was
    /// closed before.
    pub(crate) async fn emptied(&self) {
        self.watched.store(true, Ordering::SeqCst);
        loop {
            // Registered before looking, so that a leave in between is not missed.
            let mut left = std::pin::pin!(self.someone_left.notified());
            left.as_mut().enable();
            if self.is_empty() {
                return;
            }
            left.await;
        }
    }
}

impl Shard {
    const fn is_empty(&self) -> bool {
        self.entries.len() == self.free.len()
    }

    fn enter(&mut self, entry: Entry) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = Some(entry);
                place
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        }
    }

    /// Returns since when it ran.
    fn leave(&mut self, place: u32) -> Option<Instant> {
        let entry = self.entries[place as usize].take();
        self.free.push(place);
        if self.is_empty() && self.entries.len() > 64 {
            // The last one out gives a crowd's memory back.
            (self.entries, self.free) = (Vec::new(), Vec::new());
        }
        entry?.since
    }
}

impl<S: HasRoster> Seat<S> {
    /// Enters, running `since` then, or not running yet; unless admission is closed. A task that
    /// another roster counts is not counted here.
    ///
    /// The entry is made first, then `closed` is asked, under the lock that a drain takes to look
    /// for entries: either the drain sees the entry, or this sees that it is closed.
    pub(crate) fn enter(
        of: Arc<S>,
        label: Label,
        since: Option<Instant>,
        counted: bool,
        closed: impl FnOnce(&S) -> bool,
    ) -> Option<Self> {
        let shard_at = SHARD.with(|shard| *shard);
        let mut shard = of.roster().shards[usize::from(shard_at)].lock();
        let place = shard.enter(Entry { label, since });
        if closed(&of) {
            shard.leave(place);
            return None;
        }
        shard.ledger.admitted += u64::from(counted);
        drop(shard);
        Some(Self { of, place, shard: shard_at, completed: false, outer: None })
    }

    /// It runs from `since` on.
    pub(crate) fn begin(&self, since: Instant) {
        let mut shard = self.of.roster().shards[usize::from(self.shard)].lock();
        if let Some(entry) = &mut shard.entries[self.place as usize] {
            entry.since = Some(since);
        }
        drop(shard);
        if let Some(outer) = &self.outer {
            outer.begin(since);
        }
    }
}

impl<S: HasRoster> Drop for Seat<S> {
    fn drop(&mut self) {
        let roster = self.of.roster();
        let now = self.completed.then(Instant::now);
        let mut shard = roster.shards[usize::from(self.shard)].lock();
        let since = shard.leave(self.place);
        if let (Some(now), Some(since)) = (now, since) {
            shard.ledger.run_time.record(now - since);
        }
        drop(shard);
        if roster.watched.load(Ordering::SeqCst) {
            roster.someone_left.notify_waiters();
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Site(at) => write!(f, "{}:{}", at.file(), at.line()),
            Self::Named(name) => f.write_str(&name.name),
        }
    }
}
