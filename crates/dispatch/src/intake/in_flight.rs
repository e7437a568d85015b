//! What was received and is not settled: one entry for each message.
//!
//! Invariants:
//! 1. A message is in here from its delivery until its settlement is durable, so that a second delivery of it
//!    meanwhile is always recognised, and never runs beside the first.
//! 2. The receipt in here is the one that is valid now.
//! 3. Both indexes change under one lock, which is taken before that of an entry, never after.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{Receipt, Settlement};

/// What a recipient keeps of a message while it is in flight.
pub trait Entry: Debug + Send + Sync + 'static {
    /// The application's id, where a second message of the same id is a copy.
    fn id(&self) -> Option<&Arc<str>>;

    /// Whether it must stay in order with any other.
    fn is_ordered(&self) -> bool;

    /// Whether it is not going to run, though it is not settled.
    fn is_given_up(&self) -> bool {
        false
    }

    /// Whether two messages must stay in order with each other.
    fn same_key(&self, other: &Self) -> bool;
}

/// How many messages that are done are remembered, in case their broker did not hear.
const REMEMBERED: usize = 4096;

/// The messages of one source that are in flight.
#[derive(Debug)]
pub struct InFlight<E> {
    indexes: Mutex<Indexes<E>>,
    keeps_order: bool,
    /// Told when a message is settled.
    fewer: Notify,
}

#[derive(Debug)]
struct Indexes<E> {
    by_broker_id: HashMap<Arc<str>, Arc<Tracked<E>>, RandomState>,
    by_id: HashMap<Arc<str>, Arc<Tracked<E>>, RandomState>,
    /// How many were taken in.
    taken: u64,
    /// Deliveries that never were in flight and are being settled.
    strays: HashMap<Arc<str>, Arc<Stray>, RandomState>,
    done: Done,
    /// What was superseded and has not ended.
    superseded: Vec<Arc<Tracked<E>>>,
}

/// The messages of keys that were done last, and on which connection: their broker may not have heard.
#[derive(Debug, Default)]
struct Done {
    generations: HashMap<Arc<str>, u64, RandomState>,
    oldest_first: VecDeque<Arc<str>>,
}

/// A delivery that is settled without having been in flight: something malformed, or a copy.
#[derive(Debug)]
pub(crate) struct Stray {
    broker_id: Arc<str>,
    since: Instant,
    receipt: Mutex<Receipt>,
}

/// A message that is in flight.
#[derive(Debug)]
pub struct Tracked<E> {
    /// The source's own id of the message.
    pub broker_id: Arc<str>,
    /// What its recipient keeps of it.
    pub entry: E,
    /// When it was taken in.
    pub received: Instant,
    /// How many were taken in before it.
    pub(crate) number: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    receipt: Receipt,
    /// How many attempts were made.
    attempts: u32,
    /// When its last delivery came.
    delivered: Instant,
    stage: Stage,
    /// Since when its source is to hear what became of it.
    settling_since: Option<Instant>,
    warned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Here,
    Settling,
    /// The same, and it is parked: whoever looks into the parked list may put it in again.
    Parking,
    /// It was taken in again: another entry stands for its message.
    Superseded,
}

/// What a delivery turned out to be.
#[derive(Debug)]
pub enum Begun<E> {
    /// A message that is to run, once it is [held](super::Owed::hold).
    New(Arc<Tracked<E>>),
    /// The same for one that ran before, though its broker did not hear. Later ones of its key that were here are
    /// superseded: the broker delivers them again after it.
    Again(Arc<Tracked<E>>, Vec<Arc<Tracked<E>>>),
    /// One that is still here. The receipt it came with is the valid one from now on.
    Redelivered(Arc<Tracked<E>>),
    /// Another copy of a message that is here, with this id.
    Requeued(Arc<str>),
    /// A copy of a message of this id whose parking is not over: it is its replay, and must come again later.
    Replayed(Arc<str>),
}

impl<E: Entry> InFlight<E> {
    /// For a source that keeps order, or does not.
    pub(crate) fn new(keeps_order: bool) -> Self {
        let indexes = Indexes {
            by_broker_id: HashMap::default(),
            by_id: HashMap::default(),
            taken: 0,
            strays: HashMap::default(),
            done: Done::default(),
            superseded: Vec::new(),
        };
        Self { indexes: Mutex::new(indexes), keeps_order, fewer: Notify::new() }
    }

    /// Takes a delivery in: docs/rules.md#dedupe-1 and docs/rules.md#dedupe-2.
    ///
    /// After a reconnect a broker delivers in order what it has not heard of. If one of a key was settled too
    /// late it is taken in anew, behind later ones of its key that are still here; those must run again after
    /// it, or the key would end in the state of an old message. So they are superseded, not only given a new
    /// receipt.
    pub fn begin(
        &self,
        broker_id: Arc<str>,
        receipt: Receipt,
        attempts: u32,
        entry: E,
        now: Instant,
    ) -> Begun<E> {
        let mut indexes = self.indexes.lock();
        if let Some(known) = indexes.by_broker_id.get(&broker_id).cloned() {
            let mut state = known.state.lock();
            (state.receipt, state.delivered, state.warned) = (receipt, now, false);
            drop(state);
            return Begun::Redelivered(known);
        }
        if let Some(id) = entry.id()
            && let Some(known) = indexes.by_id.get(id)
        {
            let is_parking = known.state.lock().stage == Stage::Parking;
            let id = Arc::clone(id);
            return if is_parking { Begun::Replayed(id) } else { Begun::Requeued(id) };
        }
        let before = indexes.done.on_another(&broker_id, receipt.generation);
        let superseded = match before.filter(|_| !self.keeps_order && entry.is_ordered()) {
            Some(generation) => indexes.supersede(&entry, generation),
            None => Vec::new(),
        };
        let (stage, settling_since) = (Stage::Here, None);
        let state =
            State { receipt, attempts, delivered: now, stage, settling_since, warned: false };
        let state = Mutex::new(state);
        let number = indexes.taken;
        indexes.taken += 1;
        let tracked = Arc::new(Tracked { broker_id, entry, received: now, number, state });
        if let Some(id) = tracked.entry.id() {
            indexes.by_id.insert(Arc::clone(id), Arc::clone(&tracked));
        }
        indexes.by_broker_id.insert(Arc::clone(&tracked.broker_id), Arc::clone(&tracked));
        if superseded.is_empty() { Begun::New(tracked) } else { Begun::Again(tracked, superseded) }
    }

    /// Forgets a message: it is done, durably as far as its source knows, or it is the source's again.
    pub(crate) fn end(&self, tracked: &Arc<Tracked<E>>, is_done: bool) {
        let mut indexes = self.indexes.lock();
        indexes.remove(tracked);
        if is_done && !self.keeps_order && tracked.entry.is_ordered() {
            indexes.done.remember(&tracked.broker_id, tracked.receipt().generation);
        }
        drop(indexes);
        self.fewer.notify_waiters();
    }

    /// Takes in something that is only to be settled. `None` if that is owed already: then with this receipt.
    pub(crate) fn begin_stray(&self, broker_id: Arc<str>, receipt: Receipt) -> Option<Arc<Stray>> {
        let mut indexes = self.indexes.lock();
        if let Some(known) = indexes.strays.get(&broker_id) {
            *known.receipt.lock() = receipt;
            return None;
        }
        let (since, receipt) = (Instant::now(), Mutex::new(receipt));
        let stray = Arc::new(Stray { broker_id, since, receipt });
        indexes.strays.insert(Arc::clone(&stray.broker_id), Arc::clone(&stray));
        Some(stray)
    }

    pub(crate) fn end_stray(&self, stray: &Stray) {
        self.indexes.lock().strays.remove(&stray.broker_id);
        self.fewer.notify_waiters();
    }

    /// Forgets what is only to be settled, and what was superseded.
    pub(crate) fn forget_strays(&self) {
        {
            let mut indexes = self.indexes.lock();
            indexes.strays.clear();
            indexes.superseded.clear();
        }
        self.fewer.notify_waiters();
    }

    /// How many there are, if for so long their source has not heard what became of any of them.
    pub(crate) fn all_unheard_for(&self, long: Duration) -> Option<usize> {
        let indexes = self.indexes.lock();
        let (mut tracked, mut strays) = (indexes.by_broker_id.values(), indexes.strays.values());
        let all = tracked.all(|tracked| tracked.settles_since(long))
            && strays.all(|stray| stray.since.elapsed() >= long);
        let count = indexes.by_broker_id.len() + indexes.strays.len();
        (all && count > 0).then_some(count)
    }

    /// The receipts of what is only to be settled.
    pub(crate) fn stray_receipts(&self) -> Vec<Receipt> {
        let mut strays: Vec<_> = self.indexes.lock().strays.values().cloned().collect();
        strays.sort_by(|a, b| a.broker_id.cmp(&b.broker_id));
        strays.iter().map(|stray| stray.receipt()).collect()
    }

    /// Whether a message, by either of its ids, runs here or is going to. What only waits to be
    /// settled is over.
    pub(crate) fn runs(&self, broker_id: &str, id: Option<&str>) -> bool {
        let indexes = self.indexes.lock();
        let known = indexes.by_broker_id.get(broker_id);
        let known = known.or_else(|| id.and_then(|id| indexes.by_id.get(id)));
        let runs = |tracked: &Arc<Tracked<E>>| {
            tracked.state.lock().stage == Stage::Here && !tracked.entry.is_given_up()
        };
        known.is_some_and(runs) || indexes.superseded.iter().any(|old| old.is_named(broker_id, id))
    }

    /// What was superseded and has not ended, if there is anything: its successors must not run beside it.
    pub(crate) fn superseded(&self) -> Vec<Arc<Tracked<E>>> {
        self.indexes.lock().superseded.clone()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Tracked<E>>> {
        self.indexes.lock().by_id.get(id).cloned()
    }

    /// How many there are, with what is only to be settled.
    #[must_use]
    pub fn len(&self) -> usize {
        let indexes = self.indexes.lock();
        indexes.by_broker_id.len() + indexes.strays.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is none, nor anything superseded that has not ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_empty() && self.indexes.lock().superseded.is_empty()
    }

    /// Waits until so many are here, or fewer.
    pub async fn at_most(&self, count: usize) {
        loop {
            let mut fewer = std::pin::pin!(self.fewer.notified());
            fewer.as_mut().enable();
            if self.len() <= count {
                return;
            }
            fewer.await;
        }
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Tracked<E>>> {
        let mut all = self.each();
        all.sort_by_key(|tracked| tracked.number);
        all
    }

    pub(crate) fn each(&self) -> Vec<Arc<Tracked<E>>> {
        self.indexes.lock().by_broker_id.values().cloned().collect()
    }

    /// All of them, and those that were superseded and have not ended.
    pub(crate) fn each_that_may_run(&self) -> Vec<Arc<Tracked<E>>> {
        let indexes = self.indexes.lock();
        indexes.by_broker_id.values().chain(&indexes.superseded).cloned().collect()
    }

    /// A message that was superseded has ended. `false` if that was known.
    pub(crate) fn let_go(&self, tracked: &Arc<Tracked<E>>) -> bool {
        let superseded = &mut self.indexes.lock().superseded;
        let at = superseded.iter().position(|known| Arc::ptr_eq(known, tracked));
        at.map(|at| superseded.swap_remove(at)).is_some()
    }

    /// Those whose last delivery was this long ago, each once for each of its deliveries.
    pub fn overdue(&self, limit: Duration) -> Vec<(Arc<Tracked<E>>, Duration)> {
        let now = Instant::now();
        let is_new = |tracked: &Arc<Tracked<E>>| {
            let mut state = tracked.state.lock();
            let age = now.saturating_duration_since(state.delivered);
            (age >= limit && !std::mem::replace(&mut state.warned, age >= limit)).then_some(age)
        };
        let all = self.each().into_iter();
        all.filter_map(|tracked| is_new(&tracked).map(|age| (tracked, age))).collect()
    }
}

impl<E: Entry> Indexes<E> {
    /// Takes out those of a key that came on a connection and have not come again since; answers with them.
    fn supersede(&mut self, entry: &E, generation: u64) -> Vec<Arc<Tracked<E>>> {
        let is_before = |tracked: &Arc<Tracked<E>>| {
            let state = tracked.state.lock();
            tracked.entry.same_key(entry) && state.receipt.generation == generation
        };
        let mut before: Vec<_> =
            self.by_broker_id.values().filter(|tracked| is_before(tracked)).cloned().collect();
        before.sort_by_key(|tracked| tracked.number);
        for tracked in &before {
            tracked.state.lock().stage = Stage::Superseded;
            self.remove(tracked);
        }
        self.superseded.extend(before.iter().cloned());
        before
    }

    /// Takes out this very entry, and not one that has come in its place.
    fn remove(&mut self, tracked: &Arc<Tracked<E>>) {
        if let Slot::Occupied(slot) = self.by_broker_id.entry(Arc::clone(&tracked.broker_id))
            && Arc::ptr_eq(slot.get(), tracked)
        {
            slot.remove();
        }
        if let Some(id) = tracked.entry.id()
            && let Slot::Occupied(slot) = self.by_id.entry(Arc::clone(id))
            && Arc::ptr_eq(slot.get(), tracked)
        {
            slot.remove();
        }
    }
}

impl Done {
    fn remember(&mut self, broker_id: &Arc<str>, generation: u64) {
        if self.generations.insert(Arc::clone(broker_id), generation).is_none() {
            self.oldest_first.push_back(Arc::clone(broker_id));
        }
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.generations.remove(&oldest);
        }
    }

    /// The other connection than this one on which a message was done.
    fn on_another(&self, broker_id: &Arc<str>, generation: u64) -> Option<u64> {
        self.generations.get(broker_id).copied().filter(|known| *known != generation)
    }
}

impl Stray {
    pub(crate) fn receipt(&self) -> Receipt {
        self.receipt.lock().clone()
    }
}

impl<E: Entry> Tracked<E> {
    /// Whether it is a delivery of the same message as another.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is_named(&other.broker_id, other.entry.id().map(|id| &**id))
    }

    fn is_named(&self, broker_id: &str, id: Option<&str>) -> bool {
        let own = self.entry.id().map(|id| &**id);
        *self.broker_id == *broker_id || (own.is_some() && own == id)
    }
}

impl<E> Tracked<E> {
    /// How many attempts were made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.state.lock().attempts
    }

    /// Says how many attempts were made.
    pub fn set_attempts(&self, attempts: u32) {
        self.state.lock().attempts = attempts;
    }

    /// Whether another entry stands for its message by now: then it must not run.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.state.lock().stage == Stage::Superseded
    }

    pub(crate) fn receipt(&self) -> Receipt {
        self.state.lock().receipt.clone()
    }

    /// The receipt to settle it with; `None` if it is superseded.
    pub(crate) fn valid_receipt(&self) -> Option<Receipt> {
        let state = self.state.lock();
        (state.stage != Stage::Superseded).then(|| state.receipt.clone())
    }

    pub(crate) fn is_settling(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Settling | Stage::Parking)
    }

    /// Whether its source was to hear what became of it so long ago.
    pub(crate) fn settles_since(&self, long: Duration) -> bool {
        self.state.lock().settling_since.is_some_and(|since| since.elapsed() >= long)
    }

    pub(crate) fn begin_settling(&self, settlement: Settlement) {
        let mut state = self.state.lock();
        if state.stage == Stage::Here {
            let is_parked = settlement == Settlement::Park;
            state.stage = if is_parked { Stage::Parking } else { Stage::Settling };
            state.settling_since = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Message {
        id: Option<Arc<str>>,
        key: Option<&'static str>,
    }

    impl Entry for Message {
        fn id(&self) -> Option<&Arc<str>> {
            self.id.as_ref()
        }

        fn is_ordered(&self) -> bool {
            self.key.is_some()
        }

        fn same_key(&self, other: &Self) -> bool {
            self.key.is_some() && self.key == other.key
        }
    }

    struct Table(InFlight<Message>, u64);

    impl Table {
        fn new() -> Self {
            Self(InFlight::new(false), 0)
        }

        fn take(&mut self, id: &str, generation: u64, key: Option<&'static str>) -> Begun<Message> {
            self.1 += 1;
            let receipt = Receipt { tag: self.1, generation, handle: None };
            self.0.begin(id.into(), receipt, 0, Message { id: None, key }, Instant::now())
        }

        fn new_one(
            &mut self,
            id: &str,
            generation: u64,
            key: Option<&'static str>,
        ) -> Arc<Tracked<Message>> {
            match self.take(id, generation, key) {
                Begun::New(tracked) | Begun::Again(tracked, _) => tracked,
                other => panic!("not new: {other:?}"),
            }
        }
    }

    fn begin(in_flight: &InFlight<Message>, broker_id: &str, id: &str, tag: u64) -> Begun<Message> {
        let receipt = Receipt { tag, ..Receipt::default() };
        let entry = Message { id: Some(id.into()), key: None };
        in_flight.begin(broker_id.into(), receipt, 0, entry, Instant::now())
    }

    /// docs/rules.md#dedupe-1, docs/rules.md#dedupe-2
    #[test]
    fn a_second_delivery_replaces_the_receipt_and_a_copy_is_recognised() {
        let in_flight = InFlight::new(false);
        let Begun::New(first) = begin(&in_flight, "b1", "m1", 1) else { panic!("new") };
        assert!(matches!(begin(&in_flight, "b1", "m1", 2), Begun::Redelivered(_)));
        assert_eq!(first.receipt().tag, 2);
        assert!(matches!(begin(&in_flight, "b2", "m1", 3), Begun::Requeued(_)));
        assert_eq!((in_flight.len(), first.receipt().tag), (1, 2));
        in_flight.end(&first, true);
        assert_eq!(in_flight.len(), 0);
        assert!(matches!(begin(&in_flight, "b2", "m1", 3), Begun::New(_)));
    }

    #[test]
    fn what_follows_a_message_that_comes_again_runs_again_after_it() {
        let mut table = Table::new();
        let first = table.new_one("a", 1, Some("k"));
        let [second, third] = ["b", "c"].map(|id| table.new_one(id, 1, Some("k")));
        let other = table.new_one("x", 1, Some("other"));
        // Settled, and the broker has not heard of it when the connection breaks.
        table.0.end(&first, true);
        let first = table.new_one("a", 2, Some("k"));
        let again = table.new_one("b", 2, Some("k"));
        assert!(matches!(table.take("x", 2, Some("other")), Begun::Redelivered(_)));
        table.new_one("c", 2, Some("k"));
        assert!(second.is_superseded() && third.is_superseded());
        assert!(!first.is_superseded() && !other.is_superseded() && !again.is_superseded());
        assert_eq!((second.valid_receipt(), table.0.len()), (None, 4));
        // The end of the old one leaves the new one alone.
        table.0.end(&second, true);
        assert_eq!(table.0.len(), 4);
    }

    #[test]
    fn without_a_key_nothing_runs_again() {
        let mut table = Table::new();
        let first = table.new_one("a", 1, None);
        table.new_one("b", 1, None);
        table.0.end(&first, true);
        table.new_one("a", 2, None);
        assert!(matches!(table.take("b", 2, None), Begun::Redelivered(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_here_for_long_is_named_once_for_each_delivery() {
        let mut table = Table::new();
        let limit = Duration::from_secs(10);
        table.new_one("a", 1, None);
        assert_eq!(table.0.overdue(limit).len(), 0);
        tokio::time::advance(limit).await;
        table.new_one("b", 1, None);
        assert_eq!(table.0.overdue(limit).len(), 1);
        assert_eq!(table.0.overdue(limit).len(), 0);
        table.take("a", 2, None);
        tokio::time::advance(limit).await;
        assert_eq!(table.0.overdue(limit).len(), 2);
    }
}
