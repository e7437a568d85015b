//! What the broker has sent and was not told the end of: pure, told the time, changed under one lock.
//!
//! Everything in here is unacknowledged, so the broker still has it: forgotten here, it is delivered
//! again. Handing back without a delay is therefore done in here, and keeps the place in line.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::Receipt;
use tokio::time::Instant;

use super::parcel::Parcel;

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
    /// Which hand-over is of which entry.
    out: HashMap<u64, u64>,
    /// Those that are kept in order.
    keys: HashMap<Key, BTreeSet<u64>>,
    next_place: u64,
    next_tag: u64,
}

#[derive(Debug)]
struct Entry {
    parcel: Arc<Parcel>,
    attempts: u32,
    key: Option<Key>,
    now: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Ready,
    Delayed { until: Instant },
    Out { tag: u64, until: Instant },
    Settling,
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
            keys: HashMap::new(),
            next_place: 0,
            next_tag: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Puts a message on the shelf, to be handed out now or later.
    pub(crate) fn put(&mut self, parcel: Arc<Parcel>, key: Option<Key>, until: Option<Instant>) {
        let place = self.add(parcel, key);
        self.let_wait(place, until);
    }

    /// Puts a message there that is about to be settled.
    pub(crate) fn put_settling(&mut self, parcel: Arc<Parcel>) -> u64 {
        self.add(parcel, None)
    }

    fn add(&mut self, parcel: Arc<Parcel>, key: Option<Key>) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        if let Some(key) = &key {
            self.keys.entry(key.clone()).or_default().insert(place);
        }
        let attempts = parcel.attempts;
        self.entries.insert(place, Entry { parcel, attempts, key, now: Now::Settling });
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
            if self.is_head(place) {
                places.push(place);
            }
        }
        places.into_iter().filter_map(|place| self.hand_over(place, now + window)).collect()
    }

    /// Whether no earlier one of its key is here, in whatever state.
    fn is_head(&self, place: u64) -> bool {
        let key = self.entries.get(&place).and_then(|entry| entry.key.as_ref());
        let line = key.and_then(|key| self.keys.get(key));
        line.and_then(BTreeSet::first).is_none_or(|&first| first == place)
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

    /// Begins a window anew; `false` if the receipt is not valid any more.
    pub(crate) fn extend(&mut self, receipt: &Receipt, now: Instant, window: Duration) -> bool {
        let Some(place) = self.find(receipt, now) else { return false };
        let Some(entry) = self.entries.get_mut(&place) else { return false };
        let Now::Out { tag, until } = entry.now else { return false };
        self.ends.remove(&(until, place));
        entry.now = Now::Out { tag, until: now + window };
        self.ends.insert((now + window, place));
        true
    }

    /// Takes a delivery out of its window, to be settled: from here on its receipt is not valid.
    pub(crate) fn begin_settling(&mut self, receipt: &Receipt, now: Instant) -> Option<u64> {
        let place = self.find(receipt, now)?;
        let entry = self.entries.get_mut(&place)?;
        let Now::Out { tag, until } = entry.now else { return None };
        entry.now = Now::Settling;
        self.out.remove(&tag);
        self.ends.remove(&(until, place));
        Some(place)
    }

    pub(crate) fn parcel(&self, place: u64) -> Option<&Arc<Parcel>> {
        self.entries.get(&place).map(|entry| &entry.parcel)
    }

    pub(crate) fn is_ordered(&self, place: u64) -> bool {
        self.entries.get(&place).is_some_and(|entry| entry.key.is_some())
    }

    /// Puts back what is being settled, at its old place.
    pub(crate) fn put_back(&mut self, place: u64, until: Option<Instant>, attempts: u32) {
        if let Some(entry) = self.entries.get_mut(&place) {
            entry.attempts = attempts;
        }
        self.let_wait(place, until);
    }

    /// Forgets what is settled.
    pub(crate) fn finish(&mut self, place: u64) {
        let Some(entry) = self.entries.remove(&place) else { return };
        self.leave_line(place, entry.key);
    }

    fn leave_line(&mut self, place: u64, key: Option<Key>) {
        let Some(key) = key else { return };
        let Some(line) = self.keys.get_mut(&key) else { return };
        line.remove(&place);
        if line.is_empty() {
            self.keys.remove(&key);
        }
    }

    /// Puts all messages in line anew, by what they are told to stay in order with.
    pub(crate) fn line_up(&mut self, key_of: impl Fn(&Parcel) -> Option<Key>) {
        self.keys.clear();
        for (&place, entry) in &mut self.entries {
            entry.key = key_of(&entry.parcel);
            if let Some(key) = &entry.key {
                self.keys.entry(key.clone()).or_default().insert(place);
            }
        }
    }

    /// How many are ready, delayed, and out or being settled.
    pub(crate) fn count(&mut self, now: Instant) -> (usize, usize, usize) {
        self.advance(now);
        let (ready, out) = (self.ready.len(), self.out.len());
        let delayed = self.ends.len() - out;
        (ready, delayed, self.entries.len() - ready - delayed)
    }

    /// Whether somebody still has to settle something of it.
    pub(crate) fn has_out(&mut self, now: Instant) -> bool {
        self.count(now).2 > 0
    }
}
