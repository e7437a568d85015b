//! What the broker has sent and was not told the end of: pure, told the time, changed under one lock.
//!
//! Everything in here is unacknowledged, so the broker still has it: forgotten here, it is delivered
//! again. Handing back without a delay is therefore done in here, and keeps the place in line.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluicegate_dispatch::Receipt;
use tokio::time::Instant;

use super::parcel::Parcel;
use super::tally::Tally;

/// How many hand-overs may be settled and unanswered before it is looked which are.
const MAX_UNANSWERED: usize = 4_096;

/// What stays in order: a pool and a group of it.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// The messages of one life of a connection.
#[derive(Debug)]
pub(crate) struct Shelf {
    generation: u64,
    /// By their order of arrival, which is the order in the queue.
    entries: BTreeMap<u64, Entry>,
    ready: BTreeSet<u64>,
    /// When windows and delays end.
    ends: BTreeSet<(Instant, u64)>,
    /// Which hand-over is of which entry, until that is settled.
    out: HashMap<u64, u64>,
    /// How many of those are being settled.
    settling: usize,
    /// Hand-overs that are settled, while whoever asked for that has not been answered.
    unanswered: HashMap<u64, Weak<Tally>>,
    /// Those that are kept in order.
    keys: HashMap<Key, BTreeSet<u64>>,
    next_place: u64,
    next_tag: u64,
}

#[derive(Debug)]
struct Entry {
    parcel: Arc<Parcel>,
    attempts: u32,
    lined: Option<Lined>,
    now: Now,
}

impl Entry {
    /// The application's id of a message that stays in order.
    fn id(&self) -> Option<&str> {
        self.lined.as_ref()?.id.as_deref()
    }
}

/// Where a message that stays in order stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lined {
    pub(crate) key: Key,
    /// The application's id.
    pub(crate) id: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Ready,
    Delayed {
        until: Instant,
    },
    Out {
        tag: u64,
        until: Instant,
    },
    /// By this hand-over, if it was handed out.
    Settling {
        tag: Option<u64>,
    },
}

/// A message that is handed over.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) receipt: Receipt,
    pub(crate) parcel: Arc<Parcel>,
    pub(crate) attempts: u32,
}

impl Shelf {
    /// Generations are never used twice in a process, so that no receipt fits another connection.
    pub(crate) fn new(generation: u64) -> Self {
        Self {
            generation,
            entries: BTreeMap::new(),
            ready: BTreeSet::new(),
            ends: BTreeSet::new(),
            out: HashMap::new(),
            settling: 0,
            unanswered: HashMap::new(),
            keys: HashMap::new(),
            next_place: 0,
            next_tag: 0,
        }
    }

    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Puts a message on the shelf, to be handed out now or later.
    pub(crate) fn put(
        &mut self,
        parcel: Arc<Parcel>,
        lined: Option<Lined>,
        until: Option<Instant>,
    ) {
        let place = self.add(parcel, lined);
        self.let_wait(place, until);
    }

    /// Puts a message there that is about to be settled.
    pub(crate) fn put_settling(&mut self, parcel: Arc<Parcel>) -> u64 {
        self.add(parcel, None)
    }

    fn add(&mut self, parcel: Arc<Parcel>, lined: Option<Lined>) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        if let Some(Lined { key, .. }) = &lined {
            self.keys.entry(key.clone()).or_default().insert(place);
        }
        let (attempts, now) = (parcel.attempts, Now::Settling { tag: None });
        self.entries.insert(place, Entry { parcel, attempts, lined, now });
        place
    }

    fn let_wait(&mut self, place: u64, until: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(&place) else { return };
        match until {
            Some(until) => {
                entry.now = Now::Delayed { until };
                self.ends.insert((until, place));
            }
            None => {
                entry.now = Now::Ready;
                self.ready.insert(place);
            }
        }
    }

    /// Makes ready what was out or delayed until now.
    fn advance(&mut self, now: Instant) {
        while let Some(&(until, place)) = self.ends.first()
            && until <= now
        {
            self.ends.pop_first();
            if let Some(Entry { now: Now::Out { tag, .. }, .. }) = self.entries.get(&place) {
                self.out.remove(tag);
            }
            self.let_wait(place, None);
        }
    }

    /// Hands over at most `max` messages, in their order.
    pub(crate) fn take(&mut self, now: Instant, window: Duration, max: usize) -> Vec<Taken> {
        self.advance(now);
        let mut places = Vec::new();
        for &place in &self.ready {
            if places.len() >= max {
                break;
            }
            if self.is_head(place) || self.is_head_again(place) {
                places.push(place);
            }
        }
        places.into_iter().filter_map(|place| self.hand_over(place, now + window)).collect()
    }

    /// Whether no earlier one of its key is here, in whatever state.
    fn is_head(&self, place: u64) -> bool {
        self.head_of(place).is_none_or(|head| head == place)
    }

    /// The first one of its key, if it stays in order with anything.
    fn head_of(&self, place: u64) -> Option<u64> {
        let Lined { key, .. } = self.entries.get(&place)?.lined.as_ref()?;
        self.keys.get(key)?.first().copied()
    }

    /// Whether it is the same message as the head of its key, put in again while that is handed out. It
    /// is shown at once: after the head it would not be recognised as the same.
    fn is_head_again(&self, place: u64) -> bool {
        let head = self.head_of(place).and_then(|head| self.entries.get(&head));
        let Some(head) = head.filter(|head| matches!(head.now, Now::Out { .. })) else {
            return false;
        };
        let id = self.entries.get(&place).and_then(Entry::id);
        id.is_some() && id == head.id()
    }

    fn hand_over(&mut self, place: u64, until: Instant) -> Option<Taken> {
        let entry = self.entries.get_mut(&place)?;
        self.ready.remove(&place);
        let tag = self.next_tag;
        self.next_tag += 1;
        entry.now = Now::Out { tag, until };
        self.ends.insert((until, place));
        self.out.insert(tag, place);
        let receipt = Receipt { tag, generation: self.generation, handle: None };
        Some(Taken { receipt, parcel: Arc::clone(&entry.parcel), attempts: entry.attempts })
    }

    /// When something becomes ready by itself.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|&(until, _)| until)
    }

    /// The place of what is out with this receipt.
    fn find(&mut self, receipt: &Receipt, now: Instant) -> Option<u64> {
        self.advance(now);
        let place = *self.out.get(&receipt.tag)?;
        (receipt.generation == self.generation).then_some(place)
    }

    /// Begins a window anew; `false` if the receipt is not valid any more. Of what is being settled
    /// there is nothing to extend, until whoever settles is answered.
    pub(crate) fn extend(&mut self, receipt: &Receipt, now: Instant, window: Duration) -> bool {
        let Some(place) = self.find(receipt, now) else {
            let asked = self.unanswered.get(&receipt.tag);
            let is_unanswered = asked.is_some_and(|tally| tally.strong_count() > 0);
            return receipt.generation == self.generation && is_unanswered;
        };
        let Some(entry) = self.entries.get_mut(&place) else { return false };
        if let Now::Out { tag, until } = entry.now {
            self.ends.remove(&(until, place));
            entry.now = Now::Out { tag, until: now + window };
            self.ends.insert((now + window, place));
        }
        true
    }

    /// Takes a delivery out of its window, to be settled: from here on its receipt settles nothing.
    pub(crate) fn begin_settling(&mut self, receipt: &Receipt, now: Instant) -> Option<u64> {
        let place = self.find(receipt, now)?;
        let entry = self.entries.get_mut(&place)?;
        let Now::Out { tag, until } = entry.now else { return None };
        entry.now = Now::Settling { tag: Some(tag) };
        self.settling += 1;
        self.ends.remove(&(until, place));
        Some(place)
    }

    /// It was not settled: it is out as before, with a new window. What nobody was given is ready.
    pub(crate) fn end_settling(&mut self, place: u64, until: Instant) {
        let Some(entry) = self.entries.get_mut(&place) else { return };
        match entry.now {
            Now::Settling { tag: Some(tag) } => {
                entry.now = Now::Out { tag, until };
                self.settling -= 1;
                self.ends.insert((until, place));
            }
            Now::Settling { tag: None } => self.let_wait(place, None),
            Now::Ready | Now::Delayed { .. } | Now::Out { .. } => {}
        }
    }

    /// Its hand-over is over, and `tally` has not answered yet.
    fn end_hand_over(&mut self, place: u64, tally: Option<&Arc<Tally>>) {
        let Some(entry) = self.entries.get(&place) else { return };
        let Now::Settling { tag: Some(tag) } = entry.now else { return };
        self.settling -= 1;
        self.out.remove(&tag);
        if self.unanswered.len() >= MAX_UNANSWERED {
            self.unanswered.retain(|_, tally| tally.strong_count() > 0);
        }
        if let Some(tally) = tally {
            self.unanswered.insert(tag, Arc::downgrade(tally));
        }
    }

    pub(crate) fn parcel(&self, place: u64) -> Option<&Arc<Parcel>> {
        self.entries.get(&place).map(|entry| &entry.parcel)
    }

    pub(crate) fn is_ordered(&self, place: u64) -> bool {
        self.entries.get(&place).is_some_and(|entry| entry.lined.is_some())
    }

    /// Whether another message with this id of the broker is here, and not about to go.
    pub(crate) fn knows(&self, broker_id: &str) -> bool {
        let is_same = |entry: &Entry| {
            !matches!(entry.now, Now::Settling { .. }) && *entry.parcel.broker_id == *broker_id
        };
        self.entries.values().any(is_same)
    }

    /// Puts back what is being settled, at its old place.
    pub(crate) fn put_back(
        &mut self,
        place: u64,
        until: Option<Instant>,
        attempts: u32,
        tally: &Arc<Tally>,
    ) {
        self.end_hand_over(place, Some(tally));
        if let Some(entry) = self.entries.get_mut(&place) {
            entry.attempts = attempts;
        }
        self.let_wait(place, until);
    }

    /// Forgets what is settled.
    pub(crate) fn finish(&mut self, place: u64, tally: Option<&Arc<Tally>>) {
        self.end_hand_over(place, tally);
        let Some(entry) = self.entries.remove(&place) else { return };
        let Some(Lined { key, .. }) = entry.lined else { return };
        let Some(line) = self.keys.get_mut(&key) else { return };
        line.remove(&place);
        if line.is_empty() {
            self.keys.remove(&key);
        }
    }

    /// Puts all messages in line anew, by what they are told to stay in order with.
    pub(crate) fn line_up(&mut self, lined: impl Fn(&Parcel) -> Option<Lined>) {
        self.keys.clear();
        for (&place, entry) in &mut self.entries {
            entry.lined = lined(&entry.parcel);
            if let Some(Lined { key, .. }) = &entry.lined {
                self.keys.entry(key.clone()).or_default().insert(place);
            }
        }
    }

    /// How many are ready, delayed, and out or being settled.
    pub(crate) fn count(&mut self, now: Instant) -> (usize, usize, usize) {
        self.advance(now);
        let (ready, out) = (self.ready.len(), self.out.len() - self.settling);
        let delayed = self.ends.len() - out;
        (ready, delayed, self.entries.len() - ready - delayed)
    }

    /// Whether somebody still has to settle something of it.
    pub(crate) fn has_out(&mut self, now: Instant) -> bool {
        self.count(now).2 > 0
    }
}
