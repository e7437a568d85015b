//! Who runs right now: the list that a drain waits for, and names.
//!
//! Entering and leaving touch one of a few shards, so tasks on different threads seldom meet at a
//! lock. Lock order: a shard, then the names.

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;
#[cfg(all(test, not(sluicegate_loom)))]
mod tests;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lineage::PermitId;
use crate::stats::Ledger;
use crate::sync::{AtomicBool, Mutex, Ordering};

const SHARDS: usize = if cfg!(sluicegate_loom) { 2 } else { 8 };

thread_local! {
    /// The number of the next task that this thread enters. The upper bits are a block of numbers that
    /// is the thread's own, so that no two tasks of a process have the same number, and few meet
    /// anybody for it. With nothing in the lower bits a block is over, or there was none yet.
    /// (`const`, since every task comes by here: there is nothing to set up.)
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

const BLOCK_BITS: u32 = 20;
const BLOCK_MASK: u64 = (1 << BLOCK_BITS) - 1;

/// A number that no other has, and the shard that this thread enters tasks into.
#[inline]
fn next() -> (u64, u16) {
    // Two small steps: as one closure this becomes a call.
    let number = match NEXT.with(Cell::get) {
        over if over & BLOCK_MASK == 0 => first_of_block(),
        next => next,
    };
    NEXT.with(|next| next.set(number + 1));
    (number, ((number >> BLOCK_BITS) % SHARDS as u64) as u16)
}

#[cold]
fn first_of_block() -> u64 {
    // With the highest bit: sluices count from one.
    static BLOCKS: AtomicU64 = AtomicU64::new(1 << (63 - BLOCK_BITS));
    BLOCKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) << BLOCK_BITS | 1
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
    records: Vec<Option<Record>>,
    free: Vec<u32>,
    ledger: Ledger,
}

#[derive(Clone, Debug)]
struct Record {
    /// The number of the permit that is held.
    number: u64,
    label: Label,
    /// Since when it holds its permit.
    since: Instant,
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

/// How one that leaves a roster has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It never began, or nobody knows.
    Unknown,
    /// It ran to its end, and its time is counted here.
    Completed,
    /// Some other way, or it is counted elsewhere.
    Other,
}

/// Being on the roster. Dropping it leaves, and before that the rosters of all groups above: whoever
/// finds nobody here finds nobody there.
#[derive(Debug)]
pub(crate) struct RosterEntry<S: HasRoster> {
    pub(crate) of: Arc<S>,
    // The parts of a `PermitId`, not one: what follows then fits into what it would leave empty,
    // and a task is moved about with this inside.
    number: u64,
    index: u32,
    shard: u16,
    /// How the task ended.
    pub(crate) end: End,
    /// The same with the group that this one is a child of.
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

    /// All that run but those, longest first.
    pub(crate) fn list(&self, except: &[u64]) -> Vec<Running> {
        let mut all = self.look(except).0.into_values().collect::<Vec<_>>();
        all.sort_by(Running::longest_first);
        all
    }

    /// All that run but those, by their numbers, and how many have ended: each is one or the other.
    pub(crate) fn look(&self, except: &[u64]) -> (HashMap<u64, Running>, u64) {
        let now = Instant::now();
        let (mut all, mut ended) = (HashMap::new(), 0);
        for shard in &self.shards {
            let shard = shard.lock();
            let others = shard.records.iter().flatten().filter(|one| !except.contains(&one.number));
            all.extend(others.map(|record| {
                let running_for = now.saturating_duration_since(record.since);
                (record.number, Running { name: record.label.to_string(), running_for })
            }));
            ended += shard.ledger.ended();
        }
        (all, ended)
    }

    /// What was counted, over all shards.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut all = Ledger::default();
        self.shards.iter().for_each(|shard| all.add(&shard.lock().ledger));
        all
    }

    /// Whether nobody is there but those.
    pub(crate) fn is_empty(&self, except: &[u64]) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty_but(except))
    }

    pub(crate) fn holds(&self, permit: PermitId) -> bool {
        let Some(shard) = self.shards.get(usize::from(permit.shard)) else { return false };
        let shard = shard.lock();
        let record = shard.records.get(permit.index as usize).and_then(Option::as_ref);
        record.is_some_and(|record| record.number == permit.number)
    }

    /// Waits until nobody is there but those. Cancel safe.
    ///
    /// Only of use once nobody new is let in. Whoever entered a shard before this looks into it is
    /// waited for; whoever enters it later comes after this lock, and so sees that admission was
    /// closed before.
    pub(crate) async fn emptied(&self, except: &[u64]) {
        self.watched.store(true, Ordering::SeqCst);
        loop {
            // Registered before looking, so that a leave in between is not missed.
            let mut left = std::pin::pin!(self.someone_left.notified());
            left.as_mut().enable();
            if self.is_empty(except) {
                return;
            }
            left.await;
        }
    }
}

impl Shard {
    const fn is_empty(&self) -> bool {
        self.records.len() == self.free.len()
    }

    fn is_empty_but(&self, except: &[u64]) -> bool {
        // With more than those there is no need for a look through all places, most of them free.
        let live = self.records.len() - self.free.len();
        let is_one = |record: &Record| except.contains(&record.number);
        live == 0 || live <= except.len() && self.records.iter().flatten().all(is_one)
    }

    fn enter(&mut self, record: Record) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.records[index as usize] = Some(record);
                index
            }
            None => {
                self.records.push(Some(record));
                self.records.len() as u32 - 1
            }
        }
    }

    /// Returns since when it ran.
    fn leave(&mut self, index: u32) -> Option<Instant> {
        let record = self.records[index as usize].take();
        self.free.push(index);
        if self.is_empty() && self.records.len() > 64 {
            // The last one out gives a crowd's memory back.
            (self.records, self.free) = (Vec::new(), Vec::new());
        }
        Some(record?.since)
    }
}

impl<S: HasRoster> RosterEntry<S> {
    /// Enters, running since then; unless admission is closed. A task has one `number` on all the
    /// rosters it is on, and is counted on one of them.
    ///
    /// The record is made first, then `closed` is asked, under the lock that a drain takes to look
    /// for records: either the drain sees the record, or this sees that it is closed.
    #[inline]
    pub(crate) fn enter(
        of: Arc<S>,
        label: Label,
        since: Instant,
        number: Option<u64>,
        counted: bool,
        closed: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let (next, shard_at) = next();
        let number = number.unwrap_or(next);
        let mut shard = of.roster().shards[usize::from(shard_at)].lock();
        let index = shard.enter(Record { number, label, since });
        if closed() {
            shard.leave(index);
            return None;
        }
        shard.ledger.admitted += u64::from(counted);
        drop(shard);
        Some(Self { of, number, index, shard: shard_at, end: End::Unknown, outer: None })
    }

    #[inline(never)]
    fn leave_outer(&mut self) {
        if let Some(mut outer) = self.outer.take() {
            outer.end = if self.end == End::Unknown { End::Unknown } else { End::Other };
        }
    }

    /// Where it is, and the number of the permit that is held.
    #[inline]
    pub(crate) const fn permit(&self) -> PermitId {
        PermitId { number: self.number, index: self.index, shard: self.shard }
    }
}

impl<S: HasRoster> Drop for RosterEntry<S> {
    fn drop(&mut self) {
        if self.outer.is_some() {
            self.leave_outer();
        }
        let roster = self.of.roster();
        let now = (self.end == End::Completed).then(Instant::now);
        let mut shard = roster.shards[usize::from(self.shard)].lock();
        let since = shard.leave(self.index);
        if let (Some(now), Some(since)) = (now, since) {
            shard.ledger.run_time.record(now - since);
        } else if self.end == End::Other {
            shard.ledger.ended_otherwise += 1;
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
